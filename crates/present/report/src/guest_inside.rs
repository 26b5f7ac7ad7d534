//! What a guest saw of itself, in words and tables.

use crate::ReportError;
use crate::number::{count, counted, nanoseconds, were};
use crate::profile::{functions, percent};
use crate::table::{self, right};
use crate::text::{Paint, fit, plain};
use comfy_table::Cell;
use vmtax_model::{CallFindings, CountWay, GuestFindings};

/// System calls that a terminal shows.
const SHOWN: usize = 15;
/// Over the guest's system calls.
pub(crate) const CALLS_TITLE: &str = "System calls in the guest";

/// The tables for a terminal.
pub(crate) fn terminal(guest: &GuestFindings, width: usize, paint: &Paint) -> String {
    let mut out = String::new();
    if guest.samples > 0 {
        out.push_str(&format!("\n{}\n", paint.bold(&guest_title(guest))));
        out.push_str(&functions(&guest.functions, width, paint.0));
    }
    if let Some(found) = &guest.calls {
        out.push_str(&format!("\n{}\n", paint.bold(CALLS_TITLE)));
        out.push_str(&calls(found, width, paint.0));
    }
    out
}

/// "In the guest: 420 samples by its own kernel, 99 a second".
pub(crate) fn guest_title(guest: &GuestFindings) -> String {
    format!("In the guest: {} by its own kernel, {} a second", counted(guest.samples, "sample"), guest.hz)
}

fn calls(found: &CallFindings, width: usize, color: bool) -> String {
    if found.rows.is_empty() {
        return "none\n".to_owned();
    }
    let by_process = found.rows.iter().any(|row| row.pid.is_some());
    let mut table = table::empty(color);
    let mut head = vec![Cell::new("call")];
    if by_process {
        head.push(right("pid"));
    }
    head.extend(["calls", "mean", "shortest", "longest", "total"].map(right));
    table.set_header(head);
    for row in found.rows.iter().take(SHOWN) {
        let mut cells = vec![Cell::new(fit(&plain(&row.name), width.saturating_sub(60).max(12)))];
        if by_process {
            cells.push(right(row.pid.map_or(String::new(), |pid| pid.to_string())));
        }
        cells.push(right(count(row.calls)));
        let times = [row.avg_ns, row.min_ns as f64, row.max_ns as f64, row.total_ns as f64];
        cells.extend(times.map(|ns| right(nanoseconds(ns))));
        table.add_row(cells);
    }
    let mut text = table::lines(table) + "\n";
    let more = found.rows.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

/// How far it can be trusted, and what it cost.
pub(crate) fn method(guest: &GuestFindings) -> Vec<String> {
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
pub(crate) fn notes(guest: &GuestFindings) -> Vec<String> {
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
