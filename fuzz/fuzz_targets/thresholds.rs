//! Thresholds that a person wrote for a check: thresholds within their bounds, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmtax_model::{Metric, Thresholds};

fuzz_target!(|text: &str| {
    let Ok(thresholds) = Thresholds::from_toml(text) else { return };
    assert!((0.5..1.0).contains(&thresholds.confidence));
    assert!(Metric::ALL.iter().all(|metric| (0.0..=100.0).contains(&thresholds.of(*metric))));
});
