//! `scale`'s page: the laws, a growth curve for each cost, the rungs, and what it rests on.

mod chart;
mod tables;

use super::notices::{notices, prose};
use super::{Head, document, facts};
use crate::growth::words;
use crate::view::{report_command, when};
use maud::{Markup, html as markup};
use vmtax_model::{Growth, GrowthFindings, Metric};
use vmtax_recording::Recording;

const STYLE: &str = include_str!("style.css");
/// Sentences that a reader takes in.
const SAID: usize = 4;

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &GrowthFindings) -> String {
    let page = Page { recording, findings };
    let title = format!("Growth with {}: {}", findings.option, when(&recording.manifest.started));
    let body = markup! {
        header {
            p.kicker { (recording.plan.name) " · " (when(&recording.manifest.started)) " · " (words::rounds(findings)) }
            h1 { "What grows with " (findings.option) "?" }
            p.where { (recording.host.cpu.model) " · " (recording.host.distribution) ", Linux " (recording.host.kernel) }
        }
        section.answer aria-label="The answer" {
            @if findings.growths.is_empty() { p.lead { "No trial gave a value, so there is nothing to fit. What was tried is below." } }
            div.tiles { @for growth in words::ranked(findings).into_iter().take(SAID) { (page.tile(growth)) } }
        }
        div.notices {
            (notices("What could not be measured", "warnings", &words::missing(findings)))
            (notices("What to know", "warnings", &words::warnings(recording, findings)))
        }
        @if !findings.growths.is_empty() {
            (chart::charts(&page))
            (tables::tables(&page))
            p.method { b { "Method. " } (findings.method) }
        }
        (facts::facts(recording, &[]))
    };
    document(&Head::of(recording, &title), STYLE, &body)
}

/// What every part of the page is made from.
struct Page<'a> {
    recording: &'a Recording,
    findings: &'a GrowthFindings,
}

impl Page<'_> {
    fn tile(&self, growth: &Growth) -> Markup {
        markup! {
            div.tile.(self.class(growth)) {
                p.figure { (words::law(growth)) }
                p { (prose(&words::sentence(growth, &self.findings.option))) }
            }
        }
    }

    /// The class that gives a column its colour: its machine's, or where a machine has several variants one of each.
    fn class(&self, growth: &Growth) -> &'static str {
        let variants = &self.recording.plan.variants;
        let place = variants.iter().position(|v| v.name == growth.variant).unwrap_or(0);
        match growth.machine.is_guest() && variants.len() > 1 {
            true => ["v0", "v1", "v2", "v3", "v4", "v5"][place % 6],
            false => growth.machine.as_str(),
        }
    }

    /// The metrics in order, each with its columns.
    fn by_metric(&self) -> Vec<(Metric, Vec<&Growth>)> {
        let mut all: Vec<(Metric, Vec<&Growth>)> = Vec::new();
        for growth in &self.findings.growths {
            match all.last_mut().filter(|(metric, _)| *metric == growth.metric) {
                Some((_, growths)) => growths.push(growth),
                None => all.push((growth.metric, vec![growth])),
            }
        }
        all
    }

    /// What stands under a picture: what it rests on and the command that makes it.
    fn source(&self) -> Markup {
        markup! { span.source { (words::rounds(self.findings)) " · " code { (report_command(self.recording)) } } }
    }
}
