//! The CPUs on which a thread of a VM, or of a program that serves it, may run.

use crate::vm::Vm;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::path::Path;
use vmtax_model::{PinnedThread, cpu_list};
use vmtax_observe::counters::cpuset;

/// As a list: `0-3,8`.
pub(super) fn affinity(vm: &Vm, tid: i32) -> Result<String, String> {
    let set = sched_getaffinity(Some(own(vm, tid)?)).map_err(|e| e.to_string())?;
    Ok(list(&set))
}

/// Of such a list.
pub(super) fn set_affinity(vm: &Vm, tid: i32, cpus: &str) -> Result<(), String> {
    let mut set = CpuSet::new();
    let all = cpu_list::parse(cpus).filter(|all| all.iter().all(|cpu| *cpu < CpuSet::MAX_CPU));
    for cpu in all.ok_or_else(|| format!("\"{cpus}\" is no list of CPUs"))? {
        set.set(cpu);
    }
    sched_setaffinity(Some(own(vm, tid)?), &set).map_err(|e| format!("CPUs {cpus}: {e}"))
}

/// The host's CPUs on which a VM may run, as a list, and those of these threads that may not run on all of them: those that are online
/// and in its cpuset, without those that are isolated (`isolcpus`).
pub(crate) fn pinned(pid: i32, threads: impl Iterator<Item = i32>) -> (String, Vec<PinnedThread>) {
    let cpus_in_file = |file: &str| {
        let text =
            std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default();
        cpu_list::parse(&text)
            .unwrap_or_default()
            .into_iter()
            .collect::<BTreeSet<usize>>()
    };
    let cpuset = cpuset(pid)
        .and_then(|list| cpu_list::parse(&list))
        .map(|cpus| cpus.into_iter().collect::<BTreeSet<usize>>());
    let (online, isolated) = (cpus_in_file("online"), cpus_in_file("isolated"));
    let is_usable = |cpu: &usize| {
        !isolated.contains(cpu) && cpuset.as_ref().is_none_or(|set| set.contains(cpu))
    };
    let all: BTreeSet<usize> = online.into_iter().filter(is_usable).collect();
    let pinned = |tid: i32| {
        let set = sched_getaffinity(Some(Pid::from_raw(tid)?)).ok()?;
        let is_pinned = all.iter().any(|cpu| !set.is_set(*cpu));
        is_pinned.then(|| PinnedThread {
            tid,
            cpus: list(&set),
        })
    };
    let pinned = threads.filter_map(pinned).collect();
    (cpu_list::format(all.iter().copied()), pinned)
}

/// Returns true if the VM's process has the thread.
pub(super) fn exists(vm: &Vm, tid: i32) -> bool {
    Path::new(&format!("/proc/{}/task/{tid}", vm.pid())).exists()
}

/// A thread of the VM's process; of no other.
fn own(vm: &Vm, tid: i32) -> Result<Pid, String> {
    Pid::from_raw(tid)
        .filter(|_| exists(vm, tid))
        .ok_or_else(|| "the thread has ended".to_owned())
}

fn list(set: &CpuSet) -> String {
    cpu_list::format((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_another_process_is_left_alone() {
        let own_tid = rustix::thread::gettid().as_raw_nonzero().get();
        let vm = Vm::attach(std::process::id() as i32);
        let before = affinity(&vm, own_tid).unwrap();
        set_affinity(&vm, own_tid, &before).unwrap();
        assert!(affinity(&vm, 1).is_err() && set_affinity(&vm, own_tid, "").is_err());
        assert!(set_affinity(&vm, own_tid, "0-99999999999").is_err());
    }
}
