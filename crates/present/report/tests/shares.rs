//! The report of share methods: which is fastest, or that it is not known.

#![allow(clippy::unwrap_used)]

mod common;

use common::studies::shared;

/// The answer, with variants of so many times the cost of the first.
fn answer(rounds: u32, costs: &[f64]) -> String {
    let recording = shared(rounds, costs);
    let found = vmtax_analysis::shares(&recording.plan, &recording.trials);
    vmtax_report::shares::report(&recording, &found).answer.replace('\u{a0}', " ")
}

#[test]
fn without_intervals_the_fastest_so_far_is_named_and_nothing_is_decided() {
    let faster = answer(3, &[0.5, 1.3]);
    assert!(faster.contains("undecided after 3 rounds; the fastest so far is v1, ×0.5"), "{faster}");
    let base = answer(3, &[1.5, 1.3]);
    assert!(base.contains("undecided after 3 rounds; the fastest so far is v0"), "{base}");
}

#[test]
fn with_intervals_a_method_is_fastest_or_none_is() {
    let faster = answer(9, &[0.5, 1.3]);
    assert!(
        faster.contains("v1 is fastest") && faster.contains("95 % CI") && !faster.contains("undecided"),
        "{faster}"
    );
    let none = answer(9, &[1.5, 1.3]);
    assert!(none.contains("no method is significantly faster than v0"), "{none}");
}
