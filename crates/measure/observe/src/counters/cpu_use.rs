//! Who uses the host CPUs on which a process's threads may run.

use super::{Cgroups, cgroup_counters, thread_times};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use vmtax_model::cpu_list;
use vmtax_model::samples::{CpuUse, ThreadCpuUse};

/// The CPU time of each host CPU and of each thread of a process until now; `None` where the kernel does not say.
pub fn cpu_use(pid: i32) -> Option<CpuUse> {
    let now = clock_gettime(ClockId::Monotonic);
    let at_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    let busy_ms = busy_ms(
        &fs::read_to_string("/proc/stat").ok()?,
        procfs::ticks_per_second(),
    );
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
    let throttled_us = cgroup_counters(&Cgroups::of(pid, &tids)).throttled_us;
    Some(CpuUse {
        at_ns,
        busy_ms,
        threads,
        throttled_us,
    })
}

/// Time that each CPU ran tasks or interrupts, of `/proc/stat`: `cpuN user nice system idle iowait irq softirq steal guest …`, where
/// `user` includes `guest`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        fn any_text_is_survived(text in "(cpu[0-9 ]{0,60}\n|.{0,20}\n){0,5}") {
            let _ = busy_ms(&text, 0);
        }
    }
}
