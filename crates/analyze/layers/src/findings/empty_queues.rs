//! For which part of the time a disk of a running VM had no request: the guest asked for nothing.

use crate::trial::TrialData;
use vmtax_analysis::estimate;
use vmtax_findings::EmptyQueue;

/// Parts into which the traced time is divided, for the interval.
const PARTS: usize = 20;
/// Fewer requests are no load.
const MIN_REQUESTS: usize = 100;

/// Beginning and end of a trace, or of a request, ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub begin: u64,
    pub end: u64,
}

/// The part of the trace in which a disk had no request; `None` without load, and where the trace lost events, since requests may be
/// among them.
pub(super) fn empty_queue(disk: &str, data: &TrialData, traced: Span) -> Option<EmptyQueue> {
    let joined = data.joined.requests.iter().map(|request| Span {
        begin: request.first(),
        end: request.last(),
    });
    let rejected = data.joined.rejected.iter().map(|rejected| Span {
        begin: rejected.begin,
        end: rejected.end,
    });
    let spans: Vec<Span> = joined.chain(rejected).collect();
    if spans.len() < MIN_REQUESTS || !data.losses.is_empty() {
        return None;
    }
    let count = spans.len();
    let seconds = traced.end.checked_sub(traced.begin)? as f64 / data.mhz / 1e6;
    let parts = empty_parts(spans, traced)?;
    Some(EmptyQueue {
        disk: disk.to_owned(),
        per_s: count as f64 / seconds.max(f64::MIN_POSITIVE),
        empty: parts.iter().sum::<f64>() / PARTS as f64,
        by_part: estimate(parts),
    })
}

/// The fraction of each twentieth of the time in which none of the spans lasts; `None` where the time is too short for parts.
fn empty_parts(mut spans: Vec<Span>, traced: Span) -> Option<Vec<f64>> {
    let length = traced.end.checked_sub(traced.begin)? / PARTS as u64;
    if length == 0 {
        return None;
    }
    spans.sort_unstable_by_key(|span| span.begin);
    let mut busy = [0_u64; PARTS];
    let mut until = traced.begin;
    for span in spans {
        let (mut from, to) = (span.begin.max(until), span.end.min(traced.end));
        until = until.max(to);
        while from < to {
            let part = ((from - traced.begin) / length) as usize;
            let Some(sum) = busy.get_mut(part) else { break };
            let end = to.min(traced.begin + length * (part as u64 + 1));
            *sum += end - from;
            from = end;
        }
    }
    let empty = busy.map(|busy| 1.0 - busy as f64 / length as f64);
    Some(empty.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::decode::Loss;
    use crate::join::{Joined, Reason, Rejected};
    use proptest::prelude::*;
    use vmtax_findings::{ClockFinding, RequestKind};

    const TRACED: Span = Span {
        begin: 1000,
        end: 3000,
    };

    #[test]
    fn time_with_several_requests_counts_once_and_in_each_part() {
        let span = |begin, end| Span { begin, end };
        // Two at once, one over the border of two parts, one that began before the trace.
        let spans = vec![
            span(1110, 1120),
            span(1100, 1150),
            span(1290, 1310),
            span(900, 1010),
        ];
        let parts = empty_parts(spans, TRACED).unwrap();
        assert_eq!(parts[..4], [0.9, 0.5, 0.9, 0.9]);
        assert!(parts[4..].iter().all(|part| *part == 1.0), "{parts:?}");
        let none = span(5, 5);
        assert!(empty_parts(Vec::new(), none).is_none());
    }

    /// Two hundred requests in a millisecond, each of which takes a fifth of the time until the next.
    fn data(losses: Vec<Loss>) -> TrialData {
        let rejected = (0..200).map(|number| Rejected {
            begin: number * 5000,
            end: number * 5000 + 1000,
            kind: RequestKind::Read,
            reason: Reason::Violation,
        });
        let joined = Joined {
            rejected: rejected.collect(),
            ..Joined::default()
        };
        TrialData {
            costs: Vec::new(),
            joined,
            losses,
            clock: ClockFinding::default(),
            mhz: 1000.0,
            missing: Vec::new(),
            first: None,
        }
    }

    #[test]
    fn a_queue_is_empty_between_requests_and_of_lost_ones_nothing_is_said() {
        let traced = Span {
            begin: 0,
            end: 1_000_000,
        };
        let found = empty_queue("vda", &data(Vec::new()), traced).unwrap();
        assert_eq!((found.disk.as_str(), found.per_s), ("vda", 200_000.0));
        assert!((found.empty - 0.8).abs() < 1e-9, "{found:?}");
        let interval = found.by_part.interval.unwrap();
        assert!(interval.low > 0.799 && interval.high < 0.801, "{found:?}");
        let lost = Loss {
            from: 1,
            to: 2,
            events: 3,
        };
        assert_eq!(empty_queue("vda", &data(vec![lost]), traced), None);
        let mut few = data(Vec::new());
        few.joined.rejected.truncate(99);
        assert_eq!(empty_queue("vda", &few, traced), None, "no load");
    }

    proptest! {
        #[test]
        fn no_part_is_more_than_empty_or_less_than_full(ends in prop::collection::vec((0_u64..5000, 0_u64..5000), 0..40)) {
            let spans = ends.into_iter().map(|(begin, end)| Span { begin, end }).collect();
            let parts = empty_parts(spans, TRACED).unwrap();
            prop_assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)));
        }
    }
}
