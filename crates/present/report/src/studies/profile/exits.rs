//! VM exits by reason, address and vCPU.

use crate::engine::{Block, Cell, Column, Section, Table};
use crate::number::{NONE, count, counted, nanoseconds, were};
use vmtax_model::{AddressSpace, DevicesFrom, ExitActivity, ExitAddress, ExitCount, GuestExits};

/// Reasons and addresses that a terminal shows without details.
const SHOWN: usize = 12;

/// Makes the section with the tables of VM exits.
pub fn section(exits: &GuestExits) -> Section<'_> {
    let mut blocks = Vec::new();
    if !exits.reasons.is_empty() {
        let rows = exits
            .reasons
            .iter()
            .map(|reason| (vec![reason.reason.clone()], &reason.exits));
        let words = vec![Column::words("reason").cut(20, 8)];
        blocks.push(table("VM exits by reason", words, rows, activities(exits)));
    }
    if !exits.addresses.is_empty() {
        let words = vec![
            Column::words("address"),
            Column::words("access"),
            Column::words("device").cut(20, 8),
        ];
        let row = |exit: &ExitAddress| {
            vec![
                address(exit),
                direction(exit).to_owned(),
                device(exit, exits.devices_from),
            ]
        };
        let rows = exits.addresses.iter().map(|exit| (row(exit), &exit.exits));
        blocks.push(table("VM exits by address", words, rows, None));
    }
    if exits.vcpus.len() > 1 {
        let is_timed = exits.reasons.iter().any(|reason| reason.exits.timed > 0);
        let table = Table::of("VM exits by vCPU", &exits.vcpus)
            .column(Column::words("vCPU"), |vcpu| vcpu.vcpu.to_string())
            .figures(
                ["tid", "exits", "per s", "halted", "spinning", "other"],
                |vcpu| {
                    let other = vcpu.total_ns - vcpu.halted_ns - vcpu.spinning_ns;
                    let time = |ns| {
                        if is_timed {
                            nanoseconds(ns)
                        } else {
                            NONE.to_owned()
                        }
                    };
                    let [halted, spinning, other] =
                        [vcpu.halted_ns, vcpu.spinning_ns, other.max(0.0)].map(time);
                    [
                        vcpu.tid.to_string(),
                        count(vcpu.count),
                        per_s(vcpu.per_s),
                        halted,
                        spinning,
                        other,
                    ]
                },
            );
        blocks.push(table.done().most(SHOWN));
    }
    if exits.reasons.is_empty() && !exits.counters.is_empty() {
        let table = Table::of("KVM counters", counters(exits))
            .column(Column::words("KVM counter").cut(30, 16), |(name, _)| {
                name.as_str()
            })
            .column(Column::figures("increase"), |(_, value)| count(**value));
        blocks.push(table.done());
    }
    Section::new(title(exits), blocks.into_iter().map(Block::Table).collect())
}

/// Names the reasons that cost nothing: "HLT: the vCPU is halted until an interrupt. PAUSE_INSTRUCTION: it spins."
fn activities(exits: &GuestExits) -> Option<String> {
    let reasons = |activity| {
        let of = exits
            .reasons
            .iter()
            .filter(|reason| reason.activity == activity);
        of.map(|reason| reason.reason.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let line =
        |reasons: String, text: &str| (!reasons.is_empty()).then(|| format!("{reasons}: {text}"));
    let halted = line(
        reasons(ExitActivity::Halted),
        "the vCPU is halted until an interrupt.",
    );
    let spinning = line(
        reasons(ExitActivity::Spinning),
        "the vCPU spins, as for a lock.",
    );
    let lines: Vec<String> = halted.into_iter().chain(spinning).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// "VM exits: 12,300 in 3.1 s on 1 vCPU, 4,000/s".
fn title(exits: &GuestExits) -> String {
    let all: u64 = exits.vcpus.iter().map(|vcpu| vcpu.count).sum();
    match exits.vcpus.len() {
        0 if exits.counters.is_empty() => format!("VM exits: none in {:.1} s", exits.seconds),
        0 => format!("VM exits in {:.1} s, from KVM's counters", exits.seconds),
        n => {
            let busy: f64 = exits.vcpus.iter().map(|vcpu| vcpu.per_s).sum();
            let on = counted(n as u64, "vCPU");
            format!(
                "VM exits: {} in {:.1} s on {on}, {}/s",
                count(all),
                exits.seconds,
                per_s(busy)
            )
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
    let figures = ["exits", "to QEMU", "per s", "total", "mean"]
        .into_iter()
        .enumerate();
    let figures = figures.map(|(i, name)| Column::figures(name).spare([0, 2, 1, 3, 0][i]));
    let rows: Vec<(Vec<String>, &ExitCount)> = rows.collect();
    let untimed = rows
        .iter()
        .any(|(_, exits)| exits.timed > 0 && exits.timed < exits.count);
    let of_times =
        untimed.then(|| "total and mean: of the exits that have a time, see Method".to_owned());
    let rows = rows.into_iter().map(|(words, exits)| {
        words
            .into_iter()
            .chain(self::figures(exits))
            .map(Cell::from)
            .collect::<Vec<_>>()
    });
    Table::new(label, words.into_iter().chain(figures).collect())
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
fn figures(exits: &ExitCount) -> [String; 5] {
    let of_known = |ns: Option<f64>| ns.map_or(NONE.to_owned(), nanoseconds);
    let total = exits.mean_ns.map(|_| exits.total_ns);
    [
        count(exits.count),
        exits.user.map_or(NONE.to_owned(), count),
        per_s(exits.per_s),
        of_known(total),
        of_known(exits.mean_ns),
    ]
}

fn per_s(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        count(rate.round() as u64)
    }
}

fn direction(exit: &ExitAddress) -> &'static str {
    if exit.write { "write" } else { "read" }
}

/// The counters that grew, those of exits and interrupts first.
fn counters(exits: &GuestExits) -> Vec<(&String, &u64)> {
    let mut grown: Vec<(&String, &u64)> = exits
        .counters
        .iter()
        .filter(|(_, value)| **value > 0)
        .collect();
    grown.sort_by_key(|(name, _)| {
        !(name.contains("exit") || name.contains("irq") || name.contains("halt"))
    });
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
        lines.push(match exits.devices_from {
            DevicesFrom::MemoryTree => {
                "Device names are from QEMU's memory tree (info mtree).".to_owned()
            }
            DevicesFrom::UsualPlaces => {
                "Device names are guessed from a PC's standard address map.".to_owned()
            }
        });
    }
    if exits.lost > 0 {
        let (lost, were) = (count(exits.lost), were(exits.lost));
        lines.push(format!(
            "{lost} KVM events {were} lost: there were more exits than are counted."
        ));
    }
    lines
}
