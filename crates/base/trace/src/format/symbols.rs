//! The names that an event's `format` file gives to numbers.
//!
//! Source: `__print_symbolic` in `include/trace/stages/stage3_trace_output.h`, which the file quotes as C.

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

/// Parentheses and signs within each other beyond this are not read: a file that somebody brings may have any number.
const MAX_DEPTH: u32 = 32;

/// A binary operator.
struct Operator {
    sign: &'static str,
    precedence: u32,
    result: fn(u64, u64) -> Option<u64>,
}

const fn operator(
    sign: &'static str,
    precedence: u32,
    result: fn(u64, u64) -> Option<u64>,
) -> Operator {
    Operator {
        sign,
        precedence,
        result,
    }
}

const OPERATORS: [Operator; 8] = [
    operator("|", 1, |a, b| Some(a | b)),
    operator("^", 2, |a, b| Some(a ^ b)),
    operator("&", 3, |a, b| Some(a & b)),
    operator("<<", 4, |a, b| a.checked_shl(u32::try_from(b).ok()?)),
    operator(">>", 4, |a, b| a.checked_shr(u32::try_from(b).ok()?)),
    operator("+", 5, |a, b| Some(a.wrapping_add(b))),
    operator("-", 5, |a, b| Some(a.wrapping_sub(b))),
    operator("*", 6, |a, b| Some(a.wrapping_mul(b))),
];

/// The value of a constant expression such as `0x040 + 0`, `(1 << 3)`, `(u32)-1`, as the kernel's `unsigned long` has it; `None`
/// where it has a name, or is cut off.
fn constant(text: &str) -> Option<u64> {
    let mut reader = Reader {
        rest: text,
        depth: 0,
    };
    let value = reader.binary(0)?;
    reader.rest.trim().is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
    depth: u32,
}

impl Reader<'_> {
    /// An expression whose operators have at least this precedence.
    fn binary(&mut self, precedence: u32) -> Option<u64> {
        let mut value = self.unary()?;
        loop {
            let rest = self.rest.trim_start();
            let operators = OPERATORS
                .iter()
                .filter(|operator| operator.precedence >= precedence);
            let mut operators = operators
                .filter_map(|operator| Some((operator, rest.strip_prefix(operator.sign)?)));
            let Some((operator, left)) = operators.next() else {
                return Some(value);
            };
            self.rest = left;
            value = (operator.result)(value, self.binary(operator.precedence + 1)?)?;
        }
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        let value = if self.depth > MAX_DEPTH {
            None
        } else {
            self.signed()
        };
        self.depth -= 1;
        value
    }

    fn signed(&mut self) -> Option<u64> {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        let after = &self.rest[first.len_utf8()..];
        match first {
            '-' | '~' | '+' => {
                self.rest = after;
                let value = self.unary()?;
                Some(match first {
                    '-' => value.wrapping_neg(),
                    '~' => !value,
                    _ => value,
                })
            }
            '(' => match after
                .split_once(')')
                .and_then(|(name, left)| Some((integer_type(name)?, left)))
            {
                Some((to, left)) => {
                    self.rest = left;
                    self.unary().map(|value| to.cast(value))
                }
                None => {
                    self.rest = after;
                    let value = self.binary(0)?;
                    self.rest = self.rest.trim_start().strip_prefix(')')?;
                    Some(value)
                }
            },
            _ => {
                let end = self
                    .rest
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(self.rest.len());
                let (number, left) = self.rest.split_at(end);
                self.rest = left;
                literal(number)
            }
        }
    }
}

/// A number without a sign.
fn literal(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    if let Some(digits) = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        return u64::from_str_radix(digits, 16).ok();
    }
    let radix = if digits.len() > 1 && digits.starts_with('0') {
        8
    } else {
        10
    };
    u64::from_str_radix(digits, radix).ok()
}

/// An integer type that a number is cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IntegerType {
    bits: u32,
    is_signed: bool,
}

impl IntegerType {
    fn cast(self, value: u64) -> u64 {
        let unused = 64 - self.bits;
        let high = value << unused;
        if self.is_signed {
            (high as i64 >> unused) as u64
        } else {
            high >> unused
        }
    }
}

fn integer_type(name: &str) -> Option<IntegerType> {
    let name = name.trim().trim_start_matches("__");
    let (is_signed, bits) = match name.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["u8" | "uint8_t"] | ["unsigned", "char"] => (false, 8),
        ["s8" | "int8_t"] | ["signed", "char"] => (true, 8),
        ["u16" | "uint16_t"] | ["unsigned", "short"] => (false, 16),
        ["s16" | "int16_t" | "short"] => (true, 16),
        ["u32" | "uint32_t" | "unsigned"] | ["unsigned", "int"] => (false, 32),
        ["s32" | "int32_t" | "int"] => (true, 32),
        ["u64" | "uint64_t" | "size_t"] | ["unsigned", "long"] | ["unsigned", "long", "long"] => {
            (false, 64)
        }
        ["s64" | "int64_t" | "long"] | ["long", "long"] => (true, 64),
        _ => return None,
    };
    Some(IntegerType { bits, is_signed })
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

    #[test]
    fn constants_are_those_of_c() {
        let cases = [
            ("12", 12),
            (" 0x78UL ", 0x78),
            ("010", 8),
            ("0", 0),
            ("0x040 + 16", 0x50),
            ("(0x40)", 0x40),
            ("((1) << (3))", 8),
            ("1 << 3 | 1", 9),
            ("1 + 2 * 3 - 4", 3),
            ("-1", u64::MAX),
            ("~0xffU", !0xff),
            ("(u32)-1", 0xffff_ffff),
            ("(int)0xffffffff", u64::MAX),
            ("(unsigned int) (0x40 + 1)", 0x41),
        ];
        for (text, value) in cases {
            assert_eq!(constant(text), Some(value), "{text}");
        }
        for text in [
            "",
            "RPC_TASK",
            "0x",
            "1 +",
            "(1",
            "1)",
            "1 || 2",
            "1 << 64",
            "08",
            "sizeof(int)",
            "é",
            "(é)1",
        ] {
            assert_eq!(constant(text), None, "{text}");
        }
        assert_eq!(constant(&"(".repeat(100_000)), None);
        assert_eq!(constant(&"-".repeat(100_000)), None);
    }

    proptest! {
        #[test]
        fn sums_and_shifts_are_their_values(a in 0..u64::from(u32::MAX), b in 0..1000u64, shift in 0..16u32) {
            prop_assert_eq!(constant(&format!("{a:#x} + {b}")), Some(a + b));
            prop_assert_eq!(constant(&format!("({a} << {shift})")), Some(a << shift));
        }

        #[test]
        fn any_constant_is_survived(text in "[-0-9a-fxuUL()~+*&|<>^ é]{0,40}") {
            let _ = constant(&text);
        }
    }
}
