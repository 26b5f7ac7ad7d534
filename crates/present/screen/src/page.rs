//! The whole screen: a header with the level and its cost, the page, what the selected VM suffers from, the keys. A
//! page is a row for each VM, or one VM in detail: findings, threads, disks, NICs, memory, exits by reason and device.

use crate::state::{KEYS, Order, State, View};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};
use vmtax_findings::{DiskRates, GuestExits, NicRates, ThreadRates, VmRates};
use vmtax_model::number::{NONE, bytes, counted, nanoseconds, percent, significant};
use vmtax_model::{Counter, Remedy};
use vmtax_report::{
    counter_text, counter_value, host_disks, level_cost, printable, sentence, unknown_columns,
};

/// Lines of the sentence below the page.
const SENTENCE_LINES: u16 = 5;

pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(SENTENCE_LINES),
        Constraint::Length(1),
    ];
    let [header, page, below, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(
        Paragraph::new(head(state, header.width)).style(Style::new().reversed()),
        header,
    );
    match state.view {
        View::List => draw_list(frame, page, state),
        View::Detail => scrolled(frame, page, detail_lines(state), state),
        View::Help => scrolled(frame, page, help(), state),
    }
    frame.render_widget(
        Paragraph::new(about_selected(state)).wrap(Wrap { trim: true }),
        below,
    );
    let text = match state.view {
        View::List => "↑↓ select  Enter details  <> sort  r reverse  t trace exits  ? help  q quit",
        _ => "↑↓ scroll  Esc list  t trace exits  q quit",
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().reversed()), keys);
}

/// The time, the VMs, the interval, the level with its cost.
fn head(state: &State, width: u16) -> String {
    let Some(sample) = &state.sample else {
        return format!(
            "vmtax top: the first interval takes {} s",
            state.interval.as_secs_f64()
        );
    };
    let time = sample
        .time
        .split(['T', '.', 'Z'])
        .nth(1)
        .unwrap_or_default();
    let vms = counted(sample.vms.len() as u64, "VM");
    let (interval, order) = (state.interval.as_secs_f64(), state.order_name());
    let full = format!(
        "vmtax top  {time} UTC  {vms}, every {interval} s, by {order}  {}",
        level_cost(sample)
    );
    if full.chars().count() <= usize::from(width) {
        return full;
    }
    format!("{time}  {vms}, by {order}  {}", level_cost(sample))
}

/// Returns the largest problem of the selected VM, and the next command.
fn about_selected(state: &State) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(vm) = state.selected_vm() {
        let (text, next) = sentence(vm);
        let line = format!("{}: {text}", printable(&vm.label()));
        lines.push(Line::from(line.bold()));
        lines.extend(next.map(|next| Line::from(format!("Next: {next}"))));
    }
    let vms = state.sample.iter().map(|sample| &*sample.vms);
    let disks = vms.filter_map(host_disks);
    lines.extend(disks.map(|line| Line::from(printable(&line))));
    if state.tracing.is_some() {
        lines.push(Line::from("Tracing VM exits for 3 s …"));
    }
    let notes = state.sample.iter().flat_map(|sample| &sample.notes);
    lines.extend(notes.map(|note| Line::from(printable(note))));
    if state.sample.iter().any(|sample| sample.vms.is_empty()) {
        lines.push(Line::from(
            "No VM runs on this host, or none that this user can see.",
        ));
    }
    lines
}

/// Lines that may be more than the page has room for.
fn scrolled(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, state: &mut State) {
    let most = (lines.len() as u16).saturating_sub(area.height);
    state.scroll = state.scroll.min(most);
    frame.render_widget(Paragraph::new(lines).scroll((state.scroll, 0)), area);
}

fn help() -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("Keys".bold())];
    let row = |(name, does): (&str, &str)| Line::from(format!("  {name:<12} {does}"));
    lines.extend(KEYS.iter().copied().map(row));
    lines.push(Line::default());
    lines.push(Line::from("Columns (vmtax top --explain COLUMN)".bold()));
    lines.extend(Counter::columns().map(|column| row((column.column, column.what))));
    lines
}

/// Characters of a name, and of the busiest thread, where there is room, and where there is none.
const NAME: (u16, u16) = (20, 9);
const THREAD: (u16, u16) = (20, 10);

/// Draws a row for each VM. Columns that there is no room for are left out, the least important first.
fn draw_list(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let vms = state.rows();
    let (shown, name, thread) = fitting(&vms, area.width);
    let widths = |column: &&Counter| Constraint::Length(width(column, &vms));
    let constraints: Vec<Constraint> = [Constraint::Length(name)]
        .into_iter()
        .chain(shown.iter().map(widths))
        .chain([Constraint::Length(thread)])
        .collect();
    let head = |column: &Counter| {
        let is_order = matches!(state.order, Order::Column(sorted) if sorted == column);
        let style = if is_order {
            Style::new().add_modifier(Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        Cell::from(Text::from(column.column).alignment(Alignment::Right)).style(style)
    };
    let heads = shown.iter().map(|column| head(column));
    let header = Row::new(
        [Cell::from("VM")]
            .into_iter()
            .chain(heads)
            .chain([Cell::from("BUSIEST THREAD")]),
    )
    .style(Style::new().add_modifier(Modifier::BOLD));
    let row = |vm: &&VmRates| {
        let cells = shown.iter().map(|column| {
            Cell::from(Text::from(counter_text(column, vm)).alignment(Alignment::Right))
        });
        let all = [Cell::from(cut(&printable(&vm.label()), name))]
            .into_iter()
            .chain(cells);
        let colour = if vm.findings.is_empty() {
            Style::new()
        } else {
            Style::new().fg(Color::Yellow)
        };
        Row::new(all.chain([Cell::from(cut(&printable(&busiest(vm)), thread))])).style(colour)
    };
    let table = Table::new(vms.iter().map(row), constraints)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().reversed());
    let mut selection =
        TableState::new().with_selected(vms.iter().position(|vm| Some(vm.pid) == state.selected));
    frame.render_stateful_widget(table, area, &mut selection);
}

/// The columns that fit, with the width of the name and of the busiest thread.
fn fitting(vms: &[&VmRates], room: u16) -> (Vec<&'static Counter>, u16, u16) {
    let labels = vms.iter().map(|vm| vm.label().chars().count() as u16);
    let name = labels.max().unwrap_or(0).clamp(2, NAME.0);
    let steps = Counter::columns()
        .map(|column| column.spare)
        .max()
        .unwrap_or(0);
    for step in 0..=steps {
        let shown: Vec<&Counter> = Counter::columns()
            .filter(|column| column.spare == 0 || column.spare > step)
            .collect();
        let figures: u16 = shown.iter().map(|column| width(column, vms) + 1).sum();
        for (name, thread) in [
            (name, THREAD.0),
            (name, THREAD.1),
            (name.min(NAME.1), THREAD.1),
        ] {
            if name + figures + thread < room {
                return (shown, name, thread);
            }
        }
    }
    (
        Counter::columns()
            .filter(|column| column.spare == 0)
            .collect(),
        name.min(NAME.1),
        THREAD.1,
    )
}

fn width(column: &Counter, vms: &[&VmRates]) -> u16 {
    let cells = vms
        .iter()
        .map(|vm| counter_text(column, vm).chars().count());
    cells
        .chain([column.column.chars().count()])
        .max()
        .unwrap_or(0) as u16
}

fn busiest(vm: &VmRates) -> String {
    vm.busiest().map_or("–".to_owned(), |thread| {
        format!("{} {:.0}%", thread.role.label(), thread.run * 100.0)
    })
}

/// Cut to so many characters, the cut marked.
fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Threads, reasons and devices beyond are left out.
const MAX_ROWS: usize = 12;

fn detail_lines(state: &State) -> Vec<Line<'static>> {
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
