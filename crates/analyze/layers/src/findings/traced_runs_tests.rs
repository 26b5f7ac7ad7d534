//! Tests of the common code for single traced runs, with synthetic runs.

use super::*;
use crate::findings::column::column;
use vmtax_model::{Checkpoint, Estimate, Layer, Row, State, Summary};

#[test]
fn time_with_several_in_flight_counts_once() {
    let time_in_flight = |spans: &[(u64, u64)]| in_flight(spans.iter().copied());
    assert_eq!(time_in_flight(&[]), 0);
    assert_eq!(time_in_flight(&[(10, 20), (40, 50)]), 20);
    // In any order: one inside another, one that overlaps, one that follows at once.
    assert_eq!(
        time_in_flight(&[(30, 40), (12, 15), (10, 20), (18, 30)]),
        30
    );
    // A completion before its issue, as clocks may have it, is no time.
    assert_eq!(time_in_flight(&[(20, 10)]), 0);
}

/// Advice is about traced requests, and a run is more than its requests.
#[test]
fn the_gain_of_advice_is_at_most_what_requests_are_of_the_run() {
    let mut main = column(Machine::TCG, "writes", &ColumnSums::default());
    let time = Summary {
        mean_ns: 80e3,
        ..Summary::default()
    };
    main.traced = Summary {
        mean_ns: 100e3,
        ..Summary::default()
    };
    (main.matched.operations, main.matched.joined) = (1, 1);
    main.rows = vec![Row {
        from: Checkpoint::KvmNotify,
        to: Checkpoint::QemuWake,
        layer: Layer::Notify,
        state: State::Runnable,
        label: String::new(),
        time,
        mean: Estimate {
            median: time.mean_ns,
            interval: None,
        },
        percent: 80.0,
        count: 1,
        below_bound: false,
        events: None,
        corrected_ns: None,
    }];
    let plan = Plan::new("exec", 1, vec![Machine::TCG], Vec::new());
    let host = vmtax_model::testing::host(vmtax_model::KvmClass::Absent);
    let small = column(Machine::KVM, "reads", &ColumnSums::default());
    let columns = [small, main];
    let advice_for = |part: f64| {
        advice(&plan, &host, &columns, "Packets", |machine| {
            (machine == Machine::TCG).then_some(part)
        })
    };
    let (whole, tenth) = (advice_for(1.0), advice_for(0.1));
    assert!(!whole.is_empty() && whole[0].gain > 0.5, "{whole:?}");
    assert!(
        (tenth[0].gain - whole[0].gain / 10.0).abs() < 1e-9,
        "{tenth:?}"
    );
    assert!(
        tenth[0].finding.ends_with(
            "Packets are in flight for 10.0 % of the run: faster ones save at most that."
        ),
        "{tenth:?}"
    );
    assert_eq!(
        (advice_for(7.0)[0].gain, advice_for(f64::NAN)[0].gain),
        (whole[0].gain, 0.0),
        "a run without a length"
    );
    assert!(advice(&plan, &host, &[], "Packets", |_| Some(1.0)).is_empty());
}
