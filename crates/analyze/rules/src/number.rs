//! Figures within sentences.

/// A ratio: `1.28 times`, `33.0 times`.
pub(crate) fn times(ratio: f64) -> String {
    format!("{} times", significant(ratio))
}

/// About three significant digits.
pub(crate) fn significant(x: f64) -> String {
    let decimals = match x.abs() {
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        _ => 2,
    };
    format!("{x:.decimals$}")
}

/// A time given in nanoseconds.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}
