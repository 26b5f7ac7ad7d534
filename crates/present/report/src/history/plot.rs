//! A series drawn with characters.

use super::words;
use crate::charts::axis::Axis;
use crate::number::value;
use crate::text::{Paint, columns, fit, plain};
use vmtax_model::{Metric, SeriesFindings};

const HEIGHT: usize = 12;
/// Wider, few runs would stand too far apart to be one picture.
const MOST_APART: usize = 9;

/// What stands in a place of the picture, and its colour.
#[derive(Clone, Copy)]
struct Mark(char, &'static str);

const NOTHING: Mark = Mark(' ', "");

/// The runs from left to right; medians as dots, intervals as strokes, the medians between changes as lines.
pub fn plot(series: &SeriesFindings, metric: Metric, width: usize, paint: Paint) -> String {
    let axis = Axis::of_figures(series);
    let ticks = [HEIGHT - 1, HEIGHT / 2, 0].map(|row| (row, value(metric.unit(), at_row(&axis, row))));
    let label = ticks.iter().map(|(_, text)| columns(text)).max().unwrap_or(0);
    let count = series.figures.len();
    let room = width.saturating_sub(label + 3).max(1).min(count.saturating_sub(1) * MOST_APART + 1);
    let place = |i: usize| if count < 2 { 0 } else { i * (room - 1) / (count - 1) };
    let row = |v: f64| (axis.at(v) / 100.0 * (HEIGHT - 1) as f64).round() as usize;
    let mut grid = vec![vec![NOTHING; room]; HEIGHT];
    let mut under = vec![NOTHING; room];

    let mut ends: Vec<usize> = series.changes.iter().map(|c| c.at).collect();
    ends.push(count);
    let mut from = 0;
    for (i, end) in ends.iter().enumerate() {
        let level = i.checked_sub(1).map(|i| &series.changes[i]).map(|c| c.after);
        if let Some(level) = level.or_else(|| series.changes.first().map(|c| c.before)) {
            grid[row(level)][place(from)..=place(end - 1)].fill(Mark('─', "36"));
        }
        from = *end;
    }
    for (i, figure) in series.figures.iter().enumerate() {
        if let Some(interval) = figure.value.interval {
            for line in &mut grid[row(interval.low)..=row(interval.high)] {
                line[place(i)] = Mark('│', "2");
            }
        }
    }
    for (i, figure) in series.figures.iter().enumerate() {
        grid[row(figure.value.median)][place(i)] = Mark(if figure.run.recorded { '●' } else { '○' }, "1");
    }
    for (i, change) in series.changes.iter().enumerate() {
        // Between the run before and the first run after, where there is room.
        let column = (place(change.at - 1) + place(change.at)).div_ceil(2);
        for line in grid.iter_mut().filter(|line| line[column].0 == ' ') {
            line[column] = Mark('┆', "33");
        }
        for (offset, digit) in (i + 1).to_string().chars().enumerate() {
            if let Some(mark) = under.get_mut(column + offset) {
                *mark = Mark(digit, "33");
            }
        }
    }

    let mut out = String::new();
    for (at, line) in grid.iter().enumerate().rev() {
        let text = ticks.iter().find(|(row, _)| *row == at).map_or("", |(_, text)| text.as_str());
        let axis = if text.is_empty() { '│' } else { '┤' };
        out.push_str(&format!("{}{text} {axis}{}\n", " ".repeat(label - columns(text)), painted(line, paint)));
    }
    out.push_str(&format!("{} └{}\n", " ".repeat(label), "─".repeat(room)));
    if !series.changes.is_empty() {
        out.push_str(&format!("{}  {}\n", " ".repeat(label), painted(&under, paint)));
    }
    let extent = fit(&plain(&words::extent(series)), width.saturating_sub(label + 2));
    out.push_str(&format!("{}  {extent}\n", " ".repeat(label)));
    out
}

fn painted(line: &[Mark], paint: Paint) -> String {
    let text = |mark: &Mark| match mark.1 {
        "" => mark.0.to_string(),
        code => paint.with(code, &mark.0.to_string()),
    };
    line.iter().map(text).collect::<String>().trim_end().to_owned()
}

/// The value that a row stands for.
fn at_row(axis: &Axis, row: usize) -> f64 {
    let (low, high) = axis.ends();
    let share = row as f64 / (HEIGHT - 1) as f64;
    if axis.log { low * (high / low).powf(share) } else { low + (high - low) * share }
}
