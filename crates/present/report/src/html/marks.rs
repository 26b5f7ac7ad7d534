//! A distribution as marks on an axis: p50, p90, p99, the longest.

use super::axis::{Axis, percent};
use crate::number::nanoseconds;
use maud::{Markup, html as markup};
use vmtax_model::Figure;

/// One line of a chart: `shown` and the median beside the marks; `name` is for those who hear the page.
pub fn marks(name: &str, shown: &Markup, class: &str, f: &Figure, axis: &Axis, ticks: &[f64]) -> Markup {
    let [p50, p90, p99, max] = [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns].map(|ns| percent(axis.at(ns)));
    let spoken = [("p50", f.p50_ns), ("p90", f.p90_ns), ("p99", f.p99_ns), ("max", f.max_ns)];
    let spoken: Vec<String> = spoken.iter().map(|(name, ns)| format!("{name} {}", nanoseconds(*ns))).collect();
    markup! {
        div.row {
            span.name { (shown) }
            svg.(class) height="18" role="img" aria-label={ (name) ": " (spoken.join(", ")) } {
                title { (name) ": " (spoken.join(", ")) }
                (axis.grid(ticks))
                line.to-p99 x1=(p50) x2=(p99) y1="9" y2="9" {}
                line.to-p90 x1=(p50) x2=(p90) y1="9" y2="9" {}
                circle cx=(p50) cy="9" r="4" {}
                circle.max cx=(max) cy="9" r="3" {}
            }
            span.time { b { (nanoseconds(f.p50_ns)) } " " span.range { "p99 " (nanoseconds(f.p99_ns)) } }
        }
    }
}
