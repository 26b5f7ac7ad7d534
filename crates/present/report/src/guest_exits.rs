//! The part of `profile`'s answer that is about VM exits.

use crate::number::{NONE, count, nanoseconds, were};
use crate::table::{self, right};
use crate::text::{columns, fit, plain};
use comfy_table::Cell;
use vmtax_model::{AddressSpace, DevicesFrom, ExitAddress, ExitCount, GuestExits};

/// Reasons and addresses that a terminal shows.
const SHOWN: usize = 12;
/// Columns from which on a terminal has room for every figure.
const ROOMY: usize = 96;

/// "0x3fd", "0xfee000b0", "MSR 0x6e0".
pub(crate) fn address(exit: &ExitAddress) -> String {
    match exit.space {
        AddressSpace::Port | AddressSpace::Memory => format!("{:#x}", exit.address),
        AddressSpace::Msr => format!("MSR {:#x}", exit.address),
    }
}

/// "serial, line status"; what is known of it.
pub(crate) fn device(exit: &ExitAddress, from: DevicesFrom) -> String {
    match (exit.device.as_str(), exit.register.as_str()) {
        ("", _) if from == DevicesFrom::MemoryTree => "no device".to_owned(),
        ("", _) => "unknown".to_owned(),
        (device, "") => plain(device),
        (device, register) => format!("{}, {register}", plain(device)),
    }
}

/// How many, how many of them QEMU took, how often a second, the whole time and the mean.
pub(crate) fn figures(exits: &ExitCount) -> [String; 5] {
    let of_known = |ns: Option<f64>| ns.map_or(NONE.to_owned(), nanoseconds);
    let total = exits.mean_ns.map(|_| exits.total_ns);
    [count(exits.count), count(exits.user), per_s(exits.per_s), of_known(total), of_known(exits.mean_ns)]
}

/// The names of [`figures`].
pub(crate) const FIGURES: [&str; 5] = ["exits", "to QEMU", "per s", "total", "mean"];

pub(crate) fn per_s(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { count(rate.round() as u64) }
}

/// "read" or "write".
pub(crate) fn direction(exit: &ExitAddress) -> &'static str {
    if exit.write { "write" } else { "read" }
}

/// The tables for a terminal.
pub(crate) fn terminal(exits: &GuestExits, width: usize, color: bool) -> String {
    let mut text = String::new();
    if !exits.reasons.is_empty() {
        let reasons = exits.reasons.iter().map(|reason| (vec![plain(&reason.reason)], &reason.exits));
        text += &rows(&["reason"], reasons.collect(), width, color);
        text.push('\n');
    }
    if !exits.addresses.is_empty() {
        let row =
            |exit: &ExitAddress| vec![address(exit), direction(exit).to_owned(), device(exit, exits.devices_from)];
        let addresses = exits.addresses.iter().map(|exit| (row(exit), &exit.exits));
        text += &rows(&["address", "access", "device"], addresses.collect(), width, color);
        text.push('\n');
    }
    if exits.vcpus.len() > 1 {
        let mut table = table::empty(color);
        table.set_header([Cell::new("vCPU"), right("tid"), right("exits"), right("per s"), right("total")]);
        for vcpu in exits.vcpus.iter().take(SHOWN) {
            let figures = [vcpu.tid.to_string(), count(vcpu.count), per_s(vcpu.per_s), nanoseconds(vcpu.total_ns)];
            table.add_row([Cell::new(vcpu.vcpu)].into_iter().chain(figures.map(right)));
        }
        text += &(table::lines(table) + "\n");
    }
    if exits.reasons.is_empty() && !exits.counters.is_empty() {
        let mut table = table::empty(color);
        table.set_header([Cell::new("KVM's counter"), right("grew by")]);
        for (name, value) in shown_counters(exits) {
            table.add_row([Cell::new(plain(name)), right(count(*value))]);
        }
        text += &(table::lines(table) + "\n");
    }
    text
}

/// The counters that grew, those of exits and interrupts first.
pub(crate) fn shown_counters(exits: &GuestExits) -> Vec<(&String, &u64)> {
    let mut grown: Vec<(&String, &u64)> = exits.counters.iter().filter(|(_, value)| **value > 0).collect();
    grown.sort_by_key(|(name, _)| !(name.contains("exit") || name.contains("irq") || name.contains("halt")));
    grown.truncate(2 * SHOWN);
    grown
}

/// A table of words and figures; the last word gets what room there is.
fn rows(names: &[&str], rows: Vec<(Vec<String>, &ExitCount)>, width: usize, color: bool) -> String {
    // The rate is left out first: names say more.
    let shown = |figures: [String; 5]| figures.into_iter().enumerate().filter(|(at, _)| *at != 2 || width >= ROOMY);
    let figure = |(_, figure): (usize, String)| right(figure);
    let build = |room: usize, color: bool| {
        let mut table = table::empty(color);
        table.set_header(names.iter().map(Cell::new).chain(shown(FIGURES.map(str::to_owned)).map(figure)));
        for (words, exits) in rows.iter().take(SHOWN) {
            let last = words.len().saturating_sub(1);
            let word =
                |(at, word): (usize, &String)| Cell::new(if at == last { fit(word, room) } else { word.clone() });
            table.add_row(words.iter().enumerate().map(word).chain(shown(figures(exits)).map(figure)));
        }
        table::lines(table)
    };
    let room = rows.iter().take(SHOWN).filter_map(|(words, _)| words.last()).map(|w| columns(w)).max().unwrap_or(0);
    let widest = build(room, false).lines().map(columns).max().unwrap_or(0);
    let mut text = build(room.saturating_sub(widest.saturating_sub(width)).max(8), color) + "\n";
    let more = rows.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

/// How the exits were timed and named, and what is lacking.
pub(crate) fn method(exits: &GuestExits) -> Vec<String> {
    let mut lines = Vec::new();
    if !exits.timing.is_empty() {
        lines.push(format!("An exit's time: {}", exits.timing));
    }
    if !exits.addresses.is_empty() {
        lines.push(match exits.devices_from {
            DevicesFrom::MemoryTree => "Devices are named as in QEMU's memory tree.".to_owned(),
            DevicesFrom::UsualPlaces => "Devices are named by the usual places in a PC.".to_owned(),
        });
    }
    if exits.lost > 0 {
        let lost = count(exits.lost);
        lines
            .push(format!("{lost} of KVM's events {} lost: there were more exits than are counted.", were(exits.lost)));
    }
    lines
}
