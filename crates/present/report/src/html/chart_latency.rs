//! Latency distributions side by side: for each metric that has one, a lane for each machine on one logarithmic axis.

use super::Page;
use crate::charts::axis::{Axis, percent};
use crate::number::{count, nanoseconds, nanoseconds_tick};
use crate::view;
use maud::{Markup, html as markup};
use std::fmt::Write as _;
use vmtax_analysis::distributions;
use vmtax_model::{Latency, Machine, WorkloadName};

const MOST_BINS: f64 = 84.0;
/// What a picture leaves out at each end, so that one outlier does not squeeze all the rest; the table has the maximum.
const CUT: f64 = 0.001;

/// One picture: the metrics that rest on the same operation, and its distributions.
struct Picture {
    workload: WorkloadName,
    labels: Vec<&'static str>,
    lanes: Vec<(Machine, Latency)>,
}

pub fn charts(page: &Page) -> Markup {
    let pictures = pictures(page);
    markup! {
        @if !pictures.is_empty() {
            section {
                h2 { "Latency of one operation" }
                p.intro {
                    "How long single operations took, all rounds together, on a logarithmic axis. Each machine's area is scaled to its "
                    "own peak; the solid line is its median (p50), the dotted one p99. The slowest and fastest thousandth are outside the picture, the maximum is in the table. "
                    "The timer's own cost is included. "
                    (page.source())
                }
                div.multiples { @for p in &pictures { (picture(p)) } }
            }
        }
    }
}

fn pictures(page: &Page) -> Vec<Picture> {
    let mut all: Vec<Picture> = Vec::new();
    for row in &page.findings.rows {
        let trials = &page.recording.trials;
        let lane = |m: Machine| Some((m, distributions(trials, row.metric, m)?));
        let lanes: Vec<_> = view::machines(page.findings).into_iter().filter_map(lane).collect();
        let workload = row.metric.workload();
        if lanes.is_empty() {
            continue;
        }
        match all.iter_mut().find(|p| p.workload == workload && p.lanes == lanes) {
            Some(p) => p.labels.push(row.metric.label()),
            None => all.push(Picture { workload, labels: vec![row.metric.label()], lanes }),
        }
    }
    all
}

fn picture(p: &Picture) -> Markup {
    let ends = p.lanes.iter().flat_map(|(_, l)| [l.quantile(CUT) as f64, l.quantile(1.0 - CUT) as f64]);
    let axis = Axis::log(&ends.map(|ns| ns.max(1.0)).collect::<Vec<_>>());
    let ticks = axis.ticks(5);
    markup! {
        figure.card {
            h3 { (p.labels.join(" · ")) " " small { (p.workload) } }
            @for (machine, latency) in &p.lanes {
                div.lane { span.key.(machine) { (machine) } (lane(*machine, latency, &axis, &ticks)) }
            }
            div.lane { span {} (axis.labels(&ticks, nanoseconds_tick)) }
            div.scroll tabindex="0" role="region" aria-label={ "Latency of " (p.labels.join(", ")) } { (table(p)) }
        }
    }
}

fn lane(machine: Machine, latency: &Latency, axis: &Axis, ticks: &[f64]) -> Markup {
    let heights = bins(latency, axis);
    let (p50, p99) = (latency.quantile(0.5) as f64, latency.quantile(0.99) as f64);
    markup! {
        svg.density.(machine) role="img" aria-label={ (machine) ": median " (nanoseconds(p50)) ", p99 " (nanoseconds(p99)) ", " (count(latency.count())) " operations" } {
            title { (machine) ": p50 " (nanoseconds(p50)) ", p99 " (nanoseconds(p99)) }
            (axis.grid(ticks))
            svg viewBox={ "0 0 " (heights.len()) " 100" } preserveAspectRatio="none" { path d=(outline(&heights)) {} }
            @for (class, ns) in [("p50", p50), ("p99", p99)] {
                @let x = percent(axis.at(ns));
                line.(class) x1=(x) x2=(x) y1="0" y2="100%" {}
            }
        }
    }
}

/// Shares of the operations in bins of equal factors, the highest 1. A bin is never narrower than the histogram's own
/// nanosecond steps at the low end: that would draw a comb that is not in the data.
fn bins(latency: &Latency, axis: &Axis) -> Vec<f64> {
    let (low, high) = axis.ends();
    let finest = (high / low).ln() / (1.0 + 1.5 / low).ln();
    let n = finest.clamp(8.0, MOST_BINS) as usize;
    let mut bins = vec![0.0; n];
    for (ns, count) in latency.buckets() {
        let ns = ns.max(1) as f64;
        if (low..high).contains(&ns) {
            let i = (axis.at(ns) / 100.0 * n as f64) as usize;
            bins[i.min(n - 1)] += count as f64;
        }
    }
    let peak = bins.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    bins.iter().map(|b| b / peak).collect()
}

fn outline(heights: &[f64]) -> String {
    let mut d = "M0 100".to_owned();
    for (i, h) in heights.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(d, "V{:.1}H{}", 100.0 - h * 94.0, i + 1);
    }
    d.push_str("V100Z");
    d
}

fn table(p: &Picture) -> Markup {
    markup! {
        table {
            caption.hidden { "Latency of " (p.labels.join(", ")) ", n is the number of operations" }
            thead { tr {
                th scope="col" { "machine" }
                @for name in ["n", "p50", "p95", "p99", "max"] { th.number scope="col" { (name) } }
            } }
            tbody {
                @for (machine, latency) in &p.lanes {
                    @if let Some(s) = latency.summary() {
                        tr {
                            th scope="row" { (machine) }
                            td.number { (count(s.count)) }
                            @for ns in [s.p50_ns, s.p95_ns, s.p99_ns, s.max_ns] { td.number { (nanoseconds(ns as f64)) } }
                        }
                    }
                }
            }
        }
    }
}
