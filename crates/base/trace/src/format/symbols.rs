//! The names that an event's `format` file gives to numbers.
//!
//! Source: `__print_symbolic` in `include/trace/stages/stage3_trace_output.h`, which the file quotes as C.

use std::collections::BTreeMap;

const BEGIN: &str = "__print_symbolic(";

/// The tables of names in a `format` file's print format, in their order. What is invalid ends a table.
pub fn symbols(format: &str) -> Vec<BTreeMap<u64, String>> {
    let Some((_, mut rest)) = format.split_once("print fmt:") else { return Vec::new() };
    let mut tables = Vec::new();
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let (table, left) = table(after);
        tables.push(table);
        rest = left;
    }
    tables
}

/// The pairs `{ 12, "HLT" }` up to the invalid first thing, and what follows.
fn table(text: &str) -> (BTreeMap<u64, String>, &str) {
    let mut table = BTreeMap::new();
    // Before the pairs stands what they are looked up by.
    let (by, mut rest) = text.split_at(text.find('{').unwrap_or(text.len()));
    if by.contains(BEGIN) {
        return (table, text);
    }
    while let Some((number, name, left)) = pair(rest) {
        table.insert(number, name);
        rest = left;
        let Some(next) = left.trim_start().strip_prefix(',') else { break };
        rest = next.trim_start();
    }
    (table, rest)
}

fn pair(text: &str) -> Option<(u64, String, &str)> {
    let (number, mut rest) = text.strip_prefix('{')?.split_once(',')?;
    let number = number.trim().trim_end_matches(['u', 'U', 'l', 'L']);
    let number = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    // As in C, strings side by side are one.
    let mut name = String::new();
    loop {
        rest = rest.trim_start();
        if let Some(left) = rest.strip_prefix('}') {
            return Some((number, name, left));
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

    #[test]
    fn tables_are_told_apart() {
        let text = "name: kvm_exit\nID: 1\nprint fmt: \"reason %s\", (REC->isa == 1) ? \
            __print_symbolic(REC->reason & 0xffff, { 0, \"EXCEPTION_NMI\" }, { 12, \"HLT\" }) : \
            __print_symbolic(REC->reason, { 0x78UL, \"KVM_EXIT_\" \"hlt\" }), REC->isa ? __print_flags(REC->reason, \"\", \
            { 0x80000000, \"FAILED\" }) : \"\"\n";
        let found = symbols(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].len(), found[0][&12].as_str()), (2, "HLT"));
        assert_eq!((found[1].len(), found[1][&0x78].as_str()), (1, "KVM_EXIT_hlt"));
        assert!(symbols("name: x").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(print fmt:)?(__print_symbolic\\(|[{},\" 0-9xa-fé])*") {
            let _ = symbols(&text);
        }
    }
}
