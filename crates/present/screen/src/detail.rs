//! One VM in detail: findings, threads, disks, NICs, memory, exits by reason and device.

use crate::state::State;
use ratatui::style::Stylize;
use ratatui::text::Line;
use vmtax_findings::{DiskRates, GuestExits, NicRates, ThreadRates, VmRates};
use vmtax_model::number::{NONE, bytes, counted, nanoseconds, percent, significant};
use vmtax_model::{Counter, Remedy};
use vmtax_report::{counter_text, counter_value, printable, unknown_columns};

/// Threads, reasons and devices beyond are left out.
const MAX_ROWS: usize = 12;

pub(crate) fn lines(state: &State) -> Vec<Line<'static>> {
    let Some(vm) = state.selected_vm() else {
        return vec![Line::from("No VM is selected.")];
    };
    let mut lines = vec![Line::from(title(vm).bold())];
    for advice in &vm.findings {
        lines.push(Line::default());
        lines.push(Line::from(printable(&advice.finding).bold()));
        let remedies = advice.remedies.iter().map(remedied);
        lines.extend(remedies.map(|text| Line::from(format!("  {}", printable(&text)))));
    }
    let threads = vm.threads.iter().take(MAX_ROWS).map(thread);
    table(&mut lines, "Threads", "thread|TID|%RUN|%RDY", threads);
    let more = vm.threads.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        lines.push(Line::from(format!("  and {more} more threads")));
    }
    let heads = "disk|reads/s|writes/s|flushes/s|BLKAVG|KAVG|DAVG|p99|QD|host device";
    table(&mut lines, "Disks", heads, vm.disks.iter().map(disk));
    let heads = "tap|rx packets/s|tx packets/s|rx/s|tx/s|rx drops/s|tx drops/s";
    let title = "Network, from the guest's side";
    table(&mut lines, title, heads, vm.nics.iter().map(nic));
    counters(&mut lines, vm);
    let level = state.sample.as_ref().map_or(0, |sample| sample.level);
    lines.push(Line::default());
    lines.push(Line::from("Not known (–)".bold()));
    let unknown = unknown_columns(vm, level).into_iter();
    lines.extend(unknown.map(|(names, reason)| {
        Line::from(printable(&format!("  {}: {reason}", names.join(", "))))
    }));
    if let Some((_, exits)) = state.exits.as_ref().filter(|(pid, _)| *pid == vm.pid) {
        traced(&mut lines, exits);
    }
    lines
}

fn remedied(remedy: &Remedy) -> String {
    if remedy.line.is_empty() {
        remedy.action.clone()
    } else {
        format!("{}: {}", remedy.action, remedy.line)
    }
}

fn title(vm: &VmRates) -> String {
    let accelerator = vm.accelerator.map_or("accelerator unknown", |a| a.as_str());
    let manager = vm.manager.map(|manager| format!(", {}", manager.as_str()));
    let manager = manager.unwrap_or_default();
    let state = vm.stopped().map(|why| format!(", stopped ({why})"));
    let state = state.unwrap_or_default();
    let text = format!(
        "{} (PID {}{manager}, {accelerator}, {}, {}{state})",
        vm.label(),
        vm.pid,
        counted(vm.vcpus as u64, "vCPU"),
        bytes(vm.memory)
    );
    printable(&text)
}

fn thread(thread: &ThreadRates) -> Vec<String> {
    vec![
        thread.role.label(),
        thread.tid.to_string(),
        percent(thread.run),
        percent(thread.ready),
    ]
}

fn disk(disk: &DiskRates) -> Vec<String> {
    let none = || NONE.to_owned();
    let rate = |of: fn(&vmtax_findings::IoRates) -> f64| {
        disk.io.as_ref().map_or_else(none, |io| significant(of(io)))
    };
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
fn counters(lines: &mut Vec<Line<'static>>, vm: &VmRates) {
    let with_sign = |counter: &'static Counter| {
        counter_value(counter, vm)?;
        let text = counter_text(counter, vm) + counter.unit.sign();
        Some((counter, text))
    };
    let known: Vec<(&Counter, String)> = Counter::shown().filter_map(with_sign).collect();
    let width = |text: &str| text.chars().count();
    let widest = known.iter().map(|(_, value)| width(value)).max();
    let head = known.iter().map(|(counter, _)| width(counter.column)).max();
    let (widest, head) = (widest.unwrap_or(0), head.unwrap_or(0));
    lines.push(Line::default());
    lines.push(Line::from("Counters".bold()));
    lines.extend(known.iter().map(|(Counter { column, what, .. }, value)| {
        Line::from(format!("  {value:>widest$}  {column:<head$}  {what}"))
    }));
}

fn traced(lines: &mut Vec<Line<'static>>, exits: &GuestExits) {
    let time =
        |count: &vmtax_findings::ExitCount| count.mean_ns.map_or(NONE.to_owned(), nanoseconds);
    let reasons = exits.reasons.iter().take(MAX_ROWS);
    let reason = |of: &vmtax_findings::ExitReason| {
        let rate = significant(of.exits.per_s);
        vec![of.reason.clone(), rate, time(&of.exits)]
    };
    let seconds = significant(exits.seconds);
    let title = format!("VM exits by reason, traced for {seconds} s");
    table(lines, &title, "reason|per s|mean", reasons.map(reason));
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
    let addresses = exits.addresses.iter().take(MAX_ROWS).map(address);
    let heads = "device|address|per s|mean";
    table(lines, "VM exits by device", heads, addresses);
}

/// A titled table: the first column to the left, the others to the right; nothing without rows. `heads` are separated by `|`.
fn table(
    lines: &mut Vec<Line<'static>>,
    title: &str,
    heads: &str,
    rows: impl Iterator<Item = Vec<String>>,
) {
    let rows: Vec<Vec<String>> = rows
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    if rows.is_empty() {
        return;
    }
    let heads: Vec<String> = heads.split('|').map(str::to_owned).collect();
    let widest = |at: usize| {
        let cells = rows.iter().chain([&heads]).filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(widest).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
    };
    lines.push(Line::default());
    lines.push(Line::from(title.to_owned().bold()));
    lines.push(Line::from(line(&heads)));
    lines.extend(rows.iter().map(|row| Line::from(line(row))));
}
