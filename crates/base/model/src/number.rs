//! Units, and numbers for people: three significant digits (four where the first is 1, so that the relative step stays below
//! half a percent) and units scaled to keep them short.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// A range that holds the true value in at least 95 % of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end of the range.
    pub low: f64,
    /// Upper end of the range.
    pub high: f64,
    /// The coverage it really has, 0 to 1, at this number of rounds.
    pub coverage: f64,
}

/// Below this many rounds even the whole range holds the median less than 95 % of the time (93.75 % at five).
pub const FEWEST_ROUNDS: u32 = 6;

/// Text in place of a missing number.
pub const NONE: &str = "–";

/// `v` with three or four significant digits.
pub fn significant(v: f64) -> String {
    let a = v.abs();
    if !v.is_finite() {
        NONE.to_owned()
    } else if a == 0.0 {
        "0".to_owned()
    } else if !(1e-6..1e12).contains(&a) {
        format!("{v:.2e}")
    } else {
        let exponent = a.log10().floor() as i32;
        let digits = if a / 10f64.powi(exponent) < 2.0 { 4 } else { 3 };
        format!(
            "{v:.*}",
            usize::try_from(digits - 1 - exponent).unwrap_or(0)
        )
    }
}

/// A value in its metric's unit: `13.40 k/s`, `49.2 ns`, `12.27 GiB/s`.
pub fn value(unit: Unit, v: f64) -> String {
    match unit {
        Unit::Nanoseconds => scaled(v, 1000.0, &["ns", "µs", "ms", "s"]),
        Unit::Seconds => scaled(v * 1e9, 1000.0, &["ns", "µs", "ms", "s"]),
        Unit::PerSecond => scaled(v, 1000.0, &["/s", "k/s", "M/s", "G/s"]),
        Unit::Mebibytes => scaled(
            v * f64::from(1 << 20),
            1024.0,
            &["B", "KiB", "MiB", "GiB", "TiB"],
        ),
        Unit::Count if v.fract() == 0.0 && v.abs() < 1e4 => format!("{v:.0}"),
        Unit::Count => scaled(v, 1000.0, &["", "k", "M", "G"]),
        Unit::MebibytesPerSecond => {
            scaled(v * 1024.0, 1024.0, &["KiB/s", "MiB/s", "GiB/s", "TiB/s"])
        }
    }
}

/// A number of bytes; nothing for none: `4.00 KiB`.
pub fn bytes(bytes: u64) -> String {
    if bytes == 0 {
        String::new()
    } else {
        value(Unit::Mebibytes, bytes as f64 / f64::from(1 << 20))
    }
}

/// A difference in its metric's unit, with its sign.
pub fn difference(unit: Unit, v: f64) -> String {
    let sign = if v < 0.0 { "−" } else { "+" };
    format!("{sign}{}", value(unit, v.abs()))
}

/// A time given in nanoseconds.
pub fn nanoseconds(ns: f64) -> String {
    value(Unit::Nanoseconds, ns)
}

/// A round time on an axis: without the zeros that say how exact a figure is.
pub fn nanoseconds_tick(ns: f64) -> String {
    let text = nanoseconds(ns);
    match text.split_once(' ') {
        Some((n, unit)) if n.contains('.') => {
            format!("{} {unit}", n.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Both ends of an interval of differences: `−3.47 to −2.83 k/s`, the unit once where both have it.
pub fn difference_range(unit: Unit, i: &Interval) -> String {
    let (low, high) = (difference(unit, i.low), difference(unit, i.high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, a)), Some((_, b))) if a == b => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

fn scaled(mut v: f64, step: f64, units: &[&str]) -> String {
    let mut i = 0;
    while v.abs() >= step && i + 1 < units.len() {
        v /= step;
        i += 1;
    }
    format!("{} {}", significant(v), units[i])
        .trim_end()
        .to_owned()
}

/// An overhead: `×1.280`.
pub fn ratio(r: f64) -> String {
    format!("×{}", factor(r))
}

/// Both ends of an interval of ratios: `1.260–1.310`.
pub fn range(i: &Interval) -> String {
    format!("{}–{}", factor(i.low), factor(i.high))
}

/// Three decimals near 1, where they decide; three digits beyond.
pub fn factor(r: f64) -> String {
    if (0.1..2.0).contains(&r) {
        format!("{r:.3}")
    } else if (2.0..1000.0).contains(&r) {
        let decimals = if r < 9.995 { 2 } else { usize::from(r < 99.95) };
        format!("{r:.decimals$}")
    } else {
        significant(r)
    }
}

/// The longer side of an interval, relative to the figure: `±2 %`.
pub fn half_width(figure: f64, i: &Interval) -> String {
    plus_minus((i.high - figure).max(figure - i.low) / figure)
}

/// A relative spread: `±1.2 %`.
pub fn plus_minus(share: f64) -> String {
    format!("±{}", percent(share))
}

/// A share as percent, one decimal below ten; never broken before its sign.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if !p.is_finite() {
        NONE.to_owned()
    } else if p > 999.0 {
        ">999\u{a0}%".to_owned()
    } else if p.abs() < 9.95 {
        format!("{p:.1}\u{a0}%")
    } else {
        format!("{p:.0}\u{a0}%")
    }
}

/// A count with its thousands set apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// "1 sample", "1,200 samples".
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A time to wait, given in seconds: "40 s", "12 min", "3.2 h".
pub fn duration(s: f64) -> String {
    match s {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A share with its sign: "+4.1 %", "−0.3 %".
pub fn signed_percent(share: f64) -> String {
    if share < 0.0 {
        format!("−{}", percent(-share))
    } else {
        format!("+{}", percent(share))
    }
}

/// Returns the verb that goes with `n` things: "1 sample was", "2 samples were".
pub fn were(n: u64) -> &'static str {
    if n == 1 { "was" } else { "were" }
}

/// Unit of a metric's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per operation.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Time in seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Operations (events, reads, …) per second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Mebibytes (2^20 bytes) per second.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Mebibytes (2^20 bytes).
    #[serde(rename = "MiB")]
    Mebibytes,
    /// Number of things, or a figure of an unknown unit.
    #[serde(rename = "")]
    Count,
}

impl Unit {
    /// The unit's symbol, as printed after a number.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Seconds => "s",
            Unit::PerSecond => "/s",
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::Mebibytes => "MiB",
            Unit::Count => "",
        }
    }
}

/// Direction in which a metric gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Better {
    /// A rate: more is better; the overhead is native over guest.
    Higher,
    /// A cost: less is better; the overhead is guest over native.
    Lower,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_or_four_significant_digits() {
        let cases = [
            (0.0, "0"),
            (13401.17, "13401"),
            (1.28, "1.280"),
            (33.46, "33.5"),
            (0.9523, "0.952"),
            (9.996, "10.00"),
            (-2.5, "-2.50"),
            (3e15, "3.00e15"),
            (f64::NAN, NONE),
        ];
        for (v, text) in cases {
            assert_eq!(significant(v), text);
        }
    }

    #[test]
    fn units_scale() {
        assert_eq!(value(Unit::Nanoseconds, 49.23), "49.2 ns");
        assert_eq!(value(Unit::Nanoseconds, 196_528.0), "196.5 µs");
        assert_eq!(value(Unit::Seconds, 0.0255), "25.5 ms");
        assert_eq!(value(Unit::Seconds, 12.0), "12.00 s");
        assert_eq!(value(Unit::PerSecond, 13401.17), "13.40 k/s");
        assert_eq!(value(Unit::PerSecond, 68.85), "68.8 /s");
        assert_eq!(value(Unit::MebibytesPerSecond, 12569.23), "12.27 GiB/s");
        assert_eq!(value(Unit::MebibytesPerSecond, 0.73), "748 KiB/s");
        assert_eq!(difference(Unit::Nanoseconds, -1500.0), "−1.500 µs");
        assert_eq!(count(1_220_005), "1,220,005");
        assert_eq!(count(999), "999");
    }

    #[test]
    fn the_longer_side_counts() {
        let i = Interval {
            low: 1.9,
            high: 2.4,
            coverage: 0.95,
        };
        assert_eq!(
            (range(&i).as_str(), half_width(2.0, &i).as_str()),
            ("1.900–2.40", "±20\u{a0}%")
        );
        assert_eq!(plus_minus(0.012), "±1.2\u{a0}%");
        for (r, text) in [
            (1.28, "×1.280"),
            (0.9523, "×0.952"),
            (17.64, "×17.6"),
            (106.96, "×107"),
            (2345.0, "×2345"),
        ] {
            assert_eq!(ratio(r), text);
        }
        let seconds = |low, high| {
            difference_range(
                Unit::Seconds,
                &Interval {
                    low,
                    high,
                    coverage: 0.95,
                },
            )
        };
        assert_eq!(seconds(-0.0031, 0.0042), "−3.10 to +4.20 ms");
        assert_eq!(seconds(0.0004, 0.0042), "+400 µs to +4.20 ms");
        assert_eq!(plus_minus(99.0), "±>999\u{a0}%");
    }
}
