//! Counted and timed inside the kernel, by three small BPF programs at its tracepoints: nothing is written down call by
//! call.

use super::bpf::{Attached, Map, MapKind};
use super::program;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::io;
use vmtax_model::CallCount;

/// Threads that may be in a call at one time.
const THREADS: u32 = 16_384;
/// Calls, or calls of processes, that are distinguished.
pub(super) const ROWS: usize = 8192;
/// Number of totals of each call on each CPU: count, sum, shortest, longest.
const TOTALS: usize = 4;

/// The programs and what they share with us.
#[derive(Debug)]
pub(super) struct InKernel {
    totals: Map,
    lost: Map,
    by_process: bool,
    _attached: [Attached; 3],
}

impl InKernel {
    pub(super) fn start(by_process: bool) -> io::Result<InKernel> {
        // Kernels before 5.11 count maps as locked memory; where that may not be raised, they say so below.
        let _ = setrlimit(
            Resource::Memlock,
            Rlimit {
                current: None,
                maximum: None,
            },
        );
        let cpus = cpus()?;
        let entered = Map::create(MapKind::Hash, 8, 16, THREADS, cpus)?;
        let totals = Map::create(MapKind::PerCpuHash, 8, 8 * TOTALS as u32, ROWS as u32, cpus)?;
        let lost = Map::create(MapKind::Array, 4, 8, 1, cpus)?;
        let own = std::process::id();
        // The one that reads what the other left is there first.
        let attached = [
            Attached::at(
                c"sys_exit",
                &program::exit(&entered, &totals, &lost, by_process),
            )?,
            Attached::at(c"sched_process_exit", &program::gone(&entered))?,
            Attached::at(c"sys_enter", &program::enter(&entered, &lost, own))?,
        ];
        Ok(InKernel {
            totals,
            lost,
            by_process,
            _attached: attached,
        })
    }

    pub(super) fn read(&self) -> io::Result<Vec<CallCount>> {
        let mut rows = Vec::new();
        let mut key: Option<[u8; 8]> = None;
        while let Some(next) = self.totals.next_key(key)? {
            if let Some(values) = self.totals.get(&next)? {
                let number = u64::from_ne_bytes(next);
                let pid = self.by_process.then_some((number >> 32) as i32);
                rows.extend(row(number as u32, pid, &values));
            }
            key = Some(next);
            if rows.len() > ROWS {
                break; // keys that change meanwhile begin again
            }
        }
        Ok(rows)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
            .get(&[0; 4])
            .ok()
            .flatten()
            .and_then(|lost| lost.first().copied())
            .unwrap_or(0)
    }
}

/// The CPUs' parts together.
fn row(call: u32, pid: Option<i32>, values: &[u64]) -> Option<CallCount> {
    let parts = || values.chunks_exact(TOTALS).filter(|part| part[0] > 0);
    Some(CallCount {
        call,
        pid,
        count: parts().map(|part| part[0]).sum(),
        total_ns: parts().map(|part| part[1]).sum(),
        min_ns: parts().map(|part| part[2]).min()?,
        max_ns: parts().map(|part| part[3]).max()?,
    })
}

/// Returns the number of possible CPUs: the kernel keeps a part for each.
fn cpus() -> io::Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = vmtax_model::cpu_list::parse(&text).and_then(|all| all.last().copied());
    Ok(last.ok_or(io::ErrorKind::InvalidData)? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_add_up_and_the_idle_one_has_no_shortest() {
        let values = [2, 30, 10, 20, 0, 0, 0, 0, 1, 5, 5, 5];
        let row = row(39, Some(7), &values).unwrap();
        assert_eq!(
            (row.call, row.pid, row.count, row.total_ns),
            (39, Some(7), 3, 35)
        );
        assert_eq!((row.min_ns, row.max_ns), (5, 20));
        assert_eq!(super::row(39, None, &[0; 8]), None);
    }
}
