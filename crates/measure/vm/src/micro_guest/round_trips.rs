//! `net-rr` on the micro-guest: round trips by its own driver of a network card.

use super::frame::{THREAD, request};
use super::guest::MicroGuest;
use super::result::{ns, result};
use super::{MicroRequest, RoundTrips};
use crate::MachineError;
use std::time::Duration;
use vmtax_model::{
    Latency, Measure, Metric, Operation, Series, Stamped, TrialResult, round_trip_key,
};
use vmtax_workload::{RESPONSE_TIMEOUT, RoundTripWork, WARM_UP};

/// Round trips where the workload names no count.
const ROUND_TRIPS: u64 = 1000;

/// Makes the round trips; gives the result, and the stamps of each.
pub(super) fn round_trips(
    guest: &mut MicroGuest<'_>,
    work: RoundTripWork,
    mhz: f64,
    timeout: Duration,
) -> Result<(TrialResult, Series), MachineError> {
    let echo = guest
        .echo()
        .ok_or_else(|| MachineError::NoNetwork("the machine was started without one".to_owned()))?;
    let frame = request(echo, work.bytes as u16);
    let count = if work.count == 0 {
        ROUND_TRIPS
    } else {
        work.count
    };
    let order = RoundTrips {
        count: u32::try_from(count + WARM_UP).unwrap_or(u32::MAX),
        bytes: frame.len() as u32,
        timeout: (RESPONSE_TIMEOUT.as_secs_f64() * mhz * 1e6) as u64,
    };
    let all = guest.round_trips(&frame, order, timeout)?;
    let timed = all.get(WARM_UP as usize..).unwrap_or_default();
    let stamped = |r: &MicroRequest| Stamped {
        begin: r.begin,
        end: r.seen,
        key: round_trip_key(THREAD, r.place),
    };
    let series = Series {
        mhz,
        operations: timed.iter().map(stamped).collect(),
    };
    let mut latency = Latency::new();
    series
        .operations
        .iter()
        .for_each(|o| latency.record(ns(o.end - o.begin, mhz)));
    let total = match (series.operations.first(), series.operations.last()) {
        (Some(first), Some(last)) => ns(last.end - first.begin, mhz),
        _ => 0,
    };
    let rate = latency.count() as f64 / (total.max(1) as f64 / 1e9);
    let figures = [
        (Metric::NetRrMedian, latency.quantile(0.5) as f64),
        (Metric::NetRrTail, latency.quantile(0.99) as f64),
        (Metric::NetRrRate, rate),
    ];
    let measures = figures
        .map(|(metric, value)| Measure { metric, value })
        .to_vec();
    let operation = Operation {
        name: "round-trip".to_owned(),
        latency,
    };
    Ok((
        TrialResult {
            measures,
            ..result(&work.spec, vec![operation], total, mhz)
        },
        series,
    ))
}
