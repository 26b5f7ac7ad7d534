//! Journal of the changes to a VM and its host: written before each change, and used to restore the settings at the
//! end, at the next start, or by `vmtax undo`.

use super::{ChangeError, exists, is_same, may_set, places, read, write};
use crate::state_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{LiveSetting, SettingValue};
use vmtax_observe::counters::started;
use vmtax_vmm::Vm;

/// The kind of the files that tell what is changed.
const KIND: &str = "changes";

/// Changes of one VM. Those that are not kept are restored when the value is dropped.
#[derive(Debug)]
pub struct Changes {
    vm: Vm,
    path: PathBuf,
    journal: Journal,
}

/// Contents of the journal's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Journal {
    /// The recording that tells why.
    recording: PathBuf,
    /// The VM's process.
    pid: i32,
    /// When that started, clock ticks since boot.
    started: u64,
    /// Changed settings, in the order of their changes.
    entries: Vec<Entry>,
}

/// A setting that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    setting: LiveSetting,
    before: String,
    after: String,
    /// The boot of the guest in which it is, of one of its kernel.
    #[serde(default)]
    guest_boot: Option<String>,
    /// True if the change stays until `vmtax undo`.
    is_kept: bool,
}

impl Changes {
    /// None so far. `recording` is what `vmtax undo` knows them by.
    ///
    /// # Errors
    /// [`ChangeError::Journal`] where nothing can be written down.
    pub fn new(vm: Vm, recording: &Path) -> Result<Changes, ChangeError> {
        let path = state_file::own(KIND);
        let path = path.map_err(|source| ChangeError::Journal {
            path: state_file::folder(KIND)
                .unwrap_or_else(|| Path::new("$XDG_RUNTIME_DIR/vmtax").join(KIND)),
            source,
        })?;
        let recording = absolute(recording);
        let journal = Journal {
            recording,
            pid: vm.pid(),
            started: vm.start_ticks().unwrap_or(0),
            entries: Vec::new(),
        };
        Ok(Changes { vm, path, journal })
    }

    /// Sets a setting: reads what it is, writes that down, sets it, reads it back.
    ///
    /// # Errors
    /// [`ChangeError`]; of one that is refused, what it was before is restored.
    pub fn set(&mut self, wanted: &SettingValue) -> Result<(), ChangeError> {
        let SettingValue { setting, value } = wanted;
        let mut entries = self.journal.entries.iter();
        if let Some(entry) = entries.find(|entry| entry.setting == *setting) {
            return self.is_ours(setting, &entry.after);
        }
        may_set(&self.vm, wanted)?;
        let before = match (read(&self.vm, setting)?, setting) {
            (Some(now), _) => now,
            (None, LiveSetting::Qcow2Cache { started_with, .. }) => started_with.to_string(),
            (None, _) => return Err(ChangeError::refused(setting, "what it is cannot be read")),
        };
        let guest_boot = match setting {
            LiveSetting::GuestFile { .. } => {
                let boot = places::guest_boot(&self.vm);
                Some(boot.map_err(|why| ChangeError::refused(setting, why))?)
            }
            _ => None,
        };
        self.journal.entries.push(Entry {
            setting: setting.clone(),
            before,
            after: value.clone(),
            guest_boot,
            is_kept: false,
        });
        self.write_down()?;
        write(&self.vm, setting, value).inspect_err(|_| {
            // What it reads now is no value of somebody else's: what was before is set whatever it is.
            let entry = self.journal.entries.last().cloned();
            let is_restored =
                entry.is_some_and(|entry| write(&self.vm, &entry.setting, &entry.before).is_ok());
            if is_restored {
                self.journal.entries.pop();
                let _ = self.write_down();
            }
        })
    }

    /// Restores a setting; one that is not changed stays. What cannot be restored stays written down, for `vmtax undo`.
    ///
    /// # Errors
    /// [`ChangeError`] where that fails, or somebody else set it meanwhile.
    pub fn restore(&mut self, setting: &LiveSetting) -> Result<(), ChangeError> {
        let mut entries = self.journal.entries.iter();
        let Some(at) = entries.position(|entry| entry.setting == *setting) else {
            return Ok(());
        };
        let is_gone = started(self.journal.pid) != Some(self.journal.started);
        let done = undo_entry(&self.vm, &self.journal.entries[at], is_gone);
        if !matches!(done, Err(ChangeError::Refused { .. })) {
            self.journal.entries.remove(at);
            self.write_down()?;
        }
        done.map(drop)
    }

    /// Restores all that is not kept; what that failed of.
    pub fn restore_all(&mut self) -> Vec<ChangeError> {
        let left: Vec<LiveSetting> = self
            .journal
            .entries
            .iter()
            .filter(|entry| !entry.is_kept)
            .rev()
            .map(|entry| entry.setting.clone())
            .collect();
        left.iter()
            .filter_map(|setting| self.restore(setting).err())
            .collect()
    }

    /// Lets settings stay until `vmtax undo`, if they are still what they were set to.
    ///
    /// # Errors
    /// [`ChangeError`] where somebody else changed one, or that cannot be written down; none is kept then.
    pub fn keep(&mut self) -> Result<(), ChangeError> {
        self.journal
            .entries
            .iter()
            .try_for_each(|entry| self.is_ours(&entry.setting, &entry.after))?;
        let mut kept = self.journal.clone();
        kept.entries
            .iter_mut()
            .for_each(|entry| entry.is_kept = true);
        kept.write(&self.path)?;
        self.journal = kept;
        Ok(())
    }

    /// Fails where somebody else set it meanwhile.
    fn is_ours(&self, setting: &LiveSetting, expected: &str) -> Result<(), ChangeError> {
        match read(&self.vm, setting)? {
            Some(now) if !is_same(&now, expected) => Err(ChangeError::Theirs {
                setting: setting.label(),
                expected: expected.to_owned(),
                now,
            }),
            _ => Ok(()),
        }
    }

    fn write_down(&self) -> Result<(), ChangeError> {
        self.journal.write(&self.path)
    }
}

impl Journal {
    /// The file; none where nothing is changed.
    fn write(&self, path: &Path) -> Result<(), ChangeError> {
        let done = match self.entries.is_empty() {
            true if path.exists() => fs::remove_file(path),
            true => Ok(()),
            false => state_file::write(path, self),
        };
        done.map_err(|source| ChangeError::Journal {
            path: path.to_path_buf(),
            source,
        })
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // What fails stays written down.
        self.restore_all();
    }
}

/// A recording, however it was named.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// A setting that was restored, or not.
#[derive(Debug)]
pub struct Undone {
    /// The setting, as people write it.
    pub setting: String,
    /// Value before the change, to which the setting is restored; empty where the journal cannot be read.
    pub value: String,
    /// True if the setting ended with its VM, its guest's boot, a thread or a group: nothing had to be restored.
    pub has_ended: bool,
    /// Why it is not.
    pub error: Option<ChangeError>,
}

/// Restores what ended processes changed, also what is kept: of one recording, else of all. What failed stays written down.
pub fn undo(recording: Option<&Path>) -> Vec<Undone> {
    let recording = recording.map(absolute);
    undo_where(|journal, _| {
        recording
            .as_ref()
            .is_none_or(|recording| journal.recording == *recording)
    })
}

/// Restores what killed processes were trying.
pub fn undo_interrupted() -> Vec<Undone> {
    undo_where(|_, entry| !entry.is_kept)
}

fn undo_where(is_meant: impl Fn(&Journal, &Entry) -> bool) -> Vec<Undone> {
    let mut all = Vec::new();
    for path in state_file::stale(KIND) {
        let Some(mut journal) = state_file::read::<Journal>(&path) else {
            let why = "it cannot be read: another version of vmtax wrote it, and can undo it";
            let setting = path.display().to_string();
            all.push(Undone {
                setting: setting.clone(),
                value: String::new(),
                has_ended: false,
                error: Some(ChangeError::Refused {
                    setting,
                    why: why.to_owned(),
                }),
            });
            continue;
        };
        let vm = Vm::attach(journal.pid);
        let is_gone = started(journal.pid) != Some(journal.started);
        let mut left = Vec::new();
        for entry in std::mem::take(&mut journal.entries).into_iter().rev() {
            if !is_meant(&journal, &entry) {
                left.push(entry);
                continue;
            }
            let done = undo_entry(&vm, &entry, is_gone);
            let (setting, value) = (entry.setting.label(), entry.before.clone());
            if matches!(done, Err(ChangeError::Refused { .. })) {
                left.push(entry);
            }
            all.push(Undone {
                setting,
                value,
                has_ended: matches!(done, Ok(Restored::Ended)),
                error: done.err(),
            });
        }
        left.reverse();
        journal.entries = left;
        // What cannot be written is tried again.
        let _ = journal.write(&path);
    }
    all
}

/// Outcome of restoring a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restored {
    /// It is what it was.
    Yes,
    /// It ended with the VM, with a boot of its guest, or with a thread or control group of it.
    Ended,
}

/// Restores a setting, unless somebody else set it meanwhile, or it has ended.
fn undo_entry(vm: &Vm, entry: &Entry, is_gone: bool) -> Result<Restored, ChangeError> {
    if is_gone && entry.setting.is_of_process() || !exists(vm, &entry.setting) {
        return Ok(Restored::Ended);
    }
    if let Some(boot) = &entry.guest_boot {
        let now =
            places::guest_boot(vm).map_err(|why| ChangeError::refused(&entry.setting, why))?;
        if now != *boot {
            return Ok(Restored::Ended);
        }
    }
    match read(vm, &entry.setting)? {
        Some(now) if is_same(&now, &entry.before) => Ok(Restored::Yes),
        Some(now) if !is_same(&now, &entry.after) => Err(ChangeError::Theirs {
            setting: entry.setting.label(),
            expected: entry.after.clone(),
            now,
        }),
        _ => write(vm, &entry.setting, &entry.before).map(|()| Restored::Yes),
    }
}
