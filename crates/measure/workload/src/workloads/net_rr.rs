//! `net-rr`: a request to an echo server and its response, one at a time on each connection, over UDP or TCP.
//!
//! Reference: netperf's UDP_RR and TCP_RR, request and response of one size, without its tolerance for lost packets; with
//! `connect=each` TCP_CRR, of which a transaction is the connection, the request, the response and the end of the
//! connection. Several connections are several netperfs at once, in a thread each. The first eight bytes of a request
//! are its key, which no
//! other has: the
//! thread that sends it, and its number among those of the thread. So a late response to an earlier request is not taken
//! for it, and who sees the packet knows whose it is. The figures are the median and 99th percentile of the round trip,
//! and transactions per
//! second of all connections.

use crate::descriptor::{Workload, Yield, options_of, workload};
use crate::net_server::{MAX_CONNECTIONS, bulk_address};
use crate::options::{
    self, OptionInfo, Options, Word, count, must_end, nanoseconds, one_of, seconds, size,
};
use crate::recorder::Recorder;
use crate::{Clock, WorkloadError};
use rustix::thread::gettid;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
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

/// A connection's round trips.
struct Connection {
    latency: Latency,
    /// Stamps of each, where they are kept.
    recorder: Option<Recorder>,
    run: ConnectionRun,
}

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

    /// Each connection has its part of the count, and none is left without one: 0 would be no limit.
    fn part(&self, number: u64) -> u64 {
        match self.count {
            0 => 0,
            count => {
                (count / self.connections + u64::from(number < count % self.connections)).max(1)
            }
        }
    }

    /// All connections' round trips, each connection in a thread; with their stamps, if those are kept.
    fn at_once(
        &self,
        transport: Transport,
        clock: &Clock,
        keeps_stamps: bool,
    ) -> Result<Vec<Connection>, WorkloadError> {
        // Together they make no more than one would alone, and have no more room.
        let time_ns = nanoseconds(self.time).div_ceil(self.connections);
        let recorder =
            |number| Recorder::new(WorkloadName::NetRr, self.part(number), time_ns, clock);
        let one = |number: u64| {
            let mut latency = Latency::new();
            let mut recorder = keeps_stamps.then(|| recorder(number)).transpose()?;
            let note = |began, ended, key| {
                latency.record(clock.ns(began, ended));
                if let Some(recorder) = &mut recorder {
                    recorder.note(began, ended, key);
                }
            };
            let run = self.exchange(transport, clock, self.part(number), note)?;
            Ok(Connection {
                latency,
                recorder,
                run,
            })
        };
        if self.connections == 1 {
            return Ok(vec![one(0)?]);
        }
        let connections = self.connections as usize;
        std::thread::scope(|scope| {
            let start = |number| {
                let run = move || one(number as u64);
                let thread = std::thread::Builder::new().spawn_scoped(scope, run);
                thread.map_err(WorkloadError::thread(number, connections))
            };
            let threads: Vec<_> = (0..connections).map(start).collect();
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
        connections.iter().for_each(|c| latency.add(&c.latency));
        let runs = || connections.iter().map(|c| &c.run);
        let (start, end) = (runs().map(|r| r.start).min(), runs().map(|r| r.end).max());
        let mut got = Yield::of_ns(clock.ns(start.unwrap_or(0), end.unwrap_or(0)));
        got.measure(Metric::NetRrMedian, latency.quantile(0.5) as f64);
        got.measure(Metric::NetRrTail, latency.quantile(0.99) as f64);
        got.measure(Metric::NetRrRate, latency.count() as f64 / got.total_s);
        got.operation("round-trip", latency);
        let lost: u64 = runs().map(|r| r.lost).sum();
        let others: u64 = runs().map(|r| r.others).sum();
        got.unanswered = Some(Unanswered { lost, late: others });
        if lost > 0 {
            let timeout = RESPONSE_TIMEOUT.as_secs();
            let note = format!("{lost} requests got no response within {timeout} s");
            got.notes.push(note);
        }
        if others > 0 {
            got.notes.push(format!(
                "{others} datagrams were no response to the pending request: late or duplicated"
            ));
        }
        got
    }
}

impl Workload for NetRr {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        if self.connect == "each" && self.protocol != "tcp" {
            let conflict = "connect=each needs protocol=tcp: UDP has no connections";
            return Err(WorkloadError::conflict(WorkloadName::NetRr, conflict));
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
        let conflict = "stamps are of requests on an open connection: leave connect out";
        return Err(WorkloadError::conflict(spec.name, conflict));
    }
    let clock = Clock::calibrate();
    let connections = asked.at_once(asked.transport(places)?, &clock, true)?;
    let found = NetRr::figures(&connections, &clock);
    let recorders = connections.into_iter().filter_map(|c| c.recorder);
    let mut series = Series {
        mhz: clock.about().mhz,
        operations: Vec::new(),
    };
    recorders.for_each(|recorder| series.operations.extend(recorder.series(&clock).operations));
    series
        .operations
        .sort_unstable_by_key(|operation| operation.begin);
    let spec = options::spec(spec.name, NetRr::OPTIONS, &asked.values());
    Ok((found.result(spec, &clock), series))
}

/// The echo server that a workload of the network is given.
fn echo_server(workload: WorkloadName, places: &Places) -> Result<SocketAddrV4, WorkloadError> {
    let (what, option) = ("an echo server (RFC 862)", "--echo ADDRESS:PORT");
    places
        .echo
        .ok_or(WorkloadError::no_place(workload, what, option))
}

/// Returns the address of the server that takes and gives bulk data beside the echo server.
pub(crate) fn bulk_server(
    workload: WorkloadName,
    places: &Places,
) -> Result<SocketAddrV4, WorkloadError> {
    echo_server(workload, places).map(bulk_address)
}

/// Room for a key, and more than an acknowledgement without data differs by.
pub(crate) const MIN_BYTES: u64 = 16;
/// One packet, with all headers and options, on a card of 1,500 bytes.
pub(crate) const MAX_BYTES: u64 = 1400;
/// After which a request counts as lost.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// So many requests in a row without a response mean that there is no server.
const MAX_LOST: u32 = 5;
/// Bytes of a request's key.
const KEY: usize = 8;

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// A new connection for each request.
    TcpEach,
}

/// Address of a client's server, and the protocol to it.
#[derive(Debug, Clone, Copy)]
struct Transport {
    pub server: SocketAddrV4,
    pub is_tcp: bool,
    /// True if each request has a connection of its own.
    pub connects_each: bool,
}

/// A client with one request under way at a time.
struct Client {
    socket: Socket,
    transport: Transport,
    request: Vec<u8>,
    response: Vec<u8>,
    lost_in_a_row: u32,
    /// Datagrams that were no response to the request under way.
    pub others: u64,
}

impl Client {
    pub fn connect(transport: Transport, bytes: usize) -> Result<Client, WorkloadError> {
        let connected = match transport {
            Transport {
                is_tcp: true,
                connects_each: true,
                ..
            } => Ok(Socket::TcpEach),
            Transport { is_tcp: true, .. } => connection(transport.server).map(Socket::Tcp),
            _ => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
                socket.connect(transport.server)?;
                socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                Ok(Socket::Udp(socket))
            }),
        };
        let (request, response) = (vec![0x5a; bytes], vec![0; bytes]);
        match connected {
            Ok(socket) => Ok(Client {
                socket,
                transport,
                request,
                response,
                lost_in_a_row: 0,
                others: 0,
            }),
            Err(source) => Err(no_answer(
                transport.server,
                protocol(transport),
                Some(source),
            )),
        }
    }

    /// Sends the request of this key and waits for its response; whether one came.
    #[inline(always)]
    pub fn round_trip(&mut self, key: u64) -> Result<bool, WorkloadError> {
        self.request[..KEY].copy_from_slice(&key.to_le_bytes());
        let (request, response) = (&self.request, &mut self.response);
        let answered = match &mut self.socket {
            Socket::Udp(socket) => udp(socket, request, response, &mut self.others),
            Socket::Tcp(stream) => tcp(stream, request, response),
            // Its end is a part of it.
            Socket::TcpEach => connection(self.transport.server)
                .and_then(|mut stream| tcp(&mut stream, request, response)),
        };
        match answered {
            Ok(true) if self.response == self.request => {
                self.lost_in_a_row = 0;
                Ok(true)
            }
            Ok(true) => Err(self.failed(Some(io::Error::other("another answer")))),
            Ok(false) if self.lost_in_a_row < MAX_LOST => {
                self.lost_in_a_row += 1;
                Ok(false)
            }
            Ok(false) => Err(self.failed(None)),
            Err(source) => Err(self.failed(Some(source))),
        }
    }

    fn failed(&self, source: Option<io::Error>) -> WorkloadError {
        no_answer(self.transport.server, protocol(self.transport), source)
    }
}

fn protocol(transport: Transport) -> &'static str {
    if transport.is_tcp { "tcp" } else { "udp" }
}

fn connection(server: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server.into(), RESPONSE_TIMEOUT * MAX_LOST)?;
    stream.set_nodelay(true)?;
    // TCP itself repeats what was lost.
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT * MAX_LOST))?;
    Ok(stream)
}

#[inline(always)]
fn tcp(stream: &mut TcpStream, request: &[u8], response: &mut [u8]) -> io::Result<bool> {
    stream.write_all(request)?;
    stream.read_exact(response)?;
    Ok(true)
}

/// A datagram and its answer. Late answers to earlier ones, and what others send, are passed over and counted: they do not
/// make the wait for this one's longer than twice the timeout.
#[inline(always)]
fn udp(
    socket: &UdpSocket,
    request: &[u8],
    response: &mut [u8],
    others: &mut u64,
) -> io::Result<bool> {
    socket.send(request)?;
    let mut deadline = None;
    loop {
        match socket.recv(response) {
            Ok(bytes) if bytes == request.len() && response[..KEY] == request[..KEY] => {
                return Ok(true);
            }
            Ok(_) => {
                *others += 1;
                if Instant::now()
                    > *deadline.get_or_insert_with(|| Instant::now() + RESPONSE_TIMEOUT)
                {
                    return Ok(false);
                }
            }
            Err(e) if is_timeout(&e) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Returns true if a call on a socket ended because its time was up.
pub(crate) fn is_timeout(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// The error of a server that does not answer.
pub(crate) fn no_answer(
    server: SocketAddrV4,
    protocol: &'static str,
    source: Option<io::Error>,
) -> WorkloadError {
    let fix = "start an echo server there, or open the port in the firewall; vmtax's guests have a server of their own";
    WorkloadError::NoEcho {
        server,
        protocol,
        source,
        fix,
    }
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
                error.contains(&nobody.port().to_string())
                    && error.contains("an echo server there"),
                "{error}"
            );
        }
        let error = run(&WorkloadSpec::new(WorkloadName::NetRr), &Places::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--echo ADDRESS:PORT"), "{error}");
    }

    #[test]
    fn a_flood_of_other_datagrams_does_not_hold_a_request_for_ever() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(address) = server.local_addr().unwrap() else {
            panic!("an IPv4 address")
        };
        let flood = std::thread::Builder::new().spawn(move || {
            let (_, client) = server.recv_from(&mut [0; 64]).unwrap();
            let until = Instant::now() + RESPONSE_TIMEOUT * 4;
            while Instant::now() < until {
                drop(server.send_to(b"another answer", client));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let flood = flood.unwrap();
        let transport = Transport {
            server: address,
            is_tcp: false,
            connects_each: false,
        };
        let mut client = Client::connect(transport, 64).unwrap();
        let began = Instant::now();
        assert!(!client.round_trip(7).unwrap());
        assert!(
            began.elapsed() < RESPONSE_TIMEOUT * 3 && client.others > 10,
            "{:?}",
            began.elapsed()
        );
        drop(client);
        flood.join().unwrap();
    }
}
