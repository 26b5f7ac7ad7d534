//! `profile diff`: which functions' shares changed, and whether both profiles are of a kind.

use super::functions::SHOWN;
use super::heading::trigger;
use super::share::{percent, range};
use crate::engine::{Block, Cell, Column, Notice, Report, Section, Table};
use crate::number::counted;
use vmtax_model::{FunctionChange, ProfileChanges, ProfileFindings};

/// Functions whose share changed. `unlike`: why the profiles are not of a kind.
pub fn changes(found: &ProfileChanges, unlike: &[String]) -> Report<'static> {
    let all = match found.compared {
        1 => "The intervals of the one function compared hold at 95 %.".to_owned(),
        n => format!("The intervals of all {} compared hold together at 95 %.", counted(n as u64, "function")),
    };
    let answer = match found.changed.len() {
        0 => "No function's share changed by more than sampling leaves open.".to_owned(),
        n => format!("{} changed by more than sampling leaves open.", counted(n as u64, "share")),
    };
    let table = (!found.changed.is_empty()).then(|| Block::Table(table(found)));
    Report {
        study: "profile",
        title: "Functions whose share changed".to_owned(),
        answer,
        notices: vec![Notice::warnings(unlike.to_vec())],
        sections: vec![Section::new("", table.into_iter().collect())],
        method: vec![all],
        ..Report::default()
    }
}

fn table(found: &ProfileChanges) -> Table {
    let change = |change: &&FunctionChange| {
        Cell::strong(format!("{:+.1} %", (change.after.share - change.before.share) * 100.0))
    };
    Table::of("Functions whose share changed", &found.changed)
        .column(Column::words("function").cut(24, 12), |change| change.name.as_str())
        .column(Column::figures("before"), |change| percent(change.before.share))
        .column(Column::figures("interval").spare(1), |change| range(&change.before))
        .column(Column::figures("after"), |change| percent(change.after.share))
        .column(Column::figures("interval").spare(1), |change| range(&change.after))
        .column(Column::figures("change"), change)
        .done()
        .most(SHOWN)
}

/// Why a difference of two profiles is not one of what they are of alone.
pub fn unlike(before: &ProfileFindings, after: &ProfileFindings) -> Vec<String> {
    let mut unlike = Vec::new();
    if before.program != after.program && !before.program.is_empty() && !after.program.is_empty() {
        unlike.push(format!(
            "These are different programs, {} and {}: functions of one are none of the other's.",
            before.program, after.program
        ));
    }
    // Of folded stacks nobody knows how they were sampled.
    let (Some(old), Some(new)) = (trigger(before), trigger(after)) else { return unlike };
    if old != new {
        unlike.push(format!(
            "Before, samples were taken by {old}, after by {new}, which find other functions: take both on one machine, in \
             one way."
        ));
    }
    if before.kernel != after.kernel {
        let with = if before.kernel { "before" } else { "after" };
        unlike.push(format!(
            "The kernel's functions were seen {with} only, and the shares are of all that was seen: take both as root."
        ));
    }
    unlike
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_that_are_not_of_a_kind_are_told() {
        let of = |program: &str, trigger: &str, kernel| ProfileFindings {
            program: program.to_owned(),
            trigger: trigger.to_owned(),
            kernel,
            ..ProfileFindings::default()
        };
        let usual = of("qemu-system-x86_64", "cycles", true);
        assert_eq!(unlike(&usual, &of("qemu-system-x86_64", "cycles:P", true)), [""; 0]);
        assert_eq!(unlike(&usual, &of("", "", false)), [""; 0]);
        let said = unlike(&usual, &of("sleep", "cpu-clock", false));
        let expected = ["qemu-system-x86_64 and sleep", "processor cycles, after by the CPU clock", "before only"];
        assert!(said.len() == 3 && said.iter().zip(expected).all(|(said, part)| said.contains(part)), "{said:?}");
        let shown = changes(&ProfileChanges { compared: 312, changed: vec![] }, &said);
        let shown = shown.terminal(crate::Style { width: 80, color: false }, false);
        assert!(shown.contains("all 312 functions compared") && shown.contains("! These are different"), "{shown}");
    }
}
