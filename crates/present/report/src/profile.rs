//! `profile`'s answer: which threads and functions the time goes to.

pub use crate::guest_inside::call_lines;
pub use crate::html::profile::{Pictures, html};
pub use crate::profile_changes::{changes, unlike};

use crate::guest_exits::{self, per_s};
use crate::number::{NONE, count, counted};
use crate::profile_notes::{notes, quality};
use crate::table::{self, right};
use crate::text::{Paint, columns, fit, plain, section, wrapped};
use crate::view::advice_text;
use crate::{ReportError, Style, guest_code, guest_inside};
use comfy_table::{Attribute, Cell};
use vmtax_model::{FunctionShare, GuestExits, ProfileFindings, SampleShare, WallFindings};

/// Functions that a terminal shows.
pub(crate) const SHOWN: usize = 20;
/// Over the parts of TCG's samples.
pub(crate) const TCG_TITLE: &str = "What TCG's processors do";
/// Threads that a terminal shows.
const THREADS: usize = 12;

/// The answer for a terminal.
pub fn terminal(findings: &ProfileFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&heading(findings), width, "", "");
    let title = |out: &mut String, text: &str| out.push_str(&format!("\n{}\n", paint.bold(text)));
    if findings.samples > 0 {
        title(&mut out, "Threads on CPU");
        out.push_str(&threads(findings, width, style.color));
        if !findings.tcg.is_empty() {
            title(&mut out, TCG_TITLE);
            out.push_str(&tcg(findings, style.color));
        }
        title(&mut out, "Functions by the time in themselves, on CPU");
        out.push_str(&functions(&findings.functions, width, style.color));
    }
    if let Some(wall) = &findings.wall {
        title(&mut out, "Threads by the clock");
        out.push_str(&by_clock(wall, width, style.color));
        title(&mut out, "Why the two differ");
        for sentence in wall.explanation.iter().take(1 + THREADS) {
            out.push_str(&wrapped(sentence, width, "", "  "));
        }
    }
    if let Some(guest) = &findings.guest {
        out.push_str(&guest_inside::terminal(guest, width, &paint));
    }
    if let Some(exits) = &findings.exits {
        title(&mut out, &exits_title(exits));
        out.push_str(&guest_exits::terminal(exits, width, style.color));
    }
    if let Some(code) = &findings.code {
        title(&mut out, &guest_code::title(code));
        out.push_str(&guest_code::terminal(code, width, style.color));
    }
    if let Some(schedule) = &findings.schedule {
        out.push_str(&crate::schedule::terminal(schedule, width, &paint));
    }
    out.push('\n');
    for line in quality(findings) {
        out.push_str(&wrapped(&line, width, "", "  "));
    }
    section(&mut out, &paint.with("1;33", "What to know"), &notes(findings), "! ", width);
    section(&mut out, &paint.with("1;36", "Advice"), &advice(findings), "→ ", width);
    out
}

/// The findings for scripts; docs/json.md describes them.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(findings: &ProfileFindings) -> Result<String, ReportError> {
    serde_json::to_string_pretty(findings).map_err(|source| ReportError::Json { what: "profile", source })
}

/// "qemu-system-x86_64, process 123: looked at for 10.0 s, 99 samples a second by processor cycles: 900 samples".
pub(crate) fn heading(findings: &ProfileFindings) -> String {
    let of = plain(&of(findings));
    let ProfileFindings { seconds, hz, samples, .. } = findings;
    if *samples == 0 {
        return format!("{of}: nothing of it was seen on CPU");
    }
    let Some(by) = trigger(findings) else { return format!("{of}: {}", counted(*samples, "sample")) };
    let rate = if *hz > 0 { counted((*hz).into(), "sample") + " a second on CPU" } else { "samples on CPU".to_owned() };
    let ended = if findings.ended { "; the process ended then" } else { "" };
    let what = if findings.file.is_some() { "sampled" } else { "looked at" };
    format!("{of}: {what} for {seconds:.1} s, {rate} by {by}: {}{ended}", counted(*samples, "sample"))
}

/// By what samples were taken, "processor cycles"; nothing where that is unknown.
pub(crate) fn trigger(findings: &ProfileFindings) -> Option<String> {
    // perf adds how precise it should be: "cycles:P".
    match findings.trigger.split(':').next().unwrap_or_default() {
        "" => None,
        "cycles" => Some("processor cycles".to_owned()),
        "cpu-clock" => Some("the CPU clock".to_owned()),
        _ => Some(plain(&findings.trigger)),
    }
}

/// What a profile is of: "qemu-system-x86_64, process 123", and the file where others recorded it.
pub fn of(findings: &ProfileFindings) -> String {
    let process = (findings.pid > 0).then(|| format!("{}, process {}", findings.program, findings.pid));
    findings.file.iter().cloned().chain(process).collect::<Vec<_>>().join(": ")
}

/// "VM exits: 12.3 k in 3.1 s on 1 vCPU".
pub(crate) fn exits_title(exits: &GuestExits) -> String {
    let all: u64 = exits.vcpus.iter().map(|vcpu| vcpu.count).sum();
    match exits.vcpus.len() {
        0 if exits.counters.is_empty() => format!("VM exits: none in {:.1} s", exits.seconds),
        0 => format!("VM exits in {:.1} s, by KVM's own counters", exits.seconds),
        n => {
            let busy: f64 = exits.vcpus.iter().map(|vcpu| vcpu.per_s).sum();
            let on = counted(n as u64, "vCPU");
            format!("VM exits: {} in {:.1} s on {on}, {} a second", count(all), exits.seconds, per_s(busy))
        }
    }
}

/// What the guest does at a cost that it need not pay, and the remedy.
pub(crate) fn advice(findings: &ProfileFindings) -> Vec<String> {
    let exits = findings.exits.iter().flat_map(|exits| &exits.advice);
    let code = findings.code.iter().flat_map(|code| &code.advice);
    exits.chain(code).map(advice_text).collect()
}

/// With one decimal, so that the columns of a table line up.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(crate) fn range(share: &SampleShare) -> String {
    format!("{:.1}–{:.1}", share.low * 100.0, share.high * 100.0)
}

fn threads(findings: &ProfileFindings, width: usize, color: bool) -> String {
    let mut table = table::empty(color);
    let head = [right("tid"), right("CPU"), right("samples"), right("share"), right("in kernel"), right("translated")];
    table.set_header([Cell::new("thread")].into_iter().chain(head));
    for thread in findings.threads.iter().take(THREADS) {
        let of = |part: u64| percent(part as f64 / thread.share.samples.max(1) as f64);
        table.add_row([
            Cell::new(fit(&plain(&thread.name), width.saturating_sub(60).max(10))),
            right(thread.tid.to_string()),
            right(thread.cpu.map_or(NONE.to_owned(), percent)),
            right(count(thread.share.samples)),
            right(percent(thread.share.share)),
            right(of(thread.kernel)),
            right(of(thread.translated)),
        ]);
    }
    let mut text = table::lines(table) + "\n";
    let more = findings.threads.len().saturating_sub(THREADS);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

pub(crate) fn functions(functions: &[FunctionShare], width: usize, color: bool) -> String {
    let shown = || functions.iter().take(SHOWN);
    let build = |room: usize, color: bool| {
        let mut table = table::empty(color);
        table.set_header([Cell::new("function"), right("self"), right("95 %"), right("total"), Cell::new("of")]);
        for function in shown() {
            table.add_row([
                Cell::new(fit(&plain(&function.name), room)),
                right(percent(function.inside.share)).add_attribute(Attribute::Bold),
                right(range(&function.inside)),
                right(percent(function.total.share)),
                Cell::new(whose(function)),
            ]);
        }
        table::lines(table)
    };
    fitted(shown().map(|function| function.name.as_str()), width, color, build)
}

/// A table that `build` makes with so much room for names: as much as they want, or the terminal leaves.
pub(crate) fn fitted<'a>(
    names: impl Iterator<Item = &'a str>,
    width: usize,
    color: bool,
    build: impl Fn(usize, bool) -> String,
) -> String {
    let room = names.map(|name| columns(&plain(name))).max().unwrap_or(0);
    let widest = build(room, false).lines().map(columns).max().unwrap_or(0);
    build(room.saturating_sub(widest.saturating_sub(width)).max(12), color) + "\n"
}

/// What TCG's processors do.
fn tcg(findings: &ProfileFindings, color: bool) -> String {
    let mut table = table::empty(color);
    table.set_header([Cell::new("part"), right("share"), right("95 %")]);
    for part in &findings.tcg {
        table.add_row([Cell::new(part.part.words()), right(percent(part.share.share)), right(range(&part.share))]);
    }
    table::lines(table) + "\n"
}

/// What each thread does and waits for, a line for each wait that matters.
fn by_clock(wall: &WallFindings, width: usize, color: bool) -> String {
    let mut table = table::empty(color);
    table.set_header([
        Cell::new("thread"),
        right("tid"),
        right("CPU"),
        right("ready"),
        right("waits"),
        Cell::new("for"),
    ]);
    for thread in wall.threads.iter().take(THREADS) {
        let name = Cell::new(fit(&plain(&thread.name), 16));
        let mut waits = thread.waits.iter().filter(|wait| wait.share.share >= 0.01).take(3).map(|wait| {
            let below = if wait.below.is_empty() { String::new() } else { format!(" below {}", plain(&wait.below)) };
            let words = wait.reason.words().trim_start_matches("for ").to_owned();
            (percent(wait.share.share), format!("{words} ({}{below})", plain(&wait.call)))
        });
        let (share, what) = waits.next().unwrap_or_default();
        let room = width.saturating_sub(50).max(16);
        // The scheduler's own count where there is one.
        let runs = right(percent(thread.on_cpu.unwrap_or(thread.runs.share)));
        let ready = right(thread.ready.map_or(NONE.to_owned(), percent));
        table.add_row([name, right(thread.tid.to_string()), runs, ready, right(share), Cell::new(fit(&what, room))]);
        for (share, what) in waits {
            table.add_row([Cell::new(""), right(""), right(""), right(""), right(share), Cell::new(fit(&what, room))]);
        }
    }
    let mut text = table::lines(table) + "\n";
    let more = wall.threads.len().saturating_sub(THREADS);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

/// Whose a function is, shortly.
fn whose(function: &FunctionShare) -> String {
    let file = function.module.rsplit('/').next().unwrap_or_default();
    match function.layer.as_str() {
        "kernel" => "kernel".to_owned(),
        "program" if file.starts_with("qemu-system") => "QEMU".to_owned(),
        "translated" => "guest".to_owned(),
        "guest-kernel" => "guest's kernel".to_owned(),
        _ if file.is_empty() => "–".to_owned(),
        // "libc.so.6" is libc.
        _ => fit(&plain(file.split(".so").next().unwrap_or(file)), 16),
    }
}
