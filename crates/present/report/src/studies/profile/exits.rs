//! VM exits by reason, address and vCPU.

use crate::engine::{Column, Section, Table, figures, words};
use crate::number::{NONE, count, counted, nanoseconds, were};
use crate::text::Joined;
use vmtax_findings::{DevicesFrom, ExitActivity, ExitAddress, ExitCount, GuestExits, VcpuExits};
use vmtax_model::AddressSpace;

/// Reasons and addresses that a terminal shows without details.
const SHOWN: usize = 12;

/// Makes the section with the tables of VM exits.
pub fn section(exits: &GuestExits) -> Section<'_> {
    let mut tables = Vec::new();
    if !exits.reasons.is_empty() {
        let reasons = exits.reasons.iter();
        let rows = reasons.map(|one| (vec![one.reason.clone()], &one.exits));
        let heads = vec![words("reason").cut(20, 8)];
        tables.push(table("VM exits by reason", heads, rows, activities(exits)));
    }
    if !exits.addresses.is_empty() {
        let heads = vec![
            words("address"),
            words("access"),
            words("device").cut(20, 8),
        ];
        let row = |exit: &ExitAddress| {
            let access = if exit.write { "write" } else { "read" };
            let device = device(exit, exits.devices_from);
            vec![address(exit), access.to_owned(), device]
        };
        let rows = exits.addresses.iter().map(|exit| (row(exit), &exit.exits));
        tables.push(table("VM exits by address", heads, rows, None));
    }
    if exits.vcpus.len() > 1 {
        tables.push(by_vcpu(exits));
    }
    if exits.reasons.is_empty() && !exits.counters.is_empty() {
        let table = Table::of("KVM counters", counters(exits))
            .column(words("KVM counter").cut(30, 16), |(name, _)| name.as_str())
            .column(figures("increase"), |(_, value)| count(**value));
        tables.push(table.done());
    }
    Section::new(title(exits), tables)
}

fn by_vcpu(exits: &GuestExits) -> Table {
    let heads = [
        "tid", "exits", "per s", "in guest", "halted", "spinning", "other",
    ];
    let cells = |vcpu: &&VcpuExits| {
        let other = vcpu.total_ns - vcpu.halted_ns - vcpu.spinning_ns;
        let [halted, spinning, other] =
            [vcpu.halted_ns, vcpu.spinning_ns, other.max(0.0)].map(nanoseconds);
        let in_guest = vcpu.in_guest_ns.map_or(NONE.to_owned(), nanoseconds);
        let (count, per_s) = (count(vcpu.count), per_s(vcpu.per_s));
        let tid = vcpu.tid.to_string();
        [tid, count, per_s, in_guest, halted, spinning, other]
    };
    Table::of("VM exits by vCPU", &exits.vcpus)
        .column(words("vCPU"), |vcpu| vcpu.vcpu.to_string())
        .figures(heads, cells)
        .done()
        .most(SHOWN)
}

/// Names the reasons that cost nothing: "HLT: the vCPU is halted until an interrupt. PAUSE_INSTRUCTION: it spins."
fn activities(exits: &GuestExits) -> Option<String> {
    let line = |activity, text: &str| {
        let reasons = exits.reasons.iter().filter(|one| one.activity == activity);
        let reasons = reasons.map(|one| one.reason.as_str()).joined(", ");
        (!reasons.is_empty()).then(|| format!("{reasons}: {text}"))
    };
    let halted = line(
        ExitActivity::Halted,
        "the vCPU is halted until an interrupt.",
    );
    let spinning = line(ExitActivity::Spinning, "the vCPU spins, as for a lock.");
    // A trace without kvm_exit has both of an access.
    let mut to_qemu = exits.reasons.iter().map(|one| one.reason.as_str());
    let to_qemu = to_qemu.find(|reason| reason.starts_with("KVM_EXIT_"));
    let to_qemu = to_qemu.map(|_| {
        "KVM_EXIT_…: exits to QEMU (kvm_userspace_exit); port I/O, MMIO, MSR: accesses (kvm_pio, kvm_mmio, kvm_msr). \
         One access may be in both."
            .to_owned()
    });
    let lines: Vec<String> = halted.into_iter().chain(spinning).chain(to_qemu).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// "VM exits: 12,300 in 3.1 s on 1 vCPU, 4,000/s".
fn title(exits: &GuestExits) -> String {
    let all: u64 = exits.vcpus.iter().map(|vcpu| vcpu.count).sum();
    match exits.vcpus.len() {
        0 if exits.counters.is_empty() => format!("VM exits: none in {:.1} s", exits.seconds),
        0 => format!("VM exits in {:.1} s, from KVM's counters", exits.seconds),
        n => {
            let rate = per_s(exits.vcpus.iter().map(|vcpu| vcpu.per_s).sum());
            let (all, on, seconds) = (count(all), counted(n as u64, "vCPU"), exits.seconds);
            if seconds < 1.0 {
                let time = nanoseconds(seconds * 1e9);
                return format!("VM exits: {all} in {time} on {on}");
            }
            format!("VM exits: {all} in {seconds:.1} s on {on}, {rate}/s")
        }
    }
}

/// A table of words and figures, with a note; the rate is left out first, since names say more.
fn table<'a>(
    label: &str,
    words: Vec<Column>,
    rows: impl Iterator<Item = (Vec<String>, &'a ExitCount)>,
    note: Option<String>,
) -> Table {
    let heads = [
        ("exits", 0),
        ("to QEMU", 2),
        ("per s", 1),
        ("total", 3),
        ("mean", 0),
    ];
    let heads = heads.map(|(name, spare)| Column {
        samples: name == "exits",
        ..figures(name).spare(spare)
    });
    let rows: Vec<(Vec<String>, &ExitCount)> = rows.collect();
    let untimed = |exits: &ExitCount| exits.timed > 0 && exits.timed < exits.count;
    let of_times = rows.iter().any(|(_, exits)| untimed(exits));
    let of_times =
        of_times.then(|| "total and mean: of the exits that have a time, see Method".to_owned());
    let rows = rows
        .into_iter()
        .map(|(words, exits)| [words, exit_figures(exits).to_vec()].concat());
    Table::new(label, words.into_iter().chain(heads).collect())
        .rows(rows)
        .most(SHOWN)
        .notes(note.into_iter().chain(of_times).collect())
}

/// "0x3fd", "0xfee000b0", "MSR 0x6e0".
fn address(exit: &ExitAddress) -> String {
    match exit.space {
        AddressSpace::Port | AddressSpace::Memory => format!("{:#x}", exit.address),
        AddressSpace::Msr => format!("MSR {:#x}", exit.address),
    }
}

/// "serial, line status"; what is known of it.
fn device(exit: &ExitAddress, from: DevicesFrom) -> String {
    match (exit.device.as_str(), exit.register.as_str()) {
        ("", _) if from == DevicesFrom::MemoryTree => "no device".to_owned(),
        ("", _) => "unknown".to_owned(),
        (device, "") => device.to_owned(),
        (device, register) => format!("{device}, {register}"),
    }
}

/// Returns the number of exits, the number that QEMU handled, the rate per second, the total time and the mean.
fn exit_figures(exits: &ExitCount) -> [String; 5] {
    let total = exits.mean_ns.map(|_| exits.total_ns);
    let [total, mean] = [total, exits.mean_ns].map(|ns| ns.map_or(NONE.to_owned(), nanoseconds));
    let user = exits.user.map_or(NONE.to_owned(), count);
    [count(exits.count), user, per_s(exits.per_s), total, mean]
}

/// A rate per second: with one decimal below ten.
pub fn per_s(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        count(rate.round() as u64)
    }
}

/// The counters that grew, those of exits and interrupts first.
fn counters(exits: &GuestExits) -> Vec<(&String, &u64)> {
    let grown = exits.counters.iter().filter(|(_, value)| **value > 0);
    let mut grown: Vec<(&String, &u64)> = grown.collect();
    grown.sort_by_key(|(name, _)| !["exit", "irq", "halt"].iter().any(|one| name.contains(one)));
    grown.truncate(2 * SHOWN);
    grown
}

/// Returns the method by which the exits were timed and named, and the missing data.
pub fn method(exits: &GuestExits) -> Vec<String> {
    let mut lines = Vec::new();
    if !exits.timing.is_empty() {
        lines.push(exits.timing.clone());
    }
    if !exits.addresses.is_empty() {
        let from = match exits.devices_from {
            DevicesFrom::MemoryTree => "from QEMU's memory tree (info mtree)",
            DevicesFrom::UsualPlaces => "guessed from a PC's standard address map",
        };
        lines.push(format!("Device names are {from}."));
    }
    if exits.lost > 0 {
        let (lost, were) = (count(exits.lost), were(exits.lost));
        lines.push(format!(
            "{lost} KVM events {were} lost: there were more exits than are counted."
        ));
    }
    lines
}
