//! Workloads on the micro-guest: `disk` and `net-rr` by its own drivers, `exits`, `antipatterns`.

use super::antipattern_workload::antipatterns;
use super::guest::MicroGuest;
use super::result::{ns, result};
use super::round_trips::round_trips;
use super::{Completion, Direction, ExitKind, Pattern, Run, layout};
use crate::MachineError;
use std::time::Duration;
use vmtax_model::{
    KERNEL_MODE, Latency, Measure, Metric, Operation, Series, Stamped, TrialResult, WorkloadName,
    WorkloadSpec,
};
use vmtax_workload::{BlockWork, WorkloadError};

/// Requests where the workload names no count.
const REQUESTS: u64 = 1000;
/// Halts in a trial: each takes a millisecond.
const MAX_HALTS: u32 = 500;
/// Time limit of the guest for one completion, seconds.
const COMPLETION_S: f64 = 30.0;

/// Runs the workload; gives its result, and each request's own stamps where it makes requests.
pub(super) fn run(
    guest: &mut MicroGuest<'_>,
    workload: &WorkloadSpec,
    timeout: Duration,
) -> Result<(TrialResult, Series), MachineError> {
    let mhz = vmtax_clock::host_mhz();
    let refused = |e: WorkloadError| MachineError::Workload(e.to_string());
    if workload.name == WorkloadName::Exits {
        let count = vmtax_workload::exit_count(workload).map_err(refused)?;
        return Ok((
            exits(guest, workload, count, mhz, timeout)?,
            Series::default(),
        ));
    }
    if workload.name == WorkloadName::GuestAntipatterns {
        let work = vmtax_workload::antipattern_work(workload).map_err(refused)?;
        return Ok((
            antipatterns(guest, workload, work, mhz, timeout)?,
            Series::default(),
        ));
    }
    if workload.name == WorkloadName::NetRr {
        let work = vmtax_workload::round_trip_work(workload).map_err(refused)?;
        return round_trips(guest, work, mhz, timeout);
    }
    let work = vmtax_workload::block_work(workload).map_err(refused)?;
    let requests = guest.requests(order(&work, guest.disk_bytes(), mhz), timeout)?;
    let operations: Vec<Stamped> = requests
        .iter()
        .map(|r| Stamped {
            begin: r.begin,
            end: r.seen,
            key: r.place * u64::from(layout::SECTOR),
        })
        .collect();
    let series = Series { mhz, operations };
    let mut latency = Latency::new();
    series
        .operations
        .iter()
        .for_each(|o| latency.record(ns(o.end - o.begin, mhz)));
    let total = match (series.operations.first(), series.operations.last()) {
        (Some(first), Some(last)) => ns(last.end - first.begin, mhz),
        _ => 0,
    };
    let measures = measures(&latency, total);
    let operation = Operation {
        name: work.operation().to_owned(),
        latency,
    };
    Ok((
        TrialResult {
            measures,
            ..result(workload, vec![operation], total, mhz)
        },
        series,
    ))
}

/// Returns the figures that `disk` has with an agent: median and 99th percentile of the latency, and rate.
fn measures(latency: &Latency, total_ns: u64) -> Vec<Measure> {
    if latency.count() == 0 || total_ns == 0 {
        return Vec::new();
    }
    let rate = latency.count() as f64 / (total_ns as f64 / 1e9);
    let figures = [
        (Metric::DiskMedian, latency.quantile(0.5) as f64),
        (Metric::DiskTail, latency.quantile(0.99) as f64),
        (Metric::DiskRate, rate),
    ];
    figures
        .map(|(metric, value)| Measure { metric, value })
        .to_vec()
}

/// Exits of every kind, `count` of each.
fn exits(
    guest: &mut MicroGuest<'_>,
    workload: &WorkloadSpec,
    count: u32,
    mhz: f64,
    timeout: Duration,
) -> Result<TrialResult, MachineError> {
    let (mut operations, mut total) = (Vec::new(), 0);
    for kind in ExitKind::ALL {
        // Each waits for a timer that is set a millisecond ahead.
        let count = if kind == ExitKind::Halt {
            count.min(MAX_HALTS)
        } else {
            count
        };
        let exits = guest.exits(kind, count, timeout)?;
        let mut latency = Latency::new();
        exits
            .iter()
            .for_each(|&ticks| latency.record(ns(ticks, mhz)));
        total += exits.iter().map(|&ticks| ns(ticks, mhz)).sum::<u64>();
        operations.push(Operation {
            name: exit_name(kind),
            latency,
        });
    }
    Ok(result(workload, operations, total, mhz))
}

/// Returns the name of an exit kind, which says so if the code ran in kernel mode: where a KVM emulates that, the
/// figure is the emulator's.
fn exit_name(kind: ExitKind) -> String {
    let label = kind.label();
    if kind.in_kernel_mode() && !label.ends_with(KERNEL_MODE) {
        format!("{label}{KERNEL_MODE}")
    } else {
        label.to_owned()
    }
}

fn order(work: &BlockWork, disk_bytes: u64, mhz: f64) -> Run {
    let count = if work.count == 0 {
        REQUESTS
    } else {
        work.count
    };
    Run {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        block: u32::try_from(work.block).unwrap_or(u32::MAX),
        direction: if work.write {
            Direction::Write
        } else {
            Direction::Read
        },
        pattern: if work.random {
            Pattern::Random { seed: 1 }
        } else {
            Pattern::Sequential
        },
        sectors: disk_bytes / u64::from(layout::SECTOR),
        completion: Completion::Msix,
        timeout: (COMPLETION_S * mhz * 1e6) as u64,
    }
}
