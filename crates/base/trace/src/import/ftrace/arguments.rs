//! Finds values in what an event prints.

/// Returns the word behind `before`, up to the next blank, comma or closing parenthesis.
pub(super) fn word<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    let rest = rest.trim_start();
    let end = rest.find([' ', ',', ')']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|word| !word.is_empty())
}

/// The decimal number behind `before`.
pub(super) fn decimal(text: &str, before: &str) -> Option<u64> {
    word(text, before)?.parse().ok()
}

/// Returns the decimal number behind `before`, which may be negative.
pub(super) fn signed(text: &str, before: &str) -> Option<u64> {
    word(text, before)?
        .parse::<i64>()
        .ok()
        .map(|number| number as u64)
}

/// The hexadecimal number behind `before`, with or without `0x`.
pub(super) fn hex(text: &str, before: &str) -> Option<u64> {
    from_hex(word(text, before)?)
}

pub(super) fn from_hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}
