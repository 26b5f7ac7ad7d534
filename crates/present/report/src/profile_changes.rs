//! `profile diff`'s answer: which functions' shares changed, and whether both profiles are of a kind.

use crate::Style;
use crate::number::counted;
use crate::profile::{SHOWN, fitted, percent, range, trigger};
use crate::table::{self, right};
use crate::text::{Paint, fit, plain, section, wrapped};
use comfy_table::{Attribute, Cell};
use vmtax_model::{ProfileChanges, ProfileFindings};

/// Functions whose share changed, for a terminal. `unlike`: why the profiles are not of a kind.
pub fn changes(found: &ProfileChanges, unlike: &[String], style: Style) -> String {
    let width = style.width.max(40);
    let mut text = if found.changed.is_empty() {
        "No function's share changed by more than sampling leaves open.\n".to_owned()
    } else {
        table(found, width, style.color)
    };
    let all = match found.compared {
        1 => "The intervals of the one function compared hold at 95 %.".to_owned(),
        n => format!("The intervals of all {} compared hold together at 95 %.", counted(n as u64, "function")),
    };
    text += &wrapped(&all, width, "", "");
    section(&mut text, &Paint(style.color).with("1;33", "What to know"), unlike, "! ", width);
    text + "\n"
}

fn table(found: &ProfileChanges, width: usize, color: bool) -> String {
    let shown = || found.changed.iter().take(SHOWN);
    let build = |room: usize, color: bool| {
        let mut table = table::empty(color);
        let head = ["before", "interval", "after", "interval", "change"].map(right);
        table.set_header([Cell::new("function")].into_iter().chain(head));
        for change in shown() {
            table.add_row([
                Cell::new(fit(&plain(&change.name), room)),
                right(percent(change.before.share)),
                right(range(&change.before)),
                right(percent(change.after.share)),
                right(range(&change.after)),
                right(format!("{:+.1} %", (change.after.share - change.before.share) * 100.0))
                    .add_attribute(Attribute::Bold),
            ]);
        }
        table::lines(table)
    };
    let mut text = fitted(shown().map(|change| change.name.as_str()), width, color, build);
    let more = found.changed.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

/// Why a difference of two profiles is not one of what they are of alone.
pub fn unlike(before: &ProfileFindings, after: &ProfileFindings) -> Vec<String> {
    let mut unlike = Vec::new();
    if before.program != after.program && !before.program.is_empty() && !after.program.is_empty() {
        unlike.push(format!(
            "These are different programs, {} and {}: functions of one are none of the other's.",
            plain(&before.program),
            plain(&after.program)
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
        let shown =
            changes(&ProfileChanges { compared: 312, changed: vec![] }, &said, Style { width: 80, color: false });
        assert!(shown.contains("all 312 functions compared") && shown.contains("! These are different"), "{shown}");
    }
}
