//! The roles of QEMU's threads.

use super::arguments::Arguments;
use super::monitor::Monitor;
use crate::kvm::vcpu_threads::{task, waits_on};
use crate::vm::open_files::{OpenFile, vcpu_descriptors};
use procfs::process::Task;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use vmtax_model::{QemuThread, Role, RoleSource};
use vmtax_observe::counters::thread_times;
use vmtax_observe::{own_tids, processes, thread_names};

/// Number of times that the system calls of threads are read where nothing else tells vCPUs from other threads.
const SAMPLES: u32 = 5;
/// Time between two of them.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(2);

/// The threads of a process with their roles, by number, and where the roles of vCPUs are known from. Empty when there is
/// no such process.
pub(crate) fn roles(
    pid: i32,
    monitor: Option<&Monitor>,
    files: &[OpenFile],
    arguments: &Arguments,
) -> (RoleSource, Vec<QemuThread>) {
    let tasks = thread_names(pid);
    let named = |role: Role| matches!(role, Role::Vcpu(_));
    let (source, known) = match monitor.and_then(|monitor| roles_from_monitor(pid, monitor)) {
        Some(known) => (RoleSource::Monitor, known),
        None if tasks
            .iter()
            .any(|(_, name)| named(Role::of_thread_name(name))) =>
        {
            (RoleSource::Names, BTreeMap::new())
        }
        None => roles_by_cpu_time(pid, &tasks, files, arguments),
    };
    let threads = tasks.into_iter().map(|(tid, name)| {
        let role = match known.get(&tid) {
            _ if tid == pid => Role::Main,
            Some(role) => role.clone(),
            None => Role::of_thread_name(&name),
        };
        QemuThread { tid, role }
    });
    (source, threads.collect())
}

/// The vhost workers of a process that are threads of the kernel's own, as before Linux 6.4.
pub(crate) fn vhost_of_kernel(pid: i32, own: &[QemuThread], files: &[OpenFile]) -> Vec<QemuThread> {
    let has_own = own.iter().any(|thread| thread.role == Role::Vhost);
    if has_own || !files.iter().any(OpenFile::is_vhost_net) {
        return Vec::new();
    }
    let name = format!("vhost-{pid}");
    processes()
        .filter(|stat| stat.comm == name)
        .map(|stat| QemuThread {
            tid: stat.pid,
            role: Role::Vhost,
        })
        .collect()
}

/// The threads of a process that is no QEMU.
pub(crate) fn without_roles(pid: i32) -> Vec<QemuThread> {
    let thread = |(tid, name)| {
        let role = if tid == pid {
            Role::Main
        } else {
            Role::Other(name)
        };
        QemuThread { tid, role }
    };
    thread_names(pid).into_iter().map(thread).collect()
}

/// Returns true if a monitor belongs to a process: its vCPUs are threads of it. A monitor that names none may be
/// anyone's: true.
pub(crate) fn belongs_to(monitor: &Monitor, pid: i32) -> bool {
    let tids = own_tids(pid);
    let vcpus = monitor.vcpus().unwrap_or_default();
    vcpus.is_empty() || vcpus.iter().any(|(_, tid)| tids.contains_key(tid))
}

/// Roles from the monitor, whose thread ids are of QEMU's own PID namespace.
fn roles_from_monitor(pid: i32, monitor: &Monitor) -> Option<BTreeMap<i32, Role>> {
    let vcpus = monitor.vcpus().ok().filter(|vcpus| !vcpus.is_empty())?;
    let iothreads = monitor.iothreads().unwrap_or_default();
    let tids = own_tids(pid);
    // One thread may run all vCPUs: it has the number of the first.
    let vcpus = vcpus.into_iter().rev();
    let vcpus = vcpus.map(|(number, tid)| (tid, Role::Vcpu(number)));
    let iothreads = iothreads.into_iter();
    let all = vcpus.chain(iothreads.map(|(name, tid)| (tid, Role::Iothread(name))));
    let known = all.filter_map(|(tid, role)| Some((*tids.get(&tid)?, role)));
    Some(known.collect())
}

/// Without names: each vCPU's thread waits in KVM on a file of its own. Of those that run just now, or are of TCG, nothing
/// tells but that they use most CPU time, and that they were started in order.
fn roles_by_cpu_time(
    pid: i32,
    tasks: &[(i32, String)],
    files: &[OpenFile],
    arguments: &Arguments,
) -> (RoleSource, BTreeMap<i32, Role>) {
    let vcpus = vcpu_descriptors(files);
    let others = || tasks.iter().map(|(tid, _)| *tid).filter(|tid| *tid != pid);
    let mut known: BTreeMap<i32, u32> = others()
        .filter_map(|tid| Some((tid, *vcpus.get(&waits_on(&task(pid, tid)?)?)?)))
        .collect();
    let mut unknown: Vec<u32> = match vcpus.is_empty() {
        true => (0..arguments.vcpus() as u32).collect(),
        false => vcpus.into_values().collect(),
    };
    unknown.retain(|number| !known.values().any(|known| known == number));
    unknown.sort_unstable();
    let source = if unknown.is_empty() {
        RoleSource::KvmRun
    } else {
        let busiest = busiest(pid, tasks, &known, unknown.len());
        known.extend(busiest.into_iter().zip(unknown));
        RoleSource::CpuTime
    };
    let known = known
        .into_iter()
        .map(|(tid, number)| (tid, Role::Vcpu(number)));
    (source, known.collect())
}

/// The threads, ascending, that used most CPU time of those that may be vCPUs and are not known.
fn busiest(
    pid: i32,
    tasks: &[(i32, String)],
    known: &BTreeMap<i32, u32>,
    count: usize,
) -> Vec<i32> {
    let others = || tasks.iter().map(|(tid, _)| *tid).filter(|tid| *tid != pid);
    // QEMU starts its RCU thread first of all. The thread of QMP sockets has more CPU time than a vCPU that is paused since its
    // start; it polls, unless it serves a client just now.
    let rcu = others().min();
    let mut candidates: Vec<i32> = others()
        .filter(|tid| !known.contains_key(tid) && Some(*tid) != rcu)
        .collect();
    for sample in 0..SAMPLES {
        if sample > 0 {
            thread::sleep(BETWEEN_SAMPLES);
        }
        candidates.retain(|tid| !task(pid, *tid).is_some_and(|task| polls(&task)));
    }
    let mut times = thread_times(pid);
    times.retain(|thread| candidates.contains(&thread.tid));
    times.sort_unstable_by_key(|thread| Reverse((thread.cpu_ns, thread.tid)));
    let mut busiest: Vec<i32> = times.iter().take(count).map(|thread| thread.tid).collect();
    busiest.sort_unstable();
    busiest
}

/// Returns true if a thread waits for descriptors, as one of TCG's vCPUs never does.
fn polls(task: &Task) -> bool {
    use procfs::process::Syscall::Blocked;
    /// `poll`, `select`, `epoll_wait`, `pselect6`, `ppoll`, `epoll_pwait`, `io_uring_enter`.
    const CALLS: [i64; 7] = [7, 23, 232, 270, 271, 281, 426];
    matches!(task.syscall(), Ok(Blocked { syscall_number, .. }) if CALLS.contains(&syscall_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_from_a_thread_name() {
        assert_eq!(Role::of_thread_name("CPU 0/TCG"), Role::Vcpu(0));
        assert_eq!(Role::of_thread_name("CPU 12/KVM"), Role::Vcpu(12));
        assert_eq!(Role::of_thread_name("ALL CPUs/TCG"), Role::Vcpu(0));
        assert_eq!(Role::of_thread_name("IO io0"), Role::Iothread("io0".into()));
        assert_eq!(Role::of_thread_name("worker"), Role::Worker);
        for other in ["call_rcu", "CPU x/KVM", "CPU 1", "", "IO mon_iothread"] {
            assert_eq!(Role::of_thread_name(other), Role::Other(other.to_owned()));
        }
    }
}
