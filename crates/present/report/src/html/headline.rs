//! The answer in a sentence or two, then what the reader has to know and can do.

use super::Page;
use super::notices::notices;
use crate::number::{range, ratio};
use crate::view::{self, Summary};
use maud::{Markup, html as markup};
use vmtax_model::Machine;

pub fn headline(page: &Page) -> Markup {
    let (recording, findings) = (page.recording, page.findings);
    let host = &recording.host;
    let guests = view::guests(findings);
    let summaries: Vec<(Machine, Summary)> =
        guests.iter().filter_map(|m| Some((*m, view::summary(findings, *m)?))).collect();
    markup! {
        header {
            p.kicker { (recording.plan.name) " · " (view::when(&recording.manifest.started)) " · " (view::rounds_text(findings)) }
            h1 { "What virtualisation costs here" }
            p.where { (host.cpu.model) " · " (host.distribution) ", Linux " (host.kernel) " · each machine with "
                (recording.plan.guest.cpus) " CPU" @if recording.plan.guest.cpus != 1 { "s" } ", "
                (recording.plan.guest.memory_mib) " MiB" }
        }
        section.answer aria-label="The answer" {
            @if summaries.is_empty() {
                p.lead { (no_answer(findings.rows.is_empty(), &guests)) }
            }
            div.tiles {
                @for (machine, summary) in &summaries { (tile(*machine, summary, view::has_intervals(findings))) }
            }
            @if !summaries.is_empty() && !view::has_intervals(findings) {
                p.lead { "There are too few rounds for a 95 % interval, it takes six: the ratios are medians and prove nothing yet." }
            }
        }
        div.notices {
            (notices("What to do", "advice", &view::first_five(&findings.advice)))
            (notices("What to know", "warnings", &view::warnings(recording, &findings.warnings)))
        }
    }
}

fn no_answer(empty: bool, guests: &[Machine]) -> &'static str {
    match (empty, guests.is_empty()) {
        (true, _) => "No trial gave a value, so there is nothing to compare. The trials below say why.",
        (false, true) => "Only native was measured: there are figures below, and no guest to compare them with.",
        (false, false) => "No metric has a figure on both native and a guest, so there is no tax to state.",
    }
}

fn tile(machine: Machine, s: &Summary, intervals: bool) -> Markup {
    let (metric, tax) = s.worst;
    let unproven = s.metrics - s.costs - s.gains - s.undecided;
    markup! {
        div.tile.(machine) {
            p.figure { (ratio(s.median)) }
            p {
                "In the " b { (machine) } " guest work takes " b { (ratio(s.median)) } " native's cost, the median of "
                (s.metrics) " metrics, and most of all for " b { (metric.label()) } ": " b { (ratio(tax.ratio.median)) }
                @if let Some(i) = &tax.ratio.interval { " (" span.whole { "95 %" } " interval " span.whole { (range(i)) } ", " span.whole { "n = " (tax.rounds) } ")" }
                @else { " (n = " (tax.rounds) ", too few for an interval)" }
                "."
            }
            @if intervals {
                p.counts {
                    (s.costs) " cost more, " (s.gains) " cost less, " (s.undecided) " show no difference"
                    @if unproven > 0 { ", " (unproven) " have too few rounds" }
                    "."
                }
            }
        }
    }
}
