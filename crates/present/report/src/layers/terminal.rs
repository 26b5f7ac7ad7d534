//! `layers`' answer on a terminal: the ladder of medians, one table, what it rests on, warnings, advice.

use super::view::{self, Scale};
use super::words;
use crate::Style;
use crate::number::{NONE, nanoseconds};
use crate::table::{self, right};
use crate::text::{Paint, cell, columns, plain, section, wrapped};
use crate::view::{first_five, warnings, when};
use comfy_table::{Attribute, Cell, Color};
use vmtax_model::{LayerColumn, LayerFindings, Row, State, Summary};
use vmtax_recording::Recording;

/// Terminals from this width on have a bar beside each row.
const ROOM_FOR_BARS: usize = 104;
/// Columns of the longest bar.
const BAR: usize = 20;
/// Below this width the layer has no column of its own.
const ROOM_FOR_LAYERS: usize = 72;
/// Unexplained time above this share of the whole is pointed at, percent: the most that a run should have.
const MUCH_UNEXPLAINED: f64 = 1.0;

/// The answer for a terminal. Nothing from a guest reaches the terminal as a control character.
pub fn terminal(recording: &Recording, findings: &LayerFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&heading(recording, findings), width, "", "");
    out.push('\n');
    match view::main_column(findings) {
        None => out.push_str(&wrapped("No request was followed: there is nothing to show.", width, "", "")),
        Some(main) => {
            out.push_str(&ladder(findings, width, paint));
            out.push_str(&tables(findings, main, style));
            section(&mut out, &paint.bold("Differences, untraced"), &words::differences(findings), "• ", width);
            out.push('\n');
            for note in notes(main) {
                out.push_str(&wrapped(&note, width, "", "  "));
            }
        }
    }
    section(&mut out, &paint.with("1;33", "Not observed"), &words::missing(findings), "– ", width);
    section(&mut out, &paint.with("1;33", "Warnings"), &warnings(recording, &findings.warnings), "! ", width);
    section(&mut out, &paint.with("1;36", "Advice"), &first_five(&findings.advice), "→ ", width);
    out
}

/// The main column's rows, and all columns' layers.
pub fn tables(findings: &LayerFindings, main: &LayerColumn, style: Style) -> String {
    let (width, paint) = (style.width.max(40), Paint(style.color));
    let mut out = format!("\n{}\n", paint.bold(wrapped(&view::title(main), width, "", "").trim_end()));
    out.push_str(&rows(main, width, style.color));
    out.push('\n');
    if findings.columns.len() > 1 {
        out.push_str(&format!("\n{}\n", paint.bold("Layers side by side")));
        out.push_str(&side_by_side(findings, width, style.color));
        out.push('\n');
    }
    out
}

pub fn heading(recording: &Recording, findings: &LayerFindings) -> String {
    let host = &recording.host;
    format!(
        "{} of {}, {}; {}, Linux {}; {}",
        recording.plan.name,
        when(&recording.manifest.started),
        view::rounds(findings),
        host.cpu.model,
        host.kernel,
        view::workload(recording),
    )
}

fn ladder(findings: &LayerFindings, width: usize, paint: Paint) -> String {
    let steps = view::ladder(findings);
    let text: Vec<String> =
        steps.iter().map(|(name, ns)| format!("{name} {}", nanoseconds(*ns)).replace(' ', "\u{a0}")).collect();
    let lines = wrapped(&format!("One request, median: {}", text.join(" · ")), width, "", "  ");
    lines.lines().map(|l| format!("{}\n", paint.bold(&l.replace('\u{a0}', " ")))).collect()
}

/// One line of the table of rows.
struct Line<'a> {
    layer: &'a str,
    what: String,
    /// Whether the line above is the same stretch, in another state.
    again: bool,
    state: State,
    figure: Option<&'a Summary>,
    mean_ns: f64,
    share: Option<f64>,
    strong: bool,
}

/// The rows, what is unexplained, and the sums beside the untraced control. Waits that are next to nothing stand together
/// in one line, so that the others can be seen and the sums still close.
fn lines(column: &LayerColumn) -> Vec<Line<'_>> {
    let mut lines: Vec<Line> = Vec::new();
    let (small, large): (Vec<&Row>, Vec<&Row>) =
        column.rows.iter().filter(|r| r.count > 0).partition(|r| view::is_negligible(r));
    let mut before: Option<&Row> = None;
    for row in large {
        let same_layer = before.is_some_and(|b| b.layer == row.layer);
        lines.push(Line {
            layer: if same_layer { "" } else { row.layer.label() },
            what: format!("→ {}{}", row.to.label(), if row.below_bound { " †" } else { "" }),
            again: same_layer && before.is_some_and(|b| b.to == row.to),
            state: row.state,
            figure: Some(&row.time),
            mean_ns: row.time.mean_ns,
            share: Some(row.percent),
            strong: false,
        });
        before = Some(row);
    }
    let sum = |what: &str, figure, mean_ns, share, strong| Line {
        layer: "",
        what: what.to_owned(),
        again: false,
        state: State::Running,
        figure,
        mean_ns,
        share,
        strong,
    };
    if !small.is_empty() {
        let (ns, percent) = small.iter().fold((0.0, 0.0), |(ns, p), r| (ns + r.time.mean_ns, p + r.percent));
        lines.push(sum(&format!("{} small waits", small.len()), None, ns, Some(percent), false));
    }
    let unexplained = 100.0 - column.rows.iter().map(|r| r.percent).sum::<f64>();
    lines.push(sum(
        "unexplained",
        None,
        column.unexplained_ns,
        Some(unexplained),
        unexplained.abs() > MUCH_UNEXPLAINED,
    ));
    lines.push(sum("total, traced", Some(&column.traced), column.traced.mean_ns, Some(100.0), true));
    if let Some(control) = &column.control {
        lines.push(sum("control, untraced", Some(control), control.mean_ns, None, true));
    }
    lines
}

fn rows(column: &LayerColumn, width: usize, color: bool) -> String {
    let lines = lines(column);
    let room = lines.iter().map(|l| columns(&with_state(l, width))).max().unwrap_or(0);
    let widest = table_of(column, &lines, width, room, false).lines().map(columns).max().unwrap_or(0);
    // The column of words gives way where the terminal is too narrow.
    let room = room.saturating_sub(widest.saturating_sub(width)).max(10);
    table_of(column, &lines, width, room, color)
}

/// What a line is about; its state too where that has no column of its own.
fn with_state(line: &Line, width: usize) -> String {
    match view::state(line.state) {
        _ if width >= ROOM_FOR_LAYERS && line.again => {
            if line.what.ends_with('†') {
                "″ †".to_owned()
            } else {
                "″".to_owned()
            }
        }
        state if width < ROOM_FOR_LAYERS && !state.is_empty() => format!("{} ({state})", line.what),
        _ => line.what.clone(),
    }
}

fn table_of(column: &LayerColumn, lines: &[Line], width: usize, room: usize, color: bool) -> String {
    let scale = Scale::for_columns(&[column]);
    let has_layers = width >= ROOM_FOR_LAYERS;
    let has_states = has_layers && lines.iter().any(|l| l.state != State::Running);
    let has_bars = width >= ROOM_FOR_BARS;
    let cells = |layer: Cell, what: Cell, state: Cell, figures: [Cell; 3], bar: Cell| {
        let layer = has_layers.then_some(layer).into_iter();
        let state = has_states.then_some(state);
        layer.chain([what]).chain(state).chain(figures).chain(has_bars.then_some(bar)).collect::<Vec<_>>()
    };
    let mut table = table::empty(color);
    let units = [right(format!("p50 {}", scale.unit)), right(format!("mean {}", scale.unit)), right("%")];
    table.set_header(cells(Cell::new("layer"), Cell::new("until"), Cell::new("state"), units, Cell::new("")));
    for line in lines {
        let styled = |cell: Cell| if line.strong { cell.add_attribute(Attribute::Bold) } else { cell };
        let figures = [
            line.figure.map_or(String::new(), |f| scale.number(f.p50_ns)),
            scale.number(line.mean_ns),
            // Not "-0.0".
            line.share.map_or(String::new(), |p| format!("{:.1}", if p.abs() < 0.05 { 0.0 } else { p })),
        ];
        table.add_row(cells(
            Cell::new(line.layer),
            styled(Cell::new(cell(&with_state(line, width), room))),
            Cell::new(view::state(line.state)).fg(Color::DarkYellow),
            figures.map(|f| styled(right(f))),
            Cell::new(if line.strong { String::new() } else { bar(line.share.unwrap_or(0.0)) }).fg(Color::DarkCyan),
        ));
    }
    table::lines(table)
}

/// A share as a bar of eighths of a column.
fn bar(percent: f64) -> String {
    let eighths = (percent.clamp(0.0, 100.0) / 100.0 * (BAR * 8) as f64).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{part}", "█".repeat(eighths / 8))
}

/// The layers' means, a column for each machine and variant; as many beside each other as the width holds.
fn side_by_side(findings: &LayerFindings, width: usize, color: bool) -> String {
    let all = view::columns(findings);
    let widest = all.iter().map(|c| header(c).lines().map(columns).max().unwrap_or(0)).max().unwrap_or(0).clamp(8, 24);
    let at_once = (width.saturating_sub(24) / (widest + 1)).max(1);
    let parts: Vec<String> = all.chunks(at_once).map(|part| means(part, widest, color)).collect();
    parts.join("\n")
}

fn header(column: &LayerColumn) -> String {
    format!("{}\n{}", column.machine, plain(&column.variant).replace(',', "\n")).trim_end().to_owned()
}

fn means(part: &[&LayerColumn], room: usize, color: bool) -> String {
    let scale = Scale::for_columns(part);
    let mut table = table::empty(color);
    let title = |c: &&LayerColumn| right(header(c).lines().map(|l| cell(l, room)).collect::<Vec<_>>().join("\n"));
    table.set_header([Cell::new(format!("mean, {}", scale.unit))].into_iter().chain(part.iter().map(title)));
    for (layer, means) in view::layers_of(part) {
        table.add_row([Cell::new(layer.label())].into_iter().chain(means.iter().map(|m| right(scale.number(*m)))));
    }
    let time = |ns: Option<f64>| ns.map_or(NONE.to_owned(), |ns| scale.number(ns));
    let mut row = |name: &str, text: &dyn Fn(&LayerColumn) -> String| {
        table.add_row([Cell::new(name)].into_iter().chain(part.iter().map(|c| right(text(c)))));
    };
    row("unexplained", &|c| time(Some(c.unexplained_ns)));
    row("total, traced", &|c| time(Some(c.traced.mean_ns)));
    if part.iter().any(|c| c.control.is_some()) {
        row("control, untraced", &|c| time(c.control.map(|f| f.mean_ns)));
        row("control p50", &|c| time(c.control.map(|f| f.p50_ns)));
        row("control p99", &|c| time(c.control.map(|f| f.p99_ns)));
        row("observer effect", &|c| c.observer.as_ref().map_or(NONE.to_owned(), |o| words::signed(o.median - 1.0)));
    }
    row("followed", &|c| words::followed(&c.matched));
    row("clocks within", &|c| format!("±{}", nanoseconds(c.clock.bound_ns)));
    table::lines(table)
}

/// What the table's signs mean and what its figures rest on.
pub fn notes(main: &LayerColumn) -> Vec<String> {
    let mut states: Vec<State> = main.rows.iter().filter(|r| r.count > 0).map(|r| r.state).collect();
    states.sort_unstable();
    states.dedup();
    let said = |s: &State| (*s != State::Running).then(|| format!("{}: {}", view::state(*s), s.label()));
    let meanings: Vec<String> =
        states.iter().filter_map(said).filter(|m| m.split_once(": ").is_none_or(|(a, b)| a != b)).collect();
    let mut notes = Vec::new();
    notes.extend((!meanings.is_empty()).then(|| format!("States: {}.", meanings.join("; "))));
    notes.extend(words::below_bound(&[main]));
    notes.push(format!("Observer effect: {}.", words::observer(main)));
    notes.push(format!("Clocks: {}.", words::clock(main)));
    notes.push(format!("Requests: {}.", words::matched(main)));
    notes
}
