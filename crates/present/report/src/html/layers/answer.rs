//! The answer: the ladder from the bare host to the guest, what the guest's time goes to, which variant wins.

use super::super::notices::{breakable, notices};
use super::{Page, class};
use crate::charts::axis::{Axis, percent};
use crate::layers::view::{self, Scale};
use crate::layers::words;
use crate::number::{nanoseconds, range, ratio};
use crate::view::{first_five, warnings, when};
use maud::{Markup, html as markup};
use vmtax_model::{Difference, LayerColumn, LayerFindings};

/// How many layers the sentence under the ladder names.
const NAMED: usize = 3;

pub fn answer(page: &Page) -> Markup {
    let (recording, findings) = (page.recording, page.findings);
    let host = &recording.host;
    markup! {
        header {
            p.kicker { (recording.plan.name) " · " (when(&recording.manifest.started)) " · " (view::rounds(findings)) }
            h1 { "Where the time of a request goes" }
            p.where { (host.cpu.model) " · " (host.distribution) ", Linux " (host.kernel) " · " code { (view::workload(recording)) } }
        }
        section.answer aria-label="The answer" {
            @match view::main_column(findings) {
                None => { p.lead { "No request was followed, so there is nothing to show. The warnings below say why." } }
                Some(main) => {
                    (ladder(findings))
                    p.counts { "Medians of one request" @if main.control.is_some() { ", untraced" } "." }
                    (lead(main))
                }
            }
        }
        (differences(findings))
        div.notices {
            (notices("What to do", "advice", &first_five(&findings.advice)))
            (notices("What to know", "warnings", &warnings(recording, &findings.warnings)))
            (notices("What could not be observed", "warnings", &words::missing(findings)))
        }
    }
}

fn ladder(findings: &LayerFindings) -> Markup {
    let steps = view::ladder(findings);
    markup! {
        div.tiles.ladder {
            @for (i, (name, ns)) in steps.iter().enumerate() {
                div.tile.(if name.starts_with("bare") { "native" } else if i + 1 == steps.len() { "tcg" } else { "kvm" }) {
                    p.figure { (nanoseconds(*ns)) }
                    p { (name) }
                }
            }
        }
    }
}

/// What the guest's time goes to, largest first.
fn lead(main: &LayerColumn) -> Markup {
    let mut layers: Vec<_> = view::layers_of(&[main]).into_iter().map(|(layer, means)| (layer, means[0])).collect();
    layers.sort_by(|a, b| b.1.total_cmp(&a.1));
    let scale = Scale::for_columns(&[main]);
    markup! {
        p.lead {
            "Of the " b { (scale.text(main.traced.mean_ns)) } " that a request of the " (view::title(main)) " takes on average, "
            @for (i, (layer, ns)) in layers.iter().take(NAMED).enumerate() {
                @if i > 0 { ", " }
                span.key.(class(*layer)) { b { (scale.text(*ns)) } " " (layer.label()) }
            }
            @if layers.len() > NAMED { " and less in " (layers.len() - NAMED) " other layers" }
            ". Unexplained: " (scale.text(main.unexplained_ns)) "."
        }
        p.counts { "Observer effect " (words::observer(main)) ". Clocks: " (words::clock(main)) ". " (words::matched(main)) "." }
    }
}

/// Each variant against the first: a whisker for the interval of their ratio, and the verdict in words.
fn differences(findings: &LayerFindings) -> Markup {
    let ends = |d: &Difference| {
        let r = &d.ratio;
        [r.median, r.interval.map_or(r.median, |i| i.low), r.interval.map_or(r.median, |i| i.high), 1.0]
    };
    let axis = Axis::around(&findings.differences.iter().flat_map(ends).collect::<Vec<_>>());
    let ticks = axis.ticks(6);
    markup! {
        @if !findings.differences.is_empty() {
            section {
                h2 { "Which variant is faster" }
                figure {
                    div.chart.forest {
                        div.group { h3 { "untraced latency over the first variant's" } div { (axis.labels(&ticks, ratio)) } span {} }
                        @for (d, words) in findings.differences.iter().zip(words::differences(findings)) {
                            div.row {
                                span.name { (breakable(&d.variant)) @if findings.columns.iter().any(|c| c.machine != d.machine) { " " small { "on " (d.machine) } } }
                                svg height="28" role="img" aria-label=(words) {
                                    (axis.grid(&ticks))
                                    (whisker(d, &axis))
                                    @let one = percent(axis.at(1.0));
                                    line.one x1=(one) x2=(one) y1="0" y2="100%" {}
                                }
                                span.figures { span { b { (ratio(d.ratio.median)) } " " span.range { (d.ratio.interval.as_ref().map(range).unwrap_or_default()) } } }
                                p.said { (words) }
                            }
                        }
                    }
                    figcaption { "Left of the line is faster. The whisker is the 95 % interval over " (view::rounds(findings)) "; where it holds ×1, no difference is shown." }
                }
            }
        }
    }
}

fn whisker(d: &Difference, axis: &Axis) -> Markup {
    let class = match d.faster {
        Some(true) => "gains",
        Some(false) => "costs",
        None => "open",
    };
    markup! {
        g.(class) {
            @if let Some(i) = &d.ratio.interval {
                @let (low, high) = (percent(axis.at(i.low)), percent(axis.at(i.high)));
                line x1=(low) x2=(high) y1="14" y2="14" {}
                line x1=(low) x2=(low) y1="8" y2="20" {}
                line x1=(high) x2=(high) y1="8" y2="20" {}
            }
            circle cx=(percent(axis.at(d.ratio.median))) cy="14" r="5" {}
        }
    }
}
