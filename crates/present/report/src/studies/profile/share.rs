//! Fractions of samples and of time, as every table of a profile writes them.

use vmtax_model::SampleShare;

/// With one decimal, so that the columns of a table line up.
pub fn percent(share: f64) -> String {
    // A sum of nothing is -0.
    format!("{:.1} %", share * 100.0 + 0.0)
}

/// The 95 % confidence interval in percent: "4.1–5.3".
pub fn range(share: &SampleShare) -> String {
    format!("{:.1}–{:.1}", share.low * 100.0, share.high * 100.0)
}
