//! `net-rr`: a request to an echo server and its response, one at a time, over UDP or one TCP connection.
//!
//! Reference: netperf's UDP_RR and TCP_RR, request and response of one size, without its tolerance for lost packets. The first
//! eight bytes of a request are its number, so a late response to an earlier one is not taken for it. The figures are the
//! median and 99th percentile of the round trip, and transactions per second.

mod client;
mod server;

use crate::clock::Clock;
use crate::descriptor::{Workload, options_of, workload};
use crate::error::WorkloadError;
use crate::options::{self, OptionInfo, Options, Word, count, must_end, nanoseconds, one_of, seconds, size};
use crate::outcome::{Yield, kernel_identity};
use crate::recorder::Recorder;
use client::{Client, MAX_BYTES, MIN_BYTES};
pub use server::echo;
use vmtax_model::{Latency, Metric, Places, Series, TrialResult, WorkloadName, WorkloadSpec};

/// Round trips before the first that is timed: addresses are resolved, caches are warm.
const WARM_UP: u64 = 20;

const COUNT: OptionInfo = count("count", "0", (0, u64::MAX), "round trips after which none starts; 0: no limit");

workload! {
    NetRr: "network request-response to an echo server, like netperf's UDP_RR and TCP_RR",
        quick [("time", "1")], default [("time", "2")], full [("time", "10")];
    protocol: Word = one_of("protocol", "udp", &["udp", "tcp"], "udp, or tcp: one connection without Nagle's algorithm");
    size: u64 = size("size", "64", (MIN_BYTES, MAX_BYTES), 1, "bytes of a request and of its response");
    time: f64 = seconds(
        options::TIME, "10", (0.0, 86_400.0), "seconds after which no new round trip starts; 0: no limit",
    );
    count: u64 = COUNT;
}

/// `net-rr` that ends after `count` round trips, however long they take.
pub fn round_trips(count: u64) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::NetRr).with(COUNT.name, count).with(options::TIME, 0)
}

impl NetRr {
    /// Makes the round trips. `note` is told of each when it is done: the stamps of its begin and its end, and its number. Gives
    /// the stamps of the first's begin and the last's end, and how many got no response.
    fn exchange(
        &self,
        places: &Places,
        clock: &Clock,
        mut note: impl FnMut(u64, u64, u64),
    ) -> Result<(u64, u64, u64), WorkloadError> {
        let echo = places.echo.ok_or(WorkloadError::NoPlace {
            workload: WorkloadName::NetRr,
            what: "an echo server (RFC 862)",
            option: "--echo ADDRESS:PORT",
        })?;
        let mut client = Client::connect(echo, self.protocol, self.size as usize)?;
        for number in 0..WARM_UP {
            client.round_trip(number)?;
        }
        let (mut number, mut lost, time_ns) = (WARM_UP, 0, nanoseconds(self.time));
        let start = clock.start();
        let mut now = start;
        let goes_on = |made: u64, ns: u64| (time_ns == 0 || ns < time_ns) && (self.count == 0 || made < self.count);
        while goes_on(number - WARM_UP, clock.ns(start, now)) {
            let began = clock.start();
            let is_answered = client.round_trip(number)?;
            now = clock.stop();
            if is_answered {
                note(began, now, number);
            } else {
                lost += 1;
            }
            number += 1;
        }
        Ok((start, now, lost))
    }

    fn figures(latency: Latency, total_ns: u64, lost: u64) -> Yield {
        let mut got = Yield { total_s: total_ns as f64 / 1e9, ..Yield::default() };
        got.measure(Metric::NetRrMedian, latency.quantile(0.5) as f64);
        got.measure(Metric::NetRrTail, latency.quantile(0.99) as f64);
        got.measure(Metric::NetRrRate, latency.count() as f64 / got.total_s);
        got.operation("round-trip", latency);
        if lost > 0 {
            got.notes.push(format!("{lost} requests got no response within {} s", client::RESPONSE_TIMEOUT.as_secs()));
        }
        got
    }
}

impl Workload for NetRr {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        must_end(WorkloadName::NetRr, self.time, COUNT.name, self.count)
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let mut latency = Latency::new();
        let (start, end, lost) =
            self.exchange(places, clock, |began, ended, _| latency.record(clock.ns(began, ended)))?;
        Ok(NetRr::figures(latency, clock.ns(start, end), lost))
    }
}

/// Runs `net-rr`, and keeps the stamps of each round trip.
pub(crate) fn run_with_series(spec: &WorkloadSpec, places: &Places) -> Result<(TrialResult, Series), WorkloadError> {
    let asked: NetRr = options_of(spec, NetRr::OPTIONS)?;
    let clock = Clock::calibrate();
    let mut recorder = Recorder::new(spec.name, asked.count, nanoseconds(asked.time), &clock)?;
    let mut latency = Latency::new();
    let (start, end, lost) = asked.exchange(places, &clock, |began, ended, number| {
        latency.record(clock.ns(began, ended));
        recorder.note(began, ended, number);
    })?;
    let spec = options::spec(spec.name, NetRr::OPTIONS, &asked.values());
    let found = NetRr::figures(latency, clock.ns(start, end), lost);
    Ok((found.result(spec, clock.about().clone(), kernel_identity()), recorder.series(&clock)))
}
