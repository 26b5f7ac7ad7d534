//! `exec`'s page.

use super::notices::notices;
use super::{Head, Page, chart_rounds, chart_tax, details, document, facts, tables};
use crate::exec::{about, command, ended, lines, title, unit, warnings};
use crate::number::{range, ratio, value};
use crate::{command_layers, row, view};
use maud::{Markup, html as markup};
use vmtax_model::{Breakdown, CommandLayers, DiskUse, ExecFindings, Machine, Metric, Unit};
use vmtax_recording::Recording;

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &ExecFindings, layers: Option<&CommandLayers>) -> String {
    let taxes = &findings.taxes;
    let page = Page { recording, findings: taxes, rows: row::with_printed(taxes, &findings.printed) };
    let (host, guest) = (&recording.host, &recording.plan.guest);
    let head = format!("What {} costs: {}", command(&recording.plan), view::when(&recording.manifest.started));
    let body = markup! {
        header {
            p.kicker { (recording.plan.name) " · " (view::when(&recording.manifest.started)) " · " (view::rounds_text(taxes)) }
            h1 { "What virtualisation costs " code { (command(&recording.plan)) } }
            p.where { (host.cpu.model) " · " (host.distribution) ", Linux " (host.kernel) " · each machine with "
                (guest.cpus) " CPU" @if guest.cpus != 1 { "s" } ", " (guest.memory_mib) " MiB" }
        }
        section.answer aria-label="The answer" {
            p.lead { (ended(findings)) }
            div.tiles { @for machine in view::guests(taxes) { (tile(findings, machine)) } }
        }
        div.notices {
            (notices("What to do", "advice", &view::first_five(&taxes.advice)))
            (notices("What to know", "warnings", &warnings(recording, findings)))
        }
        @for breakdown in &findings.breakdowns { (section(&page, breakdown)) }
        @for line in about(&recording.plan, findings) { p.method { (line) } }
        @if let Some(layers) = layers {
            @for disk in &layers.disks { (requests(disk, findings)) }
            @if !layers.disks.is_empty() { p.method { "Where the time of a request goes is on a page of its own beside this one." } }
        }
        @if !taxes.rows.is_empty() {
            (chart_tax::chart(&page))
            (tables::taxes(&page))
            @if let Some(note) = row::undirected(&page.rows) { p.method { (note) } }
            (chart_rounds::charts(&page))
        }
        (details::details(&page))
        (facts::facts(recording, &taxes.kernels))
    };
    document(&Head::of(recording, &head), "", &body)
}

/// The wall time: what a person waits for.
fn tile(findings: &ExecFindings, machine: Machine) -> Markup {
    let row = findings.taxes.rows.iter().find(|row| row.metric == Metric::ExecWall);
    let Some(found) = row.and_then(|row| row.machines.iter().find(|c| c.machine == machine)) else {
        return Markup::default();
    };
    markup! {
        div.tile.(machine) {
            @if let Some(tax) = &found.tax {
                p.figure { (ratio(tax.ratio.median)) }
                p {
                    "In the " b { (machine) } " guest it takes " b { (ratio(tax.ratio.median)) } " native's wall time"
                    @if let Some(i) = &tax.ratio.interval { " (" span.whole { "95 %" } " interval " span.whole { (range(i)) } ")" }
                    @else { " (n = " (tax.rounds) ", too few for an interval)" }
                    "."
                }
            } @else if let Some(spread) = &found.spread {
                p.figure { (value(Unit::Seconds, spread.median)) }
                p { "Wall time in the " b { (machine) } " guest; there is no native one beside it." }
            }
        }
    }
}

/// What was asked of a guest's disk.
fn requests(disk: &DiskUse, findings: &ExecFindings) -> Markup {
    let title = command_layers::title(disk);
    markup! {
        section {
            h2 { (title) }
            p.intro { (command_layers::sentence(disk, findings)) }
            @if !disk.kinds.is_empty() {
                div.scroll tabindex="0" role="region" aria-label=(title) {
                    table {
                        caption.hidden { (title) }
                        thead { tr { th scope="col" {} @for header in command_layers::HEADERS { th.number scope="col" { (header) } } } }
                        tbody { @for kind in &disk.kinds {
                            tr { th scope="row" { (kind.kind.label()) } @for cell in command_layers::cells(kind) { td.number { (cell) } } }
                        } }
                    }
                }
            }
        }
    }
}

fn section(page: &Page, breakdown: &Breakdown) -> Markup {
    markup! {
        section {
            h2 { (title(breakdown)) }
            p.intro { "The parts add up to the " (unit(&page.recording.plan)) ". " (page.source()) }
            div.scroll tabindex="0" role="region" aria-label=(title(breakdown)) {
                table {
                    caption.hidden { (title(breakdown)) }
                    thead { tr {
                        th scope="col" { (unit(&page.recording.plan)) }
                        th.number scope="col" { "native" } th.number scope="col" { (breakdown.machine) }
                        th.number scope="col" { "difference" } th.number scope="col" { "share" }
                    } }
                    tbody { @for line in lines(breakdown) {
                        tr {
                            th scope="row" { (line.label) }
                            td.number { (line.native) } td.number.median { (line.machine) }
                            td.number { (line.difference) } td.number { (line.share) }
                        }
                    } }
                }
            }
        }
    }
}
