//! `syscalls`: what one system call costs, each kind by itself, on any kernel with a Linux ABI.
//!
//! Reference: lmbench's `lat_*` definitions, named after the system-call table that compares guest kernels (`getpid`,
//! `read_null`, `write_null`, `pipe`, `stat`, `open_close`, `fork`, …); what one operation is stands beside each, in
//! [`calls`], [`partners`] and [`memory`]. Calls go to the kernel by number: a library may cache or retry.
//!
//! Each kind is warmed up, then done one by one, each timed into a histogram of its name, then in batches timed as a
//! whole; the figure is the median over batches of the time per operation, so the clock's own cost is not in it.
//! What the kernel lacks is reported as unsupported, and the next kind goes on.

mod calls;
mod measure;
mod memory;
mod partners;
mod processes;
mod watch;

use crate::clock::Clock;
use crate::descriptor::{Workload, workload};
use crate::error::WorkloadError;
use crate::options::{self, Words, nanoseconds, seconds, some_of};
use crate::outcome::Yield;
use measure::{Bench, Lack, Sample};
use std::path::PathBuf;
use vmtax_model::{Metric, Places, Unsupported};

const KINDS: [(&str, Metric); 15] = [
    ("getpid", Metric::SyscallGetpid),
    ("read_null", Metric::SyscallReadNull),
    ("write_null", Metric::SyscallWriteNull),
    ("pipe", Metric::SyscallPipe),
    ("stat", Metric::SyscallStat),
    ("open_close", Metric::SyscallOpenClose),
    ("fork", Metric::SyscallFork),
    ("exec", Metric::SyscallExec),
    ("clock_gettime_vdso", Metric::SyscallClockVdso),
    ("clock_gettime_raw", Metric::SyscallClockRaw),
    ("mmap", Metric::SyscallMmap),
    ("context_switch", Metric::SyscallContextSwitch),
    ("page_fault", Metric::SyscallPageFault),
    ("signal", Metric::SyscallSignal),
    ("futex", Metric::SyscallFutex),
];

const NAMES: [&str; KINDS.len()] = {
    let mut names = [""; KINDS.len()];
    let mut i = 0;
    while i < KINDS.len() {
        names[i] = KINDS[i].0;
        i += 1;
    }
    names
};

workload! {
    Syscalls: "what single system calls cost, as lmbench's lat_*",
        quick [("time", "0.04")], default [("time", "0.2")], full [("time", "1")];
    time: f64 = seconds(options::TIME, "0.2", (0.001, 3600.0), "seconds for each kind of call");
    only: Words = some_of("only", "all", &NAMES, "which kinds of call, comma separated");
}

fn sample(metric: Metric, bench: &Bench) -> Result<Sample, Lack> {
    match metric {
        Metric::SyscallGetpid => calls::getpid(bench),
        Metric::SyscallReadNull => calls::read_null(bench),
        Metric::SyscallWriteNull => calls::write_null(bench),
        Metric::SyscallStat => calls::stat(bench),
        Metric::SyscallOpenClose => calls::open_close(bench),
        Metric::SyscallClockVdso => calls::clock_gettime_vdso(bench),
        Metric::SyscallClockRaw => calls::clock_gettime_raw(bench),
        Metric::SyscallSignal => calls::signal(bench),
        Metric::SyscallMmap => memory::mmap(bench),
        Metric::SyscallPageFault => memory::page_fault(bench),
        Metric::SyscallFork => processes::fork(bench),
        Metric::SyscallExec => processes::exec(bench),
        Metric::SyscallPipe => partners::pipe(bench),
        Metric::SyscallContextSwitch => partners::context_switch(bench),
        Metric::SyscallFutex => partners::futex_round_trip(bench),
        other => Err(Lack(format!("{other} is no system call"))),
    }
}

impl Workload for Syscalls {
    fn parts(&self) -> usize {
        if self.only.is_empty() { KINDS.len() } else { self.only.len() }
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        // The initramfs of a guest has no /tmp, but a root that may be written to.
        let directories: Vec<PathBuf> =
            places.files.iter().cloned().chain([std::env::temp_dir(), PathBuf::from("/")]).collect();
        let bench = Bench { clock, budget_ns: nanoseconds(self.time), directories: &directories };
        let mut got = Yield::default();
        let start = clock.start();
        for (name, metric) in KINDS {
            if !self.only.is_empty() && !self.only.contains(&name) {
                continue;
            }
            let result = {
                let _watch = watch::Watch::set(bench.budget_ns);
                sample(metric, &bench)
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
