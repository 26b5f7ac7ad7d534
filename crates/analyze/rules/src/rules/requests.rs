//! Requests through the layers: the fastest variant, what tracing adds.

use crate::evidence::title;
use crate::{Evidence, Finding, Rule};
use vmtax_model::number::nanoseconds;
use vmtax_model::{ChangeCost, Remedy, SettingPlace, Verdict};

/// Traced over untraced requests: above, times under tracing are no times of the VM's.
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
    finds: "requests that tracing makes at least a tenth longer",
    remedies: &[],
    source: "",
    evaluate: |evidence| {
        let observed = evidence.columns.iter().filter_map(|column| Some((column, column.observer?)));
        let heavy = observed.filter(|(_, ratio)| ratio.at_least() > MAX_OVERHEAD);
        let finding = |(column, ratio): (_, vmtax_model::Estimate)| {
            Finding::new(format!(
                "Tracing makes requests on {} {:.2} times as long (median of the rounds' ratios of medians): take \
                 fractions from the rows, times from the untraced control.",
                title(column),
                ratio.median
            ))
        };
        heavy.max_by(|a, b| a.1.median.total_cmp(&b.1.median)).map(finding).into_iter().collect()
    },
};

fn faster_variant(evidence: &Evidence<'_>) -> Option<Finding> {
    let faster = evidence.differences.iter().filter(|difference| difference.comparison.verdict == Verdict::Faster);
    let best = faster.min_by(|a, b| a.comparison.ratio.median.total_cmp(&b.comparison.ratio.median))?;
    let (ratio, difference) = (best.comparison.ratio, best.comparison.difference?);
    let interval = ratio.interval?;
    let variants = evidence.plan.map_or(&[][..], |plan| &plan.variants);
    // As a variant of a comparison has several settings: SETTING=VALUE,SETTING=VALUE.
    let set = variants.iter().find(|v| v.name == best.variant).map(|v| {
        v.set.iter().map(|(key, value)| format!("{key}={}", value.replace(',', ",,"))).collect::<Vec<_>>().join(",")
    });
    let set = set.unwrap_or_else(|| best.variant.clone()).escape_default().to_string();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{advice, column, findings};
    use vmtax_model::{Comparison, Difference, Estimate, Interval, Layer, Machine, Plan, State, Variant};

    fn difference(variant: &str, ratio: f64, verdict: Verdict) -> Difference {
        let interval = Some(Interval { low: ratio - 0.02, high: ratio + 0.02, coverage: 0.97 });
        let difference = Some(Estimate { median: (ratio - 1.0) * 100e3, interval: None });
        let ratio = Estimate { median: ratio, interval };
        Difference {
            machine: Machine::KVM,
            base: "aio=threads".into(),
            variant: variant.into(),
            comparison: Comparison { ratio, difference, rounds: 6, p: None, verdict },
        }
    }

    #[test]
    fn the_fastest_variant_is_a_setting() {
        let set = [("aio", "native"), ("iothread", "on")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let variants = vec![Variant { name: "both".into(), set }];
        let plan = Plan { variants, ..Plan::new("layers", 6, vec![Machine::KVM], Vec::new()) };
        let differences = [difference("aio=native", 0.9, Verdict::Faster), difference("both", 0.8, Verdict::Faster)];
        let evidence = Evidence { plan: Some(&plan), differences: &differences, ..Evidence::default() };
        let found = advice("faster-variant", &evidence);
        let text =
            "A request on kvm takes 0.80 times as long with both as with aio=threads (0.78 to 0.82), 20.00 µs less.";
        assert_eq!(found.iter().map(|a| &*a.finding).collect::<Vec<_>>(), [text]);
        let remedy = &found[0].remedies[0];
        assert_eq!((&*remedy.setting, &*remedy.value, &*remedy.undo), ("aio", "native,iothread=on", "aio=threads"));
    }

    #[test]
    fn a_variant_that_is_not_shown_to_be_faster_is_no_finding() {
        let differences =
            [difference("aio=native", 0.9, Verdict::Inconclusive), difference("aio=io_uring", 1.2, Verdict::Slower)];
        assert_eq!(findings("faster-variant", &Evidence { differences: &differences, ..Evidence::default() }), [""; 0]);
    }

    #[test]
    fn tracing_that_costs_a_tenth_and_more_is_said() {
        let of = |ratio| {
            let mut column = column(&[(Layer::Device, State::Waiting, 100e3)]);
            column.observer = Some(Estimate { median: ratio, interval: None });
            findings("tracing-overhead", &Evidence { columns: &[column], ..Evidence::default() })
        };
        assert!(
            of(1.2)[0].starts_with(
                "Tracing makes requests on kvm 1.20 times as long (median of the rounds' ratios of medians)"
            )
        );
        assert_eq!(of(1.05), [""; 0]);
    }
}
