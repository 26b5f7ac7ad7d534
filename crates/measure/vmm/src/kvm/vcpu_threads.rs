//! Threads of a process that run vCPUs of KVM, by what they do: the kernel shows the vCPU on which a thread waits, and accounts
//! guest time to those that ran one.

use procfs::process::{Process, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;
use vmtax_model::RoleSource;

/// The vCPUs by the descriptors that a process has of them. A vCPU may have several.
pub(crate) type VcpuDescriptors = BTreeMap<i32, u32>;

/// `ioctl` and `KVM_RUN`.
const IOCTL: i64 = 16;
const KVM_RUN: u64 = 0xae80;
/// Number of times that the system calls of threads are read at most.
const SAMPLES: u32 = 5;
/// Time between two of them.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(2);

/// A thread of a process.
pub(crate) fn task(pid: i32, tid: i32) -> Option<Task> {
    let process = Process::new(pid).ok()?;
    process.task_from_tid(tid).ok()
}

/// The descriptor on which a thread is in `KVM_RUN`. Threads that the kernel started in the process show the call of whoever
/// started them, and no instruction.
pub(crate) fn waits_on(task: &Task) -> Option<i32> {
    use procfs::process::Syscall::Blocked;
    match task.syscall().ok()? {
        Blocked {
            syscall_number: IOCTL,
            argument_registers: [fd, KVM_RUN, ..],
            program_counter: 1..,
            ..
        } => i32::try_from(fd).ok(),
        _ => None,
    }
}

/// Returns true if the kernel accounted guest time to a thread. It does so at its clock ticks, so a thread that runs a guest for
/// less than some ticks may have none.
fn had_guest_time(task: &Task) -> bool {
    let time = task.stat().ok().and_then(|stat| stat.guest_time);
    time.is_some_and(|ticks| ticks > 0)
}

/// Returns true if a thread of the process ran one of these vCPUs, as far as the kernel shows.
pub(crate) fn runs_vcpu(pid: i32, vcpus: &VcpuDescriptors) -> bool {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    let mut tasks = tasks.into_iter().flatten().flatten();
    tasks.any(|task| {
        had_guest_time(&task) || waits_on(&task).is_some_and(|fd| vcpus.contains_key(&fd))
    })
}

/// The vCPUs of the threads that run them, by thread, and where that is known from. Those of which nothing shows it have none.
pub(crate) fn vcpu_threads(
    pid: i32,
    tids: &[i32],
    vcpus: &VcpuDescriptors,
) -> (RoleSource, BTreeMap<i32, u32>) {
    let numbers: BTreeSet<u32> = vcpus.values().copied().collect();
    let mut known: BTreeMap<i32, u32> = BTreeMap::new();
    for sample in 0..SAMPLES {
        if sample > 0 {
            thread::sleep(BETWEEN_SAMPLES);
        }
        let unknown = tids.iter().filter(|tid| !known.contains_key(tid));
        let waiting: Vec<(i32, u32)> = unknown
            .filter_map(|tid| Some((*tid, *vcpus.get(&waits_on(&task(pid, *tid)?)?)?)))
            .collect();
        known.extend(waiting);
        if known.len() >= numbers.len() {
            return (RoleSource::KvmRun, known);
        }
    }
    let left = numbers
        .iter()
        .filter(|number| known.values().all(|known| known != *number));
    let left: Vec<u32> = left.copied().collect();
    let of_guest = tids.iter().filter(|tid| !known.contains_key(tid));
    let of_guest: Vec<i32> = of_guest
        .filter(|tid| task(pid, **tid).is_some_and(|task| had_guest_time(&task)))
        .copied()
        .collect();
    let source = match of_guest.is_empty() {
        true => RoleSource::KvmRun,
        false => RoleSource::GuestTime,
    };
    // VMMs start the threads in the vCPUs' order.
    known.extend(of_guest.into_iter().zip(left));
    (source, known)
}
