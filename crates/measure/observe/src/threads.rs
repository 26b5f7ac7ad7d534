//! QEMU's threads, and what KVM knows of its clock.

use crate::ProbeError;
use std::fs;
use std::io;
use std::path::Path;
use vmtax_model::{QemuThread, Role};

/// The threads of a QEMU process with their roles, by number. They are told apart by their names, so QEMU has to be
/// started with `-name guest,debug-threads=on`; without it all but the main one pass for workers. Empty when there is no
/// such process.
pub fn threads(process: i32) -> Vec<QemuThread> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<QemuThread> = tasks
        .filter_map(|task| {
            let tid = task.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let role = if tid == process { Role::Main } else { role(name.trim_end()) };
            Some(QemuThread { tid, role })
        })
        .collect();
    threads.sort_unstable_by_key(|thread| thread.tid);
    threads
}

/// Names of a process's threads, by number.
pub(crate) fn thread_names(process: i32) -> Vec<(i32, String)> {
    let name = |tid: i32| {
        let name = fs::read_to_string(format!("/proc/{process}/task/{tid}/comm")).ok()?;
        Some((tid, name.trim_end().to_owned()))
    };
    threads(process).iter().filter_map(|thread| name(thread.tid)).collect()
}

/// Whether a process may be observed.
///
/// # Errors
/// [`ProbeError::NoProcess`], [`ProbeError::NotOurs`].
pub fn may_observe(process: i32) -> Result<(), ProbeError> {
    match fs::File::open(format!("/proc/{process}/maps")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(ProbeError::NoProcess { pid: process }),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(ProbeError::NotOurs { pid: process }),
        _ => Ok(()),
    }
}

/// Whether the process ended; a zombie did.
pub(crate) fn is_gone(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // "123 (name with ) in it) Z ..."
    status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// QEMU's names: `CPU 0/KVM`, `CPU 0/TCG`, `ALL CPUs/TCG` for one thread that runs them all, `IO NAME` (cut off at 15
/// bytes by the kernel).
fn role(name: &str) -> Role {
    if let Some(iothread) = name.strip_prefix("IO ") {
        return Role::Iothread(iothread.to_owned());
    }
    if name.starts_with("ALL CPUs") {
        return Role::Vcpu(0);
    }
    let number = name.strip_prefix("CPU ").and_then(|rest| rest.split_once('/')).and_then(|(n, _)| n.parse().ok());
    number.map_or(Role::Worker, Role::Vcpu)
}

/// Host ticks minus guest ticks for a guest of KVM, exact: the negative of the offset that KVM adds to the host's counter
/// (`tsc-offset` in debugfs).
///
/// `None` when debugfs is not there or not for us, when the guest's counter is scaled or differs between its processors,
/// and on a KVM that does not apply the offset to all of the guest's code (PVM, whose guests read the host's counter in
/// user mode).
pub fn kvm_offset(process: i32) -> Option<i64> {
    if Path::new("/sys/module/kvm_pvm").exists() {
        return None;
    }
    offset_in(Path::new("/sys/kernel/debug/kvm"), process)
}

fn offset_in(debugfs: &Path, process: i32) -> Option<i64> {
    let read = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    let prefix = format!("{process}-");
    let machine =
        fs::read_dir(debugfs).ok()?.flatten().find(|e| e.file_name().to_string_lossy().starts_with(&prefix))?;
    let mut offset = None;
    for entry in fs::read_dir(machine.path()).ok()?.flatten() {
        let vcpu = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("vcpu") {
            continue;
        }
        let of_vcpu = read(&vcpu.join("tsc-offset"))?;
        // One to one is a ratio of 2 to the number of its fraction's bits; the files are there only where KVM can scale.
        let bits = read(&vcpu.join("tsc-scaling-ratio-frac-bits"));
        let scaled = read(&vcpu.join("tsc-scaling-ratio")).zip(bits).is_some_and(|(r, b)| b > 0 && r != 1 << b.min(62));
        if scaled || offset.is_some_and(|other| other != of_vcpu) {
            return None;
        }
        offset = Some(of_vcpu);
    }
    offset?.checked_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_roles() {
        assert_eq!(role("CPU 0/TCG"), Role::Vcpu(0));
        assert_eq!(role("CPU 12/KVM"), Role::Vcpu(12));
        assert_eq!(role("ALL CPUs/TCG"), Role::Vcpu(0));
        assert_eq!(role("IO io0"), Role::Iothread("io0".into()));
        for other in ["worker", "call_rcu", "CPU x/KVM", "CPU 1", ""] {
            assert_eq!(role(other), Role::Worker, "{other}");
        }
    }

    #[test]
    fn our_own_threads_are_listed() {
        let ours = std::process::id() as i32;
        let (named, wait) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let body = move || {
            named.send(()).unwrap();
            let _ = ended.recv();
        };
        let thread = std::thread::Builder::new().name("CPU 3/TCG".into()).spawn(body).unwrap();
        wait.recv().unwrap();
        let found = threads(ours);
        drop(end);
        thread.join().unwrap();
        assert!(found.iter().any(|t| t.tid == ours && t.role == Role::Main), "{found:?}");
        assert!(found.iter().any(|t| t.role == Role::Vcpu(3)), "{found:?}");
        assert!(threads(i32::MAX).is_empty());
    }

    #[test]
    fn the_offset_is_exact_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(offset_in(folder.path(), 7), None);
        put("77-9/vcpu0/tsc-offset", "5\n");
        put("7-9/vcpu0/tsc-offset", "-1234\n");
        put("7-9/vcpu0/tsc-scaling-ratio", "4294967296\n");
        put("7-9/vcpu0/tsc-scaling-ratio-frac-bits", "32\n");
        assert_eq!(offset_in(folder.path(), 7), Some(1234));
        put("7-9/vcpu1/tsc-offset", "-1234\n");
        assert_eq!(offset_in(folder.path(), 7), Some(1234));
        put("7-9/vcpu1/tsc-offset", "-1235\n");
        assert_eq!(offset_in(folder.path(), 7), None);
        put("7-9/vcpu1/tsc-offset", "-1234\n");
        put("7-9/vcpu1/tsc-scaling-ratio", "4294967297\n");
        put("7-9/vcpu1/tsc-scaling-ratio-frac-bits", "32\n");
        assert_eq!(offset_in(folder.path(), 7), None);
    }
}
