//! QEMU's latency histograms: set where there are none, removed at the end. What is set is written down before, so that a
//! later start removes what a killed process left.

use crate::MachineError;
use crate::state_file;
use crate::vm::Vm;
use crate::vmm::qemu::histograms::{remove, set, unset_disks};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use vmtax_observe::counters::started;

/// The kind of the files that tell which are set.
const KIND: &str = "histograms";

/// The histograms that this process has set.
#[derive(Debug)]
pub(super) struct Histograms {
    file: PathBuf,
    set: Vec<SetHistograms>,
}

/// Histograms of one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SetHistograms {
    /// PID of the VM's process.
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
        let failed = |e| MachineError::system("a folder to write down which histograms are set", e);
        Ok(Histograms {
            file: state_file::own(KIND).map_err(failed)?,
            set: Vec::new(),
        })
    }

    /// Sets histograms of a VM's disks that have none. Those that others have set are used as they are.
    ///
    /// # Errors
    /// [`MachineError`] where that cannot be written down, or the monitor does not answer.
    pub fn set(&mut self, vm: &Vm, started: u64) -> Result<(), MachineError> {
        let Some(monitor) = vm.monitor() else {
            return Ok(());
        };
        let disks = unset_disks(monitor)?;
        if disks.is_empty() {
            return Ok(());
        }
        self.set.push(SetHistograms {
            pid: vm.pid(),
            started,
            disks: disks.clone(),
        });
        let written = state_file::write(&self.file, &self.set);
        written.map_err(|e| MachineError::system(format!("writing {}", self.file.display()), e))?;
        set(monitor, &disks)
    }

    /// Forgets a VM that has ended.
    pub fn forget(&mut self, pid: i32) {
        self.set.retain(|set| set.pid != pid);
    }

    /// Removes those of the VMs that run.
    pub fn remove(&mut self, vm_of: impl Fn(i32) -> Option<Vm>) {
        for SetHistograms {
            pid,
            started: at,
            disks,
        } in self.set.drain(..)
        {
            if let Some(vm) = vm_of(pid).filter(|_| started(pid) == Some(at)) {
                let _ = vm.monitor().map(|monitor| remove(monitor, &disks));
            }
        }
        let _ = fs::remove_file(&self.file);
    }
}

/// Removes the histograms that killed processes left. Those of a living vmtax, or of others, stay.
pub fn remove_stale_histograms() {
    for file in state_file::stale(KIND) {
        let left: Vec<SetHistograms> = state_file::read(&file).unwrap_or_default();
        Histograms { file, set: left }.remove(|pid| Some(Vm::attach(pid)));
    }
}
