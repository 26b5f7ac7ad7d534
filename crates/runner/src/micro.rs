//! `seqread` on the micro-guest: the same work, made by its own driver.

use std::time::Duration;
use vmtax_machine::{MachineError, MicroSession};
use vmtax_micro::{Completion, Direction, Pattern, Run, layout};
use vmtax_model::{KernelIdentity, Latency, Operation, Series, Stamped, Timer, TimerSource, TrialResult, WorkloadSpec};
use vmtax_workload::BlockWork;

/// Requests where the workload names no count.
const REQUESTS: u64 = 1000;
/// How long the guest waits for one completion, seconds.
const COMPLETION_S: f64 = 30.0;

/// Runs the workload; gives its result and each request's own stamps.
pub(crate) fn run(
    session: &mut MicroSession<'_>,
    workload: &WorkloadSpec,
    deadline: Duration,
) -> Result<(TrialResult, Series), MachineError> {
    let work = vmtax_workload::block_work(workload).map_err(|e| MachineError::Workload(e.to_string()))?;
    let mhz = vmtax_clock::host_mhz();
    let requests = session.requests(order(&work, session.disk_bytes(), mhz), deadline)?;
    let operations: Vec<Stamped> = requests
        .iter()
        .map(|r| Stamped { begin: r.begin, end: r.seen, offset: r.sector * u64::from(layout::SECTOR) })
        .collect();
    let series = Series { mhz, operations };
    Ok((result(workload, &work, &series), series))
}

fn order(work: &BlockWork, disk_bytes: u64, mhz: f64) -> Run {
    let count = if work.count == 0 { REQUESTS } else { work.count };
    Run {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        block: u32::try_from(work.block).unwrap_or(u32::MAX),
        direction: if work.write { Direction::Write } else { Direction::Read },
        pattern: if work.random { Pattern::Random { seed: 1 } } else { Pattern::Sequential },
        sectors: disk_bytes / u64::from(layout::SECTOR),
        completion: Completion::Msix,
        timeout: (COMPLETION_S * mhz * 1e6) as u64,
    }
}

fn result(workload: &WorkloadSpec, work: &BlockWork, series: &Series) -> TrialResult {
    let ns = |ticks: u64| ticks as f64 * 1000.0 / series.mhz;
    let mut latency = Latency::new();
    series.operations.iter().for_each(|o| latency.record(ns(o.end - o.begin) as u64));
    let total = match (series.operations.first(), series.operations.last()) {
        (Some(first), Some(last)) => ns(last.end - first.begin),
        _ => 0.0,
    };
    let name = if work.write { "write" } else { "read" };
    TrialResult {
        workload: workload.clone(),
        measures: Vec::new(),
        operations: vec![Operation { name: name.to_owned(), latency }],
        unsupported: Vec::new(),
        fairness: None,
        total_s: total / 1e9,
        timer: Timer { source: TimerSource::Tsc, mhz: series.mhz, error: 0.0, pair_ns: 0.0, reason: None },
        kernel: KernelIdentity {
            system: "vmtax micro-guest".to_owned(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            version: String::new(),
        },
    }
}
