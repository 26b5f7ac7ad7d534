//! `net-rr`: a request to an echo server and its response, one at a time on each connection, over UDP or TCP.
//!
//! Reference: netperf's UDP_RR and TCP_RR, request and response of one size, without its tolerance for lost packets; with
//! `connect=each` TCP_CRR, of which a transaction is the connection, the request, the response and the end of the connection. Several
//! connections are several netperfs at once, in a thread each. The first eight bytes of a request are its key, which no other has: the
//! thread that sends it, and its number among those of the thread. So a late response to an earlier request is not taken for it, and
//! who sees the packet knows whose it is. The figures are the median and 99th percentile of the round trip, and transactions per
//! second of all connections.

mod client;

use crate::clock::Clock;
use crate::descriptor::{Workload, options_of, workload};
use crate::error::WorkloadError;
use crate::net_server::{MAX_CONNECTIONS, bulk_address};
use crate::options::{
    self, OptionInfo, Options, Word, count, must_end, nanoseconds, one_of, seconds, size,
};
use crate::outcome::{Yield, kernel_identity};
use crate::recorder::Recorder;
pub use client::RESPONSE_TIMEOUT;
use client::{Client, Transport};
pub(crate) use client::{MAX_BYTES, MIN_BYTES, no_answer};
use rustix::thread::gettid;
use std::net::SocketAddrV4;
use vmtax_model::{
    Latency, Metric, Places, Series, TrialResult, Unanswered, WorkloadName, WorkloadSpec,
    round_trip_key,
};

/// Round trips before the first that is timed: addresses are resolved, caches are warm.
pub const WARM_UP: u64 = 20;

const COUNT: OptionInfo = count(
    "count",
    "0",
    0..=u64::MAX,
    "round trips after which none starts; 0: no limit",
);

workload! {
    NetRr: "network request-response to an echo server, like netperf's UDP_RR and TCP_RR",
        quick [("time", "1")], default [("time", "2")], full [("time", "10")];
    protocol: Word = one_of("protocol", "udp", &["udp", "tcp"], "udp, or tcp without Nagle's algorithm");
    connect: Word = one_of(
        "connect", "once", &["once", "each"], "each: a TCP connection for each request, like netperf's TCP_CRR",
    );
    connections: u64 = count(
        "connections", "1", 1..=MAX_CONNECTIONS, "at once, each with one request at a time, in a thread of its own",
    );
    size: u64 = size("size", "64", MIN_BYTES..=MAX_BYTES, 1, "bytes of a request and of its response");
    time: f64 = seconds(
        options::TIME, "10", 0.0..=86_400.0, "seconds after which no new round trip starts; 0: no limit",
    );
    count: u64 = COUNT;
}

/// `net-rr` that ends after `count` round trips, however long they take.
pub fn round_trips(count: u64) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::NetRr)
        .with(COUNT.name, count)
        .with(options::TIME, 0)
}

/// Round trips that `net-rr` makes, for callers that do them by other means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundTripWork {
    /// With every option.
    pub spec: WorkloadSpec,
    /// Bytes of a request and of its response.
    pub bytes: u64,
    /// Number of round trips; 0: no limit.
    pub count: u64,
    /// Connections at once.
    pub connections: u64,
    /// True if the requests go over TCP, false over UDP.
    pub is_tcp: bool,
}

/// Returns the round trips that a spec of `net-rr` asks for.
///
/// # Errors
/// As [`crate::check`].
pub fn round_trip_work(spec: &WorkloadSpec) -> Result<RoundTripWork, WorkloadError> {
    let asked: NetRr = options_of(spec, NetRr::OPTIONS)?;
    let spec = options::spec(spec.name, NetRr::OPTIONS, &asked.values());
    let NetRr {
        size: bytes,
        count,
        connections,
        protocol,
        ..
    } = asked;
    Ok(RoundTripWork {
        spec,
        bytes,
        count,
        connections,
        is_tcp: protocol == "tcp",
    })
}

/// A connection's round trips: their latency, what became of them, and the stamps of each where they are kept.
type Connection = (Latency, ConnectionRun, Option<Recorder>);

/// Outcome of a connection's round trips.
struct ConnectionRun {
    /// Stamps of the first's begin and of the last's end.
    start: u64,
    end: u64,
    /// Number of requests that got no response.
    lost: u64,
    /// Datagrams that were no response to the request under way.
    others: u64,
}

impl NetRr {
    fn transport(&self, places: &Places) -> Result<Transport, WorkloadError> {
        let server = echo_server(WorkloadName::NetRr, places)?;
        Ok(Transport {
            server,
            is_tcp: self.protocol == "tcp",
            connects_each: self.connect == "each",
        })
    }

    /// Makes one connection's round trips, `count` at most (0: no limit). `note` is told of each when it is done: the stamps of its
    /// begin and its end, and its key.
    fn exchange(
        &self,
        transport: Transport,
        clock: &Clock,
        count: u64,
        mut note: impl FnMut(u64, u64, u64),
    ) -> Result<ConnectionRun, WorkloadError> {
        let mut client = Client::connect(transport, self.size as usize)?;
        let thread = gettid().as_raw_nonzero().get();
        let key = |number| round_trip_key(thread, number);
        for number in 0..WARM_UP {
            client.round_trip(key(number))?;
        }
        let (mut number, mut lost, time_ns) = (WARM_UP, 0, nanoseconds(self.time));
        let start = clock.start();
        let mut now = start;
        let goes_on =
            |made: u64, ns: u64| (time_ns == 0 || ns < time_ns) && (count == 0 || made < count);
        while goes_on(number - WARM_UP, clock.ns(start, now)) {
            let began = clock.start();
            let is_answered = client.round_trip(key(number))?;
            now = clock.stop();
            if is_answered {
                note(began, now, key(number));
            } else {
                lost += 1;
            }
            number += 1;
        }
        Ok(ConnectionRun {
            start,
            end: now,
            lost,
            others: client.others,
        })
    }

    /// All connections' round trips, each connection in a thread; with their stamps, if those are kept.
    fn at_once(
        &self,
        transport: Transport,
        clock: &Clock,
        keeps_stamps: bool,
    ) -> Result<Vec<Connection>, WorkloadError> {
        // Each has its part of the count, and none is left without one: 0 would be no limit.
        let part = |number: u64| match self.count {
            0 => 0,
            count => {
                (count / self.connections + u64::from(number < count % self.connections)).max(1)
            }
        };
        // Together they make no more than one would alone, and have no more room.
        let time_ns = nanoseconds(self.time).div_ceil(self.connections);
        let recorder = |number| Recorder::new(WorkloadName::NetRr, part(number), time_ns, clock);
        let one = |number: u64| {
            let mut latency = Latency::new();
            let mut recorder = keeps_stamps.then(|| recorder(number)).transpose()?;
            let note = |began, ended, key| {
                latency.record(clock.ns(began, ended));
                recorder
                    .iter_mut()
                    .for_each(|recorder| recorder.note(began, ended, key));
            };
            let made = self.exchange(transport, clock, part(number), note)?;
            Ok((latency, made, recorder))
        };
        if self.connections == 1 {
            return Ok(vec![one(0)?]);
        }
        std::thread::scope(|scope| {
            let start = |number| {
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || one(number));
                let (number, threads) = (number as u32 + 1, self.connections as u32);
                thread.map_err(|source| WorkloadError::Threads {
                    number,
                    threads,
                    source,
                })
            };
            let threads: Vec<_> = (0..self.connections).map(start).collect();
            // A panic is a bug of ours; the scope passes it on.
            let joined = threads.into_iter().filter_map(|thread| match thread {
                Ok(thread) => thread.join().ok(),
                Err(error) => Some(Err(error)),
            });
            joined.collect()
        })
    }

    fn figures(connections: &[Connection], clock: &Clock) -> Yield {
        let mut latency = Latency::new();
        connections
            .iter()
            .for_each(|(of_one, ..)| latency.add(of_one));
        let made: Vec<&ConnectionRun> = connections.iter().map(|(_, made, _)| made).collect();
        let (start, end) = (
            made.iter().map(|m| m.start).min(),
            made.iter().map(|m| m.end).max(),
        );
        let total_ns = clock.ns(start.unwrap_or(0), end.unwrap_or(0));
        let mut got = Yield {
            total_s: total_ns as f64 / 1e9,
            ..Yield::default()
        };
        got.measure(Metric::NetRrMedian, latency.quantile(0.5) as f64);
        got.measure(Metric::NetRrTail, latency.quantile(0.99) as f64);
        got.measure(Metric::NetRrRate, latency.count() as f64 / got.total_s);
        got.operation("round-trip", latency);
        let sum = |of: fn(&ConnectionRun) -> u64| made.iter().map(|made| of(made)).sum::<u64>();
        let (lost, others) = (sum(|m| m.lost), sum(|m| m.others));
        got.unanswered = Some(Unanswered { lost, late: others });
        if lost > 0 {
            got.notes.push(format!(
                "{lost} requests got no response within {} s",
                client::RESPONSE_TIMEOUT.as_secs()
            ));
        }
        if others > 0 {
            got.notes.push(format!(
                "{others} datagrams came that were no response to the request under way: late, or doubled"
            ));
        }
        got
    }
}

impl Workload for NetRr {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        if self.connect == "each" && self.protocol != "tcp" {
            let conflict = "connect=each needs protocol=tcp: UDP has no connections".to_owned();
            return Err(WorkloadError::Conflict {
                workload: WorkloadName::NetRr,
                conflict,
            });
        }
        must_end(WorkloadName::NetRr, self.time, COUNT.name, self.count)
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let connections = self.at_once(self.transport(places)?, clock, false)?;
        Ok(NetRr::figures(&connections, clock))
    }
}

/// Runs `net-rr`, and keeps the stamps of each round trip.
pub(crate) fn run_with_series(
    spec: &WorkloadSpec,
    places: &Places,
) -> Result<(TrialResult, Series), WorkloadError> {
    let asked: NetRr = options_of(spec, NetRr::OPTIONS)?;
    if asked.connect == "each" {
        let conflict =
            "stamps are those of a request on an open connection: leave connect out".to_owned();
        return Err(WorkloadError::Conflict {
            workload: spec.name,
            conflict,
        });
    }
    let clock = Clock::calibrate();
    let connections = asked.at_once(asked.transport(places)?, &clock, true)?;
    let found = NetRr::figures(&connections, &clock);
    let recorders = connections
        .into_iter()
        .filter_map(|(_, _, recorder)| recorder);
    let mut series = Series {
        mhz: clock.about().mhz,
        operations: Vec::new(),
    };
    recorders.for_each(|recorder| series.operations.extend(recorder.series(&clock).operations));
    series
        .operations
        .sort_unstable_by_key(|operation| operation.begin);
    let spec = options::spec(spec.name, NetRr::OPTIONS, &asked.values());
    Ok((
        found.result(spec, clock.about().clone(), kernel_identity()),
        series,
    ))
}

/// The echo server that a workload of the network is given.
fn echo_server(workload: WorkloadName, places: &Places) -> Result<SocketAddrV4, WorkloadError> {
    let (what, option) = ("an echo server (RFC 862)", "--echo ADDRESS:PORT");
    places.echo.ok_or(WorkloadError::NoPlace {
        workload,
        what,
        option,
    })
}

/// Returns the address of the server that takes and gives bulk data beside the echo server.
pub(crate) fn bulk_server(
    workload: WorkloadName,
    places: &Places,
) -> Result<SocketAddrV4, WorkloadError> {
    echo_server(workload, places).map(bulk_address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net_server::in_this_process;
    use crate::{check, run, set_option};
    use std::collections::BTreeSet;
    use std::net::{SocketAddr, UdpSocket};
    use vmtax_model::thread_of_round_trip;

    fn places(echo: SocketAddrV4) -> Places {
        Places {
            echo: Some(echo),
            ..Places::default()
        }
    }

    #[test]
    fn round_trips_are_timed_and_numbered() {
        let places = places(in_this_process());
        for protocol in ["udp", "tcp"] {
            let mut spec = round_trips(50);
            set_option(&mut spec, "protocol", protocol).unwrap();
            let (result, series) = run_with_series(&spec, &places).unwrap();
            assert_eq!(
                (result.operations[0].latency.count(), result.notes),
                (50, Vec::new()),
                "{protocol}"
            );
            assert_eq!(result.unanswered, Some(Unanswered::default()));
            let keys: Vec<u64> = series.operations.iter().map(|o| o.key).collect();
            let thread = gettid().as_raw_nonzero().get();
            assert_eq!(
                keys,
                (20..70)
                    .map(|number| round_trip_key(thread, number))
                    .collect::<Vec<u64>>()
            );
            assert!(
                series
                    .operations
                    .windows(2)
                    .all(|pair| pair[0].end <= pair[1].begin)
            );
        }
    }

    #[test]
    fn connections_run_at_once_and_each_request_may_have_its_own() {
        let places = places(in_this_process());
        for options in [
            ["protocol=udp", "connect=once"],
            ["protocol=tcp", "connect=once"],
            ["protocol=tcp", "connect=each"],
        ] {
            let mut spec = round_trips(330);
            for option in options.into_iter().chain(["connections=32"]) {
                let (name, value) = option.split_once('=').unwrap();
                set_option(&mut spec, name, value).unwrap();
            }
            let result = run(&spec, &places).unwrap();
            assert_eq!(
                (result.operations[0].latency.count(), result.notes),
                (330, Vec::new()),
                "{options:?}"
            );
            if spec.options["connect"] == "each" {
                assert!(
                    run_with_series(&spec, &places)
                        .unwrap_err()
                        .to_string()
                        .contains("leave connect out")
                );
                continue;
            }
            let (_, series) = run_with_series(&spec, &places).unwrap();
            let keys: BTreeSet<u64> = series.operations.iter().map(|o| o.key).collect();
            let threads: BTreeSet<i32> =
                keys.iter().map(|key| thread_of_round_trip(*key)).collect();
            assert_eq!((keys.len(), threads.len()), (330, 32));
            assert!(
                series
                    .operations
                    .windows(2)
                    .all(|pair| pair[0].begin <= pair[1].begin)
            );
        }
        let mut spec = round_trips(1);
        set_option(&mut spec, "connect", "each").unwrap();
        assert!(
            check(&spec)
                .err()
                .unwrap()
                .to_string()
                .contains("protocol=tcp")
        );
    }

    #[test]
    fn a_request_without_a_response_and_one_with_two_are_counted() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = server.local_addr().unwrap() else {
            panic!("an IPv4 address")
        };
        let answers = std::thread::Builder::new().spawn(move || {
            let mut request = [0; 64];
            for number in 0..WARM_UP + 10 {
                let (bytes, client) = server.recv_from(&mut request).unwrap();
                // One is lost, one is answered twice.
                let times = [(WARM_UP + 3, 0), (WARM_UP + 6, 2)]
                    .iter()
                    .find(|(n, _)| *n == number)
                    .map_or(1, |(_, t)| *t);
                for _ in 0..times {
                    server.send_to(&request[..bytes], client).unwrap();
                }
            }
        });
        let (result, series) = run_with_series(&round_trips(10), &places(address)).unwrap();
        answers.unwrap().join().unwrap();
        assert_eq!(result.unanswered, Some(Unanswered { lost: 1, late: 1 }));
        assert_eq!((series.operations.len(), result.notes.len()), (9, 2));
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let SocketAddr::V4(nobody) = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
        else {
            panic!("an IPv4 address")
        };
        for connections in ["1", "3"] {
            let mut spec = round_trips(3);
            set_option(&mut spec, "connections", connections).unwrap();
            let error = run(&spec, &places(nobody)).unwrap_err().to_string();
            assert!(
                error.contains(&nobody.port().to_string()) && error.contains("a server there"),
                "{error}"
            );
        }
        let error = run(&WorkloadSpec::new(WorkloadName::NetRr), &Places::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--echo ADDRESS:PORT"), "{error}");
    }
}
