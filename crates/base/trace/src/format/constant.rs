//! Constants of C, as print formats quote them: `0x040 + 0`, `(1 << 3)`, `(u32)-1`.

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

/// The value of a constant expression, as the kernel's `unsigned long` has it; `None` where it has a name, or is cut off.
pub(super) fn constant(text: &str) -> Option<u64> {
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
