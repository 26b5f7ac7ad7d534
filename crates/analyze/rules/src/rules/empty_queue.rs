//! Guests that leave the queue of a disk empty: a faster storage gives them little.

use crate::rule::instruction;
use crate::{Evidence, Finding, Rule};
use vmtax_findings::EmptyQueue;
use vmtax_model::number::{percent, significant};

/// A queue that is empty for less of the time is one of a busy disk.
const MIN_EMPTY: f64 = 0.5;

pub(super) const EMPTY_QUEUE: Rule = Rule {
    id: "empty-queue",
    finds: "a disk of a running VM under load that has no request for half of the traced time and more: the guest asks for little, whatever the storage could do",
    remedies: &[instruction(
        "Have the guest's program keep more requests in flight: more threads, a deeper queue, fewer waits between requests",
        "iostat -x 1 # in the guest: aqu-sz, %util",
    )],
    source: "",
    evaluate: |evidence: &Evidence<'_>| evidence.queues.iter().filter_map(empty).collect(),
};

fn empty(queue: &EmptyQueue) -> Option<Finding> {
    let interval = queue.by_part.interval?;
    let text = format!(
        "The guest leaves the queue of {} empty {} of the time (median of the time's twentieths {}, {:.0} % CI {} to {}), at {} requests a second: the storage is not what limits them.",
        queue.disk,
        percent(queue.empty),
        percent(queue.by_part.median),
        interval.coverage * 100.0,
        percent(interval.low),
        percent(interval.high),
        significant(queue.per_s)
    );
    (queue.empty >= MIN_EMPTY && interval.low >= MIN_EMPTY).then(|| Finding::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;
    use vmtax_findings::Estimate;
    use vmtax_model::Interval;

    fn found(empty: f64, low: f64) -> Vec<String> {
        let interval = Some(Interval {
            low,
            high: empty + 0.02,
            coverage: 0.959,
        });
        let queue = EmptyQueue {
            disk: "vda".to_owned(),
            per_s: 1200.0,
            empty,
            by_part: Estimate {
                median: empty,
                interval,
            },
        };
        let evidence = Evidence {
            queues: &[queue],
            ..Evidence::default()
        };
        assert_eq!(crate::evaluate(&evidence), [], "no cause");
        let found = settings(&evidence).into_iter();
        found
            .map(|one| one.finding.replace('\u{a0}', " "))
            .collect()
    }

    #[test]
    fn a_guest_that_asks_for_little_is_found_with_an_interval() {
        assert_eq!(
            found(0.83, 0.81),
            [
                "The guest leaves the queue of vda empty 83 % of the time (median of the time's twentieths 83 %, 96 % CI 81 % to 85 %), at 1200 requests a second: the storage is not what limits them."
            ]
        );
        assert_eq!(found(0.3, 0.28), [""; 0]);
        assert_eq!(found(0.55, 0.2), [""; 0], "it may be less");
    }
}
