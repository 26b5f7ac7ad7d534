//! `profile diff`: which functions' fractions of the CPU samples changed, and whether both profiles are comparable.

use super::samples::{SHOWN, percent, range, trigger};
use crate::engine::{Cell, Notice, Report, Section, Table, figures, words};
use crate::number::counted;
use vmtax_findings::{FunctionChange, ProfileChanges, ProfileFindings};

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
