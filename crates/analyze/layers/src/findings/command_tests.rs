//! What requests of a command's say, on made-up ones.

use super::*;
use crate::events::trace_reader::Loss;
use crate::findings::column_data::ColumnData;
use crate::join::joined::{Joined, Reason, Rejected};
use vmtax_model::{Checkpoint, ClockFinding, Estimate, Layer, Row, State, Summary};
use vmtax_trace::Moment;

fn part(kind: RequestKind, bytes: u64, from: u64, to: u64) -> GuestRequest {
    let moment = |at| Moment { at, cpu: 0, tid: 1, interrupt: false };
    GuestRequest {
        offset: from * 4096,
        bytes,
        kind,
        inserted: None,
        issue: moment(from),
        complete: moment(to),
        alone: false,
    }
}

#[test]
fn time_with_several_under_way_counts_once() {
    let spans = |list: &[(u64, u64)]| -> Vec<GuestRequest> {
        list.iter().map(|&(from, to)| part(RequestKind::Read, 4096, from, to)).collect()
    };
    assert_eq!(in_flight(&spans(&[])), 0);
    assert_eq!(in_flight(&spans(&[(10, 20), (40, 50)])), 20);
    // In any order: one inside another, one that overlaps, one that follows at once.
    assert_eq!(in_flight(&spans(&[(30, 40), (12, 15), (10, 20), (18, 30)])), 30);
    // A completion before its issue, as clocks may have it, is no time.
    assert_eq!(in_flight(&spans(&[(20, 10)])), 0);
}

/// Advice is about traced requests, and a run is more than its requests.
#[test]
fn the_gain_of_advice_is_at_most_what_requests_are_of_the_run() {
    let mut columns = [column(Machine::TCG, "writes", &ColumnData::default())];
    let time = Summary { mean_ns: 80e3, ..Summary::default() };
    columns[0].traced = Summary { mean_ns: 100e3, ..Summary::default() };
    (columns[0].matched.operations, columns[0].matched.joined) = (1, 1);
    columns[0].rows = vec![Row {
        from: Checkpoint::KvmNotify,
        to: Checkpoint::QemuWake,
        layer: Layer::Notify,
        state: State::Runnable,
        label: String::new(),
        time,
        mean: Estimate { median: time.mean_ns, interval: None },
        percent: 80.0,
        count: 1,
        below_bound: false,
        events: None,
        corrected_ns: None,
    }];
    let plan = Plan::new("exec", 1, vec![Machine::TCG], Vec::new());
    let host = vmtax_model::testing::host(vmtax_model::KvmClass::Absent);
    let of = |in_flight: f64| {
        let disk =
            DiskUse { machine: Machine::TCG, wall_s: 1.0, observed_s: 1.0, under_way_s: in_flight, kinds: Vec::new() };
        advice(&plan, &host, &[disk], &columns)
    };
    let (whole, tenth) = (of(1.0), of(0.1));
    assert!(!whole.is_empty() && whole[0].gain > 0.5, "{whole:?}");
    assert!((tenth[0].gain - whole[0].gain / 10.0).abs() < 1e-9, "{tenth:?}");
    assert!(
        tenth[0].finding.ends_with("Requests are in flight for 10.0 % of the run: faster ones save at most that."),
        "{tenth:?}"
    );
}

#[test]
fn kinds_are_told_apart_and_what_is_not_followed_is_counted() {
    let parts = vec![
        part(RequestKind::Write, 4096, 1_000, 2_000),
        part(RequestKind::Write, 8192, 1_500, 4_000),
        part(RequestKind::Flush, 0, 4_000, 9_000),
    ];
    let violated = |part: &GuestRequest| Rejected {
        begin: part.issue.at,
        end: part.complete.at,
        kind: part.kind,
        reason: Reason::Violation,
    };
    let rejected = parts.iter().map(violated).collect();
    let joined = Joined { parts, rejected, ..Joined::default() };
    let clock = ClockFinding { bound_ns: 1.0, source: String::new(), drift_ns: 0.0, violations: 0 };
    let losses = vec![Loss { from: 501_000, to: u64::MAX, events: 3 }];
    // A thousand ticks a microsecond.
    let read =
        TrialData { costs: Vec::new(), joined, losses, clock, mhz: 1000.0, missing: Vec::new(), first: Some(1_000) };
    let (disk, columns) = disk(Machine::TCG, 2.0, read);
    assert_eq!((disk.wall_s, disk.under_way_s), (2.0, 8e-6));
    assert_eq!(disk.observed_s, 500e-6, "from the first event until the buffer was full");
    let rows: Vec<_> = disk.kinds.iter().map(|k| (k.kind, k.requests, k.followed, k.bytes, k.sizes.clone())).collect();
    assert_eq!(
        rows,
        [(RequestKind::Write, 2, 0, 12_288, vec![(4096, 1), (8192, 1)]), (RequestKind::Flush, 1, 0, 0, vec![(0, 1)])]
    );
    assert_eq!(disk.kinds[0].time.max_ns, 2_500.0);
    assert_eq!(columns.iter().map(|c| c.matched.operations).sum::<u64>(), 3);
    assert!(columns.iter().all(|c| c.matched.lost_events == 3 && c.clock.violations == c.matched.operations));
}
