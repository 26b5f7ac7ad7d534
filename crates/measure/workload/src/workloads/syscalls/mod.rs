//! `syscalls`: the cost of one system call, each kind by itself, on any kernel with a Linux ABI.
//!
//! Reference: lmbench's `lat_*` definitions, named after the system-call table that compares guest kernels (`getpid`,
//! `read_null`, `write_null`, `pipe`, `stat`, `open_close`, `fork`, …); the definition of one operation stands beside
//! each, in [`calls`] and [`processes`]. Calls go to the kernel by number: a library may cache or retry.
//!
//! Each kind is warmed up, then done one by one, each timed into a histogram of its name, then in batches timed as a
//! whole; the figure is the median over batches of the time per operation, so the clock's own cost is not in it. Calls
//! that the kernel lacks are reported as unsupported, and the next kind goes on.

mod calls;
mod measure;
mod processes;

use crate::descriptor::{Workload, Yield, workload};
use crate::options::{self, Words, nanoseconds, seconds, some_of};
use crate::{Clock, WorkloadError};
use measure::{Bench, Lack, Sample, Watch};
use std::path::PathBuf;
use vmtax_model::{Metric, Places, Unsupported, WorkloadName, WorkloadSpec};

type Measure = fn(&Bench) -> Result<Sample, Lack>;

/// Each kind's metric and how it is measured. A kind has the name of its metric's operation.
const KINDS: [(Metric, Measure); 15] = [
    (Metric::SyscallGetpid, calls::getpid),
    (Metric::SyscallReadNull, calls::read_null),
    (Metric::SyscallWriteNull, calls::write_null),
    (Metric::SyscallPipe, processes::pipe),
    (Metric::SyscallStat, calls::stat),
    (Metric::SyscallOpenClose, calls::open_close),
    (Metric::SyscallFork, processes::fork),
    (Metric::SyscallExec, processes::exec),
    (Metric::SyscallClockVdso, calls::clock_gettime_vdso),
    (Metric::SyscallClockRaw, calls::clock_gettime_raw),
    (Metric::SyscallMmap, calls::mmap),
    (Metric::SyscallContextSwitch, processes::context_switch),
    (Metric::SyscallPageFault, calls::page_fault),
    (Metric::SyscallSignal, calls::signal),
    (Metric::SyscallFutex, processes::futex_round_trip),
];

const NAMES: [&str; KINDS.len()] = {
    let mut names = [""; KINDS.len()];
    let mut i = 0;
    while i < KINDS.len() {
        names[i] = name(KINDS[i].0);
        i += 1;
    }
    names
};

const fn name(kind: Metric) -> &'static str {
    match kind.operation() {
        Some(name) => name,
        None => "",
    }
}

workload! {
    Syscalls: "cost of individual system calls, like lmbench's lat_*",
        quick [("time", "0.04")], default [("time", "0.2")], full [("time", "1")];
    time: f64 = seconds(options::TIME, "0.2", 0.001..=3600.0, "seconds for each kind of call");
    only: Words = some_of("only", "all", &NAMES, "which kinds of call, comma separated");
}

/// `syscalls` that measures its shortest call alone, for so many seconds.
pub fn shortest_call(seconds: f64) -> WorkloadSpec {
    let spec = WorkloadSpec::new(WorkloadName::Syscalls);
    spec.with(Syscalls::OPTIONS[0].name, seconds)
        .with(Syscalls::OPTIONS[1].name, name(Metric::SyscallGetpid))
}

impl Workload for Syscalls {
    fn parts(&self) -> usize {
        if self.only.is_empty() {
            KINDS.len()
        } else {
            self.only.len()
        }
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        // The initramfs of a guest has no /tmp, but a root that may be written to.
        let directories: Vec<PathBuf> = places
            .files
            .iter()
            .cloned()
            .chain([std::env::temp_dir(), PathBuf::from("/")])
            .collect();
        let bench = Bench {
            clock,
            budget_ns: nanoseconds(self.time),
            directories: &directories,
        };
        let mut got = Yield::default();
        let start = clock.start();
        for (metric, measure) in KINDS {
            let name = name(metric);
            if !self.only.is_empty() && !self.only.contains(&name) {
                continue;
            }
            let result = {
                let _watch = Watch::set(bench.budget_ns);
                measure(&bench)
            };
            match result {
                Ok(sample) => {
                    got.measure(metric, sample.ns);
                    got.operation(name, sample.latency);
                }
                Err(Lack(reason)) => got.unsupported.push(Unsupported { metric, reason }),
            }
        }
        got.total_s = clock.ns(start, clock.stop()) as f64 / 1e9;
        Ok(got)
    }
}
