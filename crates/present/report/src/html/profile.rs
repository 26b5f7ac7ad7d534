//! `profile`'s page: what runs and what waits, side by side, and why they differ.

use super::notices::notices;
use super::scrolled::table;
use super::{Head, document_under};
use crate::guest_code::{mode, title};
use crate::guest_exits::{FIGURES, address, device, direction, figures, per_s, shown_counters};
use crate::guest_inside::{CALLS_TITLE, guest_title};
use crate::number::{NONE, count, nanoseconds};
use crate::profile::{TCG_TITLE, advice, exits_title, heading, of, percent};
use crate::profile_notes::{notes, quality};
use base64::Engine;
use maud::{Markup, html as markup};
use vmtax_model::{
    CallFindings, ExitCount, FunctionShare, GuestCode, GuestExits, GuestFindings, ProfileFindings, WallFindings,
};

const STYLE: &str = include_str!("profile.css");
/// The flame graphs are documents of their own inside the page, and bring their scripts for zoom and search.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-src data:";
/// Functions that the page lists.
const SHOWN: usize = 40;

/// The pictures that a profile has, as SVG.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// On CPU.
    pub on_cpu: Option<String>,
    /// By the clock.
    pub wall: Option<String>,
    /// On CPU, with the guest's own stacks where it ran.
    pub whole: Option<String>,
}

/// The report as one HTML file. `vmtax`: the version that draws it; `command`: what makes it again.
pub fn html(findings: &ProfileFindings, pictures: &Pictures, vmtax: &str, now: &str, command: &str) -> String {
    let title = of(findings);
    let body = markup! {
        header {
            p.kicker { "vmtax profile" }
            h1 { (title) }
            p.where { (heading(findings)) }
        }
        div.pair {
            @if let Some(svg) = &pictures.on_cpu { (picture("On CPU: what runs", svg)) }
            @if let Some(svg) = &pictures.wall { (picture("By the clock: what runs and what waits", svg)) }
        }
        @if let Some(svg) = &pictures.whole { (picture("QEMU and its guest in one: what the guest ran, on the processor that ran it", svg)) }
        @if let Some(wall) = &findings.wall {
            section.answer {
                h2 { "Why the two differ" }
                ul { @for sentence in &wall.explanation { li { (sentence) } } }
            }
        }
        (notices("What to do", "advice", &advice(findings)))
        (notices("What to know", "warnings", &notes(findings)))
        @if let Some(guest) = &findings.guest { (guest_section(guest)) }
        @if let Some(exits) = &findings.exits { (exits_section(exits)) }
        @if let Some(code) = &findings.code { (code_section(code)) }
        @if !findings.functions.is_empty() { section { h2 { "Functions on CPU" } (functions("Functions on CPU", &findings.functions)) } }
        @if !findings.tcg.is_empty() { section { h2 { (TCG_TITLE) } (tcg(findings)) } }
        @if !findings.threads.is_empty() { section { h2 { "Threads on CPU" } (threads(findings)) } }
        @if let Some(wall) = &findings.wall { section { h2 { "Threads by the clock" } (waits(wall)) } }
        @if let Some(schedule) = &findings.schedule { (super::schedule::tables(schedule)) }
        p.method { b { "Method. " } @for line in quality(findings) { (line) " " } }
    };
    let head = Head { title: &title, vmtax, started: now, command: command.to_owned() };
    document_under(POLICY, &head, STYLE, &body)
}

fn picture(title: &str, svg: &str) -> Markup {
    let data = base64::engine::general_purpose::STANDARD.encode(svg);
    let height = height(svg);
    markup! {
        figure.card {
            h2 { (title) }
            iframe title=(title) style={ "height:" (height) "px" } src={ "data:image/svg+xml;base64," (data) } {}
            figcaption { "Click a frame to zoom, Ctrl-F to search. Wider is more; the kernel is orange, translated code green; the guest's own kernel blue, its programs cyan." }
        }
    }
}

/// How high the picture is, px, as it says itself.
fn height(svg: &str) -> u32 {
    let said = svg.split_once(" height=\"").and_then(|(_, rest)| rest.split_once('"')?.0.parse().ok());
    said.unwrap_or(600).clamp(200, 1200)
}

/// What the guest saw of itself.
fn guest_section(guest: &GuestFindings) -> Markup {
    let tasks = markup! {
        @for t in &guest.threads {
            tr {
                th scope="row" { (t.name) }
                td { (t.tid) } td { (t.cpu.map_or(NONE.to_owned(), percent)) } td { (t.share.samples) } td { (t.kernel) }
            }
        }
    };
    let calls = |calls: &CallFindings| {
        markup! {
            @for row in calls.rows.iter().take(SHOWN) {
                tr {
                    th scope="row" { (row.name) @if let Some(pid) = row.pid { " (" (pid) ")" } }
                    td { (count(row.calls)) } td { (nanoseconds(row.avg_ns)) } td { (nanoseconds(row.min_ns as f64)) }
                    td { (nanoseconds(row.max_ns as f64)) } td { (nanoseconds(row.total_ns as f64)) }
                }
            }
        }
    };
    markup! {
        @if guest.hz > 0 {
            section {
                h2 { (guest_title(guest)) }
                @if guest.samples > 0 {
                    (functions("Functions in the guest", &guest.functions))
                    (table("Threads in the guest", &["thread", "tid", "CPU", "samples", "in kernel"], &tasks))
                }
            }
        }
        @if let Some(found) = &guest.calls {
            section {
                h2 { (CALLS_TITLE) }
                (table(CALLS_TITLE, &["call", "calls", "mean", "shortest", "longest", "total"], &calls(found)))
            }
        }
    }
}

fn functions(label: &str, functions: &[FunctionShare]) -> Markup {
    let rows = markup! {
        @for f in functions.iter().take(SHOWN) {
            tr {
                th scope="row" { (f.name) }
                td { (percent(f.inside.share)) }
                td { (percent(f.inside.low)) " – " (percent(f.inside.high)) }
                td { (percent(f.total.share)) }
                td { @if f.module.is_empty() { (f.layer) } @else { (f.module) } }
            }
        }
    };
    table(label, &["function", "self", "95 %", "total", "of"], &rows)
}

fn tcg(findings: &ProfileFindings) -> Markup {
    let rows = markup! {
        @for part in &findings.tcg { tr {
            th scope="row" { (part.part.words()) }
            td { (percent(part.share.share)) } td { (percent(part.share.low)) " – " (percent(part.share.high)) }
        } }
    };
    table(TCG_TITLE, &["part", "share", "95 %"], &rows)
}

fn threads(findings: &ProfileFindings) -> Markup {
    let rows = markup! {
        @for t in &findings.threads {
            tr {
                th scope="row" { (t.name) }
                td { (t.tid) } td { (t.cpu.map_or(NONE.to_owned(), percent)) } td { (t.share.samples) } td { (t.kernel) } td { (t.translated) }
            }
        }
    };
    table("Threads on CPU", &["thread", "tid", "CPU", "samples", "in kernel", "translated"], &rows)
}

fn exits_section(exits: &GuestExits) -> Markup {
    let cells = |count: &ExitCount| markup! { @for figure in figures(count) { td { (figure) } } };
    let counted = |label: &str, names: &[&str], rows: &Markup| {
        let names: Vec<&str> = names.iter().copied().chain(FIGURES).collect();
        table(label, &names, rows)
    };
    let addresses = markup! {
        @for exit in &exits.addresses { tr {
            th scope="row" { (device(exit, exits.devices_from)) }
            td { (address(exit)) } td { (direction(exit)) } (cells(&exit.exits))
        } }
    };
    let reasons = markup! {
        @for reason in &exits.reasons { tr { th scope="row" { (reason.reason) } (cells(&reason.exits)) } }
    };
    let vcpus = markup! {
        @for vcpu in &exits.vcpus { tr {
            th scope="row" { (vcpu.vcpu) } td { (vcpu.tid) } td { (count(vcpu.count)) } td { (per_s(vcpu.per_s)) }
            td { (nanoseconds(vcpu.total_ns)) }
        } }
    };
    let counters = markup! {
        @for (name, value) in shown_counters(exits) { tr { th scope="row" { (name) } td { (count(*value)) } } }
    };
    markup! {
        section {
            h2 { (exits_title(exits)) }
            @if !exits.addresses.is_empty() {
                (counted("VM exits by address", &["device", "address", "access"], &addresses))
            }
            @if !exits.reasons.is_empty() { (counted("VM exits by reason", &["reason"], &reasons)) }
            @if exits.vcpus.len() > 1 {
                (table("VM exits by processor", &["vCPU", "tid", "exits", "per s", "total"], &vcpus))
            }
            @if exits.reasons.is_empty() && !exits.counters.is_empty() {
                (table("KVM's counters", &["KVM's counter", "grew by"], &counters))
            }
        }
    }
}

/// What the guest's processors execute.
fn code_section(code: &GuestCode) -> Markup {
    let rows = markup! {
        @for place in code.places.iter().take(SHOWN) { tr {
            th scope="row" { code { (format!("{:#x}", place.address)) } }
            td { (mode(place)) } td { (count(place.share.samples)) } td { (percent(place.share.share)) }
            td { code { (place.done) } } td { code { (place.next) } }
        } }
    };
    markup! {
        section {
            h2 { (title(code)) }
            (table("Where the guest's processors were", &["address", "in", "looks", "share", "just done", "next"], &rows))
        }
    }
}

fn waits(wall: &WallFindings) -> Markup {
    let rows = markup! {
        @for t in &wall.threads {
            @for i in 0..t.waits.len().max(1) {
                tr {
                    @if i == 0 { th scope="row" { (t.name) } td { (t.tid) } td { (percent(t.on_cpu.unwrap_or(t.runs.share))) } td { (t.ready.map_or(NONE.to_owned(), percent)) } }
                    @else { th {} td {} td {} td {} }
                    @if let Some(wait) = t.waits.get(i) {
                        td { (percent(wait.share.share)) }
                        td { (wait.reason.words()) " (" (wait.call) @if !wait.below.is_empty() { " below " (wait.below) } ")" }
                    } @else { td {} td {} }
                }
            }
        }
    };
    table("Threads by the clock", &["thread", "tid", "CPU", "ready", "waits", ""], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_system_calls_have_a_heading_of_their_own() {
        let calls = CallFindings { way: Default::default(), rows: vec![], lost: 0, added_ns: None };
        let guest = GuestFindings { calls: Some(calls), ..GuestFindings::default() };
        let page = guest_section(&guest).into_string();
        assert!(page.starts_with("<section><h2>System calls in the guest</h2>"), "{page}");
        let page = guest_section(&GuestFindings { hz: 99, ..guest }).into_string();
        assert!(
            page.contains("<h2>In the guest: 0 samples") && page.contains("<h2>System calls in the guest"),
            "{page}"
        );
    }
}
