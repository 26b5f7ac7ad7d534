//! One self-contained page: no script, no font, no image, no request to anywhere. Pictures are SVG whose horizontal
//! places are percentages, so that they follow the width of the page while their text keeps its size.

mod chart_latency;
mod chart_rounds;
mod chart_tax;
mod details;
pub(crate) mod exec;
mod facts;
mod headline;
pub(crate) mod history;
pub(crate) mod layers;
mod notices;
pub(crate) mod profile;
mod schedule;
mod scrolled;
pub(crate) mod shares;
mod tables;

use crate::row::{self, Row};
use crate::text::printable;
use crate::view;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};
use vmtax_model::Findings;
use vmtax_recording::Recording;

const STYLE: &str = include_str!("../engine/style.css");
/// Even if an escape were forgotten, the page could load and run nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &Findings) -> String {
    let page = Page { recording, findings, rows: row::of(findings) };
    let title =
        format!("What virtualisation costs: {}, {}", recording.plan.name, view::when(&recording.manifest.started));
    let body = markup! {
        (headline::headline(&page))
        @if !findings.rows.is_empty() {
            (chart_tax::chart(&page))
            (tables::taxes(&page))
            (chart_latency::charts(&page))
            (chart_rounds::charts(&page))
        }
        (details::details(&page))
        (facts::facts(recording, &findings.kernels))
    };
    document(&Head::of(recording, &title), "", &body)
}

/// What stands around a page.
struct Head<'a> {
    title: &'a str,
    /// The version of vmtax that measured.
    vmtax: &'a str,
    /// When, RFC 3339.
    started: &'a str,
    /// What makes the page again.
    command: String,
}

impl<'a> Head<'a> {
    fn of(recording: &'a Recording, title: &'a str) -> Self {
        let manifest = &recording.manifest;
        let command = view::report_command(recording);
        Head { title, vmtax: &manifest.vmtax, started: &manifest.started, command }
    }
}

/// A page around `body`, with `style` beside the style that all pages share.
fn document(head: &Head, style: &str, body: &Markup) -> String {
    document_under(POLICY, head, style, body)
}

/// The same with a policy of its own for what the page may load and run.
fn document_under(policy: &str, head: &Head, style: &str, body: &Markup) -> String {
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "vmtax " (head.vmtax) };
                title { (head.title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                main { (body) }
                footer { "vmtax " (head.vmtax) " · " (view::when(head.started)) " · " code { (head.command) } }
            }
        }
    };
    printable(&page.into_string())
}

/// What every part of the page is made from.
struct Page<'a> {
    recording: &'a Recording,
    findings: &'a Findings,
    /// What its tables and pictures show, in this order.
    rows: Vec<Row<'a>>,
}

impl Page<'_> {
    /// The command that makes this page again.
    fn command(&self) -> String {
        view::report_command(self.recording)
    }

    /// What stands under each picture: what it rests on and the command that makes it.
    fn source(&self) -> Markup {
        markup! { span.source { (view::rounds_text(self.findings)) " · " code { (self.command()) } } }
    }
}
