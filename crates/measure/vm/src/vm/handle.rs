//! One handle for a guest of the lab and for one that runs already.

use super::open_files::{OpenFile, open_files};
use crate::MachineError;
use crate::qemu::arguments::Arguments;
use crate::qemu::monitor::Monitor;
use crate::qemu::{self, attach, threads};
use std::path::PathBuf;
use vmtax_model::{Accelerator, QemuThread, Role, RoleSource, Vmm};
use vmtax_observe::ProbePoint;

/// A process that runs a guest, whoever started it; or any other process, of which less can be observed. Copies share its
/// monitor.
#[derive(Debug, Clone)]
pub struct Vm {
    pid: i32,
    vmm: Option<Vmm>,
    monitor: Result<Monitor, String>,
    pub(super) has_agent: bool,
}

impl Vm {
    /// The one behind a guest of the lab.
    pub(crate) fn started(monitor: Monitor, has_agent: bool) -> Result<Vm, MachineError> {
        Ok(Vm { pid: monitor.pid()?, vmm: Some(Vmm::Qemu), monitor: Ok(monitor), has_agent })
    }

    /// One that runs already. Nothing of it is changed; its monitor is held as long as the value is.
    pub fn attach(pid: i32) -> Vm {
        let monitor = attach::monitor(pid).map_err(|e| e.to_string());
        // sudo, timeout and their like have the command line of the QEMU that they start.
        let monitor = monitor.and_then(|monitor| match threads::belongs_to(&monitor, pid) {
            true => Ok(monitor),
            false => Err("the monitor that its command line names is another process's".to_owned()),
        });
        let vmm = (monitor.is_ok() || qemu::binary::runs_qemu(pid)).then_some(Vmm::Qemu);
        Vm { pid, vmm, monitor, has_agent: false }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The VMM; `None` for a process that is none.
    pub fn vmm(&self) -> Option<Vmm> {
        self.vmm
    }

    /// Its monitor, where there is one that answers.
    pub fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref().ok()
    }

    /// Why there is no monitor.
    pub(super) fn no_monitor(&self) -> Option<&str> {
        self.monitor.as_ref().err().map(String::as_str)
    }

    /// What to do about a monitor that is not there.
    pub fn monitor_advice(&self) -> String {
        attach::advice(&self.arguments()).to_owned()
    }

    /// The program that runs: what was named may be a script or a loader around it. `None` where it may not be seen.
    pub fn binary(&self) -> Option<PathBuf> {
        qemu::binary::binary(self.pid)
    }

    /// The program's name, as its file has it: longer than the 15 bytes that the kernel keeps.
    pub fn program(&self) -> String {
        Vm::program_of(self.pid)
    }

    /// The name of a process's program.
    pub fn program_of(pid: i32) -> String {
        let binary = qemu::binary::binary(pid).unwrap_or_default();
        let name = binary.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(" (deleted)");
        if name.is_empty() { "process".to_owned() } else { name.to_owned() }
    }

    /// What executes the guest's instructions; `None` where nothing says so.
    pub fn accelerator(&self) -> Option<Accelerator> {
        let of = |is_kvm| if is_kvm { Accelerator::Kvm } else { Accelerator::Tcg };
        let told = self.monitor().and_then(|monitor| monitor.is_kvm().ok());
        let shown = || self.files().map(|files| files.iter().any(|file| file.vcpu().is_some()));
        self.vmm.and_then(|_| told.or_else(shown).map(of))
    }

    /// Its threads with their roles, by number.
    pub fn threads(&self) -> Vec<QemuThread> {
        self.roles().1
    }

    /// The threads that run the guest's vCPUs.
    pub fn vcpus(&self) -> Vec<i32> {
        self.threads().iter().filter(|thread| matches!(thread.role, Role::Vcpu(_))).map(|thread| thread.tid).collect()
    }

    /// Its threads with their roles, and where these are known from.
    pub(super) fn roles(&self) -> (RoleSource, Vec<QemuThread>) {
        match self.vmm {
            Some(Vmm::Qemu) => {
                threads::roles(self.pid, self.monitor(), || self.files().unwrap_or_default(), &self.arguments())
            }
            None => (RoleSource::Names, threads::without_roles(self.pid)),
        }
    }

    /// Where a block request passes in its binary.
    pub fn probe_points(&self) -> &'static [ProbePoint] {
        match self.vmm {
            Some(Vmm::Qemu) => qemu::PROBE_POINTS,
            None => &[],
        }
    }

    /// Ends it: for a guest of the lab whose agent does not.
    pub(crate) fn quit(&self) {
        let _ = self.monitor().map(|monitor| monitor.execute("quit"));
    }

    /// Its open files; `None` where they may not be seen.
    pub(super) fn files(&self) -> Option<Vec<OpenFile>> {
        open_files(self.pid).ok()
    }

    pub(super) fn arguments(&self) -> Arguments {
        Arguments::of(self.pid)
    }
}
