//! The file of `vmtax agent observe`, added to the recording of its VM. Its guest is not trusted.

use crate::error::ImportError;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vmtax_model::{Accelerator, DeviceClass, ObservedGuest, Study, VmStudy, VmTrace, files};
use vmtax_recording::{Recording, TrialFiles};
use vmtax_wire::{Decoder, Frame, MAX_PIECE, WireError};

/// More no guest writes, bytes.
const MAX_BYTES: u64 = 1 << 30;

/// A guest's trace that was added to a recording; dropped without [`AddedGuest::keep`], it is removed again.
#[derive(Debug)]
pub struct AddedGuest {
    folder: PathBuf,
    is_kept: bool,
}

impl AddedGuest {
    /// Adds a file to the recording of a running VM.
    ///
    /// # Errors
    /// [`ImportError`] for another file, a recording of something else, one that has a guest's trace, or where it cannot be
    /// written.
    pub fn add(recording: &Recording, path: &Path) -> Result<AddedGuest, ImportError> {
        let refused = |reason| ImportError::NotOfVm {
            folder: recording.folder.clone(),
            reason,
        };
        let Study::Vm(VmStudy::VmLayers, vm) = &recording.plan.study else {
            return Err(refused(
                "a guest's trace is matched with that of its host: name a recording of `vmtax layers --vm`",
            ));
        };
        if vm.device == DeviceClass::Net {
            return Err(refused(
                "a guest's trace has its block requests, and this recording packets: leave --device net out",
            ));
        }
        let folder = recording.trial_folder(0);
        if folder.join(files::GUEST_FACTS).exists() {
            return Err(refused(
                "it has a guest's trace: `vmtax report` without --guest-trace shows it",
            ));
        }
        // The facts come last: without them it was not added.
        remove(&folder);
        let added = AddedGuest {
            folder,
            is_kept: false,
        };
        let file = File::open(path)
            .map_err(|e| wrong(path, format!("{e}: name the file of `vmtax agent observe`")))?;
        let mut trial = recording.trial_files(0);
        let mut guest = read_guest_file(path, file.take(MAX_BYTES), &mut trial)?;
        let host: VmTrace = recording.artifact(0, files::VM_TRACE)?;
        // KVM's events of the doorbells show the same kicks.
        let shows_kicks = host.vm.accelerator == Some(Accelerator::Kvm)
            && host.disks.iter().any(|disk| !disk.notify.is_empty());
        guest
            .missing
            .retain(|missing| !shows_kicks || missing.what != vmtax_observe::VIRTQUEUE_KICKS);
        trial.store(files::GUEST_FACTS, &guest)?;
        Ok(added)
    }

    /// Leaves it there.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for AddedGuest {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&self.folder);
        }
    }
}

fn remove(trial: &Path) {
    let _ = fs::remove_file(trial.join(files::GUEST_FACTS));
    let _ = fs::remove_dir_all(trial.join(files::GUEST));
}

/// Writes the pieces of a guest's file, read from `path`, into a trial; gives the facts at its end.
///
/// # Errors
/// [`ImportError::GuestFile`] for a file that is not whole or holds anything else.
pub fn read_guest_file(
    path: &Path,
    mut file: impl Read,
    trial: &mut TrialFiles,
) -> Result<ObservedGuest, ImportError> {
    let (mut decoder, mut piece) = (Decoder::new(), vec![0; MAX_PIECE]);
    let mut has_pieces = false;
    loop {
        let length = match file.read(&mut piece) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|e| wrong(path, format!("failed to read it: {e}")))?,
        };
        decoder.push(&piece[..length]);
        while let Some(frame) = decoder.frame::<ObservedGuest>() {
            match frame.map_err(|e| damaged(path, &e))? {
                Frame::Piece { name, bytes } => {
                    has_pieces = true;
                    trial.append(&format!("{}/{name}", files::GUEST), &bytes)?;
                }
                Frame::Message(guest) => {
                    return match guest.check() {
                        Ok(()) => Ok(guest),
                        Err(reason) => {
                            Err(wrong(path, format!("it {reason}: trace the guest again")))
                        }
                    };
                }
            }
        }
        if length == 0 {
            let reason = match has_pieces {
                true => "the trace is cut off: copy the file once `vmtax agent observe` has ended",
                false => "this is no trace of a guest: name the file of `vmtax agent observe`",
            };
            return Err(wrong(path, reason.to_owned()));
        }
    }
}

fn damaged(path: &Path, error: &WireError) -> ImportError {
    let reason = match error {
        WireError::Version(_) => {
            "it is of another version of vmtax: copy this vmtax into the guest".to_owned()
        }
        other => format!("it is damaged ({other}): copy it again"),
    };
    wrong(path, reason)
}

fn wrong(path: &Path, reason: String) -> ImportError {
    ImportError::GuestFile {
        path: path.to_owned(),
        reason,
    }
}
