//! `exits --vm`: which VM exits a running VM makes.

use super::profile::exits;
use crate::engine::{Notice, Report};
use crate::number::{count, counted, nanoseconds, percent, were};
use crate::text::{listed, only_if};
use crate::view::{origin, vm};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{ExitActivity, ExitCount, GuestExits, VmExits};
use vmtax_model::AddressSpace;
use vmtax_recording::Recording;

/// Smaller parts of the time are not named.
const NAMED: f64 = 0.0005;

/// Makes the report of the VM exits of a running VM.
pub fn report<'a>(recording: &'a Recording, found: &'a VmExits) -> Report<'a> {
    let origin = origin(recording);
    Report {
        study: "profile",
        title: format!("VM exits of {}", vm::name(&found.vm)),
        basis: vm::recorded(recording, &found.vm, None),
        answer: answer(found),
        next: vm::next(&origin, &found.vm),
        advice: found.exits.advice.clone(),
        notices: vec![Notice::not_observed(vm::missing(found.missing.iter()))],
        sections: vec![exits::section(&found.exits)],
        method: exits::method(&found.exits),
        origin,
        ..Report::default()
    }
}

/// Number of exits, time in which the vCPUs are halted and spin in them, and the time of the others.
fn answer(found: &VmExits) -> String {
    let (name, exits) = (vm::name(&found.vm), &found.exits);
    let has_none = exits.vcpus.iter().all(|vcpu| vcpu.count == 0);
    if let Some(why) = vm::stopped(&found.vm, &name).filter(|_| has_none) {
        return format!("No VM exits of {name} in {:.1} s: {why}.", exits.seconds);
    }
    let lost = lost(exits.lost);
    if exits.reasons.is_empty() && !exits.counters.contains_key("exits") {
        return format!(
            "No VM exit of {name} was recorded in {:.1} s.{lost}",
            exits.seconds
        );
    }
    if exits.reasons.is_empty() {
        let counted = exits.counters.get("exits").copied().unwrap_or(0);
        let per_s = rate(counted as f64 / exits.seconds.max(f64::MIN_POSITIVE));
        return format!("{name} makes {per_s} VM exits a second, by KVM's counters.");
    }
    let device = dearest_device(exits).unwrap_or_default();
    let clauses: Vec<String> = without_cost(exits).into_iter().chain(cost(exits)).collect();
    let times = only_if(!clauses.is_empty(), format!(": {}", clauses.join("; ")));
    format!("{}{times}.{lost}{device}", number(exits, &name))
}

/// "web01 makes 200 VM exits a second"; of less than a second their number, since a rate would be an extrapolation.
fn number(exits: &GuestExits, name: &str) -> String {
    // A trace without kvm_exit has an access that exits to QEMU twice.
    let mut reasons = exits.reasons.iter();
    let is_by_parts = reasons.any(|one| one.reason.starts_with("KVM_EXIT_"));
    let what = match is_by_parts {
        true => "access or exit to QEMU",
        false => "VM exit",
    };
    if exits.seconds < 1.0 {
        let all: u64 = exits.vcpus.iter().map(|vcpu| vcpu.count).sum();
        let time = nanoseconds(exits.seconds * 1e9);
        return match is_by_parts {
            true => format!(
                "{} events ({what}, one access may be both) of {name} in {time}",
                count(all)
            ),
            false => format!("{} of {name} in {time}", counted(all, what)),
        };
    }
    let per_s = rate(exits.vcpus.iter().map(|vcpu| vcpu.per_s).sum());
    match is_by_parts {
        true => format!("{name} makes {per_s} events a second ({what}, one access may be both)"),
        false => format!("{name} makes {per_s} VM exits a second"),
    }
}

fn rate(per_s: f64) -> String {
    count(per_s.round() as u64)
}

/// A sentence, behind a space, on events that a trace lost; empty where it lost none.
pub(super) fn lost(events: u64) -> String {
    match events {
        0 => String::new(),
        _ => format!(
            " {} {} lost: the counts are too low.",
            counted(events, "event"),
            were(events)
        ),
    }
}

/// Time in which the vCPUs run the guest, are halted, or wait for another of them: "its vCPUs run the guest 50 % and are halted
/// 49 % of the time".
fn without_cost(exits: &GuestExits) -> Option<String> {
    let times = exits.times();
    let part = |verb: &str, ns: f64| {
        let part = exits.part_of_time(ns);
        (part >= NAMED).then(|| format!("{verb} {}", percent(part)))
    };
    let parts = [
        part("run the guest", exits.in_guest_ns().unwrap_or(0.0)),
        part("are halted", times.halted_ns),
        part("spin", times.spinning_ns),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("its vCPUs {} of the time", listed(&parts)))
}

/// Time of the exits that KVM and QEMU handle: "other exits take 19 %, most of it msr (900/s, 12 µs each, 8.1 %)".
fn cost(exits: &GuestExits) -> Option<String> {
    let handled = exits
        .reasons
        .iter()
        .filter(|one| one.activity == ExitActivity::Handled);
    let all: u64 = handled.clone().map(|one| one.exits.count).sum();
    let timed: u64 = handled.clone().map(|one| one.exits.timed).sum();
    if timed == 0 {
        return None;
    }
    // The last exit of each vCPU is not over when tracing stops.
    let has_all = all - timed.min(all) <= exits.vcpus.len() as u64;
    let times = exits.times();
    let is_idle = exits.part_of_time(times.halted_ns.max(times.spinning_ns)) >= NAMED;
    let stands_alone = without_cost(exits).is_none();
    let which = match (stands_alone, is_idle, has_all) {
        (true, _, true) => "they",
        (true, _, false) => "those",
        (false, true, _) => "other exits",
        (false, false, _) => "exits",
    };
    let known = only_if(!has_all, " with a known time".to_owned());
    let of = only_if(stands_alone, " of its vCPUs' time".to_owned());
    let part_of_time = |ns: f64| percent(exits.part_of_time(ns));
    let most = handled.max_by(|a, b| a.exits.total_ns.total_cmp(&b.exits.total_ns));
    let most = most.filter(|most| most.exits.total_ns > 0.0);
    let most = most.map_or(String::new(), |most| {
        let mean = most.exits.mean_ns;
        let mean = mean.map_or(String::new(), |ns| format!(", {} each", nanoseconds(ns)));
        let (per_s, part) = (rate(most.exits.per_s), part_of_time(most.exits.total_ns));
        format!(", most of it {} ({per_s}/s{mean}, {part})", most.reason)
    });
    let whole = part_of_time(exits.times().handled_ns);
    Some(format!("{which}{known} take {whole}{of}{most}"))
}

/// Accesses to a device.
#[derive(Default)]
struct DeviceAccesses {
    exits: ExitCount,
    /// Addresses of the device that were accessed: `port 0xcf8`, `0xfee000b0`.
    addresses: BTreeSet<String>,
}

/// A sentence about the device whose accesses take most time; where none has a time, of the most accessed. An address whose device
/// is not known counts as a device of its own.
fn dearest_device(exits: &GuestExits) -> Option<String> {
    let mut devices: BTreeMap<String, DeviceAccesses> = BTreeMap::new();
    for access in &exits.addresses {
        let address = match access.space {
            AddressSpace::Port => format!("port {:#x}", access.address),
            AddressSpace::Memory | AddressSpace::Msr => format!("{:#x}", access.address),
        };
        let name = match (access.device.as_str(), access.space) {
            ("", AddressSpace::Msr) => continue,
            ("", _) => format!("unknown device at {address}"),
            (name, _) => name.to_owned(),
        };
        let device = devices.entry(name).or_default();
        device.addresses.insert(address);
        let sum = &mut device.exits;
        sum.count += access.exits.count;
        sum.per_s += access.exits.per_s;
        sum.timed += access.exits.timed;
        sum.total_ns += access.exits.total_ns;
    }
    let most_of = |device: &DeviceAccesses| (device.exits.total_ns, device.exits.count as f64);
    let most = |a: &DeviceAccesses, b: &DeviceAccesses| {
        let order = most_of(a).partial_cmp(&most_of(b));
        order.unwrap_or(Ordering::Equal)
    };
    let (name, device) = devices.iter().max_by(|a, b| most(a.1, b.1))?;
    let mut addresses = device.addresses.iter();
    let address = match (addresses.next(), addresses.next()) {
        (Some(only), None) if !name.ends_with(only.as_str()) => format!(" ({only})"),
        _ => String::new(),
    };
    let sum = &device.exits;
    let part = percent(exits.part_of_time(sum.total_ns));
    let (what, time) = match sum.timed {
        0 => ("Most accessed device", String::new()),
        _ => ("Device with most time", format!(", {part} of the time")),
    };
    let accesses = match exits.seconds < 1.0 {
        true if sum.count == 1 => "1 access".to_owned(),
        true => format!("{} accesses", count(sum.count)),
        false => format!("{} accesses/s", rate(sum.per_s)),
    };
    Some(format!(" {what}: {name}{address}, {accesses}{time}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{DevicesFrom, ExitAddress, ExitReason, VcpuExits};
    use vmtax_model::{RunState, VmFacts};

    fn ten_seconds(
        vcpus: Vec<VcpuExits>,
        reasons: Vec<ExitReason>,
        addresses: Vec<ExitAddress>,
    ) -> GuestExits {
        GuestExits {
            seconds: 10.0,
            vcpus,
            reasons,
            addresses,
            devices_from: DevicesFrom::UsualPlaces,
            timing: String::new(),
            lost: 0,
            counters: BTreeMap::new(),
            page_faults: None,
            timers: Vec::new(),
            advice: Vec::new(),
        }
    }

    /// Ten seconds of a VM of two vCPUs with these reasons: how often, how often with a known time, and that time in ms.
    fn sentence(reasons: &[(&str, u64, u64, f64)]) -> String {
        sentence_with(None, reasons)
    }

    /// The same of vCPUs that ran the guest for so many ms each.
    fn sentence_with(in_guest_ms: Option<f64>, reasons: &[(&str, u64, u64, f64)]) -> String {
        let reason = |(reason, count, timed, ms): &(&str, u64, u64, f64)| {
            let (per_s, total_ns) = (*count as f64 / 10.0, ms * 1e6);
            let mean_ns = (*timed > 0).then(|| total_ns / *timed as f64);
            let count = ExitCount {
                count: *count,
                per_s,
                timed: *timed,
                total_ns,
                mean_ns,
                ..ExitCount::default()
            };
            ExitReason::new((*reason).to_owned(), count)
        };
        let all: u64 = reasons.iter().map(|(_, count, ..)| count).sum();
        let vcpu = |vcpu| VcpuExits {
            vcpu,
            tid: 40 + vcpu as i32,
            count: all / 2,
            per_s: all as f64 / 20.0,
            total_ns: 0.0,
            halted_ns: 0.0,
            spinning_ns: 0.0,
            in_guest_ns: in_guest_ms.map(|ms| ms * 1e6),
        };
        let exits = ten_seconds(
            vec![vcpu(0), vcpu(1)],
            reasons.iter().map(reason).collect(),
            Vec::new(),
        );
        let vm = VmFacts {
            name: Some("web01".to_owned()),
            ..VmFacts::unknown(40)
        };
        answer(&VmExits {
            vm,
            exits,
            missing: Vec::new(),
        })
        .replace('\u{a0}', " ")
    }

    /// An idle VM, on Intel's and on AMD's CPUs: 18.6 of 20 s in HLT, 80 ms in all other exits.
    #[test]
    fn idling_is_no_cost_of_exits() {
        let expected = |msr: &str| {
            format!(
                "web01 makes 30 VM exits a second: its vCPUs are halted 93 % of the time; other exits take 0.4 %, most of it \
                 {msr} (12/s, 500 µs each, 0.3 %)."
            )
        };
        assert_eq!(
            sentence(&[
                ("HLT", 160, 160, 18_600.0),
                ("MSR_WRITE", 120, 120, 60.0),
                ("EPT_VIOLATION", 20, 20, 20.0)
            ]),
            expected("MSR_WRITE")
        );
        assert_eq!(
            sentence(&[
                ("hlt", 160, 158, 18_600.0),
                ("msr", 120, 120, 60.0),
                ("npf", 20, 20, 20.0)
            ]),
            expected("msr")
        );
    }

    #[test]
    fn the_time_in_the_guest_stands_first_where_it_is_known() {
        let msr = ("MSR_WRITE", 120, 120, 60.0);
        assert_eq!(
            sentence_with(Some(640.0), &[("HLT", 160, 160, 18_600.0), msr]),
            "web01 makes 28 VM exits a second: its vCPUs run the guest 6.4 % and are halted 93 % of the time; other exits \
             take 0.3 %, most of it MSR_WRITE (12/s, 500 µs each, 0.3 %)."
        );
        assert_eq!(
            sentence_with(Some(9_900.0), &[msr]),
            "web01 makes 12 VM exits a second: its vCPUs run the guest 99 % of the time; exits take 0.3 %, most of it \
             MSR_WRITE (12/s, 500 µs each, 0.3 %)."
        );
    }

    #[test]
    fn a_device_is_all_of_its_registers_and_one_without_a_name_is_one() {
        let access = |space, address, device: &str, count: u64, ms: f64| {
            let exits = ExitCount {
                count,
                per_s: count as f64,
                timed: count,
                total_ns: ms * 1e6,
                ..ExitCount::default()
            };
            ExitAddress {
                space,
                address,
                write: true,
                device: device.to_owned(),
                register: String::new(),
                exits,
            }
        };
        let dearest_of = |addresses: Vec<ExitAddress>| {
            let vcpu = VcpuExits {
                vcpu: 0,
                tid: 1,
                count: 0,
                per_s: 0.0,
                total_ns: 0.0,
                halted_ns: 0.0,
                spinning_ns: 0.0,
                in_guest_ns: None,
            };
            let exits = GuestExits {
                seconds: 1.0,
                ..ten_seconds(vec![vcpu], Vec::new(), addresses)
            };
            dearest_device(&exits)
                .unwrap_or_default()
                .replace('\u{a0}', " ")
        };
        let (port, memory) = (AddressSpace::Port, AddressSpace::Memory);
        let [apm, control] = [0xb2, 0xb3].map(|address| access(port, address, "apm-io", 100, 15.0));
        let notify = access(memory, 0xfebf_b000, "virtio-pci-notify", 240, 23.0);
        assert_eq!(
            dearest_of(vec![notify.clone(), apm, control]),
            " Device with most time: apm-io, 200 accesses/s, 3.0 % of the time."
        );
        let [unknown, rtc] = [
            access(memory, 0xfebf_b000, "", 240, 23.0),
            access(port, 0x70, "rtc", 400, 2.0),
        ];
        assert_eq!(
            dearest_of(vec![rtc, unknown]),
            " Device with most time: unknown device at 0xfebfb000, 240 accesses/s, 2.3 % of the time."
        );
        assert_eq!(
            dearest_of(vec![access(AddressSpace::Msr, 0x6e0, "", 9000, 90.0)]),
            "",
            "the CPU's own register is no device"
        );
    }

    #[test]
    fn a_guest_that_does_not_run_makes_no_exits_for_that_reason() {
        let state = Some(RunState::Stopped("paused".to_owned()));
        let vm = VmFacts {
            name: Some("web01".to_owned()),
            state,
            ..VmFacts::unknown(40)
        };
        let exits = ten_seconds(Vec::new(), Vec::new(), Vec::new());
        assert_eq!(
            answer(&VmExits {
                vm,
                exits,
                missing: Vec::new()
            }),
            "No VM exits of web01 in 10.0 s: web01 is paused."
        );
    }

    #[test]
    fn spinning_stands_apart_and_so_do_exits_without_a_time() {
        assert_eq!(
            sentence(&[
                ("hlt", 100, 100, 8_000.0),
                ("pause", 900, 900, 1_000.0),
                ("msr", 1000, 1000, 4_000.0)
            ]),
            "web01 makes 200 VM exits a second: its vCPUs are halted 40 % and spin 5.0 % of the time; other exits take 20 %, \
             most of it msr (100/s, 4.00 ms each, 20 %)."
        );
        assert_eq!(
            sentence(&[("IO_INSTRUCTION", 1000, 1000, 2_000.0)]),
            "web01 makes 100 VM exits a second: they take 10 % of its vCPUs' time, most of it IO_INSTRUCTION (100/s, 2.00 ms each, 10 %)."
        );
        let some = sentence(&[("port I/O", 1000, 500, 2_000.0), ("MSR", 900, 0, 0.0)]);
        assert!(
            some.contains("a second: those with a known time take 10 % of its vCPUs' time, most of it port I/O"),
            "{some}"
        );
        assert_eq!(
            sentence(&[("MSR", 900, 0, 0.0)]),
            "web01 makes 90 VM exits a second.",
            "no time is known"
        );
        assert_eq!(
            sentence(&[("HLT", 100, 100, 10_000.0)]),
            "web01 makes 10 VM exits a second: its vCPUs are halted 50 % of the time."
        );
    }
}
