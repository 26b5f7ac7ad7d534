//! Counters of the host's kernel for all processes: CPU time, run queue, memory, swap.

use crate::clock::monotonic_ns;
use crate::process::processes;
use procfs::process::Stat;
use procfs::{CpuTime, Current, CurrentSI, KernelStats, LoadAverage, Meminfo};
use vmtax_model::{HostCounters, ProcessCpu};

/// Reads the counters; `with_processes`: also the CPU time of each process, a file each. `None` where `/proc/stat` cannot be read.
pub fn host_counters(with_processes: bool) -> Option<HostCounters> {
    let at_ns = monotonic_ns();
    let stats = KernelStats::current().ok()?;
    let memory = Meminfo::current().ok();
    let paging = procfs::vmstat().unwrap_or_default();
    let paged = |key: &str| {
        let pages = u64::try_from(*paging.get(key)?).ok()?;
        pages.checked_mul(procfs::page_size())
    };
    let processes = with_processes.then(|| processes().map(process_cpu).collect());
    Some(HostCounters {
        at_ns,
        cpus: stats.cpu_time.len(),
        busy_ms: milliseconds(busy_ticks(&stats.total)),
        runnable: stats.procs_running.map(u64::from),
        load: LoadAverage::current().ok().map(hundredths),
        memory: memory.as_ref().map(|memory| memory.mem_total),
        available: memory.and_then(|memory| memory.mem_available),
        swapped_in: paged("pswpin"),
        swapped_out: paged("pswpout"),
        processes: processes.unwrap_or_default(),
    })
}

/// The load average of one minute, in hundredths as the kernel prints it.
fn hundredths(load: LoadAverage) -> f64 {
    (f64::from(load.one) * 100.0).round() / 100.0
}

/// Ticks in which CPUs ran tasks or interrupts. The time of guests is in `user`; stolen time is another host's.
fn busy_ticks(time: &CpuTime) -> u64 {
    let interrupts = [time.irq, time.softirq].map(Option::unwrap_or_default);
    [time.user, time.nice, time.system]
        .into_iter()
        .chain(interrupts)
        .fold(0, u64::saturating_add)
}

fn process_cpu(stat: Stat) -> ProcessCpu {
    ProcessCpu {
        pid: stat.pid,
        started: stat.starttime,
        cpu_ms: milliseconds(stat.utime.saturating_add(stat.stime)),
        name: stat.comm,
    }
}

fn milliseconds(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::{ExplicitSystemInfo, FromBufReadSI};
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn kernel_stats(text: &str) -> Option<KernelStats> {
        let system = ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: 100,
            page_size: 4096,
            is_little_endian: true,
        };
        KernelStats::from_buf_read(text.as_bytes(), &system).ok()
    }

    #[test]
    fn busy_is_what_tasks_and_interrupts_took_and_no_stolen_time() {
        let text = "cpu  1 2 4 1000 1000 8 16 1000 1 1\ncpu0 1 2 4 1000 1000 8 16 1000 1 1\nctxt 1\nbtime 1\nprocesses 1\nprocs_running 3\n";
        let stats = kernel_stats(text).unwrap();
        assert_eq!(
            (busy_ticks(&stats.total), stats.procs_running),
            (31, Some(3))
        );
    }

    #[test]
    fn the_own_cpu_time_is_in_those_of_the_host_and_of_its_process() {
        let own = std::process::id() as i32;
        let of_own = |counters: &HostCounters| {
            let mut all = counters.processes.iter();
            all.find(|process| process.pid == own).unwrap().cpu_ms
        };
        let before = host_counters(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let after = loop {
            let after = host_counters(true).unwrap();
            if of_own(&after) >= of_own(&before) + 50 {
                break after;
            }
            assert!(Instant::now() < deadline, "no CPU time is counted");
        };
        assert!(after.busy_ms > before.busy_ms && after.at_ns > before.at_ns);
        assert!(after.cpus > 0 && after.memory > after.available && after.load.is_some());
        assert_eq!(host_counters(false).unwrap().processes, []);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(cpu |cpu0 |ctxt |btime |processes |procs_running )?[ -~\n0-9]{0,80}") {
            let stats = kernel_stats(&text);
            let _ = stats.map(|stats| busy_ticks(&stats.total));
        }
    }
}
