//! Counters that the host's kernel keeps of a process, its threads, its control group, its network interfaces and its block
//! devices. Reading them changes nothing and needs no root for one's own processes.

mod cgroup;
mod host;

pub use crate::process::{clients, socket_server};
pub use cgroup::{
    Cgroups, ThreadCgroups, cgroup_counters, cpu_quotas, cpuset, low_cpu_weights, memory_limit,
    thread_groups, throttled_us,
};
pub use host::{HostSample, host_counters};

use crate::clock::{monotonic_ns, own_cpu_time};
use crate::host_disk;
use crate::process::{is_dead, proc_text, schedstat, stat, tasks};
use procfs::FromRead;
use procfs::net::DeviceStatus;
use procfs::process::{Process, Stat};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use rustix::time::{ClockId, clock_getres};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use vmtax_model::samples::{CpuUse, ThreadCpuUse};
use vmtax_model::{
    BlockDevice, CounterMap, CounterSource, NicCounters, ProcessStop, Role, ThreadCounters,
    cpu_list,
};

/// When a process started, clock ticks since boot; `None` where there is none, or it has ended.
pub fn started(pid: i32) -> Option<u64> {
    living(pid).map(|stat| stat.starttime)
}

/// The fields of a process's `stat`; `None` where there is none, or it has ended.
fn living(pid: i32) -> Option<Stat> {
    stat(pid).filter(|stat| !is_dead(stat))
}

/// A time in clock ticks, ns; `None` for 0, which a kernel that does not count the time has, too.
fn counted_ns(ticks: u64, ticks_per_s: u64) -> Option<u64> {
    let ns = ticks.checked_mul(1_000_000_000)? / ticks_per_s.max(1);
    Some(ns).filter(|ns| *ns > 0)
}

/// Times of a thread, of its `schedstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTimes {
    /// TID on the host.
    pub tid: i32,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time runnable without a CPU, ns.
    pub wait_ns: u64,
    /// Number of times that the thread got a CPU.
    pub turns: u64,
}

/// Returns the times of a process's threads, in the order of their numbers; empty where there is no such process.
pub fn thread_times(pid: i32) -> Vec<ThreadTimes> {
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
    let mut all: Vec<ThreadTimes> = tasks(pid).filter_map(times).collect();
    all.sort_unstable_by_key(|thread| thread.tid);
    all
}

/// Returns the counters of a process's threads, in the order of their numbers, with the role that `role` gives each; empty where
/// there is no such process.
pub fn thread_counters(pid: i32, role: impl Fn(i32) -> Role) -> Vec<ThreadCounters> {
    let counters = |times: ThreadTimes| ThreadCounters {
        tid: times.tid,
        role: role(times.tid),
        cpu_ns: times.cpu_ns,
        wait_ns: times.wait_ns,
        turns: times.turns,
        throttled_ns: None,
    };
    thread_times(pid).into_iter().map(counters).collect()
}

/// The counters of a process in `stat`, `status` and, with the permission, `io`; `None` where there is no such process.
pub fn process_counters(pid: i32) -> Option<CounterMap<u64>> {
    let read = |file: &str| proc_text(format!("/proc/{pid}/{file}"));
    let stat = living(pid)?;
    let (status, io) = (read("status")?, read("io").unwrap_or_default());
    let bytes = |key| Some(line(&status, key).and_then(kib).unwrap_or(0));
    Some(CounterMap::read(|source| match source {
        CounterSource::MajorFaults => Some(stat.majflt),
        CounterSource::GuestTime => counted_ns(stat.guest_time?, procfs::ticks_per_second()),
        CounterSource::ProcStatus(key) => bytes(key),
        CounterSource::HugePages => bytes("HugetlbPages"),
        CounterSource::ProcIo(key) => line(&io, key)?.trim().parse().ok(),
        _ => None,
    }))
}

/// The counters of a process in `smaps_rollup`: the kernel walks all page tables of the process for it, a millisecond for
/// each gigabyte in small pages. None without the permission.
pub fn page_table_counters(pid: i32) -> CounterMap<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |key| kib(line(&text, key)?);
    CounterMap::read(|source| match source {
        CounterSource::HugePages => {
            bytes("AnonHugePages")?.checked_add(bytes("ShmemPmdMapped").unwrap_or(0))
        }
        _ => None,
    })
}

/// The text behind a key and its colon.
fn line<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
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

/// Returns true if a signal stopped the process, as SIGSTOP does.
pub fn is_stopped(pid: i32) -> bool {
    thread_state(pid, pid) == Some('T')
}

/// The signal or tracer that stopped all threads of a process; `None` where they may run, or there is no such process.
pub fn process_stop(pid: i32) -> Option<ProcessStop> {
    // Most run: one file tells that.
    let first = thread_state(pid, pid).filter(|state| matches!(state, 'T' | 't'))?;
    let tids = tasks(pid).filter_map(|task| task.file_name().to_str()?.parse().ok());
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
            let name = proc_text(format!("/proc/{tracer}/comm")).unwrap_or_default();
            format!("{} (PID {tracer})", name.trim_end())
        });
    Some(tracer.map_or(ProcessStop::Signal, ProcessStop::Tracer))
}

/// The state of a thread as `/proc` has it: R, S, D, T, t, Z.
pub fn thread_state(pid: i32, tid: i32) -> Option<char> {
    let stat = Stat::from_file(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    Some(stat.state)
}

/// The kernel's function in which a thread waits; `None` where it runs, and without the permission.
pub fn wait_channel(pid: i32, tid: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).ok()?;
    Some(name).filter(|name| !name.is_empty() && name != "0")
}

/// CPU time of this process, and of the processes that it started and that ended.
pub fn own_cpu() -> Duration {
    let own = own_cpu_time();
    let children = Process::myself()
        .and_then(|own| own.stat())
        .map_or(0, |stat| stat.cutime + stat.cstime);
    // Children end before they count, so a tick is exact enough.
    own + Duration::from_millis(children.unsigned_abs() * 1000 / procfs::ticks_per_second().max(1))
}

/// The CPU time of each host CPU and of each thread of a process until now; `None` where the kernel does not say.
pub fn cpu_use(pid: i32) -> Option<CpuUse> {
    let at_ns = monotonic_ns();
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let busy_ms = busy_ms(&stat, procfs::ticks_per_second());
    let threads: Vec<ThreadCpuUse> = thread_times(pid)
        .into_iter()
        .filter_map(|thread| {
            let set = sched_getaffinity(Some(Pid::from_raw(thread.tid)?)).ok()?;
            let cpus = cpu_list::format((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)));
            Some(ThreadCpuUse {
                tid: thread.tid,
                cpus,
                ran_ns: thread.cpu_ns,
                waited_ns: thread.wait_ns,
            })
        })
        .collect();
    let tids: Vec<i32> = threads.iter().map(|thread| thread.tid).collect();
    let throttled_us = throttled_us(&Cgroups::of(pid, &tids));
    Some(CpuUse {
        at_ns,
        busy_ms,
        threads,
        throttled_us,
    })
}

/// Time that each CPU ran tasks or interrupts, of `/proc/stat`: `cpuN user nice system idle iowait irq softirq steal guest
/// …`, where `user` includes `guest`.
fn busy_ms(stat: &str, ticks_per_s: u64) -> BTreeMap<usize, u64> {
    let cpu_busy_ms = |line: &str| {
        let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
        let times: Vec<u64> = times
            .split_ascii_whitespace()
            .map_while(|time| time.parse().ok())
            .collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, ..] = times[..] else {
            return None;
        };
        let busy = [user, nice, system, irq, softirq]
            .into_iter()
            .fold(0, u64::saturating_add);
        Some((
            cpu.parse().ok()?,
            busy.saturating_mul(1000) / ticks_per_s.max(1),
        ))
    };
    stat.lines().filter_map(cpu_busy_ms).collect()
}

/// The counters of these tap devices, as a process's network namespace has them. A tap receives what the guest sends: the
/// result is the guest's view. One that is not in that namespace is left out.
pub fn interfaces(pid: i32, taps: &[String]) -> Vec<NicCounters> {
    if taps.is_empty() {
        return Vec::new();
    }
    let Ok(all) = Process::new(pid).and_then(|process| process.dev_status()) else {
        return Vec::new();
    };
    taps.iter()
        .filter_map(|tap| all.get(tap))
        .map(from_guest)
        .collect()
}

fn from_guest(tap: &DeviceStatus) -> NicCounters {
    NicCounters {
        tap: tap.name.clone(),
        rx_packets: tap.sent_packets,
        rx_bytes: tap.sent_bytes,
        rx_dropped: tap.sent_drop,
        tx_packets: tap.recv_packets,
        tx_bytes: tap.recv_bytes,
        tx_dropped: tap.recv_drop,
    }
}

/// The counters of a block device by its number, as the kernel's block events print it; `None` where there is none.
pub fn block_device(number: u64) -> Option<BlockDevice> {
    let folder = fs::canonicalize(host_disk::folder(number)).ok()?;
    let (requests, total_ms) = completed(&fs::read_to_string(folder.join("stat")).ok()?)?;
    let is_bio_based = host_disk::is_bio_based(&folder);
    Some(BlockDevice {
        name: folder.file_name()?.to_str()?.to_owned(),
        requests,
        total_ms,
        tick_ns: if is_bio_based { tick_ns() } else { 0 },
    })
}

/// Returns the length of a tick of the kernel's clock.
fn tick_ns() -> u64 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    (tick.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(tick.tv_nsec as u64)
}

/// Completed requests and the sum of their times, ms: reads, writes, since 4.18 discards, since 5.5 flushes, each with count,
/// merges, sectors, time; behind the first two three fields of the queue.
fn completed(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = text
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let field_at = |at: usize| fields.get(at).copied().unwrap_or(0);
    (fields.len() >= 11).then(|| {
        let sum = |places: [usize; 4]| {
            places
                .map(field_at)
                .into_iter()
                .fold(0, u64::saturating_add)
        };
        (sum([0, 4, 11, 15]), sum([3, 7, 14, 16]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::Counter;

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
        assert!(started(own).is_some_and(|ticks| ticks > 0));
        let counters = process_counters(own).unwrap();
        let number = |name| counters.get(Counter::named(name));
        assert!(number("resident").is_some_and(|bytes| bytes > 1 << 20));
        assert!(number("process_rchar").is_some() && number("major_faults").is_some());
        let huge = page_table_counters(own).get(Counter::named("huge_page"));
        assert!(huge.is_some());
        assert_eq!(
            (started(i32::MAX), process_counters(i32::MAX)),
            (None, None)
        );
        assert_eq!(page_table_counters(i32::MAX), CounterMap::default());
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
    fn a_process_whose_name_is_cut_within_a_letter_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("aaaaaaaaaaaaaaé) S 1");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut process = std::process::Command::new(&program)
            .arg("60")
            .spawn()
            .unwrap();
        let pid = process.id() as i32;
        let counted = (started(pid), process_counters(pid), thread_state(pid, pid));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(counted.0.is_some() && counted.1.is_some() && counted.2.is_some());
        assert_eq!((started(pid), process_counters(pid)), (None, None));
        assert_eq!(
            (counted_ns(250, 100), counted_ns(0, 100)),
            (Some(2_500_000_000), None)
        );
        assert_eq!(counted_ns(u64::MAX, 100), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,80}") {
            let _ = (schedstat(&text), kib(&text));
        }
    }

    #[test]
    fn a_cpu_that_is_idle_or_stolen_is_not_busy() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 2 3 1000 500 4 1 70 5 0\ncpu12 1 0 0 7 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(busy_ms(stat, 100), [(0, 200), (12, 10)].into());
        assert_eq!(
            busy_ms("cpu0 1 2 3\ncpux 1 1 1 1 1 1 1\n", 100),
            BTreeMap::new()
        );
    }

    #[test]
    fn the_own_threads_run_on_cpus_that_are_busy() {
        let found = cpu_use(std::process::id() as i32).unwrap();
        let own = found
            .threads
            .iter()
            .find(|thread| thread.ran_ns > 0)
            .unwrap();
        let cpus = cpu_list::parse(&own.cpus).unwrap();
        assert!(
            cpus.iter()
                .any(|cpu| found.busy_ms.get(cpu).is_some_and(|busy| *busy > 0)),
            "{found:?}"
        );
        assert!(cpu_use(i32::MAX).is_some_and(|none| none.threads.is_empty()));
    }

    proptest! {
        #[test]
        fn any_stat_of_cpus_is_survived(text in "(cpu[0-9 ]{0,60}\n|.{0,20}\n){0,5}") {
            let _ = busy_ms(&text, 0);
        }
    }

    #[test]
    fn interfaces_are_those_of_the_process() {
        let own = std::process::id() as i32;
        let found = interfaces(own, &["lo".to_owned(), "no-such-tap".to_owned()]);
        assert_eq!(
            found.iter().map(|nic| nic.tap.as_str()).collect::<Vec<_>>(),
            ["lo"]
        );
        assert_eq!(interfaces(i32::MAX, &["lo".to_owned()]), []);
    }

    #[test]
    fn requests_of_all_kinds_are_summed() {
        let old = "100 5 800 40 50 5 400 60 0 90 100\n";
        assert_eq!(completed(old), Some((150, 100)));
        let new = "100 5 800 40 50 5 400 60 0 90 100 10 0 80 7 3 2\n";
        assert_eq!(completed(new), Some((163, 109)));
        assert_eq!(
            (completed("1 2 3"), completed("x"), block_device(u64::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn a_tick_is_of_a_frequency_that_linux_can_have() {
        assert!(
            (1_000_000..=10_000_000).contains(&tick_ns()),
            "{}",
            tick_ns()
        );
    }

    proptest! {
        #[test]
        fn any_stat_of_a_device_is_survived(text in "[0-9 \n-]{0,200}") {
            let _ = completed(&text);
        }
    }
}
