//! One machine in one variant: its states, layers and rows, single requests, QEMU's system calls, the tail.

use super::sentences;
use crate::charts::layers::{Falls, Heat, States, class};
use crate::engine::{Block, Cell, Column, Figure, Section, Table, Tone, figures, words};
use crate::number::{count, counted, nanoseconds};
use crate::text::only_if;
use crate::view::layers::{self as view, Scale};
use vmtax_findings::{Corrected, LayerColumn, Row, State, Summary, Waterfall};
use vmtax_model::CallRow;

/// Columns of the longest bar of characters.
const BAR: usize = 20;
/// Unexplained time above this share of the whole is pointed at, percent: the most that a run should have.
const MUCH_UNEXPLAINED: f64 = 1.0;

const NESTED: &str = "Nested: from each layer's entry to its exit";

const C_STATE_EXIT: &str = "C-state exit: the time from the wake-up of a thread on an idle CPU until it runs there, the exit latency of the host \
     CPU's idle state (cpuidle). C-state exit (guest): from the wake-up of a task on a halted vCPU until it runs in the guest.";

/// A line for each state, then for each layer: the mean of a traced request.
pub fn sums(column: &LayerColumn) -> Table {
    let scale = Scale::for_columns(&[column]);
    let columns = vec![
        words("mean of traced requests"),
        figures(scale.unit),
        figures("%"),
        figures("of it service time, %"),
        words("").spare(1),
    ];
    let title = format!("States and layers of {}", view::title(column));
    let mut table = Table::new(title, columns);
    let row = |name: Cell, ns: f64, percent: f64, in_service: Option<f64>| {
        let in_service = in_service.map_or(String::new(), share);
        let [ns, percent, bar] = [scale.number(ns), share(percent), bar(percent)].map(Cell::from);
        vec![name, ns, percent, in_service.into(), bar.tone(Tone::Soft)]
    };
    let name = Cell::from(view::unexplained(column)).tone(Tone::Soft);
    let unexplained = row(name, column.unexplained_ns, unexplained(column), None);
    table.group("By state");
    for (state, ns, percent) in view::states_of(column) {
        table.row(row(state.label().into(), ns, percent, None));
    }
    table.row(unexplained.clone());
    table.group("By layer");
    for (layer, means) in view::layers_of(&[column]) {
        let name = Cell::key(class(layer), layer.label());
        let whole = view::percent_of(column, layer);
        let in_service = view::percent_in(column, layer, State::Running);
        table.row(row(name, means[0], whole, Some(in_service)));
    }
    table.row(unexplained);
    let leaves_idle = |row: &Row| matches!(row.state, State::CpuWakeUp | State::GuestCpuWakeUp);
    let idle = view::taken(column).any(leaves_idle).then_some(C_STATE_EXIT);
    let percent = "Both percentages are of the whole request; service time: without waits.";
    let notes = [Some(percent), idle].into_iter().flatten();
    table.notes(notes.map(str::to_owned).collect())
}

/// Percent of the whole that no row accounts for.
fn unexplained(column: &LayerColumn) -> f64 {
    100.0 - column.rows.iter().map(|r| r.percent).sum::<f64>()
}

fn share(percent: f64) -> String {
    format!("{:.1}", if percent.abs() < 0.05 { 0.0 } else { percent })
}

/// The rows, what is unexplained, and the sums beside the untraced control. Waits that are next to nothing stand together
/// in one line, so that the others can be seen and the sums still close.
pub fn brief(column: &LayerColumn) -> Table {
    let scale = Scale::for_columns(&[column]);
    let (small, large): (Vec<&Row>, Vec<&Row>) =
        view::taken(column).partition(|row| view::is_negligible(row));
    let title = format!("Rows of {}", view::title(column));
    let mut brief = Brief {
        column,
        scale,
        table: Table::new(title, brief_columns(column, scale)),
    };
    let mut before: Option<&Row> = None;
    for row in large {
        brief.segment(row, before);
        before = Some(row);
    }
    if !small.is_empty() {
        brief.other_waits(&small);
    }
    brief.totals();
    brief.table.notes(notes(column))
}

/// Makes the columns of the brief table, with one for the corrected means where there are such.
fn brief_columns(column: &LayerColumn, scale: Scale) -> Vec<Column> {
    let mut columns = vec![
        words("layer").spare(2),
        words("ends at").broken(24, 10).shorten(2),
        words("state")
            .broken(21, 14)
            .spare(2)
            .noted(state_signs(column)),
        figures(format!("p50 {}", scale.unit)),
        figures(format!("mean {}", scale.unit)),
    ];
    let corrected = column.corrected.as_ref();
    columns.extend(corrected.map(|_| figures(format!("corrected {}", scale.unit)).spare(3)));
    columns.extend([figures("%"), words("").spare(1)]);
    columns
}

/// The brief table of a column, to which its lines are added.
struct Brief<'a> {
    column: &'a LayerColumn,
    scale: Scale,
    table: Table,
}

/// A line of sums; a figure that is `None` is left empty.
#[derive(Default)]
struct Sum<'a> {
    what: &'a str,
    p50: Option<f64>,
    mean: Option<f64>,
    corrected: Option<f64>,
    percent: Option<f64>,
    strong: bool,
}

impl Brief<'_> {
    /// Adds a row of the column, without the layer and the end that the row before has, too.
    fn segment(&mut self, row: &Row, before: Option<&Row>) {
        let same_layer = before.is_some_and(|b| b.layer == row.layer);
        // The same segment in another state.
        let again = same_layer && before.is_some_and(|b| b.to == row.to);
        let mut cells = vec![
            only_if(!same_layer, Cell::key(class(row.layer), row.layer.label())),
            end_of(row, again),
            Cell::from(view::state(row.state)).tone(Tone::Warn),
            self.scale.number(row.time.p50_ns).into(),
            self.scale.number(row.time.mean_ns).into(),
        ];
        cells.extend(self.corrected(row.corrected_ns));
        cells.extend([
            share(row.percent).into(),
            Cell::from(bar(row.percent)).tone(Tone::Soft),
        ]);
        match same_layer {
            true => self.table.row(cells),
            false => self.table.first(cells),
        }
    }

    /// Adds the sum of the waits that are next to nothing.
    fn other_waits(&mut self, small: &[&Row]) {
        let sum_of_small =
            |figure: fn(&Row) -> f64| small.iter().map(|row| figure(row)).sum::<f64>();
        self.sum(Sum {
            what: &format!("other waits ({})", counted(small.len() as u64, "row")),
            mean: Some(sum_of_small(|row| row.time.mean_ns)),
            corrected: Some(sum_of_small(|row| row.corrected_ns.unwrap_or(0.0))),
            percent: Some(sum_of_small(|row| row.percent)),
            ..Sum::default()
        });
    }

    /// Adds what is unexplained, and the totals: traced, corrected, and of the untraced control.
    fn totals(&mut self) {
        let column = self.column;
        let less = column.corrected.as_ref();
        let unexplained = unexplained(column);
        self.sum(Sum {
            what: view::unexplained(column),
            mean: Some(column.unexplained_ns),
            corrected: less.map(|c| c.unexplained_ns),
            percent: Some(unexplained),
            strong: unexplained.abs() > MUCH_UNEXPLAINED,
            ..Sum::default()
        });
        let (traced, whole) = (&column.traced, less.map(|c| c.total));
        self.sum(Sum {
            what: "total, traced",
            p50: Some(traced.p50_ns),
            mean: Some(traced.mean_ns),
            corrected: whole.map(|total| total.mean_ns),
            percent: Some(100.0),
            strong: true,
        });
        for (what, total) in [
            ("total, corrected", whole),
            ("control, untraced", column.control),
        ] {
            let Some(total) = total else { continue };
            self.sum(Sum {
                what,
                p50: Some(total.p50_ns),
                mean: Some(total.mean_ns),
                strong: true,
                ..Sum::default()
            });
        }
    }

    /// Adds a line of sums.
    fn sum(&mut self, sum: Sum) {
        let words = [
            Cell::default(),
            sum.what.into(),
            Cell::default(),
            self.number(sum.p50),
            self.number(sum.mean),
        ];
        let percent = sum.percent.map_or(String::new(), share).into();
        let cells = words
            .into_iter()
            .chain(self.corrected(sum.corrected))
            .chain([percent]);
        let strong = sum.strong;
        let cells = cells.map(|cell| Cell { strong, ..cell });
        self.table.row(cells.collect::<Vec<Cell>>());
    }

    /// Returns the cell of a corrected mean; `None` where the table has no column for it.
    fn corrected(&self, ns: Option<f64>) -> Option<Cell> {
        self.column.corrected.as_ref().map(|_| self.number(ns))
    }

    /// Returns the cell of a time, empty where there is none.
    fn number(&self, ns: Option<f64>) -> Cell {
        Cell::from(ns.map_or(String::new(), |ns| self.scale.number(ns)))
    }
}

/// Returns the cell of a row's end, a sign where the row before has the same; the short form names the state, too.
fn end_of(row: &Row, again: bool) -> Cell {
    let mark = only_if(row.below_bound, " †");
    let until = format!("→ {}{mark}", row.to.label());
    let state = view::state(row.state);
    let named = format!(
        "{until}{}",
        only_if(!state.is_empty(), format!(", {state}"))
    );
    Cell::from(if again { format!("″{mark}") } else { until }).short(named)
}

/// A share as a bar of eighths of a column.
fn bar(percent: f64) -> String {
    let eighths = (percent.clamp(0.0, 100.0) / 100.0 * (BAR * 8) as f64).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{part}", "█".repeat(eighths / 8))
}

/// Returns the meaning of an empty state, and of a segment that appears twice.
fn state_signs(column: &LayerColumn) -> Option<String> {
    let rows = || shown(column);
    let again = rows()
        .zip(rows().skip(1))
        .any(|(a, b)| (a.layer, a.to) == (b.layer, b.to));
    let works = rows().any(|row| row.state == State::Running);
    let signs = [
        works.then_some("No entry under state: service time."),
        again.then_some("″: same segment, in another state."),
    ];
    let signs: Vec<&str> = signs.into_iter().flatten().collect();
    (!signs.is_empty()).then(|| signs.join(" "))
}

/// The rows of the brief table.
fn shown(column: &LayerColumn) -> impl Iterator<Item = &Row> {
    view::taken(column).filter(|row| !view::is_negligible(row))
}

/// Returns the meaning of the table's other signs, in one line.
fn notes(column: &LayerColumn) -> Vec<String> {
    let scale = Scale::for_columns(&[column]);
    let mut times = shown(column).flat_map(|row| [row.time.mean_ns, row.time.p50_ns]);
    let is_rounded_away = times.any(|ns| scale.number(ns) == "~0");
    let (corrected, control) = (column.corrected.is_some(), column.control.is_some());
    let signs = [
        sentences::below_bound(column),
        is_rounded_away.then_some("~0 above 0, rounds to it"),
        corrected.then_some("corrected: the mean minus the cost of tracing its events"),
        control.then_some("control: the same requests without tracing"),
    ];
    let signs: Vec<&str> = signs.into_iter().flatten().collect();
    only_if(!signs.is_empty(), vec![format!("{}.", signs.join("; "))])
}

/// The rest of a column. All but the main one are folded, so that the page can be read in one go.
pub fn section(column: &LayerColumn, main: bool) -> Section<'_> {
    let states = view::states_of(column).into_iter().map(|(state, ..)| state);
    let mut blocks = vec![Figure::new(States(states.collect())).into()];
    if !main {
        blocks.push(Block::Table(sums(column)));
    }
    blocks.extend(column.waterfalls.iter().flat_map(waterfall));
    blocks.push(Block::folded("Every row", [rows(column)]));
    blocks.extend(Heat::new(column).map(|heat| heat_map(column, heat)));
    blocks.extend(folded_tables(column));
    let title = format!("{} in detail", view::title(column));
    match main {
        true => Section::detail(title, blocks),
        false => Section::detail("", [Block::Folded(title, blocks)]),
    }
}

fn heat_map<'a>(column: &LayerColumn, heat: Heat<'a>) -> Block<'a> {
    let caption = format!(
        "Latency over the run. Each cell counts the requests that began in {} by their latency; the darkest holds {}, each \
         lighter shade fewer by the same factor.",
        nanoseconds(column.heat.column_ns),
        count(u64::from(heat.most))
    );
    Block::Figure(Figure {
        caption,
        ..Figure::new(heat)
    })
}

/// The tables of a column that stand folded below its pictures.
fn folded_tables(column: &LayerColumn) -> Vec<Block<'static>> {
    let whole = wholes(&[
        ("traced", Some(&column.traced)),
        ("control", column.control.as_ref()),
    ]);
    let mut all = vec![Block::folded("One operation", [whole])];
    let costs = column.corrected.as_ref().map(event_costs);
    all.extend(costs.map(|costs| Block::folded("What recording an event costs", [costs])));
    all.push(Block::folded(NESTED, [nested(column)]));
    all.push(Block::folded(
        "The path of a request, medians",
        [lifecycle(column)],
    ));
    all.extend(column.calls.iter().map(|thread| {
        let calls = thread.calls.iter().map(|c| (c.name.as_str(), c));
        let locks = thread.locks.iter().map(|c| ("of these, lock waits", c));
        let title = format!("System calls of QEMU's {}", thread.role.label());
        let table = calls_table(&title, calls.chain(locks));
        Block::folded(title, [table])
    }));
    let slowest = "The slowest 1 % against the requests around the median, means";
    all.push(Block::folded(slowest, [tail(column)]));
    all
}

/// The caption names the request; the table holds its segments.
fn waterfall(w: &Waterfall) -> Vec<Block<'_>> {
    let scale = Scale::for_total(w.total_ns);
    let caption = format!(
        "A traced request near the {}, {} since the operation's begin. Above: which thread has it; below: each segment.",
        w.which, scale.unit
    );
    let title = format!("The {} request: {}", w.which, scale.text(w.total_ns));
    let word = |name: &str| words(name).broken(14, 8);
    let figures = ["begin", "end", "length"].map(|name| figures(format!("{name}, {}", scale.unit)));
    let table = Table::of(title.clone(), &w.spans)
        .column(word("layer"), |s| {
            Cell::key(class(s.layer), s.layer.label())
        })
        .columns(["what", "state", "thread"].map(word), |s| {
            [&*s.label, s.state.label(), &*s.thread].map(str::to_owned)
        })
        .columns(figures, |s| {
            [s.begin_ns, s.end_ns, s.end_ns - s.begin_ns].map(|ns| scale.number(ns))
        })
        .done();
    let figure = Figure {
        title: title.clone(),
        caption,
        ..Figure::new(Falls(w))
    };
    vec![Block::Figure(figure), Block::folded(title, [table])]
}

fn rows(column: &LayerColumn) -> Table {
    let scale = Scale::for_columns(&[column]);
    let mut columns = vec![
        words("row").broken(26, 14),
        words("state").spare(3),
        figures("n"),
    ];
    columns.extend(["p50", "p90", "p99", "max"].map(figures));
    columns.push(figures(format!("mean, {}", scale.unit)));
    columns.extend([figures("95 % CI").spare(1), figures("%").spare(2)]);
    let mut table = Table::new(format!("Every row of {}", view::title(column)), columns);
    let mut before: Option<&Row> = None;
    for row in &column.rows {
        if before.is_none_or(|b| b.layer != row.layer) {
            table.group(row.layer.label());
        }
        let again = before.is_some_and(|b| (b.layer, b.to) == (row.layer, row.to));
        let what = match again {
            true => "″".to_owned(),
            false => format!("→ {}", row.to.label()),
        };
        before = Some(row);
        let mut cells = vec![what + only_if(row.below_bound, " †")];
        cells.extend([view::state(row.state).to_owned(), count(row.count)]);
        let f = &row.time;
        cells
            .extend([f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, f.mean_ns].map(|ns| scale.number(ns)));
        cells.extend([scale.range(&row.mean), format!("{:.1}", row.percent)]);
        table.row(cells);
    }
    let sign = sentences::below_bound(column).map(|sign| format!("{sign}."));
    table.notes(sign.into_iter().collect())
}

/// The calibrated costs by side and kind.
fn event_costs(corrected: &Corrected) -> Table {
    let scale = Scale::for_total(1e3);
    let figures = |name: &str| figures(format!("{name}, {}", scale.unit));
    let ci = || figures("95 % CI").spare(1);
    Table::of("What recording an event costs", &corrected.costs)
        .column(words("side"), |cost| cost.side.as_str())
        .column(words("event"), |cost| cost.kind.label())
        .column(figures("first since the thread slept"), |cost| {
            scale.number(cost.first_ns.median)
        })
        .column(ci(), |cost| scale.range(&cost.first_ns))
        .column(figures("the next"), |cost| {
            scale.number(cost.again_ns.median)
        })
        .column(ci(), |cost| scale.range(&cost.again_ns))
        .column(figures("n"), |cost| count(u64::from(cost.repetitions)))
        .done()
}

/// Makes a table of whole operations: quantiles, maximum and mean.
pub fn wholes(wholes: &[(&str, Option<&Summary>)]) -> Table {
    let known = wholes.iter();
    let known = known.filter_map(|(name, figure)| Some((*name, (*figure)?)));
    Table::of("One operation", known)
        .column(words(""), |(name, _)| *name)
        .figures(["p50", "p90", "p99", "max", "mean"], |(_, f)| {
            [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, f.mean_ns].map(nanoseconds)
        })
        .done()
}

/// The control is the whole operation without probes: it stands beside the outermost.
fn nested(column: &LayerColumn) -> Table {
    let heads = [
        figures("cumulative"),
        figures("p50"),
        figures("p90").spare(1),
        figures("p99"),
        figures("max").spare(1),
        figures("delta"),
    ];
    let control = |i: usize| {
        let control = column.control.filter(|_| i == 0);
        control.map_or(String::new(), |c| nanoseconds(c.mean_ns))
    };
    Table::of(NESTED, column.nested.iter().enumerate())
        .column(words("layer").broken(20, 12), |(_, n)| n.label.as_str())
        .columns(heads, |(_, n)| {
            let f = &n.cumulative;
            [
                f.mean_ns, f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, n.delta_ns,
            ]
            .map(nanoseconds)
        })
        .column(figures("percent"), |(_, n)| format!("{:.2} %", n.percent))
        .column(figures("untraced control").spare(2), |(i, _)| control(*i))
        .done()
}

fn lifecycle(column: &LayerColumn) -> Table {
    let scale = Scale::for_columns(&[column]);
    Table::of("The path of a request", &column.lifecycle)
        .column(words("checkpoint").broken(26, 14), |step| {
            step.label.as_str()
        })
        .column(words("thread").broken(14, 8), |step| step.thread.as_str())
        .column(figures(format!("since previous, {}", scale.unit)), |step| {
            scale.number(step.since_previous_ns)
        })
        .done()
}

fn calls_table<'a>(title: &str, calls: impl Iterator<Item = (&'a str, &'a CallRow)>) -> Table {
    let note = "NAME_post: time in user space after that call.".to_owned();
    Table::of(title, calls)
        .column(words("call").broken(24, 12), |(name, _)| *name)
        .column(figures("count").samples(), |(_, c)| count(c.count))
        .figures(["mean", "stddev", "min", "max", "total"], |(_, c)| {
            [c.mean_ns, c.stddev_ns, c.min_ns, c.max_ns, c.total_ns].map(nanoseconds)
        })
        .done()
        .notes(vec![note])
}

fn tail(column: &LayerColumn) -> Table {
    let scale = Scale::for_columns(&[column]);
    Table::of("The slowest requests", &column.tail)
        .column(words("row").broken(30, 14), |row| row.label.as_str())
        .figures(["median", "slowest 1 %", "more"], |row| {
            let more = row.slowest_ns - row.median_ns;
            [row.median_ns, row.slowest_ns, more].map(|ns| scale.text(ns))
        })
        .done()
}
