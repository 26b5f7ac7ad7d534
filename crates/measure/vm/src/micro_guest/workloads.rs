//! The micro-guest as a machine, with its workloads: `disk` and `net-rr` by its own drivers, `exits`, and `antipatterns`, what guest kernels
//! do at a cost, and the fixes.

use super::guest::MicroGuest;
use super::layout::{self, KEY, NET_HEADER};
use super::{
    Completion, Direction, ExitKind, Failure, MicroError, MicroRequest, Order, Pattern, RoundTrips,
    Run, workloads,
};
use crate::agent::messages::Files;
use crate::network::{HOST_MAC, mac_bytes};
use crate::running::RunningMachine;
use crate::vmm::qemu::monitor::QMP_TIMEOUT;
use crate::{MachineError, Vm};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use vmtax_model::{
    Antipattern, KERNEL_MODE, KernelIdentity, Latency, Measure, Metric, Operation, OperationExits,
    Ping, Probes, QemuThread, Series, Stamped, Timer, TimerSource, TrialResult, WorkloadName,
    WorkloadSpec, round_trip_key,
};
use vmtax_wire::{NET_ADDRESS, NET_MAC, Observed};
use vmtax_workload::{
    AntipatternWork, BlockWork, RESPONSE_TIMEOUT, RoundTripWork, WARM_UP, WorkloadError,
};

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
        let (result, series) = workloads::run(self, workload, timeout)?;
        if probes != Probes::None {
            files(vmtax_model::files::SERIES, &series.to_bytes()).map_err(|what| {
                MachineError::System {
                    what,
                    source: std::io::ErrorKind::Other.into(),
                }
            })?;
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

/// Of what takes milliseconds each.
const MAX_LONG: u32 = 50;
/// Approximate duration of an order while an antipattern is repeated; an order has at most `MAX_REPEATED` repetitions.
const LONG_ORDER: Duration = Duration::from_millis(20);
const MAX_REPEATED: u32 = 100_000;

/// Antipatterns and their fixes, as often and as long as asked for.
pub(super) fn antipatterns(
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
        let long = matches!(antipattern, Antipattern::FastTick | Antipattern::TraceLine);
        let work = AntipatternWork {
            count: if long {
                work.count.min(MAX_LONG)
            } else {
                work.count
            },
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
        let mut latency = Latency::new();
        made.ticks
            .iter()
            .for_each(|&ticks| latency.record(ns(ticks, mhz)));
        total += made.ticks.iter().map(|&ticks| ns(ticks, mhz)).sum::<u64>();
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

/// The guest's only thread.
pub(super) const THREAD: i32 = 1;
/// The guest's port: any.
const PORT: u16 = 40_000;
/// Ethernet protocol number of IPv4 (`ETH_P_IP`).
const IPV4: [u8; 2] = [8, 0];
const UDP: u8 = 17;

/// The frame to `echo` with `size` bytes of payload, behind the card's header; its key is that of number 0.
pub(super) fn request(echo: SocketAddrV4, size: u16) -> Vec<u8> {
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
