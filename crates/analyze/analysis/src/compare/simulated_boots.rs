//! Tests of the promises of comparisons whose variants take turns in one boot, on boots that differ by 20 % and drift,
//! from trials in the order of a plan's schedule. `-- --nocapture` prints the figures of docs/statistics.md.

use super::cost;
use super::figures::Figures;
use super::interim::InterimAnalyses;
use super::simulated::{MOST, compared};
use crate::coverage::normal;
use crate::estimate::estimate;
use fastrand::Rng;
use vmtax_findings::Verdict;
use vmtax_model::testing::{done, result};
use vmtax_model::{
    Compare, Machine, Measure, Metric, Plan, Study, TrialRecord, Variant, WithCommand,
    WorkloadName, WorkloadSpec,
};

const ROUNDS: u32 = MOST;
/// From boot to boot (log-normal): KVM guests with two CPUs show 10 to 30 % at a queue depth of 1.
const BOOTS: f64 = 0.2;
/// From turn to turn of a boot.
const TURNS: f64 = 0.02;

/// Changes of a boot's speed after its start.
#[derive(Debug, Clone, Copy)]
enum Drift {
    /// Not at all.
    None,
    /// By 3 % from turn to turn, in all boots.
    Steady,
    /// By up to 10 % from turn to turn, faster or slower.
    Uneven,
    /// The first turn takes 10 % more.
    WarmUp,
    /// Each turn's noise depends on the one before (0.8).
    Autocorrelated,
}

const ALL: [Drift; 5] = [
    Drift::None,
    Drift::Steady,
    Drift::Uneven,
    Drift::WarmUp,
    Drift::Autocorrelated,
];

impl Drift {
    /// The logarithms of what the next turns of a boot cost.
    fn turns<'r>(self, random: &'r mut Rng) -> impl FnMut() -> f64 + 'r {
        let (boot, slope) = (BOOTS * normal(random), 0.2 * random.f64() - 0.1);
        let (mut turn, mut state) = (0.0, 0.0);
        move || {
            let noise = TURNS * normal(random);
            state = 0.8 * state + noise;
            let drift = match self {
                Drift::None => noise,
                Drift::Steady => noise + 0.03 * turn,
                Drift::Uneven => noise + slope * turn,
                Drift::WarmUp => noise + if turn == 0.0 { 0.1 } else { 0.0 },
                Drift::Autocorrelated => state,
            };
            turn += 1.0;
            boot + drift
        }
    }
}

fn plan(one_boot: bool, seed: u64) -> Plan {
    let variant = |name: &str| Variant {
        name: name.to_owned(),
        ..Variant::default()
    };
    let settings = Compare {
        min_effect: 0.02,
        budget_s: None,
        one_boot,
    };
    let study = Study::Compare(WithCommand {
        settings,
        command: None,
    });
    let variants = vec![variant("a"), variant("b")];
    let workloads = vec![WorkloadSpec::new(WorkloadName::Disk)];
    Plan {
        variants,
        study,
        seed,
        ..Plan::new("compare", ROUNDS, vec![Machine::TCG], workloads)
    }
}

/// The trials of all rounds; the second variant costs `effect` more, as logarithm.
fn trials(plan: &Plan, effect: f64, drift: Drift, random: &mut Rng) -> Vec<TrialRecord> {
    let mut trials = Vec::new();
    for boot in plan.schedule().chunk_by(|a, b| plan.share_boot(a, b)) {
        let mut next = drift.turns(random);
        for slot in boot {
            let cost = next() + if slot.variant == 1 { effect } else { 0.0 };
            let mut result = result(WorkloadSpec::new(WorkloadName::Disk));
            result.measures.push(Measure {
                metric: Metric::DiskMedian,
                value: 1e5 * cost.exp(),
            });
            let (variant, turn) = (
                plan.variants[slot.variant].name.clone(),
                (boot.len() > 1).then_some(slot.turn),
            );
            trials.push(TrialRecord {
                round: slot.round,
                variant,
                turn,
                ..done(Machine::TCG, result)
            });
        }
    }
    trials
}

/// The logarithm of the ratio in each round.
fn logs(trials: &[TrialRecord]) -> Vec<f64> {
    let metric = Metric::DiskMedian;
    let figures = Figures::new(trials, &[(Machine::TCG, "a"), (Machine::TCG, "b")]);
    let [base, other] = ["a", "b"].map(|variant| figures.values((Machine::TCG, variant), metric));
    base.iter()
        .filter_map(|(round, value)| Some(cost(metric, *other.get(round)?) - cost(metric, *value)))
        .collect()
}

/// The share of differences reported, of intervals with the truth, and the mean of rounds.
fn simulated(one_boot: bool, effect: f64, drift: Drift, runs: u64) -> (f64, f64, f64) {
    let analyses = InterimAnalyses::new(ROUNDS, 0);
    let mut random = Rng::with_seed(6);
    let (mut differ, mut hold, mut all_rounds) = (0, 0, 0);
    for _ in 0..runs {
        let plan = plan(one_boot, random.u64(..));
        let logs = logs(&trials(&plan, effect, drift, &mut random));
        assert_eq!(logs.len(), ROUNDS as usize);
        let mut of_rounds = logs.into_iter();
        let (verdict, ratio, rounds) = compared(|| of_rounds.next().unwrap(), &analyses, ROUNDS);
        differ += u64::from(matches!(verdict, Verdict::Slower | Verdict::Faster));
        hold += u64::from(
            ratio
                .interval
                .is_some_and(|i| (i.low..=i.high).contains(&effect.exp())),
        );
        all_rounds += u64::from(rounds);
    }
    let share = |count: u64| count as f64 / runs as f64;
    (share(differ), share(hold), share(all_rounds))
}

#[test]
fn variants_of_one_boot_are_seldom_said_to_differ_from_themselves() {
    for drift in ALL {
        let (wrong, held, _) = simulated(true, 0.0, drift, 2000);
        println!(
            "one boot, A/A, {drift:?}: {:.1} %, coverage {:.1} %",
            wrong * 100.0,
            held * 100.0
        );
        assert!(wrong <= 0.05, "{drift:?}: {wrong}");
        assert!(held >= 0.95, "{drift:?}: {held}");
    }
}

#[test]
fn one_boot_finds_what_fresh_boots_do_not() {
    for drift in ALL {
        for effect in [0.03, 0.1] {
            let [one, fresh] =
                [true, false].map(|one_boot| simulated(one_boot, effect, drift, 300));
            println!(
                "{drift:?}, {:.0} %: one boot {:.0} % in {:.0} rounds, fresh boots {:.0} % in {:.0} rounds",
                effect * 100.0,
                one.0 * 100.0,
                one.2,
                fresh.0 * 100.0,
                fresh.2
            );
            assert!(
                one.0 >= 0.9 || matches!(drift, Drift::WarmUp),
                "{drift:?} {effect}: {}",
                one.0
            );
            assert!(
                fresh.0 <= 0.5 && one.0 > fresh.0,
                "{drift:?} {effect}: {}",
                fresh.0
            );
            assert!(one.1 >= 0.94, "{drift:?} {effect}: {}", one.1);
        }
    }
}

#[test]
fn a_round_that_lacks_a_turn_has_no_ratio() {
    let plan = plan(true, 1);
    let mut all = trials(&plan, 0.1, Drift::Steady, &mut Rng::with_seed(1));
    all.retain(|trial| (trial.round, trial.turn) != (3, Some(2)));
    let found = logs(&all);
    assert_eq!(found.len(), ROUNDS as usize - 1);
    // A steady drift cancels: with one turn of each the ratio is off by 3 or 9 %.
    assert!((estimate(found).median - 0.1).abs() < 0.015);
}
