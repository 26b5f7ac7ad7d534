//! Simulated tunings of a VM: the share that keeps a change without an effect, and the coverage of the intervals, on
//! noise of known kinds.

use super::{next_step, tune};
use crate::coverage::normal;
use fastrand::Rng;
use vmtax_findings::{TuneFindings, TuneVerdict};
use vmtax_model::{
    Candidate, ChangeCost, LiveChange, LiveMetric, PairPlan, TuneBlock, TuneMetric, TuneRecord,
    TuneSpec, TuneStep, VmCounters, VmIdentity,
};

/// The log of a measurement's noise: 5 % of most, a tail as other load on the host makes it, and drift.
fn noise(random: &mut Rng, minutes: f64) -> f64 {
    let tail = if random.f64() < 0.1 {
        random.f64() * 0.5
    } else {
        0.0
    };
    0.05 * normal(random) + tail + 0.03 * minutes
}

fn candidate(number: usize) -> Candidate {
    let change = LiveChange {
        action: format!("change {number}"),
        cost: ChangeCost::Live,
        metric: Some(LiveMetric::Latency),
        disk: None,
        settings: Vec::new(),
    };
    Candidate {
        rule: String::new(),
        finding: String::new(),
        ceiling: 0.1,
        change,
    }
}

pub(super) fn spec(candidates: usize) -> TuneSpec {
    TuneSpec {
        process: VmIdentity {
            pid: 1,
            started: None,
            name: None,
        },
        apply: true,
        time_ms: 3_600_000,
        block_ms: 1500,
        metric: Some(TuneMetric::Command {
            line: "figure".to_owned(),
            higher_is_better: false,
        }),
        candidates: (0..candidates).map(candidate).collect(),
        not_tried: Vec::new(),
        unobserved: None,
    }
}

/// Where each of the candidates multiplies the cost by a factor.
fn tuned(factors: &[f64], seed: u64) -> (TuneFindings, usize) {
    let spec = spec(factors.len());
    let mut random = Rng::with_seed(seed);
    let mut records = vec![TuneRecord::Vm(Box::new(crate::rates::tests::facts(1)))];
    let mut at_ns = 1;
    loop {
        let plan = match next_step(&spec, seed, &records) {
            TuneStep::End(candidates) => {
                records.push(TuneRecord::Kept { candidates });
                break;
            }
            TuneStep::Pair(plan) => plan,
        };
        let mut block = |changed: bool, plan: &PairPlan| {
            let on = plan
                .base
                .iter()
                .chain(plan.changed.iter().filter(|_| changed));
            let factor: f64 = on.map(|number| factors[*number]).product();
            let printed = Some(100.0 * factor * noise(&mut random, at_ns as f64 / 6e10).exp());
            let counters_at = |at_ns| VmCounters {
                at_ns,
                ..VmCounters::default()
            };
            let block = TuneBlock {
                before: counters_at(at_ns),
                after: counters_at(at_ns + 1_500_000_000),
                printed,
            };
            at_ns += 1_700_000_000;
            Box::new(block)
        };
        let first = block(plan.changed_first, &plan);
        let second = block(!plan.changed_first, &plan);
        let (with, without) = if plan.changed_first {
            (first, second)
        } else {
            (second, first)
        };
        records.push(TuneRecord::Pair {
            plan,
            without,
            with,
        });
    }
    let pairs = records
        .iter()
        .filter(|record| matches!(record, TuneRecord::Pair { .. }))
        .count();
    (tune(&spec, &records).unwrap(), pairs)
}

#[test]
fn a_change_without_effect_is_kept_in_less_than_5_of_100_tunings_of_twelve() {
    let runs = 400;
    let mut factors = vec![1.0; 12];
    let duds: usize = (0..runs)
        .filter(|seed| {
            tuned(&factors, *seed)
                .0
                .outcome
                .candidates
                .iter()
                .any(|row| row.verdict == TuneVerdict::Keep)
        })
        .count();
    assert!(
        duds * 100 <= 5 * runs as usize,
        "{duds} of {runs} without a real one"
    );
    factors[4] = 0.7;
    let (mut duds, mut found, mut held) = (0, 0, 0);
    for seed in 0..runs {
        let (findings, _) = tuned(&factors, seed);
        let kept = |number: usize| findings.outcome.candidates[number].verdict == TuneVerdict::Keep;
        duds += usize::from((0..12).any(|number| number != 4 && kept(number)));
        if kept(4) {
            found += 1;
            let interval = findings.outcome.candidates[4]
                .confirmation
                .unwrap()
                .ratio
                .interval
                .unwrap();
            held += usize::from((interval.low..=interval.high).contains(&0.7));
        }
    }
    assert!(
        duds * 100 <= 5 * runs as usize,
        "{duds} of {runs} beside a real one"
    );
    assert!(found * 100 >= 95 * runs as usize, "{found} of {runs} found");
    assert!(
        held * 100 >= 95 * found,
        "the interval holds the gain in {held} of {found}"
    );
}

#[test]
fn of_two_that_help_each_is_confirmed_beside_the_other_and_their_total_is_measured() {
    let (findings, pairs) = tuned(&[0.5, 1.0, 0.6, 1.3], 7);
    let verdicts: Vec<TuneVerdict> = findings
        .outcome
        .candidates
        .iter()
        .map(|row| row.verdict)
        .collect();
    assert_eq!(
        (verdicts[0], verdicts[2], verdicts[3]),
        (
            TuneVerdict::Keep,
            TuneVerdict::Keep,
            TuneVerdict::Inconclusive
        )
    );
    assert_ne!(verdicts[1], TuneVerdict::Keep);
    let total = findings.outcome.total.unwrap().ratio;
    assert!(
        (0.25..0.36).contains(&total.median) && total.interval.unwrap().high < 0.5,
        "{total:?}"
    );
    assert!(
        findings.is_on && findings.outcome.ended.is_none() && pairs < 90,
        "{pairs} pairs"
    );
    let beside = |number: usize| findings.outcome.candidates[number].beside.as_deref();
    assert_eq!((beside(0), beside(2)), (None, Some("change 0")));
    // What harms is reverted after three pairs.
    assert_eq!(findings.outcome.candidates[3].screening.unwrap().rounds, 3);
    assert!(
        findings.outcome.candidates[3]
            .why
            .as_deref()
            .unwrap()
            .contains("reverted")
    );
}

#[test]
fn a_budget_ends_it_and_says_so() {
    let findings = {
        let spec = TuneSpec {
            time_ms: 1,
            ..spec(2)
        };
        let records = [TuneRecord::Vm(Box::new(crate::rates::tests::facts(1)))];
        let TuneStep::Pair(first) = next_step(&spec, 1, &records) else {
            panic!("nothing is measured")
        };
        assert_eq!((first.changed, first.base), (vec![0], vec![]));
        tune(&spec, &records).unwrap()
    };
    assert!(findings.outcome.ended.unwrap().contains("--duration"));
    assert!(
        findings
            .outcome
            .candidates
            .iter()
            .all(|row| row.verdict == TuneVerdict::NotMeasured)
    );
}
