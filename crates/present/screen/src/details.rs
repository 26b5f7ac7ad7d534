//! One VM in detail: findings with their remedies, vCPUs and threads, disks, NICs, counters, why figures are missing, traced exits.

use crate::layout::{Lines, bold_sentence, command, sentence, table};
use crate::state::State;
use crate::threads;
use ratatui::style::Stylize;
use ratatui::text::Line;
use vmtax_findings::{Advice, DiskRates, GuestExits, IoRates, NicRates, VmRates};
use vmtax_model::number::{NONE, bytes, counted, nanoseconds, significant};
use vmtax_model::{Counter, Vmm};
use vmtax_report::{counter_text, counter_value, unknown_columns};

/// Reasons and devices beyond are left out.
const MAX_ROWS: usize = 12;

pub(crate) fn detail_lines(state: &State, width: u16) -> Lines {
    let Some(vm) = state.selected_vm() else {
        return vec![Line::from("No VM is selected.")];
    };
    let mut lines = Lines::new();
    bold_sentence(&mut lines, &title(vm), width);
    advice_lines(&mut lines, "", &vm.findings, width);
    let rows = threads::rows(vm).into_iter();
    let title = "vCPUs, and other threads by role";
    table(&mut lines, title, threads::HEADS, rows, width);
    let heads = "disk|reads/s|writes/s|flushes/s|BLKAVG|KAVG|DAVG|p99|QD|host device";
    table(&mut lines, "Disks", heads, vm.disks.iter().map(disk), width);
    let heads = "tap|rx packets/s|tx packets/s|rx/s|tx/s|rx drops/s|tx drops/s";
    let title = "Network, from the guest's side";
    table(&mut lines, title, heads, vm.nics.iter().map(nic), width);
    counters(&mut lines, vm, width);
    let level = state.sample.as_ref().map_or(0, |sample| sample.level);
    unknown(&mut lines, vm, level, width);
    if let Some((_, exits)) = state.exits.as_ref().filter(|(pid, _)| *pid == vm.pid) {
        traced(&mut lines, exits, width);
    }
    let of_host = state
        .sample
        .iter()
        .filter_map(|sample| sample.host.as_ref());
    for host in of_host {
        advice_lines(&mut lines, "Host: ", &host.findings, width);
    }
    lines
}

/// Adds findings, each with its remedies.
fn advice_lines(lines: &mut Lines, about: &str, findings: &[Advice], width: u16) {
    for advice in findings {
        lines.push(Line::default());
        bold_sentence(lines, &format!("{about}{}", advice.finding), width);
        for remedy in &advice.remedies {
            let colon = if remedy.line.is_empty() { "" } else { ":" };
            sentence(lines, &format!("{}{colon}", remedy.action), width, "  ");
            if !remedy.line.is_empty() {
                command(lines, &remedy.line, width, "    ");
            }
        }
    }
}

fn title(vm: &VmRates) -> String {
    let accelerator = vm.accelerator.map_or("accelerator unknown", |a| a.as_str());
    let vmm = match vm.vmm {
        Vmm::Qemu => String::new(),
        other => format!(", {}", other.name()),
    };
    let manager = vm.manager.map(|manager| format!(", {}", manager.as_str()));
    let manager = manager.unwrap_or_default();
    let state = vm.stopped().map(|why| format!(", stopped ({why})"));
    let state = state.unwrap_or_default();
    let memory = match vm.memory {
        0 => String::new(),
        memory => format!(", {}", bytes(memory)),
    };
    format!(
        "{} (PID {}{vmm}{manager}, {accelerator}, {}{memory}{state})",
        vm.label(),
        vm.pid,
        counted(vm.vcpus as u64, "vCPU"),
    )
}

fn disk(disk: &DiskRates) -> Vec<String> {
    let none = || NONE.to_owned();
    let rate =
        |of: fn(&IoRates) -> f64| disk.io.as_ref().map_or_else(none, |io| significant(of(io)));
    let time = |ns: Option<f64>| ns.map_or_else(none, nanoseconds);
    let (device, in_flight) = (disk.device.as_ref(), disk.io.and_then(|io| io.in_flight));
    vec![
        disk.name.clone(),
        rate(|io| io.reads_per_s),
        rate(|io| io.writes_per_s),
        rate(|io| io.flushes_per_s),
        time(disk.io.and_then(|io| io.blkavg_ns)),
        time(disk.kavg_ns),
        time(disk.davg_ns),
        time(disk.io.and_then(|io| io.p99_ns)),
        in_flight.map_or_else(none, |count| count.to_string()),
        device.map_or_else(none, |device| device.name.clone()),
    ]
}

fn nic(nic: &NicRates) -> Vec<String> {
    let size = |per_s: f64| {
        if per_s < 1.0 {
            "0".to_owned()
        } else {
            bytes(per_s as u64)
        }
    };
    vec![
        nic.tap.clone(),
        significant(nic.rx_packets_per_s),
        significant(nic.tx_packets_per_s),
        size(nic.rx_bytes_per_s),
        size(nic.tx_bytes_per_s),
        significant(nic.rx_dropped_per_s),
        significant(nic.tx_dropped_per_s),
    ]
}

/// Every counter that is known, also those whose columns a narrow screen leaves out.
fn counters(lines: &mut Lines, vm: &VmRates, width: u16) {
    let with_sign = |counter: &'static Counter| {
        counter_value(counter, vm)?;
        let text = counter_text(counter, vm) + counter.unit.sign();
        Some((counter, text))
    };
    let known: Vec<(&Counter, String)> = Counter::shown().filter_map(with_sign).collect();
    let characters = |text: &str| text.chars().count();
    let widest = known.iter().map(|(_, value)| characters(value)).max();
    let heads = known.iter().map(|(counter, _)| characters(counter.column));
    let (widest, head) = (widest.unwrap_or(0), heads.max().unwrap_or(0));
    lines.push(Line::default());
    lines.push(Line::from("Counters".bold()));
    for (Counter { column, what, .. }, value) in known {
        let first = format!("  {value:>widest$}  {column:<head$}  ");
        sentence(lines, what, width, &first);
    }
}

/// Why figures above are "–".
fn unknown(lines: &mut Lines, vm: &VmRates, level: u8, width: u16) {
    let of_vm = unknown_columns(vm, level);
    let text = |(names, reason): &(Vec<&str>, String)| format!("{}: {reason}", names.join(", "));
    let mut reasons: Vec<String> = of_vm.iter().map(text).collect();
    reasons.extend(threads::why_no_throttling(vm));
    reasons.extend(vm.disks.iter().flat_map(|disk| of_disk(disk, vm, level)));
    if reasons.is_empty() {
        return;
    }
    lines.push(Line::default());
    lines.push(Line::from("Not known (–)".bold()));
    for reason in reasons {
        sentence(lines, &reason, width, "  ");
    }
}

/// Why figures of one disk are not known that another disk has, or that no column has.
fn of_disk(disk: &DiskRates, vm: &VmRates, level: u8) -> Vec<String> {
    let alone = VmRates {
        disks: vec![disk.clone()],
        io: disk.io,
        ..vm.clone()
    };
    let of_vm = unknown_columns(vm, level);
    let is_of_vm = |name: &&str| of_vm.iter().any(|(names, _)| names.contains(name));
    let of_alone = unknown_columns(&alone, level).into_iter();
    let beyond = of_alone.filter_map(|(names, reason)| {
        let names: Vec<&str> = names.into_iter().filter(|name| !is_of_vm(name)).collect();
        let text = format!("{} of {}: {reason}", names.join(", "), disk.name);
        (!names.is_empty()).then_some(text)
    });
    let no_device = disk.device.is_none().then(|| {
        let name = &disk.name;
        format!(
            "host device of {name}: its file lies on no block device of this host (tmpfs, a network file system, no file at all), or may not be read"
        )
    });
    beyond.chain(no_device).collect()
}

fn traced(lines: &mut Lines, exits: &GuestExits, width: u16) {
    let time =
        |count: &vmtax_findings::ExitCount| count.mean_ns.map_or(NONE.to_owned(), nanoseconds);
    let reasons = exits.reasons.iter().take(MAX_ROWS);
    let reason = |of: &vmtax_findings::ExitReason| {
        let rate = significant(of.exits.per_s);
        vec![of.reason.clone(), rate, time(&of.exits)]
    };
    let seconds = significant(exits.seconds);
    let title = format!("VM exits by reason, traced for {seconds} s");
    table(
        lines,
        &title,
        "reason|per s|mean",
        reasons.map(reason),
        width,
    );
    let address = |at: &vmtax_findings::ExitAddress| {
        let device = if at.device.is_empty() {
            NONE
        } else {
            &at.device
        };
        vec![
            device.to_owned(),
            format!("{:#x} {}", at.address, at.register),
            significant(at.exits.per_s),
            time(&at.exits),
        ]
    };
    let addresses = exits.addresses.iter().take(MAX_ROWS);
    let heads = "device|address|per s|mean";
    table(
        lines,
        "VM exits by device",
        heads,
        addresses.map(address),
        width,
    );
    why_untimed(lines, exits, width);
}

/// Why figures of traced exits are "–".
fn why_untimed(lines: &mut Lines, exits: &GuestExits, width: u16) {
    let addresses = || exits.addresses.iter().take(MAX_ROWS);
    let reasons = exits.reasons.iter().take(MAX_ROWS).map(|of| &of.exits);
    let mut counts = reasons.chain(addresses().map(|at| &at.exits));
    if counts.any(|count| count.mean_ns.is_none()) {
        let text = "–: no exit of this kind has a known end in the trace";
        sentence(lines, text, width, "  ");
    }
    if addresses().any(|at| at.device.is_empty()) {
        let text = "– as device: QEMU has no device at this address, or was not asked";
        sentence(lines, text, width, "  ");
    }
}
