//! A metric over the runs, from left to right: SVG, and with characters. Growth curves on logarithmic axes: each round's cost as a
//! dot, the growth law with the band of its interval.

use super::{Axis, ends, percent};
use crate::engine::Chart;
use crate::number::{NONE, count, counted, factor, nanoseconds, nanoseconds_tick, value};
use crate::text::{Joined, Paint, columns, fit, only_if, plain, when};
use maud::{Markup, html};
use std::fmt::Write as _;
use vmtax_findings::{Change, CurvePoint, Growth, Law, PastRun, SeriesFindings};
use vmtax_model::{Metric, Unit};

/// A metric under the same conditions over the runs.
pub struct Series<'a> {
    /// Runs of the series, with their figures and changes.
    pub series: &'a SeriesFindings,
    /// Metric of the series.
    pub metric: Metric,
}

impl Chart for Series<'_> {
    fn svg(&self) -> Markup {
        chart(self.series, self.metric)
    }

    fn text(&self, width: usize, paint: Paint) -> Option<String> {
        Some(plot(self.series, self.metric, width, paint))
    }
}

const HEIGHT: f64 = 210.0;

fn axis_of(series: &SeriesFindings) -> Axis {
    let values = series.figures.iter().map(|figure| &figure.value);
    Axis::spanning(&values.flat_map(ends).collect::<Vec<f64>>())
}

fn chart(series: &SeriesFindings, metric: Metric) -> Markup {
    let axis = axis_of(series);
    let ticks = axis.ticks(5);
    let count = series.figures.len();
    let x = |i: f64| (i + 0.5) / count.max(1) as f64 * 100.0;
    let y = |v: f64| format!("{:.1}", 6.0 + (HEIGHT - 12.0) * (1.0 - axis.at(v) / 100.0));
    let text = |v: f64| value(metric.unit(), v);
    let levels = levels(series);
    let days = days(series);
    html! {
        div.plot.(series.key.machine) {
            svg.up height=(HEIGHT) aria-hidden="true" {
                @for t in &ticks { text x="100%" y=(y(*t)) dy="4" text-anchor="end" { (text(*t)) } }
            }
            svg height=(HEIGHT) role="img" aria-label={ (metric.label()) " on " (series_label(series)) ": " (extent(series)) ", " (series.changes.len()) " changes" } {
                @for t in &ticks { @let at = y(*t); line.grid x1="0" x2="100%" y1=(at) y2=(at) {} }
                @for (i, c) in series.changes.iter().enumerate() {
                    @let at = percent(x(c.at as f64 - 0.5));
                    line.change x1=(at) x2=(at) y1="0" y2="100%" {}
                    // Behind the line, or before it in the right half; beside the next one's.
                    @let (dx, anchor) = if x(c.at as f64) < 50.0 { ("5", "start") } else { ("-5", "end") };
                    text.change x=(at) dx=(dx) y=(12 + 14 * (i % 3)) text-anchor=(anchor) { (i + 1) ": " (change_label(c)) }
                }
                @for (from, to, level) in &levels {
                    line.level x1=(percent(x(*from as f64 - 0.4))) x2=(percent(x(*to as f64 - 0.6))) y1=(y(*level)) y2=(y(*level)) {}
                }
                @for (i, f) in series.figures.iter().enumerate() {
                    @let at = percent(x(i as f64));
                    @if let Some(interval) = f.value.interval {
                        line.stroke x1=(at) x2=(at) y1=(y(interval.low)) y2=(y(interval.high)) {}
                    }
                    circle.gone[!f.run.recorded] cx=(at) cy=(y(f.value.median)) r="4" {
                        title { (run_label(&f.run)) ", " (when(&f.run.started)) ": " (text(f.value.median)) ", n = " (f.n) }
                    }
                }
            }
            span {}
            svg.ticks.days aria-hidden="true" {
                @for i in &days {
                    @let at = x(*i as f64);
                    text x=(percent(at)) y="12" text-anchor=(anchor_of_day(at)) { (day(&series.figures[*i].run.started)) }
                }
            }
        }
    }
}

/// The first runs of days, at most eight of them, and never two close to each other.
fn days(series: &SeriesFindings) -> Vec<usize> {
    let started = |i: usize| day(&series.figures[i].run.started);
    let step = series.figures.len().div_ceil(8).max(1);
    let mut chosen: Vec<usize> = Vec::new();
    for i in 0..series.figures.len() {
        let is_next = chosen
            .last()
            .is_none_or(|last| i - last >= step && started(i) != started(*last));
        if is_next {
            chosen.push(i);
        }
    }
    chosen
}

/// Where the text of a day at this percentage of the width is anchored: at the right end it stays within the picture; at the left
/// end there is room below the labels of the axis.
fn anchor_of_day(at: f64) -> &'static str {
    if at > 92.0 { "end" } else { "middle" }
}

/// The medians between changes: from which run, to which, and how much.
fn levels(series: &SeriesFindings) -> Vec<(usize, usize, f64)> {
    let changes = &series.changes;
    let first = changes.first().map(|first| (0, first.at, first.before));
    let level = |(i, change): (usize, &Change)| {
        let next = changes.get(i + 1).map(|next| next.at);
        (
            change.at,
            next.unwrap_or(series.figures.len()),
            change.after,
        )
    };
    let others = changes.iter().enumerate().map(level);
    first.into_iter().chain(others).collect()
}

/// Where: "tcg, aio=native, disk.depth=8".
pub fn series_label(series: &SeriesFindings) -> String {
    let key = &series.key;
    let words = [key.machine.as_str(), &key.variant, &key.step];
    words
        .into_iter()
        .filter(|word| !word.is_empty())
        .joined(", ")
}

/// "16 runs, 2026-11-20 14:02 UTC to 2026-11-21 09:10 UTC".
pub fn extent(series: &SeriesFindings) -> String {
    let (Some(first), Some(last)) = (series.figures.first(), series.figures.last()) else {
        return String::new();
    };
    let runs = runs(series.figures.len());
    let [from, to] = [first, last].map(|figure| when(&figure.run.started));
    match series.figures.len() {
        1 => format!("{runs}, {from}"),
        _ => format!("{runs}, {from} to {to}"),
    }
}

/// "1 run", "8 runs".
pub fn runs(count: usize) -> String {
    counted(count as u64, "run")
}

/// "×1.25 slower", "×1.25 faster".
pub fn change_label(change: &Change) -> String {
    match change.ratio {
        None => NONE.to_owned(),
        Some(r) if r >= 1.0 => format!("×{} slower", factor(r)),
        Some(r) => format!("×{} faster", factor(1.0 / r)),
    }
}

/// A run, with a mark where its recording is gone.
pub fn run_label(run: &PastRun) -> String {
    let gone = only_if(!run.recorded, " (deleted)");
    format!("{}{gone}", run.folder)
}

/// The day of a time: `2026-11-20`.
fn day(started: &str) -> String {
    started.chars().take(10).collect()
}

const LINES: usize = 12;
/// Wider, few runs would stand too far apart to be one picture.
const MOST_APART: usize = 9;

/// Character at a position of the picture, and its colour.
#[derive(Clone, Copy)]
struct Mark(char, &'static str);

const NOTHING: Mark = Mark(' ', "");

/// The runs from left to right; medians as dots, intervals as strokes, the medians between changes as lines.
fn plot(series: &SeriesFindings, metric: Metric, width: usize, paint: Paint) -> String {
    let mut plot = Plot::new(series, metric, width);
    plot.draw_levels();
    plot.draw_figures();
    plot.draw_changes();
    plot.text(width, paint)
}

/// A picture of characters into which a series is drawn.
struct Plot<'a> {
    series: &'a SeriesFindings,
    axis: Axis,
    /// Rows with a label, with their labels.
    ticks: [(usize, String); 3],
    /// Columns of the widest label.
    label: usize,
    /// Columns for the runs.
    room: usize,
    /// Marks of each row, the lowest row first.
    grid: Vec<Vec<Mark>>,
    /// The line under the picture, with the numbers of the changes.
    under: Vec<Mark>,
}

impl<'a> Plot<'a> {
    /// Makes an empty picture of this width for a series.
    fn new(series: &'a SeriesFindings, metric: Metric, width: usize) -> Plot<'a> {
        let axis = axis_of(series);
        let ticks =
            [LINES - 1, LINES / 2, 0].map(|row| (row, value(metric.unit(), at_row(&axis, row))));
        let label = ticks
            .iter()
            .map(|(_, text)| columns(text))
            .max()
            .unwrap_or(0);
        let most = series.figures.len().saturating_sub(1) * MOST_APART + 1;
        let room = width.saturating_sub(label + 3).max(1).min(most);
        Plot {
            series,
            axis,
            ticks,
            label,
            room,
            grid: vec![vec![NOTHING; room]; LINES],
            under: vec![NOTHING; room],
        }
    }

    /// Returns the column of a run.
    fn column_of(&self, i: usize) -> usize {
        let count = self.series.figures.len();
        if count < 2 {
            0
        } else {
            i * (self.room - 1) / (count - 1)
        }
    }

    /// Returns the row of a value.
    fn row(&self, v: f64) -> usize {
        (self.axis.at(v) / 100.0 * (LINES - 1) as f64).round() as usize
    }

    /// Draws the medians between changes as lines.
    fn draw_levels(&mut self) {
        for (from, to, level) in levels(self.series) {
            let row = self.row(level);
            let runs = self.column_of(from)..=self.column_of(to - 1);
            self.grid[row][runs].fill(Mark('─', "36"));
        }
    }

    /// Draws the intervals as strokes, then the medians as dots over them.
    fn draw_figures(&mut self) {
        let series = self.series;
        for (i, figure) in series.figures.iter().enumerate() {
            if let Some(interval) = figure.value.interval {
                let column = self.column_of(i);
                let rows = self.row(interval.low)..=self.row(interval.high);
                for line in &mut self.grid[rows] {
                    line[column] = Mark('│', "2");
                }
            }
        }
        for (i, figure) in series.figures.iter().enumerate() {
            let (row, column) = (self.row(figure.value.median), self.column_of(i));
            self.grid[row][column] = Mark(if figure.run.recorded { '●' } else { '○' }, "1");
        }
    }

    /// Draws the changes as upright lines where nothing else is, with their numbers under them.
    fn draw_changes(&mut self) {
        let series = self.series;
        for (i, change) in series.changes.iter().enumerate() {
            // Between the run before and the first run after, where there is room.
            let column = (self.column_of(change.at - 1) + self.column_of(change.at)).div_ceil(2);
            for line in self.grid.iter_mut().filter(|line| line[column].0 == ' ') {
                line[column] = Mark('┆', "33");
            }
            for (offset, digit) in (i + 1).to_string().chars().enumerate() {
                if let Some(mark) = self.under.get_mut(column + offset) {
                    *mark = Mark(digit, "33");
                }
            }
        }
    }

    /// Returns the picture as lines, with its labels at the left and the extent of the series below.
    fn text(&self, width: usize, paint: Paint) -> String {
        let (series, label, room) = (self.series, self.label, self.room);
        let mut out = String::new();
        for (at, line) in self.grid.iter().enumerate().rev() {
            let tick = self.ticks.iter().find(|(row, _)| *row == at);
            let text = tick.map_or("", |(_, text)| text.as_str());
            let axis = if text.is_empty() { '│' } else { '┤' };
            let gap = " ".repeat(label - columns(text));
            out += &format!("{gap}{text} {axis}{}\n", painted(line, paint));
        }
        let gap = " ".repeat(label);
        out += &format!("{gap} └{}\n", "─".repeat(room));
        if !series.changes.is_empty() {
            out += &format!("{gap}  {}\n", painted(&self.under, paint));
        }
        let extent = fit(&plain(&extent(series)), width.saturating_sub(label + 2));
        out + &format!("{gap}  {extent}\n")
    }
}

fn painted(line: &[Mark], paint: Paint) -> String {
    let text = |mark: &Mark| match mark.1 {
        "" => mark.0.to_string(),
        code => paint.with(code, &mark.0.to_string()),
    };
    let line: String = line.iter().map(text).collect();
    line.trim_end().to_owned()
}

/// The value that a row stands for.
fn at_row(axis: &Axis, row: usize) -> f64 {
    let (low, high) = axis.ends();
    let share = row as f64 / (LINES - 1) as f64;
    if axis.log {
        low * (high / low).powf(share)
    } else {
        low + (high - low) * share
    }
}

const CURVES_HEIGHT: f64 = 230.0;
/// Half the distance over which the columns of a step lie side by side, in percent of the width.
const APART: f64 = 1.1;

/// The curves of one metric.
pub struct Curves<'a> {
    /// A curve each, with the class that gives its colour.
    pub growths: Vec<(&'static str, &'a Growth)>,
    /// The option that grew.
    pub option: &'a str,
}

/// Returns the axes of sizes and of costs.
fn axes(growths: &[(&str, &Growth)]) -> (Axis, Axis) {
    let steps = || growths.iter().flat_map(|(_, growth)| &growth.steps);
    let sizes: Vec<f64> = steps().map(|step| step.size as f64).collect();
    let costs = steps().flat_map(|step| &step.rounds).map(|cost| cost.ns);
    let laws = growths.iter().flat_map(|(_, growth)| &growth.curve);
    let costs: Vec<f64> = costs.chain(laws.map(|point| point.ns.median)).collect();
    (Axis::log(&sizes), Axis::log(&costs))
}

impl Chart for Curves<'_> {
    fn svg(&self) -> Markup {
        picture(self)
    }
}

fn picture(curves: &Curves) -> Markup {
    let growths = &curves.growths;
    let (x, y) = axes(growths);
    let (across, up) = (x.ticks(6), y.ticks(5));
    let height = |ns: f64| CURVES_HEIGHT * (1.0 - y.at(ns) / 100.0);
    let what = growths
        .first()
        .map_or(String::new(), |(_, g)| cost_label(g));
    html! {
            p.legend {
                @for (class, g) in growths { span.key.(class) { (machine_label(g)) ": " b { (law_label(g)) } } }
            }
            div.plot {
                svg.up height=(CURVES_HEIGHT) aria-hidden="true" {
                    @for t in &up { text x="100%" y=(format!("{:.1}", height(*t) + 4.0)) text-anchor="end" { (nanoseconds_tick(*t)) } }
                }
                svg height=(CURVES_HEIGHT) role="img" aria-label={ (what) " by " (curves.option) ": " (spoken(growths)) } {
                    @for t in &up { @let at = format!("{:.1}", height(*t)); line.grid x1="0" x2="100%" y1=(at) y2=(at) {} }
                    (x.grid(&across))
                    @for (class, g) in growths {
                        svg.(class) viewBox="0 0 100 100" preserveAspectRatio="none" {
                            path.band d=(band(&g.curve, &x, &y)) {}
                            path.law d=(line(&g.curve, &x, &y)) {}
                        }
                    }
                    @for (at, (class, g)) in growths.iter().enumerate() {
                        @let shift = APART * (2.0 * at as f64 - (growths.len() as f64 - 1.0)) / (growths.len() as f64);
                        @for step in &g.steps {
                            @for cost in &step.rounds {
                                circle.(class) cx=(percent(x.at(step.size as f64) + shift)) cy=(format!("{:.1}", height(cost.ns))) r="3" {
                                    title { (machine_label(g)) ", " (count(step.size)) ", round " (cost.round + 1) ": " (nanoseconds(cost.ns)) }
                                }
                            }
                        }
                    }
                }
                span {}
                (x.labels(&across, |n| count(n.round() as u64)))
            }

    }
}

/// Whose cost: "stat", or of a rate "direct requests, mean".
pub fn cost_label(growth: &Growth) -> String {
    let label = growth.metric.label();
    match growth.metric.unit() {
        Unit::Nanoseconds | Unit::Seconds | Unit::Mebibytes | Unit::Count => label.to_owned(),
        Unit::PerSecond => format!("{label}, mean"),
        Unit::MebibytesPerSecond => format!("{label}, each MiB"),
    }
}

/// Where: "tcg, qemu=5.2".
pub fn machine_label(growth: &Growth) -> String {
    let gap = only_if(!growth.variant.is_empty(), ", ");
    format!("{}{gap}{}", growth.machine, growth.variant)
}

/// "O(n)", "O(n) or O(n log n)", "O(log n) to O(n²)"; without a growth law "grows", with its exponent's interval where there
/// is one; a dash where neither is known.
pub fn law_label(growth: &Growth) -> String {
    let Some(law) = growth.law else {
        return match growth.exponent {
            Some(e) => format!("n^{:.1} to n^{:.1}", e.low, e.high),
            None if growth.grows => "grows".to_owned(),
            None => NONE.to_owned(),
        };
    };
    if law == Law::Constant && !growth.or.is_empty() {
        return "no growth shown".to_owned();
    }
    let mut laws: Vec<Law> = [law].into_iter().chain(growth.or.iter().copied()).collect();
    laws.sort_unstable();
    if laws.len() > 2 {
        let [first, last] = [laws[0], laws[laws.len() - 1]].map(Law::notation);
        return format!("{first} to {last}");
    }
    laws.iter().map(|law| law.notation()).joined(" or ")
}

fn spoken(growths: &[(&str, &Growth)]) -> String {
    let growths = growths.iter();
    growths
        .map(|(_, g)| format!("{} {}", machine_label(g), law_label(g)))
        .joined(", ")
}

fn line(curve: &[CurvePoint], x: &Axis, y: &Axis) -> String {
    path(curve.iter().map(|p| (p.size, p.ns.median)), x, y)
}

/// Along the intervals' upper ends, and back along the lower ones; empty where there are none.
fn band(curve: &[CurvePoint], x: &Axis, y: &Axis) -> String {
    let ends = curve.iter().filter_map(|p| Some((p.size, p.ns.interval?)));
    let there = ends.clone().map(|(n, i)| (n, i.high));
    let back = ends.rev().map(|(n, i)| (n, i.low));
    let mut d = path(there.chain(back), x, y);
    if !d.is_empty() {
        d.push('Z');
    }
    d
}

fn path(points: impl Iterator<Item = (f64, f64)>, x: &Axis, y: &Axis) -> String {
    let mut d = String::new();
    for (n, ns) in points {
        let word = if d.is_empty() { 'M' } else { 'L' };
        // Writing to a String cannot fail.
        let _ = write!(d, "{word}{:.2} {:.2}", x.at(n), 100.0 - y.at(ns));
    }
    d
}
