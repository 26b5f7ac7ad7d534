//! Tests of the findings about a command's requests, with synthetic requests.

use super::*;
use crate::disk::request::GuestRequest;
use crate::events::trace_reader::Loss;
use crate::join::joined::{Joined, Reason, Rejected};
use vmtax_model::ClockFinding;
use vmtax_trace::Moment;

fn part(kind: RequestKind, bytes: u64, from: u64, to: u64) -> GuestRequest {
    let moment = |at| Moment {
        at,
        cpu: 0,
        tid: 1,
        interrupt: false,
    };
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
    let joined = Joined {
        parts,
        rejected,
        ..Joined::default()
    };
    let clock = ClockFinding {
        bound_ns: 1.0,
        source: String::new(),
        drift_ns: 0.0,
        violations: 0,
    };
    let losses = vec![Loss {
        from: 501_000,
        to: u64::MAX,
        events: 3,
    }];
    // A thousand ticks a microsecond.
    let read = TrialData {
        costs: Vec::new(),
        joined,
        losses,
        clock,
        mhz: 1000.0,
        missing: Vec::new(),
        first: Some(1_000),
    };
    let (disk, columns) = of_device(DeviceClass::Disk, Machine::TCG, 2.0, read);
    assert_eq!((disk.wall_s, disk.under_way_s), (2.0, 8e-6));
    assert_eq!(
        disk.observed_s, 500e-6,
        "from the first event until the buffer was full"
    );
    let kinds = disk.kinds.all();
    let rows: Vec<_> = kinds
        .iter()
        .map(|k| {
            (
                k.kind,
                k.count.number(),
                k.followed,
                k.bytes,
                k.sizes.clone(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (RequestKind::Write, 2, 0, 12_288, vec![(4096, 1), (8192, 1)]),
            (RequestKind::Flush, 1, 0, 0, vec![(0, 1)])
        ]
    );
    assert_eq!(kinds[0].time.max_ns, 2_500.0);
    assert_eq!(columns.iter().map(|c| c.matched.operations).sum::<u64>(), 3);
    assert!(
        columns
            .iter()
            .all(|c| c.matched.lost_events == 3 && c.clock.violations == c.matched.operations)
    );
}
