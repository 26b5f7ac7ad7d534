//! Samples and counts from inside a guest.

use super::functions::functions;
use super::share::percent;
use crate::ReportError;
use crate::engine::{Block, Column, Section, Table};
use crate::number::{NONE, count, counted, nanoseconds, were};
use vmtax_model::{CallCounts, CountMethod, GuestCall, GuestFindings};

/// System calls that a terminal shows without details, and that a page lists.
const SHOWN: (usize, usize) = (15, 40);

/// The functions and threads by its own kernel's samples, its system calls.
pub fn sections(guest: &GuestFindings) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    if guest.hz > 0 {
        let of = counted(guest.samples, "sample");
        let title = format!(
            "In the guest: {of} from its perf_events, {}/s per vCPU",
            guest.hz
        );
        let tables = [functions("Functions in the guest", &guest.functions)].map(Block::Table);
        let threads = Block::Folded(
            "Threads in the guest".to_owned(),
            vec![Block::Table(threads(guest))],
        );
        let blocks = if guest.samples > 0 {
            tables.into_iter().chain([threads]).collect()
        } else {
            Vec::new()
        };
        sections.push(Section::new(title, blocks));
    }
    sections.extend(
        guest
            .calls
            .iter()
            .map(|found| Section::new("System calls in the guest", vec![calls(found)])),
    );
    sections
}

fn threads(guest: &GuestFindings) -> Table {
    Table::of("Threads in the guest", &guest.threads)
        .column(Column::words("thread").cut(16, 10), |thread| {
            thread.name.as_str()
        })
        .column(Column::figures("tid"), |thread| thread.tid.to_string())
        .column(Column::figures("CPU"), |thread| {
            thread.cpu.map_or(NONE.to_owned(), percent)
        })
        .column(Column::figures("samples"), |thread| {
            count(thread.share.samples)
        })
        .column(Column::figures("in kernel"), |thread| count(thread.kernel))
        .done()
}

fn calls<'a>(found: &CallCounts<GuestCall>) -> Block<'a> {
    if found.rows.is_empty() {
        return Block::Text("none".to_owned());
    }
    let table = Table::of("System calls in the guest", found.rows.iter().take(SHOWN.1))
        .column(Column::words("call").cut(20, 12), |row| row.name.as_str())
        .column(Column::figures("pid"), |row| {
            row.pid.map_or(String::new(), |pid| pid.to_string())
        })
        .column(Column::figures("calls"), |row| count(row.calls))
        .column(Column::figures("mean"), |row| nanoseconds(row.avg_ns))
        .column(Column::figures("shortest").spare(2), |row| {
            nanoseconds(row.min_ns as f64)
        })
        .column(Column::figures("longest").spare(1), |row| {
            nanoseconds(row.max_ns as f64)
        })
        .column(Column::figures("total"), |row| {
            nanoseconds(row.total_ns as f64)
        });
    Block::Table(table.done().most(SHOWN.0))
}

/// Returns the quality of the samples, and their cost.
pub fn method(guest: &GuestFindings) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(joined) = guest.joined.filter(|joined| joined.in_guest > 0) {
        lines.push(format!(
            "Of {} of vCPU threads in guest code, {} have the guest's own stack of that time, {} apart (median).",
            counted(joined.in_guest, "sample"),
            percent(joined.joined.share),
            nanoseconds(joined.apart_ns as f64)
        ));
    }
    if guest.user_samples > 0 {
        lines.push(format!(
            "Of {} with a user-space stack in the guest, {} were unwound completely.",
            counted(guest.user_samples, "sample"),
            percent(guest.unwound.share)
        ));
    }
    if let Some(calls) = &guest.calls {
        let how = match calls.method {
            CountMethod::InKernel => "in the guest's kernel",
            CountMethod::CallByCall => {
                "one by one, since the guest's kernel cannot count them (no BPF)"
            }
        };
        let added = calls
            .added_ns
            .map(|ns| format!(", which adds {} to each call", nanoseconds(ns.max(0.0))));
        lines.push(format!(
            "System calls were counted {how}{}.",
            added.unwrap_or_default()
        ));
    }
    lines
}

/// Returns notes for the reader: lost samples and other limits.
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
        notes.push(match calls.method {
            CountMethod::InKernel => format!(
                "{} of the guest {were} not counted: the table of kinds was full.",
                counted(lost, "system call")
            ),
            CountMethod::CallByCall => format!(
                "{} of the guest's system calls {were} lost, or the table of kinds was full: use a guest kernel with \
                 CONFIG_BPF_SYSCALL, which counts them itself, and count all processes together.",
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
pub fn call_lines(found: &CallCounts<GuestCall>) -> Result<String, ReportError> {
    found
        .rows
        .iter()
        .map(|row| Ok(serde_json::to_string(row)? + "\n"))
        .collect()
}
