//! Counters that the host's kernel keeps of a process, its threads, its control group, its network interfaces and its block
//! devices. Reading them changes nothing and needs no root for one's own processes.

mod block_device;
mod cgroup;
mod cpu_use;
mod network;
mod unix_socket;

pub use block_device::block_device;
pub use cgroup::{
    Cgroups, cgroup_counters, cpu_quotas, cpuset, low_cpu_weights, memory_limit, thread_groups,
};
pub use cpu_use::cpu_use;
pub use network::interfaces;
pub use unix_socket::{clients, socket_server};

use procfs::process::Process;
use std::fs;
use std::str::SplitAsciiWhitespace;
use std::time::Duration;
use vmtax_model::{MemoryCounters, ProcessIo, ProcessStop};

/// Times of a thread since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTimes {
    /// ID of the thread.
    pub tid: i32,
    /// On a CPU, ns.
    pub cpu_ns: u64,
    /// Runnable without a CPU, ns.
    pub wait_ns: u64,
    /// Number of times that the thread got a CPU.
    pub turns: u64,
}

/// When a process started, clock ticks since boot; `None` where there is none, or it has ended.
pub fn started(pid: i32) -> Option<u64> {
    stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(started, _)| started)
}

/// The fields of a `stat` file from the third on. The name before them, in brackets, may hold anything.
fn fields(text: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(text.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// The start of a process and its major faults; `None` of one that has ended.
fn stat(text: &str) -> Option<(u64, u64)> {
    let mut fields = fields(text)?;
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    let faults = fields.nth(8)?.parse().ok()?;
    let started = fields.nth(9)?.parse().ok()?;
    is_alive.then_some((started, faults))
}

/// The times of a process's threads, by number; empty where there is no such process.
pub fn thread_times(pid: i32) -> Vec<ThreadTimes> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let times = |task: fs::DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        let (cpu_ns, wait_ns, turns) =
            schedstat(&fs::read_to_string(task.path().join("schedstat")).ok()?)?;
        Some(ThreadTimes {
            tid,
            cpu_ns,
            wait_ns,
            turns,
        })
    };
    let mut all: Vec<ThreadTimes> = tasks.filter_map(times).collect();
    all.sort_unstable_by_key(|thread| thread.tid);
    all
}

/// CPU time, run-queue wait and turns.
fn schedstat(text: &str) -> Option<(u64, u64, u64)> {
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    Some((
        fields.next()?.ok()?,
        fields.next()?.ok()?,
        fields.next()?.ok()?,
    ))
}

/// The memory of a process; `None` where there is no such process.
pub fn memory(pid: i32) -> Option<MemoryCounters> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let (_, major_faults) = stat(&read("stat")?)?;
    let status = read("status")?;
    let bytes_of = |key: &str| {
        status
            .lines()
            .find_map(|line| kib(line.strip_prefix(key)?))
            .unwrap_or(0)
    };
    Some(MemoryCounters {
        major_faults,
        resident: bytes_of("VmRSS:"),
        swapped: bytes_of("VmSwap:"),
        hugetlb: bytes_of("HugetlbPages:"),
        transparent_huge: None,
    })
}

/// Bytes in transparent huge pages: the kernel walks all page tables of the process for it, a millisecond for each gigabyte
/// in small pages. `None` without the permission.
pub fn transparent_huge(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let bytes_of = |key: &str| kib(text.lines().find_map(|line| line.strip_prefix(key))?);
    bytes_of("AnonHugePages:")?.checked_add(bytes_of("ShmemPmdMapped:").unwrap_or(0))
}

/// `  12 kB`, in bytes.
fn kib(text: &str) -> Option<u64> {
    text.trim()
        .strip_suffix("kB")?
        .trim_end()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Returns the bytes that a process has read and written; `None` without the permission.
pub fn process_io(pid: i32) -> Option<ProcessIo> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let counter = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    Some(ProcessIo {
        read_bytes: counter("read_bytes:")?,
        written_bytes: counter("write_bytes:")?,
        rchar: counter("rchar:")?,
    })
}

/// Returns true if a signal stopped the process, as SIGSTOP does.
pub fn is_stopped(pid: i32) -> bool {
    thread_state(pid, pid) == Some('T')
}

/// The signal or tracer that stopped all threads of a process; `None` where they may run, or there is no such process.
pub fn process_stop(pid: i32) -> Option<ProcessStop> {
    // Most run: one file tells that.
    let first = thread_state(pid, pid).filter(|state| matches!(state, 'T' | 't'))?;
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let mut states = tids.filter_map(|tid| thread_state(pid, tid));
    if !states.all(|state| matches!(state, 'T' | 't')) {
        return None;
    }
    let tracer = Process::new(pid)
        .and_then(|process| process.status())
        .ok()
        .map(|status| status.tracerpid);
    let tracer = tracer
        .filter(|tracer| first == 't' && *tracer != 0)
        .map(|tracer| {
            let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
            format!("{} (PID {tracer})", name.trim_end())
        });
    Some(tracer.map_or(ProcessStop::Signal, ProcessStop::Tracer))
}

/// The state of a thread as `/proc` has it: R, S, D, T, t, Z.
pub fn thread_state(pid: i32, tid: i32) -> Option<char> {
    state(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

fn state(text: &str) -> Option<char> {
    fields(text)?.next()?.chars().next()
}

/// The kernel's function in which a thread waits; `None` where it runs, and without the permission.
pub fn wait_channel(pid: i32, tid: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).ok()?;
    Some(name).filter(|name| !name.is_empty() && name != "0")
}

/// CPU time of this process, and of the processes that it started and that ended.
pub fn own_cpu() -> Duration {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec.unsigned_abs(), own.tv_nsec as u32);
    let children = Process::myself()
        .and_then(|own| own.stat())
        .map_or(0, |stat| stat.cutime + stat.cstime);
    // Children end before they count, so a tick is exact enough.
    own + Duration::from_millis(children.unsigned_abs() * 1000 / procfs::ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_the_own_threads_grow() {
        let own = std::process::id() as i32;
        let cpu = || {
            thread_times(own)
                .iter()
                .map(|thread| thread.cpu_ns)
                .sum::<u64>()
        };
        let before = cpu();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while cpu() <= before {
            assert!(std::time::Instant::now() < deadline);
        }
        assert!(
            started(own).is_some_and(|ticks| ticks > 0) && memory(own).unwrap().resident > 1 << 20
        );
        assert!(process_io(own).is_some() && transparent_huge(own).is_some());
        assert_eq!(
            (started(i32::MAX), memory(i32::MAX), process_io(i32::MAX)),
            (None, None, None)
        );
        assert_eq!(thread_times(i32::MAX), []);
    }

    #[test]
    fn a_process_that_a_signal_stopped_is_known_until_it_is_continued() {
        let sleeps = vmtax_model::testing::Ends(
            std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap(),
        );
        let pid = sleeps.0.id() as i32;
        let process = rustix::process::Pid::from_raw(pid).unwrap();
        let until = |stop: Option<ProcessStop>| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while process_stop(pid) != stop {
                assert!(std::time::Instant::now() < deadline, "not {stop:?}");
            }
        };
        until(None);
        for _ in 0..2 {
            rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
            until(Some(ProcessStop::Signal));
            assert_eq!(thread_state(pid, pid), Some('T'));
            rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
            until(None);
        }
        assert_eq!(
            (process_stop(i32::MAX), thread_state(i32::MAX, 1)),
            (None, None)
        );
    }

    #[test]
    fn schedstat_has_three_fields() {
        assert_eq!(schedstat("123 45 6\n"), Some((123, 45, 6)));
        assert_eq!(schedstat("123 45"), None);
        assert_eq!(schedstat("-1 2 3"), None);
        assert_eq!(
            (kib("   12 kB"), kib("12"), kib("99999999999999999999 kB")),
            (Some(12288), None, None)
        );
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) b) (c) S 1 7 7 0 -1 4194560 100 0 31 0 5 6 0 0 20 0 3 0 98765 1000 10";
        assert_eq!(stat(text), Some((98765, 31)));
        assert_eq!(
            (
                stat(&text.replace(") S", ") Z")),
                stat("7 (a"),
                stat("7 (a) S 1 2")
            ),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,80}") {
            let _ = (schedstat(&text), kib(&text), stat(&text), state(&text));
        }
    }
}
