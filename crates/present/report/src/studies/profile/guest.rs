//! A guest: samples and counts from inside it, and the code that its vCPUs execute, as QEMU sees it.

use super::samples::{functions, percent};
use crate::ReportError;
use crate::engine::{Block, Cell, Section, Table, figures, words};
use crate::number::{NONE, count, counted, nanoseconds, were};
use crate::text::only_if;
use vmtax_findings::{CodePlace, GuestCall, GuestCode, GuestFindings};
use vmtax_model::{CallCounts, CountMethod};

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
        let functions = Block::Table(functions("Functions in the guest", &guest.functions));
        let threads = Block::folded("Threads in the guest", [threads(guest)]);
        let blocks = only_if(guest.samples > 0, vec![functions, threads]);
        sections.push(Section::new(title, blocks));
    }
    let calls = guest.calls.iter().map(calls);
    sections.extend(calls.map(|block| Section::new("System calls in the guest", [block])));
    sections
}

fn threads(guest: &GuestFindings) -> Table {
    Table::of("Threads in the guest", &guest.threads)
        .column(words("thread").cut(16, 10), |thread| thread.name.as_str())
        .column(figures("tid"), |thread| thread.tid.to_string())
        .column(figures("CPU"), |thread| {
            thread.cpu.map_or(NONE.to_owned(), percent)
        })
        .column(figures("samples").samples(), |thread| {
            count(thread.share.samples)
        })
        .column(figures("in kernel"), |thread| count(thread.kernel))
        .done()
}

fn calls<'a>(found: &CallCounts<GuestCall>) -> Block<'a> {
    if found.rows.is_empty() {
        return Block::Text("none".to_owned());
    }
    let table = Table::of("System calls in the guest", found.rows.iter().take(SHOWN.1))
        .column(words("call").cut(20, 12), |row| row.name.as_str())
        .column(figures("pid"), |row| {
            row.pid.map_or(String::new(), |pid| pid.to_string())
        })
        .column(figures("calls").samples(), |row| count(row.calls))
        .column(figures("mean"), |row| nanoseconds(row.avg_ns))
        .column(figures("shortest").spare(2), |row| {
            nanoseconds(row.min_ns as f64)
        })
        .column(figures("longest").spare(1), |row| {
            nanoseconds(row.max_ns as f64)
        })
        .column(figures("total"), |row| nanoseconds(row.total_ns as f64));
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
        let added = calls.added_ns.map_or(String::new(), |ns| {
            format!(", which adds {} to each call", nanoseconds(ns.max(0.0)))
        });
        lines.push(format!("System calls were counted {how}{added}."));
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

/// Addresses that a terminal shows without details, and that a page lists.
const ADDRESSES: (usize, usize) = (8, 40);

/// Makes the section on the code that the vCPUs executed.
pub fn code(code: &GuestCode) -> Section<'_> {
    let title = format!("Guest code of the vCPUs: {}", counted(code.looks, "sample"));
    let table = Table::of("Where the vCPUs were", code.places.iter().take(ADDRESSES.1))
        .column(words("address"), |place| format!("{:#x}", place.address))
        .column(words("in").spare(2), |place| mode(place))
        .column(figures("samples").samples().spare(1), |place| {
            count(place.share.samples)
        })
        .column(figures("of all"), |place| {
            Cell::strong(percent(place.share.share))
        })
        .column(words("previous").cut(18, 12), |place| place.done.as_str())
        .column(words("next").cut(18, 12), |place| place.next.as_str());
    let block = match code.places.is_empty() {
        true => Block::Text("The vCPUs were halted at each sample.".to_owned()),
        false => Block::Table(table.done().most(ADDRESSES.0)),
    };
    Section::new(title, [block])
}

/// Whose code it is.
fn mode(place: &CodePlace) -> String {
    match place.level {
        0 => "kernel".to_owned(),
        3 => "program".to_owned(),
        ring => format!("ring {ring}"),
    }
}

/// Returns the method of sampling: number of samples, halted vCPUs, time of a query.
pub fn code_method(code: &GuestCode) -> String {
    let halted = percent(code.halted.share);
    let halted = only_if(
        code.halted.samples != 0,
        format!(", {halted} of them of a halted vCPU"),
    );
    format!(
        "Guest code: {} of the vCPUs through QEMU's monitor{halted}; a query took {} (median).",
        counted(code.looks, "sample"),
        nanoseconds(code.look_ns)
    )
}
