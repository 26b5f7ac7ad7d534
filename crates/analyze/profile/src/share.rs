//! Shares of samples.

use vmtax_model::SampleShare;

/// Half of the two-sided 95 % of a normal distribution, standard deviations.
const Z: f64 = 1.96;

/// A share of samples with its interval at 95 %.
pub fn share(part: u64, of: u64) -> SampleShare {
    share_within(Z, part, of)
}

/// A share of samples with its interval of `z` standard deviations of a normal distribution to both sides (Wilson's, which
/// holds for few samples and for shares near 0).
pub(crate) fn share_within(z: f64, part: u64, of: u64) -> SampleShare {
    let (k, n) = (part as f64, of.max(1) as f64);
    let p = k / n;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    SampleShare {
        samples: part,
        share: p,
        low: (middle - half).max(0.0),
        high: (middle + half).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_wilsons_interval() {
        let half = share(50, 100);
        assert!(
            (half.low - 0.4038).abs() < 1e-4 && (half.high - 0.5962).abs() < 1e-4,
            "{half:?}"
        );
        let none = share(0, 100);
        assert!(
            none.low == 0.0 && (none.high - 0.0370).abs() < 1e-4,
            "{none:?}"
        );
        assert_eq!(share(0, 0).share, 0.0);
    }
}
