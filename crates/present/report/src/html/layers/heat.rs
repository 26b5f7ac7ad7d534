//! Latency over the run as a heat map: time to the right, latency upwards, darker where more requests are.

use super::Page;
use crate::charts::axis::{Axis, percent};
use crate::layers::view::Scale;
use crate::number::{count, nanoseconds};
use maud::{Markup, html as markup};
use std::fmt::Write as _;
use vmtax_model::{HeatMap, LayerColumn};

/// Steps of darkness; equal steps are equal factors of the count.
const SHADES: usize = 6;

pub fn heat(page: &Page, column: &LayerColumn) -> Markup {
    let map = &column.heat;
    let rows = map.counts.iter().map(Vec::len).max().unwrap_or(0);
    let most = map.counts.iter().flatten().copied().max().unwrap_or(0);
    let edges_hold =
        map.lowest_ns > 0.0 && map.row_factor > 1.0 && map.lowest_ns.is_finite() && map.row_factor.is_finite();
    if most == 0 || !edges_hold {
        return markup! {};
    }
    let edge = |row: usize| map.lowest_ns * map.row_factor.powf(row as f64);
    let latency = Axis::between(map.lowest_ns, edge(rows));
    let length = map.column_ns * map.counts.len() as f64;
    let (time, scale) = (Axis::from_zero(length), Scale::of(length));
    let ticks = latency.ticks(5);
    markup! {
        section {
            h3 { "Latency over the run" }
            figure {
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
                figcaption {
                    "Each cell counts the requests that began in " (nanoseconds(map.column_ns)) " and took as long as its height says; the darkest holds "
                    (count(u64::from(most))) ", each lighter shade fewer by the same factor. " (page.source(column))
                }
                details {
                    summary { "As a table" }
                    div.scroll tabindex="0" role="region" aria-label="Latency over the run" { (table(map, &edge, &scale)) }
                }
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

fn table(map: &HeatMap, edge: &impl Fn(usize) -> f64, scale: &Scale) -> Markup {
    let band = |row: usize| format!("{} to {}", nanoseconds(edge(row)), nanoseconds(edge(row + 1)));
    markup! {
        table {
            caption.hidden { "Requests over the run" }
            thead { tr {
                th scope="col" { "from, " (scale.unit) }
                @for name in ["requests", "fastest in", "most in", "slowest in"] { th.number scope="col" { (name) } }
            } }
            tbody {
                @for (i, column) in map.counts.iter().enumerate() {
                    @let filled: Vec<usize> = column.iter().enumerate().filter(|(_, n)| **n > 0).map(|(row, _)| row).collect();
                    @if let (Some(first), Some(last)) = (filled.first(), filled.last()) {
                        @let fullest = filled.iter().copied().max_by_key(|row| column[*row]).unwrap_or(*first);
                        tr {
                            th scope="row" { (scale.number(i as f64 * map.column_ns)) }
                            td.number { (count(column.iter().map(|n| u64::from(*n)).sum())) }
                            @for row in [*first, fullest, *last] { td.number { (band(row)) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_lie_at_the_bottom_and_the_fullest_are_darkest() {
        let map = HeatMap { column_ns: 1.0, lowest_ns: 1.0, row_factor: 2.0, counts: vec![vec![0, 100, 1], vec![3]] };
        assert_eq!(cells(&map, 3, 100, SHADES), "M0 1h1v1h-1z");
        assert_eq!(cells(&map, 3, 100, 1), "M0 0h1v1h-1z");
        assert_eq!(cells(&map, 3, 100, 2), "M1 2h1v1h-1z");
    }
}
