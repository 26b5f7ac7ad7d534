//! `exits`' page: a picture and a table for each machine.

use super::axis::Axis;
use super::marks::marks;
use super::notices::notices;
use super::{Head, document};
use crate::exits::{all, missing, notes, title};
use crate::number::{count, nanoseconds, nanoseconds_tick};
use crate::view::{first_five, when};
use maud::{Markup, html as markup};
use vmtax_model::{ExitFindings, ExitKind, Figure, MachineExits, shell_line};

/// The report as one HTML file.
pub fn html(findings: &ExitFindings) -> String {
    let command = shell_line(&findings.command);
    let title = format!("What a VM exit costs, {}", when(&findings.started));
    let warnings: Vec<String> = findings.warnings.iter().map(ToString::to_string).collect();
    let body = markup! {
        header {
            p.kicker { (when(&findings.started)) }
            h1 { "What a VM exit costs" }
            p.where { (findings.cpu) " · Linux " (findings.kernel) @if !findings.kvm.is_empty() { " · " (findings.kvm) } }
        }
        div.notices {
            (notices("What to do", "advice", first_five(&findings.advice)))
            (notices("What to know", "warnings", &warnings))
            (notices("What could not be measured", "warnings", &missing(findings)))
        }
        @for machine in &findings.machines { (section_of(machine, &command)) }
        p.method { b { "Method. " } (findings.method) }
    };
    let head = Head { title: &title, vmtax: &findings.vmtax, started: &findings.started, command };
    document(&head, "", &body)
}

fn section_of(machine: &MachineExits, command: &str) -> Markup {
    let ends: Vec<f64> = all(machine).flat_map(|k| [k.p50_ns, k.max_ns]).collect();
    let axis = Axis::log(&ends);
    let ticks = axis.ticks(7);
    markup! {
        section {
            h2 { (title(machine)) }
            figure {
                div.chart.spread {
                    div.group { span {} div { (axis.labels(&ticks, nanoseconds_tick)) } span {} }
                    @for (i, kind) in all(machine).enumerate() {
                        (marks(&kind.label, &markup! { (kind.label) @if kind.emulated { " ‡" } }, if i == 0 { "whole" } else { machine.machine.as_str() }, &figure(kind), &axis, &ticks))
                    }
                }
                figcaption {
                    "One exit, on a logarithmic axis: the dot is the median, the thick line ends at p90, the thin one at p99, the ring is the longest. "
                    "Raw: the first row is what the stamps themselves take. " span.source { code { (command) } }
                }
            }
            div.scroll tabindex="0" role="region" aria-label={ "Exits of " (title(machine)) } { (table(machine)) }
            @for note in notes(machine) { p.intro { (note) } }
        }
    }
}

fn figure(k: &ExitKind) -> Figure {
    Figure { mean_ns: k.mean_ns, p50_ns: k.p50_ns, p90_ns: k.p90_ns, p99_ns: k.p99_ns, max_ns: k.max_ns }
}

fn table(machine: &MachineExits) -> Markup {
    markup! {
        table.taxes {
            caption.hidden { "Exits of " (title(machine)) ", n is the number of exits" }
            thead { tr {
                th scope="col" { "kind of exit" }
                @for name in ["n", "min", "p50", "p90", "p99", "max", "mean"] { th.number scope="col" { (name) } }
            } }
            tbody {
                @for k in all(machine) {
                    tr {
                        th scope="row" { (k.label) @if k.emulated { " ‡" } }
                        td.number { (count(k.n)) }
                        @for ns in [k.min_ns, k.p50_ns, k.p90_ns, k.p99_ns, k.max_ns, k.mean_ns] { td.number { (nanoseconds(ns)) } }
                    }
                }
            }
        }
    }
}
