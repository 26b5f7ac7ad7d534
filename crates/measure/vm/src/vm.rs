//! A virtual machine as it is observed: one of the lab, or one that runs already.

use crate::{MachineError, QemuMonitor, RunningMachine};
use std::fs;
use std::path::{Path, PathBuf};

/// A process that runs a guest: a QEMU, whoever started it, or any other process, of which less can be observed.
#[derive(Debug)]
pub struct Vm {
    pid: i32,
    monitor: Result<QemuMonitor, String>,
}

impl Vm {
    /// The one behind a machine of the lab; `None` where the machine is the host itself.
    ///
    /// # Errors
    /// [`MachineError`] when its monitor does not answer.
    pub fn of_guest(machine: &mut dyn RunningMachine) -> Result<Option<Vm>, MachineError> {
        let Some(pid) = machine.qemu()?.map(|qemu| qemu.pid) else { return Ok(None) };
        let monitor = machine.monitor().ok_or_else(|| "it has none".to_owned());
        Ok(Some(Vm { pid, monitor }))
    }

    /// One that runs already. Nothing of it is changed; its monitor is held as long as the value is.
    pub fn attach(pid: i32) -> Vm {
        Vm { pid, monitor: QemuMonitor::of(pid).map_err(|e| e.to_string()) }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its QMP monitor, where there is one that answers.
    pub fn monitor(&self) -> Option<&QemuMonitor> {
        self.monitor.as_ref().ok()
    }

    /// What to do about a monitor that is not there.
    pub fn monitor_advice(&self) -> String {
        QemuMonitor::advice(self.pid)
    }

    /// The program that runs, as what was named may be a script around it. Through a loader of its own, which then is what
    /// the process runs, QEMU is one of the files that it maps.
    pub fn binary(&self) -> Option<PathBuf> {
        Vm::binary_of(self.pid)
    }

    /// The same, of a process.
    pub fn binary_of(pid: i32) -> Option<PathBuf> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        mapped_qemu(&maps).or_else(|| fs::read_link(format!("/proc/{pid}/exe")).ok())
    }

    /// The program's name, as its file has it: longer than the 15 bytes that the kernel keeps.
    pub fn program(&self) -> String {
        Vm::program_of(self.pid)
    }

    /// The same, of a process.
    pub fn program_of(pid: i32) -> String {
        let binary = Vm::binary_of(pid).unwrap_or_default();
        let name = binary.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(" (deleted)");
        if name.is_empty() { "process".to_owned() } else { name.to_owned() }
    }
}

/// The first file in a process's maps whose name begins as QEMU's.
fn mapped_qemu(maps: &str) -> Option<PathBuf> {
    // Five columns, then the path, which may have blanks.
    let paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_qemu =
        |path: &&Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"qemu-system"));
    paths.filter(is_qemu).map(Path::to_path_buf).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_is_found_behind_its_loader() {
        let maps = "7f00-7f01 r--p 00000000 fe:00 12 /c/root/libc/ld-linux-x86-64.so.2\n\
                    7f02-7f03 rw-p 00000000 00:00 0 \n\
                    7f04-7f05 r-xp 00000000 fe:00 13 /c c/root/bin/qemu-system-x86_64\n";
        assert_eq!(mapped_qemu(maps), Some(PathBuf::from("/c c/root/bin/qemu-system-x86_64")));
        assert_eq!(mapped_qemu("7f00-7f01 r--p 00000000 fe:00 12 /usr/bin/other\n"), None);
        let own = Vm::binary_of(std::process::id() as i32).unwrap();
        assert_eq!(own, std::env::current_exe().unwrap());
    }
}
