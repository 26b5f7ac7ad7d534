//! From a plan's trials to what grows.

use vmtax_analysis::growth;
use vmtax_findings::{Law, NoLaw};
use vmtax_model::{
    Machine, Measure, Metric, Outcome, Plan, TrialRecord, TrialResult, Warning, WorkloadName,
    WorkloadSpec, testing,
};

const STEPS: [u64; 5] = [1, 2, 4, 8, 16];

fn plan() -> Plan {
    Plan::from_toml(
        "rounds = 6\nmachines = [\"native\", \"tcg\"]\n[range]\noption = \"threads.threads\"\nsteps = [1, 2, 4, 8, 16]\n\
         [[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n[[workload]]\nname = \"threads\"\n",
    )
    .unwrap()
}

fn trial(round: u32, machine: Machine, variant: &str, step: u64, outcome: Outcome) -> TrialRecord {
    let workload = WorkloadSpec::new(WorkloadName::Threads).with("threads", step);
    TrialRecord {
        round,
        variant: variant.to_owned(),
        step: Some(step),
        outcome,
        ..testing::trial(machine, workload)
    }
}

fn done(rate: f64) -> Outcome {
    let measures = vec![Measure {
        metric: Metric::ThreadsEvents,
        value: rate,
    }];
    let result = TrialResult {
        measures,
        ..testing::result(WorkloadSpec::new(WorkloadName::Threads))
    };
    Outcome::Done {
        result: Box::new(result),
    }
}

/// An event costs 1 µs everywhere, and in variant b a tenth of that more for each thread.
fn rate(variant: &str, step: u64, round: u32) -> f64 {
    let grown = if variant == "b" {
        0.1 * step as f64
    } else {
        0.0
    };
    // Up and down from round to round and step to step, by 1 %.
    let noise = 1.0 + 0.01 * f64::from((round * 7 + step as u32 * 3) % 5) / 4.0;
    1e6 / (1.0 + grown) / noise
}

fn trials(rounds: u32) -> Vec<TrialRecord> {
    let mut all = Vec::new();
    for round in 0..rounds {
        for step in STEPS {
            for (machine, variant) in [
                (Machine::NATIVE, ""),
                (Machine::TCG, "a"),
                (Machine::TCG, "b"),
            ] {
                all.push(trial(
                    round,
                    machine,
                    variant,
                    step,
                    done(rate(variant, step, round)),
                ));
            }
        }
    }
    all
}

#[test]
fn each_machine_and_variant_has_its_law_and_what_one_more_costs() {
    let found = growth(&plan(), &trials(6));
    let laws: Vec<_> = found
        .growths
        .iter()
        .map(|g| (g.machine, g.variant.as_str(), g.law))
        .collect();
    // Sixteen times as many items, one of which may cost 2.5 times as much at the top: O(log n) is not ruled out, O(n²) is.
    assert!(
        !found.growths[2].or.contains(&Law::Quadratic),
        "{:?}",
        found.growths[2].or
    );
    let exponent = found.growths[2].exponent.unwrap();
    assert!(
        exponent.low <= 1.0 && 1.0 <= exponent.high && exponent.high < 1.5,
        "{exponent:?}"
    );
    let [flat, linear] = [Some(Law::Constant), Some(Law::Linear)];
    let (native, tcg) = (Machine::NATIVE, Machine::TCG);
    assert_eq!(
        laws,
        [(native, "", flat), (tcg, "a", flat), (tcg, "b", linear)]
    );
    let b = &found.growths[2];
    let one_more = b.one_more.unwrap();
    assert!((one_more.median - 100.0).abs() < 4.0, "{one_more:?}");
    assert!(
        one_more.interval.unwrap().low <= 100.0 && 100.0 <= one_more.interval.unwrap().high,
        "{one_more:?}"
    );
    assert!(
        (b.change.unwrap().median - 2.6 / 1.1).abs() < 0.05,
        "{:?}",
        b.change
    );
    assert!(
        (b.curve.first().unwrap().ns.median / 1100.0 - 1.0).abs() < 0.03,
        "{:?}",
        b.curve[0]
    );
    assert!(b.misfit.unwrap() < 0.02, "{:?}", b.misfit);
    assert_eq!(
        (
            found.rounds_complete,
            found.warnings.len(),
            found.missing.len()
        ),
        (6, 0, 0)
    );
}

#[test]
fn a_refused_step_is_named_and_the_rest_counts() {
    let mut trials = trials(6);
    for t in trials
        .iter_mut()
        .filter(|t| t.machine == Machine::NATIVE && t.step == Some(16))
    {
        t.outcome = Outcome::Failed {
            error: "native has 8 of the 16 CPUs asked for".to_owned(),
        };
    }
    let found = growth(&plan(), &trials);
    assert_eq!(found.missing.len(), 1);
    assert_eq!(
        (found.missing[0].size, found.missing[0].machine),
        (16, Machine::NATIVE)
    );
    assert!(found.missing[0].reason.contains("CPUs"));
    assert_eq!(
        found.rounds_complete, 6,
        "what is refused is not waited for"
    );
    let native = &found.growths[0];
    assert_eq!(
        (native.law, native.steps[4].ns),
        (Some(Law::Constant), None)
    );
    assert!(
        matches!(
            found.warnings[0],
            Warning::TrialsMissing {
                missing: 6,
                planned: 30,
                ..
            }
        ),
        "{:?}",
        found.warnings
    );
}

#[test]
fn an_interrupted_run_says_what_it_can() {
    let mut some = trials(6);
    // Two rounds and a half: 15 trials a round.
    some.truncate(37);
    let found = growth(&plan(), &some);
    assert_eq!(found.rounds_complete, 2);
    let b = &found.growths[2];
    assert!(b.grows);
    assert_eq!((b.law, b.no_law), (None, Some(NoLaw::TooFewRounds)));
    assert!(
        b.one_more.unwrap().interval.is_none(),
        "two rounds have no interval"
    );
    assert!(
        found
            .warnings
            .iter()
            .any(|w| matches!(w, Warning::TooFewRounds { rounds: 2, .. }))
    );
    // One round, or two steps, name no growth law.
    assert_eq!(growth(&plan(), &trials(1)).growths[2].law, None);
    let two: Vec<TrialRecord> = trials(6).into_iter().filter(|t| t.step < Some(4)).collect();
    assert_eq!(
        growth(&plan(), &two).growths[2].no_law,
        Some(NoLaw::TooFewSteps)
    );
    assert!(growth(&plan(), &[]).growths.is_empty());
}

/// Variants that differ in the QEMU alone: what the flat one costs is the constant part of the other.
#[test]
fn another_qemu_gives_the_constant_part() {
    let mut plan = plan();
    for (variant, qemu) in plan.variants.iter_mut().zip(["7.2", "5.2"]) {
        variant.set.insert("qemu".into(), qemu.into());
    }
    let found = growth(&plan, &trials(6));
    assert_eq!(found.growths[2].constant_from.as_deref(), Some("a"));
    assert_eq!(found.growths[1].constant_from, None);
    plan.variants[0].set.insert("aio".into(), "native".into());
    assert_eq!(
        growth(&plan, &trials(6)).growths[2].constant_from,
        None,
        "they differ in more"
    );
}

#[test]
fn sizes_that_are_close_name_no_growth_law() {
    let near: Vec<TrialRecord> = trials(6).into_iter().filter(|t| t.step < Some(8)).collect();
    let b = &growth(&plan(), &near).growths[2];
    assert!(b.grows && b.exponent.is_some());
    assert_eq!((b.law, b.no_law), (None, Some(NoLaw::SizesTooClose)));
}
