//! Pins a guest's threads to host CPUs in comparisons, if there are enough CPUs: less scheduling noise.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use vmtax_model::{QemuThread, Role, Warning};

/// CPUs that are left for the other threads of QEMU and for the host.
const SPARE: usize = 2;

/// Gives each vCPU thread a CPU of the host's, and each iothread where there are more; all else of QEMU has the rest, of
/// which [`SPARE`] are left. A warning where there are too few.
pub(crate) fn pin(threads: &[QemuThread]) -> Option<Warning> {
    pin_leaving(threads, SPARE)
}

fn pin_leaving(threads: &[QemuThread], spare: usize) -> Option<Warning> {
    let allowed = sched_getaffinity(None).ok()?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let room = own.len().saturating_sub(spare);
    // Those that wait for a disk after those that run the guest.
    let rank = |thread: &&QemuThread| match thread.role {
        Role::Vcpu(_) => 0,
        Role::Iothread(_) => 1,
        _ => 2,
    };
    let mut all: Vec<&QemuThread> = threads.iter().collect();
    all.sort_by_key(rank);
    let [vcpus, important] = [1, 2].map(|below| all.iter().filter(|thread| rank(thread) < below).count());
    if vcpus > room {
        return Some(Warning::NotPinned { cpus: vcpus as u32, online: own.len() as u32 });
    }
    let (rest, given) = own.split_at(own.len() - important.min(room));
    for (i, thread) in all.iter().enumerate() {
        let cpus = given.get(i).map_or(rest, std::slice::from_ref);
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        // A thread may have ended by now.
        let _ = sched_setaffinity(Pid::from_raw(thread.tid), &set);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn each_vcpu_has_its_own_cpu_if_there_are_enough() {
        let online = std::thread::available_parallelism().unwrap().get();
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let tid = i32::try_from(child.id()).unwrap();
        let vcpu = || QemuThread { tid, role: Role::Vcpu(0) };
        let pinned = pin_leaving(&[vcpu()], 1);
        let has = sched_getaffinity(Pid::from_raw(tid)).unwrap().count();
        let many = pin(&vec![vcpu(); online]);
        child.kill().unwrap();
        child.wait().unwrap();
        if online > 1 {
            assert_eq!((pinned, has), (None, 1));
        }
        assert_eq!(many, Some(Warning::NotPinned { cpus: online as u32, online: online as u32 }));
    }
}
