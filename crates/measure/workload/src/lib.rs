//! What is run: sysbench's five tests, system calls, block requests, operations on a shared tree, each timed.
//!
//! The same code runs natively and inside a guest. A workload is given as a [`WorkloadSpec`]; [`check`] says whether it
//! can be run as written and [`run`] runs it. Each module states the definition it follows.

mod buffer;
mod catalogue;
mod clock;
mod error;
mod exits;
mod options;
mod seqread;
mod share;
mod sysbench;
mod syscalls;

pub use catalogue::{check, file_bytes, options};
pub use clock::Clock;
pub use error::WorkloadError;
pub use exits::{HabitWork, exit_count, habit_work};
pub use options::{OptionInfo, parse_size};
pub use seqread::{BlockWork, block_work};
pub use share::meaning::{Guest, look};
pub use share::{held_bytes, written};

use std::ffi::{CStr, c_char};
use vmtax_model::{Fairness, Kept, KernelIdentity, Measure, Metric, Operation, Series, TrialResult, Unsupported};
use vmtax_model::{Latency, Places, WorkloadName, WorkloadSpec};

/// What a workload hands to [`run`], which adds who, where and how timed.
#[derive(Default)]
struct Yield {
    measures: Vec<Measure>,
    operations: Vec<Operation>,
    unsupported: Vec<Unsupported>,
    kept: Vec<Kept>,
    notes: Vec<String>,
    fairness: Option<Fairness>,
    total_s: f64,
}

impl Yield {
    fn measure(&mut self, metric: Metric, value: f64) {
        self.measures.push(Measure { metric, value });
    }

    fn operation(&mut self, name: &str, latency: Latency) {
        self.operations.push(Operation { name: name.to_owned(), latency });
    }
}

/// Runs a workload once, from a defined state, and waits for its end. Calibrates the clock first (40 ms).
///
/// # Errors
/// As [`check`]; a place that is missing, too small or refuses; threads or memory that the system will not give. What
/// `syscalls` finds missing in the kernel is no error: it is in [`TrialResult::unsupported`].
pub fn run(spec: &WorkloadSpec, places: &Places) -> Result<TrialResult, WorkloadError> {
    let workload = check(spec)?;
    let clock = Clock::calibrate();
    let values = options::Values(&workload);
    let got = match workload.name {
        WorkloadName::Cpu => sysbench::cpu::run(&values, &clock),
        WorkloadName::Threads => sysbench::threads::run(&values, &clock),
        WorkloadName::Mutex => sysbench::mutex::run(&values, &clock),
        WorkloadName::Memory => sysbench::memory::run(&values, &clock),
        WorkloadName::Fileio => sysbench::fileio::run(&values, &clock, places),
        WorkloadName::Syscalls => syscalls::run(&values, &clock, places),
        WorkloadName::Seqread => seqread::run(&values, &clock, places),
        WorkloadName::Tree => share::tree::run(&values, &clock, places),
        WorkloadName::Bonnie => share::bonnie::run(&values, &clock, places),
        WorkloadName::Fids => share::fids::run(&values, &clock, places),
        WorkloadName::Names => share::names::run(&values, &clock, places),
        WorkloadName::Meaning => share::meaning::run(&values, places),
        WorkloadName::Exec => Err(WorkloadError::CommandAlone(workload.name)),
        WorkloadName::Exits | WorkloadName::Habits => Err(WorkloadError::MicroGuestOnly(workload.name)),
    }?;
    Ok(result(workload, got, &clock))
}

/// Runs `seqread`, and keeps the stamps of each request, up to four million, in memory that is there before the first.
/// A result whose operations are more says how many were not kept.
///
/// # Errors
/// As [`run`]; [`WorkloadError::NotBlocks`] for other workloads, [`WorkloadError::TooMany`], and
/// [`WorkloadError::NoStamps`] where the clock is not the time stamp counter.
pub fn run_with_series(spec: &WorkloadSpec, places: &Places) -> Result<(TrialResult, Series), WorkloadError> {
    block_work(spec)?;
    let workload = check(spec)?;
    let clock = Clock::calibrate();
    let (got, series) = seqread::run_with_series(&options::Values(&workload), &clock, places)?;
    Ok((result(workload, got, &clock), series))
}

fn result(workload: WorkloadSpec, got: Yield, clock: &Clock) -> TrialResult {
    TrialResult {
        workload,
        measures: got.measures,
        operations: got.operations,
        exits: Vec::new(),
        unsupported: got.unsupported,
        kept: got.kept,
        notes: got.notes,
        fairness: got.fairness,
        total_s: got.total_s,
        timer: clock.about().clone(),
        kernel: kernel_identity(),
    }
}

fn kernel_identity() -> KernelIdentity {
    // SAFETY: utsname is plain bytes, for which all zeros is a value; uname fills it with NUL-terminated strings.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        name
    };
    let text = |field: &[c_char]| {
        let bytes: Vec<u8> = field.iter().map(|&c| c as u8).collect();
        CStr::from_bytes_until_nul(&bytes).map(|c| c.to_string_lossy().into_owned()).unwrap_or_default()
    };
    KernelIdentity { system: text(&name.sysname), release: text(&name.release), version: text(&name.version) }
}
