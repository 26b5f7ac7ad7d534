//! The micro-guest as a machine, with its workloads: `disk` and `net-rr` by its own drivers, `exits`, and `antipatterns`,
//! what guest kernels do at a cost, and the fixes.

use super::guest::MicroGuest;
use super::layout::{self, KEY, NET_HEADER};
use super::{
    Completion, Direction, ExitKind, Failure, MicroError, MicroRequest, Order, Pattern, RoundTrips,
    Run,
};
use crate::MachineError;
use crate::agent::messages::Files;
use crate::network::{HOST_MAC, mac_bytes};
use crate::running::RunningMachine;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use vmtax_model::{
    Antipattern, KERNEL_MODE, KernelIdentity, Latency, Measure, Metric, Operation, OperationExits,
    Ping, Probes, QemuThread, Series, Stamped, Timer, TimerSource, TrialResult, WorkloadName,
    WorkloadSpec, round_trip_key,
};
use vmtax_vmm::Vm;
use vmtax_vmm::qemu::monitor::QMP_TIMEOUT;
use vmtax_wire::{NET_ADDRESS, NET_MAC, Observed};
use vmtax_workload::{
    AntipatternWork, BlockWork, RESPONSE_TIMEOUT, RoundTripWork, WARM_UP, WorkloadError,
};

/// Requests, and round trips, where the workload names no count.
const REQUESTS: u64 = 1000;
/// Halts in a trial: each takes a millisecond.
const MAX_HALTS: u32 = 500;
/// Repetitions in a trial of an antipattern that takes milliseconds each.
const MAX_LONG: u32 = 50;
/// Approximate duration of an order while an antipattern is repeated; an order has at most `MAX_REPEATED` repetitions.
const LONG_ORDER: Duration = Duration::from_millis(20);
const MAX_REPEATED: u32 = 100_000;
/// Time limit of the guest for one completion, seconds.
const COMPLETION_S: f64 = 30.0;
/// The guest's only thread.
const THREAD: i32 = 1;
/// The guest's port: any.
const PORT: u16 = 40_000;
/// Ethernet protocol number of IPv4 (`ETH_P_IP`).
const IPV4: [u8; 2] = [8, 0];
const UDP: u8 = 17;

impl RunningMachine for MicroGuest<'_> {
    fn boot(&self) -> Duration {
        self.boot
    }

    fn run(
        &mut self,
        workload: &WorkloadSpec,
        probes: Probes,
        timeout: Duration,
        files: &mut Files<'_>,
    ) -> Result<(TrialResult, Option<Observed>), MachineError> {
        let (result, series) = run(self, workload, timeout)?;
        if probes != Probes::None {
            files(vmtax_model::files::SERIES, &series.to_bytes())
                .map_err(|what| MachineError::system(what, std::io::ErrorKind::Other))?;
        }
        Ok((result, None))
    }

    fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError> {
        self.mailbox()?.order(&Order::Ping)?;
        let (host, guest) = (layout::words::HOST_STAMP, layout::words::GUEST_STAMP);
        let ping = vmtax_clock::exchange(
            &self.memory,
            layout::MAILBOX + host,
            layout::MAILBOX + guest,
            duration,
        );
        self.wait(Instant::now() + QMP_TIMEOUT, "exchanging time stamps")?;
        Ok(ping?)
    }

    fn network_threads(&self) -> Vec<QemuThread> {
        self.network
            .as_ref()
            .map_or(Vec::new(), |(network, _)| network.threads())
    }

    fn vm(&self) -> Option<&Vm> {
        Some(&self.vm)
    }

    fn end(mut self: Box<Self>) {
        let told = self
            .mailbox()
            .is_ok_and(|mailbox| mailbox.order(&Order::Leave).is_ok());
        if !told || self.child.wait(QMP_TIMEOUT).is_none() {
            self.vm.quit();
            self.child.wait(QMP_TIMEOUT);
        }
    }
}

/// Runs the workload; gives its result, and each request's own stamps where it makes requests.
fn run(
    guest: &mut MicroGuest<'_>,
    workload: &WorkloadSpec,
    timeout: Duration,
) -> Result<(TrialResult, Series), MachineError> {
    let mhz = vmtax_clock::host_mhz();
    let refused = |e: WorkloadError| MachineError::Workload(e.to_string());
    match workload.name {
        WorkloadName::Exits => {
            let count = vmtax_workload::exit_count(workload).map_err(refused)?;
            let result = exits(guest, workload, count, mhz, timeout)?;
            Ok((result, Series::default()))
        }
        WorkloadName::GuestAntipatterns => {
            let work = vmtax_workload::antipattern_work(workload).map_err(refused)?;
            let result = antipatterns(guest, workload, work, mhz, timeout)?;
            Ok((result, Series::default()))
        }
        WorkloadName::NetRr => {
            let work = vmtax_workload::round_trip_work(workload).map_err(refused)?;
            round_trips(guest, work, mhz, timeout)
        }
        _ => {
            let work = vmtax_workload::block_work(workload).map_err(refused)?;
            let all = guest.requests(order(&work, guest.disk_bytes(), mhz), timeout)?;
            let figures = [Metric::DiskMedian, Metric::DiskTail, Metric::DiskRate];
            let key = |place| place * u64::from(layout::SECTOR);
            Ok(timed(workload, work.operation(), &all, key, figures, mhz))
        }
    }
}

/// The order of `disk`'s requests.
fn order(work: &BlockWork, disk_bytes: u64, mhz: f64) -> Run {
    Run {
        count: u32::try_from(count_of(work.count)).unwrap_or(u32::MAX),
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

/// Makes the round trips of `net-rr` by the guest's own driver of a network card.
fn round_trips(
    guest: &mut MicroGuest<'_>,
    work: RoundTripWork,
    mhz: f64,
    timeout: Duration,
) -> Result<(TrialResult, Series), MachineError> {
    let echo = guest
        .echo()
        .ok_or_else(|| MachineError::NoNetwork("the machine was started without one".to_owned()))?;
    let frame = request(echo, work.bytes as u16);
    let order = RoundTrips {
        count: u32::try_from(count_of(work.count) + WARM_UP).unwrap_or(u32::MAX),
        bytes: frame.len() as u32,
        timeout: (RESPONSE_TIMEOUT.as_secs_f64() * mhz * 1e6) as u64,
    };
    let all = guest.round_trips(&frame, order, timeout)?;
    let all = all.get(WARM_UP as usize..).unwrap_or_default();
    let figures = [Metric::NetRrMedian, Metric::NetRrTail, Metric::NetRrRate];
    let key = |number| round_trip_key(THREAD, number);
    Ok(timed(&work.spec, "round-trip", all, key, figures, mhz))
}

/// The count that a workload names, or the usual one.
fn count_of(named: u64) -> u64 {
    if named == 0 { REQUESTS } else { named }
}

/// The request of a round trip, a UDP datagram in an Ethernet frame: `size` bytes of payload to `echo`, behind the card's
/// header; its key is that of number 0.
fn request(echo: SocketAddrV4, size: u16) -> Vec<u8> {
    let mut frame = vec![0; NET_HEADER];
    frame.extend(mac_bytes(HOST_MAC));
    frame.extend(mac_bytes(NET_MAC));
    frame.extend(IPV4);
    let (of_udp, of_ip) = (8 + size, 20 + 8 + size);
    // Version 4, five words; no fragments (RFC 791).
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&of_ip.to_be_bytes());
    header[6] = 0x40;
    header[8..10].copy_from_slice(&[64, UDP]);
    header[12..16].copy_from_slice(&NET_ADDRESS.octets());
    header[16..20].copy_from_slice(&echo.ip().octets());
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame.extend(header);
    frame.extend(PORT.to_be_bytes());
    frame.extend(echo.port().to_be_bytes());
    frame.extend(of_udp.to_be_bytes());
    // No checksum (RFC 768).
    frame.extend([0; 2]);
    debug_assert_eq!(frame.len(), KEY);
    frame.extend(round_trip_key(THREAD, 0).to_le_bytes());
    frame.resize(KEY + usize::from(size), 0x5a);
    frame
}

/// The result of requests with stamps of their own, and these. `key`: that of a request at a place; `figures`: those that the
/// workload has with an agent, median and 99th percentile of the latency, and rate.
fn timed(
    workload: &WorkloadSpec,
    name: &str,
    requests: &[MicroRequest],
    key: impl Fn(u64) -> u64,
    figures: [Metric; 3],
    mhz: f64,
) -> (TrialResult, Series) {
    let stamped = |request: &MicroRequest| Stamped {
        begin: request.begin,
        end: request.seen,
        key: key(request.place),
    };
    let operations: Vec<Stamped> = requests.iter().map(stamped).collect();
    let (latency, _) = latency(operations.iter().map(|o| o.end - o.begin), mhz);
    let total_ns = match (operations.first(), operations.last()) {
        (Some(first), Some(last)) => ns(last.end - first.begin, mhz),
        _ => 0,
    };
    let rate = latency.count() as f64 / (total_ns as f64 / 1e9);
    let values = [
        latency.quantile(0.5) as f64,
        latency.quantile(0.99) as f64,
        rate,
    ];
    let measures = (figures.into_iter().zip(values))
        .filter(|_| latency.count() > 0 && total_ns > 0)
        .map(|(metric, value)| Measure { metric, value });
    let measures = measures.collect();
    let operation = Operation {
        name: name.to_owned(),
        latency,
    };
    let result = TrialResult {
        measures,
        ..result(workload, vec![operation], total_ns, mhz)
    };
    (result, Series { mhz, operations })
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
        let most = if kind == ExitKind::Halt {
            MAX_HALTS
        } else {
            u32::MAX
        };
        let (latency, took) = latency(guest.exits(kind, count.min(most), timeout)?, mhz);
        total += took;
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

/// Antipatterns and their fixes, as often and as long as asked for, with the exits that KVM counts meanwhile.
fn antipatterns(
    guest: &mut MicroGuest<'_>,
    workload: &WorkloadSpec,
    work: AntipatternWork,
    mhz: f64,
    timeout: Duration,
) -> Result<TrialResult, MachineError> {
    let (mut operations, mut exits, mut notes, mut total) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (antipattern, fixed) in Antipattern::forms() {
        let name = antipattern.label(fixed).to_owned();
        if !work.forms[usize::from(fixed)] {
            notes.push(format!("{name}: not asked for"));
            continue;
        }
        let is_long = matches!(antipattern, Antipattern::FastTick | Antipattern::TraceLine);
        let most = if is_long { MAX_LONG } else { u32::MAX };
        let work = AntipatternWork {
            count: work.count.min(most),
            ..work
        };
        let made = match made(guest, antipattern, fixed, work, timeout) {
            Ok(made) => made,
            Err(MachineError::Micro(MicroError::Failed(
                why @ (Failure::NoX2apic | Failure::NoHpet),
            ))) => {
                notes.push(format!("{name}: {why}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let (latency, took) = latency(made.ticks, mhz);
        total += took;
        exits.extend(made.exits.map(|each| OperationExits {
            operation: name.clone(),
            each,
        }));
        operations.push(Operation { name, latency });
    }
    Ok(TrialResult {
        exits,
        notes,
        ..result(workload, operations, total, mhz)
    })
}

/// Costs of an antipattern: ticks of each repetition, and exits of each, where KVM counts them.
struct Made {
    ticks: Vec<u64>,
    exits: Option<f64>,
}

/// An order has exits of its own; once and then `count` times shows how many each antipattern has. What is repeated for longer
/// is for others to observe.
fn made(
    guest: &mut MicroGuest<'_>,
    antipattern: Antipattern,
    fixed: bool,
    AntipatternWork { count, time, .. }: AntipatternWork,
    timeout: Duration,
) -> Result<Made, MachineError> {
    let counted = |guest: &mut MicroGuest<'_>, count| {
        let before = guest.exits_by_now();
        let ticks = guest.antipattern(antipattern, fixed, count, timeout)?;
        let exits = guest
            .exits_by_now()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before) as f64);
        Ok::<_, MachineError>((ticks, exits))
    };
    counted(guest, count)?; // the table's pages are new to the host the first time
    let (_, once) = counted(guest, 1)?;
    let (ticks, all) = counted(guest, count)?;
    let (mut more, begun) = (count, Instant::now());
    while begun.elapsed() < time {
        let order = Instant::now();
        guest.antipattern(antipattern, fixed, more, timeout)?;
        // Between orders it waits for the next one.
        if order.elapsed() < LONG_ORDER {
            more = (more * 2).min(MAX_REPEATED).max(count);
        }
    }
    let exits = all
        .zip(once)
        .map(|(all, once)| ((all - once) / f64::from(count - 1)).max(0.0));
    Ok(Made { ticks, exits })
}

/// Ticks of a time stamp counter of `mhz` MHz as nanoseconds.
fn ns(ticks: u64, mhz: f64) -> u64 {
    (ticks as f64 * 1000.0 / mhz).round() as u64
}

/// The latencies of operations that took so many ticks each, and their sum, ns.
fn latency(ticks: impl IntoIterator<Item = u64>, mhz: f64) -> (Latency, u64) {
    let (mut latency, mut total_ns) = (Latency::new(), 0);
    for ticks in ticks {
        latency.record(ns(ticks, mhz));
        total_ns += ns(ticks, mhz);
    }
    (latency, total_ns)
}

/// The result of a workload; `total_ns` is the time that its operations took.
fn result(
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
    TrialResult {
        operations,
        total_s: total_ns as f64 / 1e9,
        ..TrialResult::new(workload.clone(), timer, kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_wire::ECHO;

    #[test]
    fn a_request_is_a_datagram_with_its_key_where_the_guest_writes_it() {
        let frame = request(ECHO, 64);
        let found = vmtax_trace::payload(&frame).unwrap();
        assert_eq!((found.at, found.length, frame.len()), (KEY, 64, KEY + 64));
        assert_eq!(
            vmtax_trace::payload_word(&frame, None, None),
            Some(round_trip_key(THREAD, 0))
        );
    }
}
