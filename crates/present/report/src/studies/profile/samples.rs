//! Samples of a profile: how many and by what, their fractions as every table writes them, the functions that they are
//! in. And `profile diff`: which functions' fractions changed, and whether both profiles are comparable.

use crate::engine::{Cell, Notice, Report, Section, Table, figures, words};
use crate::number::{NONE, count, counted};
use crate::text::{fit, only_if, plain};
use vmtax_findings::{FunctionChange, FunctionShare, ProfileChanges, ProfileFindings, SampleShare};

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

/// Functions whose fraction of the samples changed. `unlike`: why the profiles are not comparable.
pub fn changes(found: &ProfileChanges, unlike: &[String]) -> Report<'static> {
    let all = match found.compared {
        1 => "The intervals of the one function compared have 95 % coverage.".to_owned(),
        n => format!(
            "The intervals of all {} compared have 95 % coverage together.",
            counted(n as u64, "function")
        ),
    };
    let answer = match found.changed.len() {
        0 => "No function's fraction of the CPU samples changed by more than sampling noise."
            .to_owned(),
        n => format!(
            "{} changed in their fraction of the CPU samples by more than sampling noise.",
            counted(n as u64, "function")
        ),
    };
    let table = (!found.changed.is_empty()).then(|| table(found));
    Report {
        study: "profile",
        title: "Functions whose fraction of CPU samples changed".to_owned(),
        answer,
        notices: vec![Notice::warnings(unlike.to_vec())],
        sections: vec![Section::new("", table)],
        method: vec![all],
        ..Report::default()
    }
}

fn table(found: &ProfileChanges) -> Table {
    let change = |change: &&FunctionChange| {
        let share = change.after.share - change.before.share;
        Cell::strong(format!("{:+.1} %", share * 100.0))
    };
    Table::of(
        "Functions whose fraction of CPU samples changed",
        &found.changed,
    )
    .column(words("function").cut(24, 12), |change| change.name.as_str())
    .column(figures("before"), |change| percent(change.before.share))
    .column(figures("95 % CI").spare(1), |change| range(&change.before))
    .column(figures("after"), |change| percent(change.after.share))
    .column(figures("95 % CI").spare(1), |change| range(&change.after))
    .column(figures("change"), change)
    .done()
    .most(SHOWN)
}

/// Why two profiles differ for other reasons than the code.
pub fn unlike(before: &ProfileFindings, after: &ProfileFindings) -> Vec<String> {
    let mut unlike = Vec::new();
    if before.program != after.program && !before.program.is_empty() && !after.program.is_empty() {
        unlike.push(format!(
            "These are different programs, {} and {}: their functions cannot be compared.",
            before.program, after.program
        ));
    }
    // Folded stacks do not say how they were sampled.
    let (Some(old), Some(new)) = (trigger(before), trigger(after)) else {
        return unlike;
    };
    if old != new {
        unlike.push(format!(
            "The first was sampled by {old}, the second by {new}, which find other functions: sample both in the same way on \
             the same host."
        ));
    }
    if before.kernel != after.kernel {
        let with = if before.kernel { "first" } else { "second" };
        unlike.push(format!(
            "The kernel's functions were sampled in the {with} only, and fractions are of all samples: profile both as root."
        ));
    }
    unlike
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_that_are_not_comparable_are_reported() {
        let profile_with = |program: &str, trigger: &str, kernel| ProfileFindings {
            program: program.to_owned(),
            trigger: trigger.to_owned(),
            kernel,
            ..ProfileFindings::default()
        };
        let usual = profile_with("qemu-system-x86_64", "cycles", true);
        assert_eq!(
            unlike(
                &usual,
                &profile_with("qemu-system-x86_64", "cycles:P", true)
            ),
            [""; 0]
        );
        assert_eq!(unlike(&usual, &profile_with("", "", false)), [""; 0]);
        let said = unlike(&usual, &profile_with("sleep", "cpu-clock", false));
        let expected = [
            "qemu-system-x86_64 and sleep",
            "CPU cycles, the second by perf cpu-clock",
            "in the first only",
        ];
        assert!(
            said.len() == 3
                && said
                    .iter()
                    .zip(expected)
                    .all(|(said, part)| said.contains(part)),
            "{said:?}"
        );
        let shown = changes(
            &ProfileChanges {
                compared: 312,
                changed: vec![],
            },
            &said,
        );
        let shown = shown.terminal(
            crate::Style {
                width: 80,
                color: false,
            },
            false,
        );
        assert!(
            shown.contains("all 312 functions compared") && shown.contains("These are different"),
            "{shown}"
        );
    }
}
