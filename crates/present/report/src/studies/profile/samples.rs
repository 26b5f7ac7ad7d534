//! Samples of a profile: how many and by what, their fractions as every table writes them, the functions that they are in.

use crate::engine::{Cell, Table, figures, words};
use crate::number::{NONE, count, counted};
use crate::text::{fit, only_if, plain};
use vmtax_findings::{FunctionShare, ProfileFindings, SampleShare};

/// Functions that a terminal shows without details.
pub const SHOWN: usize = 12;
/// Functions that a page lists.
const LISTED: usize = 40;

/// A fraction with one decimal, so that the columns of a table line up.
pub fn percent(share: f64) -> String {
    // A sum of nothing is -0.
    format!("{:.1} %", share * 100.0 + 0.0)
}

/// The 95 % confidence interval in percent: "4.1–5.3".
pub fn range(share: &SampleShare) -> String {
    format!("{:.1}–{:.1}", share.low * 100.0, share.high * 100.0)
}

/// "sampled for 10.0 s · on-CPU samples: 900 (CPU cycles, 99 Hz)".
pub fn heading(findings: &ProfileFindings) -> String {
    let ProfileFindings {
        seconds,
        hz,
        samples,
        ..
    } = findings;
    if *samples == 0 {
        return "no on-CPU sample".to_owned();
    }
    let Some(by) = trigger(findings) else {
        return counted(*samples, "sample");
    };
    let rate = only_if(*hz > 0, format!(", {hz} Hz"));
    let ended = only_if(findings.ended, "; the process ended then");
    format!(
        "sampled for {seconds:.1} s{ended} · on-CPU samples: {} ({by}{rate})",
        count(*samples)
    )
}

/// By what samples were taken, "CPU cycles"; nothing where that is unknown.
pub fn trigger(findings: &ProfileFindings) -> Option<String> {
    // perf adds how precise it should be: "cycles:P".
    match findings.trigger.split(':').next().unwrap_or_default() {
        "" => None,
        "cycles" => Some("CPU cycles".to_owned()),
        "cpu-clock" => Some("perf cpu-clock".to_owned()),
        _ => Some(plain(&findings.trigger)),
    }
}

/// The functions, those first in which most samples are. Those with one sample, which may be chance, are not listed.
pub fn functions(label: &str, all: &[FunctionShare]) -> Table {
    let is_listed = |function: &&FunctionShare| function.total.samples >= 2;
    let are_all = all.iter().all(|function| is_listed(&function));
    let note = (!are_all).then(|| "Functions with a single sample are not listed.".to_owned());
    Table::of(label, all.iter().filter(is_listed).take(LISTED))
        .column(words("function").cut(32, 12), |one| one.name.as_str())
        .column(figures("self"), |one| {
            Cell::strong(percent(one.inside.share))
        })
        .column(figures("95 % CI").spare(2), |one| range(&one.inside))
        .column(figures("total"), |one| percent(one.total.share))
        .column(words("component").spare(3), |one| whose(one))
        .column(words("file").cut(24, 16).spare(1), |one| {
            file(one).to_owned()
        })
        .done()
        .most(SHOWN)
        .notes(note.into_iter().collect())
}

/// Whose a function is, shortly.
fn whose(function: &FunctionShare) -> String {
    let file = file(function);
    match function.layer.as_str() {
        "kernel" => "kernel".to_owned(),
        "program" if file.starts_with("qemu-system") => "QEMU".to_owned(),
        "translated" => "guest".to_owned(),
        "guest-kernel" => "guest kernel".to_owned(),
        _ if file.is_empty() => NONE.to_owned(),
        // "libc.so.6" is libc.
        _ => fit(&plain(file.split(".so").next().unwrap_or(file)), 16),
    }
}

/// The file it is in, without its folder.
fn file(function: &FunctionShare) -> &str {
    function.module.rsplit('/').next().unwrap_or_default()
}
