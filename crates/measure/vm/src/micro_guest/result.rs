//! Results of the micro-guest's workloads, made from ticks.

use vmtax_model::{KernelIdentity, Operation, Timer, TimerSource, TrialResult, WorkloadSpec};

/// Ticks of a time stamp counter of `mhz` MHz as nanoseconds.
pub(super) fn ns(ticks: u64, mhz: f64) -> u64 {
    (ticks as f64 * 1000.0 / mhz).round() as u64
}

/// The result of a workload; `total_ns` is the time that its operations took.
pub(super) fn result(
    workload: &WorkloadSpec,
    operations: Vec<Operation>,
    total_ns: u64,
    mhz: f64,
) -> TrialResult {
    let timer = Timer {
        source: TimerSource::Tsc,
        mhz,
        error: 0.0,
        pair_ns: 0.0,
        reason: None,
    };
    let kernel = KernelIdentity {
        system: "vmtax micro-guest".to_owned(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        version: String::new(),
    };
    let total_s = total_ns as f64 / 1e9;
    TrialResult {
        operations,
        total_s,
        ..TrialResult::new(workload.clone(), timer, kernel)
    }
}
