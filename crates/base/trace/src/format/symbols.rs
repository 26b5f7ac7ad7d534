//! The names that an event's `format` file gives to numbers.
//!
//! Source: `__print_symbolic` in `include/trace/stages/stage3_trace_output.h`, which the file quotes as C.

use super::constant::constant;
use std::collections::BTreeMap;

const BEGIN: &str = "__print_symbolic(";

/// A table of names in a print format: a `__print_symbolic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbols {
    /// The records that it is of.
    pub when: SymbolsCondition,
    /// The names by number, as the kernel's `unsigned long` has it.
    pub names: BTreeMap<u64, String>,
}

/// The condition of a table that a print format chooses by `?:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymbolsCondition {
    /// The table is of all records.
    Always,
    /// A field has this value.
    Equal(String, u64),
    /// A field has any other value.
    NotEqual(String, u64),
    /// The condition has another form.
    Unknown,
}

/// The tables of names in a `format` file's print format, in their order. What is invalid ends a table; a pair whose
/// number has a name of its own (an `enum`) is left out.
pub fn symbols(format: &str) -> Vec<Symbols> {
    let Some((_, mut rest)) = format.split_once("print fmt:") else {
        return Vec::new();
    };
    let mut tables: Vec<Symbols> = Vec::new();
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let when = condition(before, tables.last().map(|table| &table.when));
        let (names, left) = table(after);
        tables.push(Symbols { when, names });
        rest = left;
    }
    tables
}

/// The condition before a table, given that of the table before it.
fn condition(before: &str, last: Option<&SymbolsCondition>) -> SymbolsCondition {
    let before = before.trim();
    // `? __print_symbolic(…) : __print_symbolic(…)`
    if let Some(last) = last.filter(|_| {
        before
            .strip_prefix(')')
            .is_some_and(|rest| rest.trim() == ":")
    }) {
        return match last.clone() {
            SymbolsCondition::Equal(field, value) => SymbolsCondition::NotEqual(field, value),
            SymbolsCondition::NotEqual(field, value) => SymbolsCondition::Equal(field, value),
            SymbolsCondition::Always | SymbolsCondition::Unknown => SymbolsCondition::Unknown,
        };
    }
    let argument = before.rsplit(',').next().unwrap_or_default().trim();
    if argument.is_empty() {
        return SymbolsCondition::Always;
    }
    argument
        .strip_suffix('?')
        .and_then(comparison)
        .unwrap_or(SymbolsCondition::Unknown)
}

/// `(REC->isa == 1)`, or the other way round.
fn comparison(text: &str) -> Option<SymbolsCondition> {
    let condition: fn(String, u64) -> SymbolsCondition = if text.contains("==") {
        SymbolsCondition::Equal
    } else {
        SymbolsCondition::NotEqual
    };
    let (left, right) = text.split_once("==").or_else(|| text.split_once("!="))?;
    let [left, right] = [left, right].map(|side| side.trim().trim_matches(['(', ')']).trim());
    let (field, value) = match (field(left), field(right)) {
        (Some(field), None) => (field, constant(right)?),
        (None, Some(field)) => (field, constant(left)?),
        _ => return None,
    };
    Some(condition(field.to_owned(), value))
}

fn field(text: &str) -> Option<&str> {
    let name = text.strip_prefix("REC->")?;
    (!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        .then_some(name)
}

/// The pairs `{ 12, "HLT" }` up to the invalid first thing, and what follows.
fn table(text: &str) -> (BTreeMap<u64, String>, &str) {
    let mut table = BTreeMap::new();
    // Before the pairs stands what they are looked up by.
    let (by, mut rest) = text.split_at(text.find('{').unwrap_or(text.len()));
    if by.contains(BEGIN) || !is_balanced(by) {
        return (table, text);
    }
    while let Some((number, name, left)) = pair(rest) {
        if let Some(number) = number {
            // As in the kernel, the first of two names counts.
            table.entry(number).or_insert(name);
        }
        rest = left.trim_start();
        let Some(next) = rest.strip_prefix(',') else {
            break;
        };
        rest = next.trim_start();
    }
    (table, rest)
}

/// Returns `false` where a parenthesis is closed that was not opened: after it something else begins.
fn is_balanced(text: &str) -> bool {
    let mut open = 0_usize;
    text.bytes().all(|byte| match byte {
        b'(' => {
            open += 1;
            true
        }
        b')' if open == 0 => false,
        b')' => {
            open -= 1;
            true
        }
        _ => true,
    })
}

/// A pair's number, where it can be read, its name, and what follows the pair.
fn pair(text: &str) -> Option<(Option<u64>, String, &str)> {
    let (number, mut rest) = text.strip_prefix('{')?.split_once(',')?;
    if number.contains(['{', '}', '"']) {
        return None;
    }
    // As in C, strings side by side are one.
    let mut name = String::new();
    loop {
        rest = rest.trim_start();
        if let Some(left) = rest.strip_prefix('}') {
            return Some((constant(number), name, left));
        }
        let (piece, left) = rest.strip_prefix('"')?.split_once('"')?;
        name.push_str(piece);
        rest = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn equal(field: &str, value: u64) -> SymbolsCondition {
        SymbolsCondition::Equal(field.to_owned(), value)
    }

    fn not_equal(field: &str, value: u64) -> SymbolsCondition {
        SymbolsCondition::NotEqual(field.to_owned(), value)
    }

    #[test]
    fn tables_are_told_apart() {
        let text = "name: kvm_exit\nID: 1\nprint fmt: \"reason %s\", (REC->isa == 1) ? \
            __print_symbolic(REC->reason & 0xffff, { 0, \"EXCEPTION_NMI\" }, { 12, \"HLT\" }) : \
            __print_symbolic(REC->reason, { 0x78UL, \"KVM_EXIT_\" \"hlt\" }), REC->isa ? __print_flags(REC->reason, \"\", \
            { 0x80000000, \"FAILED\" }) : \"\"\n";
        let found = symbols(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].names.len(), found[0].names[&12].as_str()),
            (2, "HLT")
        );
        assert_eq!(
            (found[1].names.len(), found[1].names[&0x78].as_str()),
            (1, "KVM_EXIT_hlt")
        );
        assert_eq!(
            (&found[0].when, &found[1].when),
            (&equal("isa", 1), &not_equal("isa", 1))
        );
        assert!(symbols("name: x").is_empty());
    }

    #[test]
    fn a_condition_is_read_in_each_order_and_an_odd_one_is_unknown() {
        let condition_of = |text: &str| {
            let text = format!("print fmt: \"%s\", {text}__print_symbolic(REC->r, {{ 1, \"a\" }})");
            symbols(&text).pop().unwrap().when
        };
        assert_eq!(condition_of(""), SymbolsCondition::Always);
        assert_eq!(
            (
                condition_of("(2 == REC->isa) ? "),
                condition_of("REC->isa != (1) ?")
            ),
            (equal("isa", 2), not_equal("isa", 1))
        );
        for odd in [
            "REC->isa ? ",
            "REC->isa == 1 && REC->x ? ",
            "REC->errno < 0 ? \"error\" : ",
            "(REC->a == REC->b) ?",
        ] {
            assert_eq!(condition_of(odd), SymbolsCondition::Unknown, "{odd}");
        }
        let swapped = symbols(
            "print fmt: \"\", (REC->isa != 1) ? __print_symbolic(REC->r, { 1, \"a\" }) : __print_symbolic(REC->r, { 1, \"b\" })",
        );
        assert_eq!(
            (&swapped[0].when, &swapped[1].when),
            (&not_equal("isa", 1), &equal("isa", 1))
        );
    }

    #[test]
    fn sums_are_numbers_and_names_of_an_enum_are_left_out() {
        let text = "print fmt: \"%s\", __print_symbolic(REC->r, { 0x040 + 1, \"DB excp\" }, { RPC_TASK, \"x\" }, \
            { (1 << 3), \"eight\" }, { -1, \"none\" }, { 8, \"later\" })";
        let names = symbols(text).remove(0).names;
        let expected = [(8, "eight"), (0x41, "DB excp"), (u64::MAX, "none")];
        assert_eq!(
            names,
            expected
                .map(|(number, name)| (number, name.to_owned()))
                .into()
        );
    }

    #[test]
    fn a_table_without_pairs_takes_none_of_what_follows() {
        let text = "print fmt: \"%s\", __print_symbolic(REC->r), __print_flags(REC->f, \"\", { 1, \"flag\" })";
        assert_eq!(
            symbols(text),
            [Symbols {
                when: SymbolsCondition::Always,
                names: BTreeMap::new()
            }]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(print fmt:)?(__print_symbolic\\(|REC->|==|[{}(),?:\" 0-9xa-fé])*") {
            let _ = symbols(&text);
        }
    }
}
