//! What a guest saw of itself.

use super::functions::functions;
use super::share::percent;
use crate::ReportError;
use crate::engine::{Block, Cell, Column, Section, Table};
use crate::number::{NONE, count, counted, nanoseconds, were};
use vmtax_model::{CallFindings, CountWay, GuestFindings, ThreadShare};

/// System calls that a terminal shows without details, and that a page lists.
const SHOWN: (usize, usize) = (15, 40);

/// The functions and threads by its own kernel's samples, its system calls.
pub fn sections(guest: &GuestFindings) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    if guest.hz > 0 {
        let of = counted(guest.samples, "sample");
        let title = format!("In the guest: {of} by its own kernel, {} a second", guest.hz);
        let tables = [functions("Functions in the guest", &guest.functions)].map(Block::Table);
        let threads = Block::Folded("Threads in the guest".to_owned(), vec![Block::Table(threads(guest))]);
        let blocks = if guest.samples > 0 { tables.into_iter().chain([threads]).collect() } else { Vec::new() };
        sections.push(Section::new(title, blocks));
    }
    sections.extend(guest.calls.iter().map(|found| Section::new("System calls in the guest", vec![calls(found)])));
    sections
}

fn threads(guest: &GuestFindings) -> Table {
    let figures = ["tid", "CPU", "samples", "in kernel"].map(Column::figures);
    let row = |t: &ThreadShare| {
        let cpu = t.cpu.map_or(NONE.to_owned(), percent);
        vec![t.name.clone(), t.tid.to_string(), cpu, count(t.share.samples), count(t.kernel)]
    };
    let columns = [Column::words("thread").cut(16, 10)].into_iter().chain(figures).collect();
    Table::new("Threads in the guest", columns).rows(guest.threads.iter().map(row))
}

fn calls<'a>(found: &CallFindings) -> Block<'a> {
    if found.rows.is_empty() {
        return Block::Text("none".to_owned());
    }
    let by_process = found.rows.iter().any(|row| row.pid.is_some());
    let figures = ["calls", "mean", "shortest", "longest", "total"].into_iter().enumerate();
    let figures = figures.map(|(i, name)| Column::figures(name).spare([0, 0, 2, 1, 0][i]));
    let pid = by_process.then(|| Column::figures("pid"));
    let columns = [Column::words("call").cut(20, 12)].into_iter().chain(pid).chain(figures).collect();
    let rows = found.rows.iter().take(SHOWN.1).map(|row| {
        let times = [row.avg_ns, row.min_ns as f64, row.max_ns as f64, row.total_ns as f64].map(nanoseconds);
        let pid = by_process.then(|| row.pid.map_or(String::new(), |pid| pid.to_string()));
        let named = [row.name.clone()].into_iter().chain(pid).chain([count(row.calls)]);
        named.chain(times).map(Cell::from).collect::<Vec<Cell>>()
    });
    Block::Table(Table::new("System calls in the guest", columns).rows(rows).most(SHOWN.0))
}

/// How far it can be trusted, and what it cost.
pub fn method(guest: &GuestFindings) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(joined) = guest.joined.filter(|joined| joined.in_guest > 0) {
        lines.push(format!(
            "Of {} of virtual processors in the guest's code {} have the stack that the guest saw then, {} away at the median.",
            counted(joined.in_guest, "sample"),
            percent(joined.joined.share),
            nanoseconds(joined.apart_ns as f64)
        ));
    }
    if guest.user_samples > 0 {
        lines.push(format!(
            "In the guest {} of {} of programs unwound to where the thread begins.",
            percent(guest.unwound.share),
            counted(guest.user_samples, "sample")
        ));
    }
    if let Some(calls) = &guest.calls {
        let how = match calls.way {
            CountWay::InKernel => "in the guest's kernel",
            CountWay::CallByCall => "one by one, as the guest's kernel would not count them itself",
        };
        let added =
            calls.added_ns.map(|ns| format!(", which adds {} to each, measured there", nanoseconds(ns.max(0.0))));
        lines.push(format!("System calls were counted {how}{}.", added.unwrap_or_default()));
    }
    lines
}

/// What the reader has to know.
pub fn notes(guest: &GuestFindings) -> Vec<String> {
    let mut notes = Vec::new();
    if guest.lost > 0 {
        notes.push(format!(
            "{} in the guest {} lost: sample less often (--guest-hz), or give it more --memory.",
            counted(guest.lost, "sample"),
            were(guest.lost)
        ));
    }
    if let Some(calls) = guest.calls.as_ref().filter(|calls| calls.lost > 0) {
        let (lost, were) = (calls.lost, were(calls.lost));
        notes.push(match calls.way {
            CountWay::InKernel => format!(
                "{} of the guest {were} not counted: there was no room for more kinds.",
                counted(lost, "system call")
            ),
            CountWay::CallByCall => format!(
                "{} of the guest's system calls {were} lost, or there was no room for more kinds: use a guest kernel with \
                 CONFIG_BPF_SYSCALL, which counts them itself, and do not keep processes apart.",
                counted(lost, "record")
            ),
        });
    }
    notes
}

/// The calls as JSON, a line each.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn call_lines(found: &CallFindings) -> Result<String, ReportError> {
    let line = |row| serde_json::to_string(row).map_err(|source| ReportError::Json { what: "system calls", source });
    found.rows.iter().map(|row| Ok(line(row)? + "\n")).collect()
}
