//! The CPUs on which a thread of a VM, or of a program that serves it, may run.

use crate::vm::Vm;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::path::Path;
use vmtax_model::PinnedThread;
use vmtax_observe::counters::cpuset;

/// As a list: `0-3,8`.
pub(super) fn affinity(vm: &Vm, tid: i32) -> Result<String, String> {
    let set = sched_getaffinity(Some(own(vm, tid)?)).map_err(|e| e.to_string())?;
    Ok(list((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu))))
}

/// Of such a list.
pub(super) fn set_affinity(vm: &Vm, tid: i32, cpus: &str) -> Result<(), String> {
    let mut set = CpuSet::new();
    for cpu in numbers(cpus).ok_or_else(|| format!("\"{cpus}\" is no list of CPUs"))? {
        set.set(cpu);
    }
    sched_setaffinity(Some(own(vm, tid)?), &set).map_err(|e| format!("CPUs {cpus}: {e}"))
}

/// The host's CPUs on which a VM may run, as a list, and those of these threads that may not run on all of them: those that are online
/// and in its cpuset, without those that are isolated (`isolcpus`).
pub(crate) fn pinned(pid: i32, threads: impl Iterator<Item = i32>) -> (String, Vec<PinnedThread>) {
    let of = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default();
        numbers(text.trim()).unwrap_or_default().into_iter().collect::<BTreeSet<usize>>()
    };
    let cpuset = cpuset(pid).and_then(|list| numbers(&list)).map(|cpus| cpus.into_iter().collect::<BTreeSet<usize>>());
    let (online, isolated) = (of("online"), of("isolated"));
    let is_usable = |cpu: &usize| !isolated.contains(cpu) && cpuset.as_ref().is_none_or(|set| set.contains(cpu));
    let all: BTreeSet<usize> = online.into_iter().filter(is_usable).collect();
    let pinned = |tid: i32| {
        let set = sched_getaffinity(Some(Pid::from_raw(tid)?)).ok()?;
        let is_pinned = all.iter().any(|cpu| !set.is_set(*cpu));
        is_pinned.then(|| PinnedThread { tid, cpus: list((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu))) })
    };
    let pinned = threads.filter_map(pinned).collect();
    (list(all.iter().copied()), pinned)
}

/// Whether the VM's process has the thread.
pub(super) fn exists(vm: &Vm, tid: i32) -> bool {
    Path::new(&format!("/proc/{}/task/{tid}", vm.pid())).exists()
}

/// A thread of the VM's process; of no other.
fn own(vm: &Vm, tid: i32) -> Result<Pid, String> {
    Pid::from_raw(tid).filter(|_| exists(vm, tid)).ok_or_else(|| "the thread has ended".to_owned())
}

/// The CPUs of a list.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend((first..=last).take(CpuSet::MAX_CPU));
        if last >= CpuSet::MAX_CPU {
            return None;
        }
    }
    Some(all)
}

/// CPUs in ascending order, as the kernel writes them.
fn list(cpus: impl Iterator<Item = usize>) -> String {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => spans.push((cpu, cpu)),
        }
    }
    let text =
        |(first, last): (usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    spans.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_of_another_process_is_left_alone() {
        let own_tid = rustix::thread::gettid().as_raw_nonzero().get();
        let vm = Vm::attach(std::process::id() as i32);
        let before = affinity(&vm, own_tid).unwrap();
        set_affinity(&vm, own_tid, &before).unwrap();
        assert!(affinity(&vm, 1).is_err() && set_affinity(&vm, own_tid, "").is_err());
        assert!(set_affinity(&vm, own_tid, "0-99999999999").is_err());
    }

    proptest! {
        #[test]
        fn a_list_is_read_as_it_is_written(cpus in proptest::collection::btree_set(0_usize..1024, 1..40)) {
            let text = list(cpus.iter().copied());
            prop_assert_eq!(numbers(&text), Some(cpus.into_iter().collect::<Vec<_>>()));
        }

        #[test]
        fn any_text_is_survived(text in "[0-9,-]{0,30}") {
            let _ = numbers(&text);
        }
    }
}
