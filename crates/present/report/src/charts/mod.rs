//! The pictures of reports: SVG for a page, and what can be drawn with characters; and the axis that they have: horizontal, in
//! percent of the picture's width, linear from zero or logarithmic.

pub mod bars;
pub mod distributions;
pub mod layers;
pub mod profile;
pub mod series;

use crate::engine::alike;
use crate::text::{columns, fit, plain};
use maud::{Markup, html as markup};
use vmtax_findings::Estimate;

/// Where values lie.
pub struct Axis {
    low: f64,
    high: f64,
    /// True if equal distances are equal factors (logarithmic axis).
    pub log: bool,
}

impl Axis {
    fn new(low: f64, high: f64, log: bool) -> Axis {
        Axis { low, high, log }
    }

    /// An axis for ratios to native: linear from 0 unless they span more than a factor of eight.
    pub fn for_ratios(values: &[f64]) -> Axis {
        let (low, high) = bounds(values, 1.0, 1.0);
        if high / low > 8.0 {
            Axis::new(low / 1.1, high * 1.1, true)
        } else {
            Axis::new(0.0, high * 1.05, false)
        }
    }

    /// A logarithmic axis that holds all values; those of zero or less are left out.
    pub fn log(values: &[f64]) -> Axis {
        let (low, high) = bounds(values, f64::MAX, 0.0);
        if low > high {
            return Axis::new(1.0, 10.0, true);
        }
        // A little air, and never a width of nothing.
        Axis::new(low / 1.15, high * 1.15, true)
    }

    /// A linear axis from 0 to `high`.
    pub fn from_zero(high: f64) -> Axis {
        Axis::new(0.0, if high > 0.0 { high } else { 1.0 }, false)
    }

    /// A logarithmic axis with these ends, both above 0.
    pub fn between(low: f64, high: f64) -> Axis {
        Axis::new(low, high.max(low * 1.01), true)
    }

    /// A linear axis that holds all values, which lie close together: no zero, a little air.
    pub fn around(values: &[f64]) -> Axis {
        let (low, high) = bounds(values, f64::MAX, f64::MIN_POSITIVE);
        let air = ((high - low) * 0.1).max(high * 0.01);
        if low > high {
            Axis::from_zero(1.0)
        } else {
            Axis::new(low - air, high + air, false)
        }
    }

    /// An axis that holds all values: without zero, logarithmic where they span more than a factor of eight.
    pub fn spanning(values: &[f64]) -> Axis {
        let (low, high) = bounds(values, f64::MAX, 0.0);
        if high / low > 8.0 {
            Axis::log(values)
        } else {
            Axis::around(values)
        }
    }

    /// Returns both ends: the lowest and the highest value.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Where `v` lies, 0 to 100; clamped to the ends.
    pub fn at(&self, v: f64) -> f64 {
        let share = if self.log {
            (v.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (v - self.low) / (self.high - self.low)
        };
        if share.is_finite() {
            share.clamp(0.0, 1.0) * 100.0
        } else {
            0.0
        }
    }

    /// A bar for a ratio, from the line of 1 (logarithmic) or from 0, with a whisker for its interval; `middle` and
    /// `height` in pixels.
    pub fn bar(&self, ratio: &Estimate, middle: f64, height: f64) -> Markup {
        let start = if self.log { self.at(1.0) } else { 0.0 };
        let end = self.at(ratio.median);
        let (from, width) = (start.min(end), (start - end).abs().max(0.2));
        markup! {
            rect x=(percent(from)) width=(percent(width)) y=(middle - height / 2.0) height=(height) rx="2" {}
            @if ratio.interval.is_some() { g.whisker { (self.whisker(ratio, middle, 4.0)) } }
        }
    }

    /// The interval of a ratio as a line with ends so high, px; nothing where there is none.
    pub fn whisker(&self, ratio: &Estimate, middle: f64, ends: f64) -> Markup {
        let Some(i) = ratio.interval else {
            return markup! {};
        };
        let (low, high) = (percent(self.at(i.low)), percent(self.at(i.high)));
        markup! {
            line x1=(low) x2=(high) y1=(middle) y2=(middle) {}
            @for at in [low, high] { line x1=(at) x2=(at) y1=(middle - ends) y2=(middle + ends) {} }
        }
    }

    /// Round values along the axis, at most about `most`.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.log {
            self.log_ticks(most)
        } else {
            self.linear_ticks(most)
        }
    }

    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let (from, to) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        let decades = usize::try_from(to - from).unwrap_or(1).max(1);
        let steps: &[f64] = match decades {
            d if d * 3 <= most + 2 => &[1.0, 2.0, 5.0],
            d if d * 2 <= most + 1 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let stride = decades.div_ceil(most.max(1));
        let decades = (from..=to).step_by(stride);
        let all = decades.flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
        all.filter(|t| (self.low..=self.high).contains(t)).collect()
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / most.max(1) as f64;
        let decade = 10f64.powf(rough.log10().floor());
        let mut steps = [1.0, 2.0, 5.0, 10.0].iter().map(|s| s * decade);
        let step = steps.find(|s| *s >= rough).unwrap_or(10.0 * decade);
        let first = (self.low / step).ceil();
        let count = (self.high / step).floor() - first;
        // At most ten times `most` by the choice of the step; the cast cannot lose anything.
        let all = 0..=count.clamp(0.0, 100.0) as u32;
        all.map(|i| (first + f64::from(i)) * step).collect()
    }

    /// Vertical lines at `ticks` over the whole height of a picture.
    pub fn grid(&self, ticks: &[f64]) -> Markup {
        markup! {
            @for t in ticks {
                @let x = percent(self.at(*t));
                line.grid x1=(x) x2=(x) y1="0" y2="100%" {}
            }
        }
    }

    /// A picture of its own with the ticks' labels, kept inside at both ends.
    pub fn labels(&self, ticks: &[f64], label: impl Fn(f64) -> String) -> Markup {
        // Every second one is left out where there is little room.
        let many = ticks.len() > 5;
        markup! {
            svg.ticks.many[many] aria-hidden="true" {
                @for t in ticks {
                    @let at = self.at(*t);
                    @let anchor = if at < 4.0 { "start" } else if at > 96.0 { "end" } else { "middle" };
                    text x=(percent(at)) y="12" text-anchor=(anchor) { (label(*t)) }
                }
            }
        }
    }
}

/// Returns an estimate's median, and the ends of its interval.
pub fn ends(estimate: &Estimate) -> impl Iterator<Item = f64> + use<> {
    let ends = estimate.interval.map(|i| [i.low, i.high]);
    [estimate.median]
        .into_iter()
        .chain(ends.into_iter().flatten())
}

/// Formats a coordinate in percent: "12.50%".
pub fn percent(p: f64) -> String {
    format!("{p:.2}%")
}

fn bounds(values: &[f64], low: f64, high: f64) -> (f64, f64) {
    let usable = values.iter().copied().filter(|v| v.is_finite() && *v > 0.0);
    usable.fold((low, high), |(l, h), v| (l.min(v), h.max(v)))
}

/// Columns of the longest name.
const NAME: usize = 34;
/// Columns of the widest picture.
const ROOM: usize = 40;
/// Lines of a sketch: the largest figures, where there are more.
pub const MAX_LINES: usize = 12;

/// A line of a sketch.
pub struct Line {
    /// Name of the figure.
    pub name: String,
    /// Figure beside the name.
    pub figure: String,
    /// Begin and end of the row's marks, from 0 to 100; drawn one over the other.
    pub marks: Vec<Mark>,
}

/// Marks of one kind, from one place to another.
pub struct Mark {
    /// Character that draws them.
    pub character: char,
    /// First place, percent of the width.
    pub from: f64,
    /// Last place, percent of the width.
    pub to: f64,
}

/// Makes marks.
pub fn mark(character: char, from: f64, to: f64) -> Mark {
    Mark {
        character,
        from,
        to,
    }
}

/// Lines of at most this width: names, figures, marks, below each other.
pub fn sketch(lines: &[Line], width: usize) -> String {
    let name_of = |line: &Line| fit(&plain(&line.name.replace('`', "")), NAME);
    let widest = |texts: &mut dyn Iterator<Item = String>| {
        texts.map(|text| columns(&text)).max().unwrap_or(0)
    };
    let names = widest(&mut lines.iter().map(name_of));
    let texts: Vec<String> = lines.iter().map(|line| line.figure.clone()).collect();
    let texts = alike(&texts);
    let figures = widest(&mut texts.iter().cloned());
    let room = width.saturating_sub(names + figures + 4).clamp(10, ROOM);
    let line = |(line, figure): (&Line, &String)| {
        let name = name_of(line);
        let (after, before) = (names - columns(&name), figures - columns(figure));
        let [after, before] = [after, before].map(|n| " ".repeat(n));
        let text = format!("{name}{after}  {before}{figure}  {}", drawn(line, room));
        format!("{}\n", text.trim_end())
    };
    lines.iter().zip(&texts).map(line).collect()
}

/// The marks of a line in so many columns, each at least one.
fn drawn(line: &Line, room: usize) -> String {
    let mut drawn = vec![' '; room];
    let last = room - 1;
    let column = |place: f64| {
        let columns = (place / 100.0 * room as f64).ceil() as usize;
        columns.saturating_sub(1).min(last)
    };
    for mark in &line.marks {
        let (from, to) = (mark.from.min(mark.to), mark.from.max(mark.to));
        drawn[column(from)..=column(to)].fill(mark.character);
    }
    drawn.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_spans_are_linear_from_zero_and_large_ones_logarithmic() {
        let near = Axis::for_ratios(&[0.9, 1.4]);
        assert!(!near.log && near.ends().0 == 0.0);
        assert!(near.at(1.0) > 60.0 && near.at(1.4) <= 100.0);
        let far = Axis::for_ratios(&[1.2, 300.0]);
        assert!(far.log);
        assert!((far.at(10.0) - far.at(1.0) - (far.at(100.0) - far.at(10.0))).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_few_inside_and_round() {
        for (values, most) in [
            (vec![1.0, 1.3], 6),
            (vec![0.5, 4000.0], 6),
            (vec![30.0, 40.0], 4),
            (vec![1.0, 1e12], 5),
        ] {
            for axis in [Axis::for_ratios(&values), Axis::log(&values)] {
                let ticks = axis.ticks(most);
                assert!(ticks.len() <= most + 3, "{values:?} {ticks:?}");
                assert!(
                    ticks.iter().all(|t| (axis.low..=axis.high).contains(t)),
                    "{ticks:?}"
                );
            }
        }
    }

    #[test]
    fn nonsense_stays_inside() {
        for values in [vec![], vec![0.0], vec![f64::NAN, f64::INFINITY], vec![5.0]] {
            for axis in [Axis::for_ratios(&values), Axis::log(&values)] {
                for v in [0.0, -1.0, f64::NAN, f64::INFINITY, 3.0] {
                    assert!((0.0..=100.0).contains(&axis.at(v)), "{values:?} {v}");
                }
            }
        }
    }

    #[test]
    fn marks_lie_where_their_figures_are_and_no_line_is_too_wide() {
        let line = |name: &str, figure: &str, to| Line {
            name: name.to_owned(),
            figure: figure.to_owned(),
            marks: vec![mark('█', 0.0, to), mark('│', 50.0, 50.0)],
        };
        let text = sketch(&[line("a", "×1", 0.0), line("long", "×10.0", 100.0)], 22);
        assert_eq!(text, "a        ×1  █   │\nlong  ×10.0  ████│█████\n");
        let wide = sketch(&[line(&"x".repeat(90), "×1", f64::NAN)], 80);
        assert!(columns(wide.trim_end()) <= 80, "{wide}");
    }
}
