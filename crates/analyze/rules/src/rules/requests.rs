//! Requests through the layers: the fastest variant, what tracing adds, guests that leave the queue of a disk empty.

use crate::evidence::title;
use crate::rule::instruction;
use crate::{Evidence, Finding, Rule};
use vmtax_findings::{Difference, EmptyQueue, LayerColumn, Verdict};
use vmtax_model::number::{nanoseconds, percent, significant};
use vmtax_model::{ChangeCost, Remedy, SettingPlace};

/// Traced over other requests: above, times under tracing are no times of the VM's.
const MAX_OVERHEAD: f64 = 1.10;

pub(super) const FASTER_VARIANT: Rule = Rule {
    id: "faster-variant",
    finds: "the variant whose requests are shown to be fastest, if faster than the first variant's",
    remedies: &[Remedy {
        place: SettingPlace::QemuArgument,
        setting: "SETTING",
        value: "VALUE",
        action: "Use it",
        line: "SETTING=VALUE",
        cost: Some(ChangeCost::VmRestart),
        read_back: "QMP query-named-block-nodes, qom-get of the device",
        undo: "BASE",
    }],
    source: "",
    evaluate: |evidence| faster_variant(evidence).into_iter().collect(),
};

pub(super) const TRACING_OVERHEAD: Rule = Rule {
    id: "tracing-overhead",
    finds: "requests that tracing makes at least a tenth longer: by the calibration of its events, without one by the interval of the ratio to untraced requests",
    remedies: &[],
    source: "",
    evaluate: |evidence| {
        let columns = evidence.columns.iter().filter_map(tracing_overhead);
        let most = columns.max_by(|a, b| a.0.total_cmp(&b.0));
        most.map(|(_, text)| Finding::new(text))
            .into_iter()
            .collect()
    },
};

/// The factor by which tracing makes requests longer, and that in words. Rounds with and without it differ by other load,
/// too: it is blamed by its calibration alone, and without one by an interval.
fn tracing_overhead(column: &LayerColumn) -> Option<(f64, String)> {
    const USE: &str = "take fractions from the rows, times from the untraced control";
    let traced = column.traced.mean_ns;
    let (ratio, text) = match &column.corrected {
        Some(corrected) => {
            let (ns, title) = (traced - corrected.total.mean_ns, title(column));
            let (part, of) = (nanoseconds(ns), nanoseconds(traced));
            let text = format!(
                "Tracing takes {part} of the {of} of a traced request on {title}, by its calibration: {USE}."
            );
            (traced / corrected.total.mean_ns, text)
        }
        None => {
            let (ratio, interval) = (column.observer?, column.observer?.interval?);
            let text = format!(
                "Traced requests on {} take {:.2} times as long as untraced ones (95 % CI {:.2} to {:.2}): {USE}.",
                title(column),
                ratio.median,
                interval.low,
                interval.high
            );
            (interval.low, text)
        }
    };
    (ratio > MAX_OVERHEAD).then_some((ratio, text))
}

fn faster_variant(evidence: &Evidence<'_>) -> Option<Finding> {
    let differences = evidence.differences.iter();
    let faster = differences.filter(|d| d.comparison.verdict == Verdict::Faster);
    let median = |difference: &Difference| difference.comparison.ratio.median;
    let best = faster.min_by(|a, b| median(a).total_cmp(&median(b)))?;
    let (ratio, difference) = (best.comparison.ratio, best.comparison.difference?);
    let interval = ratio.interval?;
    let variants = evidence.plan.map_or(&[][..], |plan| &plan.variants);
    // As a variant of a comparison has several settings: SETTING=VALUE,SETTING=VALUE.
    let set = variants.iter().find(|v| v.name == best.variant).map(|v| {
        let set = v.set.iter();
        let words = set.map(|(key, value)| format!("{key}={}", value.replace(',', ",,")));
        words.collect::<Vec<_>>().join(",")
    });
    let set = set.unwrap_or_else(|| best.variant.clone());
    let set = set.escape_default().to_string();
    let (setting, value) = set.split_once('=').unwrap_or((&set, ""));
    Some(Finding {
        text: format!(
            "A request on {} takes {:.2} times as long with {} as with {} ({:.2} to {:.2}), {} less.",
            best.machine,
            ratio.median,
            best.variant.escape_default(),
            best.base.escape_default(),
            interval.low,
            interval.high,
            nanoseconds(-difference.median)
        ),
        gain: 1.0 - ratio.median,
        values: vec![
            ("SETTING", setting.to_owned()),
            ("VALUE", value.to_owned()),
            ("BASE", best.base.escape_default().to_string()),
        ],
        ..Finding::default()
    })
}

/// A queue that is empty for less of the time is one of a busy disk.
const MIN_EMPTY: f64 = 0.5;

pub(super) const EMPTY_QUEUE: Rule = Rule {
    id: "empty-queue",
    finds: "a disk of a running VM under load that has no request for half of the traced time and more: the guest, not the storage, limits the requests",
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
    use crate::test_evidence::{advice, column, findings};
    use vmtax_findings::{Comparison, Corrected, Difference, Estimate, State, Summary};
    use vmtax_model::{Interval, Layer, Machine, Plan, Variant};

    fn difference(variant: &str, ratio: f64, verdict: Verdict) -> Difference {
        let interval = Some(Interval {
            low: ratio - 0.02,
            high: ratio + 0.02,
            coverage: 0.97,
        });
        let difference = Some(Estimate {
            median: (ratio - 1.0) * 100e3,
            interval: None,
        });
        let ratio = Estimate {
            median: ratio,
            interval,
        };
        Difference {
            machine: Machine::KVM,
            base: "aio=threads".into(),
            variant: variant.into(),
            comparison: Comparison {
                ratio,
                difference,
                rounds: 6,
                p: None,
                verdict,
            },
        }
    }

    #[test]
    fn the_fastest_variant_is_a_setting() {
        let set = [("aio", "native"), ("iothread", "on")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let variants = vec![Variant {
            name: "both".into(),
            set,
        }];
        let plan = Plan {
            variants,
            ..Plan::new("layers", 6, vec![Machine::KVM], Vec::new())
        };
        let differences = [
            difference("aio=native", 0.9, Verdict::Faster),
            difference("both", 0.8, Verdict::Faster),
        ];
        let evidence = Evidence {
            plan: Some(&plan),
            differences: &differences,
            ..Evidence::default()
        };
        let found = advice("faster-variant", &evidence);
        let text = "A request on kvm takes 0.80 times as long with both as with aio=threads (0.78 to 0.82), 20.00 µs less.";
        assert_eq!(
            found.iter().map(|a| &*a.finding).collect::<Vec<_>>(),
            [text]
        );
        let remedy = &found[0].remedies[0];
        assert_eq!(
            (&*remedy.setting, &*remedy.value, &*remedy.undo),
            ("aio", "native,iothread=on", "aio=threads")
        );
    }

    #[test]
    fn a_variant_that_is_not_shown_to_be_faster_is_no_finding() {
        let differences = [
            difference("aio=native", 0.9, Verdict::Inconclusive),
            difference("aio=io_uring", 1.2, Verdict::Slower),
        ];
        assert_eq!(
            findings(
                "faster-variant",
                &Evidence {
                    differences: &differences,
                    ..Evidence::default()
                }
            ),
            [""; 0]
        );
    }

    /// The sentence on requests that take 894 µs traced, so many times as long as untraced ones.
    fn tracing(ratio: f64, interval: Option<Interval>, corrected_ns: Option<f64>) -> Vec<String> {
        let mut column = column(&[(Layer::Device, State::Waiting, 894e3)]);
        column.observer = Some(Estimate {
            median: ratio,
            interval,
        });
        column.corrected = corrected_ns.map(|mean_ns| Corrected {
            total: Summary {
                mean_ns,
                ..Summary::default()
            },
            unexplained_ns: 0.0,
            median: Estimate {
                median: mean_ns,
                interval: None,
            },
            ratio: None,
            events: 20.0,
            costs: Vec::new(),
        });
        findings(
            "tracing-overhead",
            &Evidence {
                columns: &[column],
                ..Evidence::default()
            },
        )
    }

    #[test]
    fn tracing_is_blamed_by_its_calibration_alone() {
        let interval = |low| {
            Some(Interval {
                low,
                high: 2.2,
                coverage: 0.97,
            })
        };
        assert_eq!(
            tracing(2.07, None, Some(878e3)),
            [""; 0],
            "16 of 894 µs: the rest is noise of the host"
        );
        assert_eq!(
            tracing(2.07, interval(1.9), Some(878e3)),
            [""; 0],
            "another cause"
        );
        let said = "Tracing takes 94.0 µs of the 894 µs of a traced request on kvm, by its calibration: take fractions from the rows, times from the untraced control.";
        assert_eq!(
            tracing(1.0, None, Some(800e3))
                .concat()
                .replace('\u{a0}', " "),
            said
        );
    }

    #[test]
    fn without_a_calibration_there_is_no_cause_without_an_interval() {
        let interval = |low| {
            Some(Interval {
                low,
                high: 2.2,
                coverage: 0.97,
            })
        };
        assert_eq!(tracing(2.07, None, None), [""; 0]);
        assert_eq!(tracing(1.5, interval(1.05), None), [""; 0]);
        let said = tracing(1.5, interval(1.2), None).concat();
        assert!(
            said.starts_with("Traced requests on kvm take 1.50 times as long as untraced ones (95 % CI 1.20 to 2.20)"),
            "{said}"
        );
    }

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
