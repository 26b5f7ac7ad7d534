//! Thresholds that a person wrote for a check: thresholds within their bounds, or an error.

use vmtax_findings::Thresholds;
use vmtax_model::Metric;

pub fn run(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let Ok(thresholds) = Thresholds::from_toml(text) else {
        return;
    };
    assert!((0.5..1.0).contains(&thresholds.confidence));
    assert!(
        Metric::ALL
            .iter()
            .all(|metric| (0.0..=100.0).contains(&thresholds.for_metric(*metric)))
    );
}
