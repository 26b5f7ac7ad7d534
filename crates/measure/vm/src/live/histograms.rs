//! QEMU's latency histograms: set where there are none, removed at the end. What is set is written down before, so that a
//! later start removes what a killed process left.

use crate::MachineError;
use crate::vm::Vm;
use crate::vmm::qemu::histograms::{remove, set, unset_disks};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use vmtax_observe::counters::started;

/// The histograms that this process has set.
#[derive(Debug)]
pub(super) struct Histograms {
    ledger: PathBuf,
    set: Vec<SetHistograms>,
}

/// Histograms of one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SetHistograms {
    /// Its process.
    pid: i32,
    /// When that started, clock ticks since boot.
    started: u64,
    /// The disks' devices, as QEMU names them.
    disks: Vec<String>,
}

impl Histograms {
    /// None so far.
    ///
    /// # Errors
    /// [`MachineError::System`] where nothing can be written down, so nothing may be set.
    pub fn new() -> Result<Histograms, MachineError> {
        let why = || std::io::Error::other("XDG_RUNTIME_DIR is not set: run vmtax as root, or with --level 0");
        let folder = folder().ok_or_else(why).and_then(|folder| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            Ok(folder)
        });
        let own = std::process::id() as i32;
        let name = format!("{own}-{}", started(own).unwrap_or(0));
        let failed = |e| MachineError::system("a folder to write down which histograms are set", e);
        Ok(Histograms { ledger: folder.map_err(failed)?.join(name), set: Vec::new() })
    }

    /// Sets histograms of a VM's disks that have none. Those that others have set are used as they are.
    ///
    /// # Errors
    /// [`MachineError`] where that cannot be written down, or the monitor does not answer.
    pub fn set(&mut self, vm: &Vm, started: u64) -> Result<(), MachineError> {
        let Some(monitor) = vm.monitor() else { return Ok(()) };
        let disks = unset_disks(monitor)?;
        if disks.is_empty() {
            return Ok(());
        }
        self.set.push(SetHistograms { pid: vm.pid(), started, disks: disks.clone() });
        let written = write(&self.ledger, &self.set);
        written.map_err(|e| MachineError::system(format!("writing {}", self.ledger.display()), e))?;
        set(monitor, &disks)
    }

    /// Forgets a VM that has ended.
    pub fn forget(&mut self, pid: i32) {
        self.set.retain(|set| set.pid != pid);
    }

    /// Removes those of the VMs that run.
    pub fn remove(&mut self, vm_of: impl Fn(i32) -> Option<Vm>) {
        for SetHistograms { pid, started: at, disks } in self.set.drain(..) {
            if let Some(vm) = vm_of(pid).filter(|_| started(pid) == Some(at)) {
                let _ = vm.monitor().map(|monitor| remove(monitor, &disks));
            }
        }
        let _ = fs::remove_file(&self.ledger);
    }
}

/// Removes the histograms that killed processes left. Those of a living vmtax, or of others, stay.
pub fn remove_stale_histograms() {
    let files = folder().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    for file in files.map(|entry| entry.path()).filter(|path| is_stale(path)) {
        let left: Vec<SetHistograms> =
            fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Histograms { ledger: file, set: left }.remove(|pid| Some(Vm::attach(pid)));
    }
}

/// Whether the process that wrote a file has ended.
fn is_stale(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    let writer =
        name.and_then(|name| name.split_once('-')).and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?)));
    writer.is_some_and(|(pid, at): (i32, u64)| started(pid) != Some(at))
}

/// Where this user's processes write that down; it is gone after a restart of the host, as the VMs are.
fn folder() -> Option<PathBuf> {
    let base = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?)
    };
    Some(base.join("vmtax/histograms"))
}

/// The whole file or none, on the disk before anything is set.
fn write(path: &Path, set: &[SetHistograms]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(&serde_json::to_vec(set)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ended_processes_are_stale() {
        let own = std::process::id() as i32;
        let at = started(own).unwrap();
        assert!(!is_stale(Path::new(&format!("/x/{own}-{at}"))));
        assert!(is_stale(Path::new(&format!("/x/{own}-{}", at + 1))), "another process with its PID");
        assert!(is_stale(Path::new(&format!("/x/{}-5", i32::MAX))));
        assert!(!is_stale(Path::new("/x/notes")) && !is_stale(Path::new("/x/a-b")));
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-2");
        let set = [SetHistograms { pid: 3, started: 4, disks: vec!["/machine/peripheral/vd0".to_owned()] }];
        write(&path, &set).unwrap();
        let read: Vec<SetHistograms> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(read, set);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
