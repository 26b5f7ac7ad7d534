//! Latency over the run as a heat map: time to the right, latency upwards, darker where more requests are.

use crate::charts::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::{count, nanoseconds};
use crate::view::layers::Scale;
use maud::{Markup, html};
use std::fmt::Write as _;
use vmtax_model::{HeatMap, LayerColumn};

/// Steps of darkness; equal steps are equal factors of the count.
const SHADES: usize = 6;

/// The heat map of one column.
pub struct Heat<'a> {
    column: &'a LayerColumn,
    /// The most requests that a cell holds.
    pub most: u32,
    rows: usize,
}

impl<'a> Heat<'a> {
    /// `None` where there is nothing to draw.
    pub fn of(column: &'a LayerColumn) -> Option<Heat<'a>> {
        let map = &column.heat;
        let rows = map.counts.iter().map(Vec::len).max().unwrap_or(0);
        let most = map.counts.iter().flatten().copied().max().unwrap_or(0);
        let edges_hold = map.lowest_ns > 0.0
            && map.row_factor > 1.0
            && map.lowest_ns.is_finite()
            && map.row_factor.is_finite();
        (most > 0 && edges_hold).then_some(Heat { column, most, rows })
    }
}

impl Chart for Heat<'_> {
    fn svg(&self) -> Markup {
        let Heat { column, rows, most } = *self;
        let map = &column.heat;
        let latency = Axis::between(
            map.lowest_ns,
            map.lowest_ns * map.row_factor.powf(rows as f64),
        );
        let length = map.column_ns * map.counts.len() as f64;
        let (time, scale) = (Axis::from_zero(length), Scale::of(length));
        let ticks = latency.ticks(5);
        html! {
                div.chart.heat {
                    svg.scale-of aria-hidden="true" {
                        @for t in &ticks { text x="100%" y=(percent(100.0 - latency.at(*t))) dy="4" text-anchor="end" { (nanoseconds(*t)) } }
                    }
                    svg.cells role="img" aria-label={ "Latency of " (count(column.matched.joined)) " requests over " (scale.text(length)) } {
                        svg viewBox={ "0 0 " (map.counts.len()) " " (rows) } preserveAspectRatio="none" {
                            @for shade in 1..=SHADES { path.{ "shade-" (shade) } d=(cells(map, rows, most, shade)) {} }
                        }
                        @for t in &ticks { @let y = percent(100.0 - latency.at(*t)); line.grid x1="0" x2="100%" y1=(y) y2=(y) {} }
                    }
                    span {}
                    div { (time.labels(&time.ticks(8), |t| scale.tick(t))) }
                }
        }
    }
}

/// The cells of one shade as one path.
fn cells(map: &HeatMap, rows: usize, most: u32, shade: usize) -> String {
    let mut path = String::new();
    for (x, column) in map.counts.iter().enumerate() {
        for (row, n) in column.iter().enumerate().filter(|(_, n)| **n > 0) {
            if shade_of(*n, most) == shade {
                // Writing to a String cannot fail.
                let _ = write!(path, "M{x} {}h1v1h-1z", rows - 1 - row);
            }
        }
    }
    path
}

fn shade_of(n: u32, most: u32) -> usize {
    let share = f64::from(n).ln_1p() / f64::from(most).ln_1p();
    ((share * SHADES as f64).ceil() as usize).clamp(1, SHADES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_lie_at_the_bottom_and_the_fullest_are_darkest() {
        let map = HeatMap {
            column_ns: 1.0,
            lowest_ns: 1.0,
            row_factor: 2.0,
            counts: vec![vec![0, 100, 1], vec![3]],
        };
        assert_eq!(cells(&map, 3, 100, SHADES), "M0 1h1v1h-1z");
        assert_eq!(cells(&map, 3, 100, 1), "M0 0h1v1h-1z");
        assert_eq!(cells(&map, 3, 100, 2), "M1 2h1v1h-1z");
    }
}
