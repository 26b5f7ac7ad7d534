//! Processors of the host for a guest's threads: of comparisons, where there are enough, so that the scheduler's moods are no noise.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;
use vmtax_model::Warning;
use vmtax_vm::QemuOutside;

/// How QEMU calls the threads of its iothread objects.
const IOTHREAD: &str = "IO ";

/// Left for the rest of QEMU and for the host: on fewer a thread that may not move waits for its neighbours.
const SPARE: usize = 2;

/// Gives each of the guest's processors one of the host's, and each iothread where there are more; all else of QEMU has the
/// rest, of which [`SPARE`] are left. A warning where there are too few.
pub(crate) fn pin(qemu: &QemuOutside) -> Option<Warning> {
    pin_leaving(qemu, SPARE)
}

fn pin_leaving(qemu: &QemuOutside, spare: usize) -> Option<Warning> {
    let allowed = sched_getaffinity(None).ok()?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut all = threads(qemu.pid);
    // Those that wait for a disk after those that run the guest.
    all.sort_by_key(|(thread, name)| (!qemu.vcpus.contains(thread), !name.starts_with(IOTHREAD)));
    let important = |(thread, name): &(i32, String)| qemu.vcpus.contains(thread) || name.starts_with(IOTHREAD);
    let room = own.len().saturating_sub(spare);
    if qemu.vcpus.len() > room {
        return Some(Warning::NotPinned { cpus: qemu.vcpus.len() as u32, online: own.len() as u32 });
    }
    let alone = all.iter().filter(|t| important(t)).count().min(room);
    let (rest, given) = own.split_at(own.len() - alone);
    for (i, (thread, _)) in all.iter().enumerate() {
        let cpus = given.get(i).map_or(rest, std::slice::from_ref);
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        // A thread may have ended by now.
        let _ = sched_setaffinity(Pid::from_raw(*thread), &set);
    }
    None
}

/// A process's threads, with their names.
fn threads(pid: i32) -> Vec<(i32, String)> {
    let folder = format!("/proc/{pid}/task");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let thread = |entry: fs::DirEntry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
    };
    entries.filter_map(thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn each_processor_has_its_own_where_there_are_enough() {
        let online = std::thread::available_parallelism().unwrap().get();
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pinned = pin_leaving(&QemuOutside { pid, vcpus: vec![pid], regions: Vec::new() }, 1);
        let has = sched_getaffinity(Pid::from_raw(pid)).unwrap().count();
        let many = pin(&QemuOutside { pid, vcpus: vec![pid; online], regions: Vec::new() });
        child.kill().unwrap();
        child.wait().unwrap();
        if online > 1 {
            assert_eq!((pinned, has), (None, 1));
        }
        assert_eq!(many, Some(Warning::NotPinned { cpus: online as u32, online: online as u32 }));
    }
}
