//! Simulated tunings of a guest: the share that keeps a change without an effect, and the coverage of the intervals,
//! on noise of known kinds, and on that of real boots.

use super::measured::without;
use super::{next_guest_step, tune_guest};
use crate::coverage::normal;
use fastrand::Rng;
use std::collections::BTreeMap;
use vmtax_findings::{GuestTuneFindings, TuneVerdict};
use vmtax_model::testing::{done, result};
use vmtax_model::{
    GuestCandidate, GuestTunePart, GuestTunePhase, GuestTuneSpec, Machine, Measure, Metric, Plan,
    Study, TrialRecord, Variant, WithCommand, WorkloadName, WorkloadSpec,
};

const DUDS: usize = 12;

/// The log of a boot's noise: 5 % of most, with a tail as other load on the host makes it, and drift; or without a variance
/// (Pareto, α = 1.2).
fn noise(random: &mut Rng, seconds: f64, has_variance: bool) -> f64 {
    if !has_variance {
        return (1.0 + 0.03 * ((1.0 - random.f64()).powf(-1.0 / 1.2) - 1.0)).ln();
    }
    let tail = if random.f64() < 0.1 {
        random.f64() * 0.5
    } else {
        0.0
    };
    0.05 * normal(random) + tail + 0.03 * seconds / 60.0
}

fn plan(candidates: usize, budget_s: u32) -> Plan {
    let candidate = |number: usize| GuestCandidate {
        name: format!("x{number}=on"),
        set: BTreeMap::from([(format!("x{number}"), "on".to_owned())]),
        trap: String::new(),
        source: String::new(),
        cost: None,
    };
    let spec = GuestTuneSpec {
        metric: Metric::DiskRate,
        budget_s,
        candidates: (0..candidates).map(candidate).collect(),
        not_tried: Vec::new(),
        like: None,
        job_notes: Vec::new(),
        parts: Vec::new(),
    };
    let variants = vec![Variant {
        name: GuestTuneSpec::BASELINE.to_owned(),
        ..Variant::default()
    }];
    let study = Study::TuneGuest(WithCommand {
        settings: Box::new(spec),
        command: None,
    });
    let workloads = vec![WorkloadSpec::new(WorkloadName::Disk)];
    Plan {
        variants,
        study,
        ..Plan::new("tune", 1, vec![Machine::TCG], workloads)
    }
}

/// The log of the noise of the next boot, which begins after so many seconds.
type Noise<'a> = &'a mut dyn FnMut(&mut Rng, f64) -> f64;

/// Function that returns the factor on the cost from the candidates that are on.
type Factor<'a> = &'a dyn Fn(&[usize]) -> f64;

/// A tuning whose candidates multiply the cost by these factors; a boot takes so many seconds.
fn tuned(plan: Plan, factors: &[f64], boot_s: f64, seed: u64) -> (Plan, GuestTuneFindings) {
    tuned_with(
        plan,
        &product(factors),
        boot_s,
        seed,
        &mut |random, seconds| noise(random, seconds, seed % 2 == 0),
    )
}

/// Candidates each of which has the same effect whatever else is on.
fn product(factors: &[f64]) -> impl Fn(&[usize]) -> f64 + '_ {
    |on| on.iter().map(|number| factors[*number]).product()
}

fn tuned_with(
    mut plan: Plan,
    factor: Factor<'_>,
    boot_s: f64,
    seed: u64,
    noise: Noise<'_>,
) -> (Plan, GuestTuneFindings) {
    let mut random = Rng::with_seed(seed);
    let (mut trials, mut rounds, mut seconds): (Vec<TrialRecord>, u32, f64) = (Vec::new(), 0, 0.0);
    while let Some(step) = next_guest_step(&plan, &trials) {
        plan.begin_part(step.clone(), rounds);
        let first = rounds;
        loop {
            let mut boots = step.configurations.clone();
            random.shuffle(&mut boots);
            for on in boots {
                let cost = factor(&on) * noise(&mut random, seconds).exp();
                let mut result = result(WorkloadSpec::new(WorkloadName::Disk));
                result.measures.push(Measure {
                    metric: Metric::DiskRate,
                    value: 1e4 / cost,
                });
                let started = jiff::Timestamp::from_millisecond((seconds * 1e3) as i64)
                    .unwrap()
                    .to_string();
                let variant = plan.guest_tune().unwrap().name(&on);
                let number = trials.len() as u32;
                let trial = TrialRecord {
                    number,
                    round: rounds,
                    variant,
                    started,
                    wall_s: boot_s,
                    ..done(Machine::TCG, result)
                };
                trials.push(trial);
                seconds += boot_s;
            }
            rounds += 1;
            if next_guest_step(&plan, &trials).as_ref() != Some(&step) {
                break;
            }
        }
        plan.end_part(rounds - first);
    }
    plan.check().unwrap();
    let found = tune_guest(&plan, &trials).unwrap();
    assert_eq!(
        (found.rounds, u64::from(found.boots)),
        (rounds, plan.trials())
    );
    (plan, found)
}

fn kept(found: &GuestTuneFindings) -> Vec<usize> {
    let is_kept = |number: &usize| found.outcome.candidates[*number].verdict == TuneVerdict::Keep;
    (0..found.outcome.candidates.len())
        .filter(is_kept)
        .collect()
}

#[test]
fn a_change_without_effect_is_kept_in_less_than_5_of_100_tunings_and_the_interval_has_the_gain() {
    let runs = 100;
    // With a boot of 2 s there is time for all rounds of all; with one of 8 s candidates are dropped early.
    for (without_effect, boot_s) in [(DUDS, 2.0), (6, 8.0)] {
        let none = vec![1.0; without_effect];
        let duds = (0..runs)
            .filter(|seed| {
                !kept(&tuned(plan(without_effect, 900), &none, boot_s, *seed).1).is_empty()
            })
            .count();
        assert!(
            duds * 100 <= 5 * runs as usize,
            "{duds} of {runs} without a real one"
        );
        let factors = [&none[..], &[0.7, 0.8]].concat();
        let (mut duds, mut found, mut have_gain, mut together) = (0, 0, 0, 0);
        for seed in 0..runs {
            let (_, findings) = tuned(plan(factors.len(), 900), &factors, boot_s, 1000 + seed);
            let kept = kept(&findings);
            duds += usize::from(kept.iter().any(|number| *number < without_effect));
            together += usize::from(kept == [without_effect, without_effect + 1]);
            for number in kept.iter().filter(|number| **number >= without_effect) {
                found += 1;
                let interval = findings.outcome.candidates[*number]
                    .confirmation
                    .unwrap()
                    .ratio
                    .interval
                    .unwrap();
                have_gain +=
                    usize::from((interval.low..=interval.high).contains(&factors[*number]));
            }
        }
        assert!(
            duds * 100 <= 5 * runs as usize,
            "{duds} of {runs} beside real ones"
        );
        assert!(
            found * 100 >= 90 * 2 * runs as usize,
            "{found} of {} found at {boot_s} s a boot",
            2 * runs
        );
        assert!(
            together * 100 >= 85 * runs as usize,
            "{together} of {runs} found both"
        );
        assert!(
            have_gain * 100 >= 95 * found,
            "{have_gain} of {found} intervals have the gain"
        );
    }
}

/// Rates of one configuration's boots in the order of time, on a quiet and a busy host, by TCG and KVM: `bench/tune_noise.py`.
const RECORDED: &str = include_str!("recorded_boots.csv");

/// The logs of the costs of each recording, the median 0.
fn recorded() -> Vec<Vec<f64>> {
    let mut all: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for line in RECORDED.lines().skip(1) {
        let mut fields = line.split(',');
        let (load, machine) = (fields.next().unwrap(), fields.next().unwrap());
        let rate: f64 = fields.next().unwrap().parse().unwrap();
        all.entry((load, machine)).or_default().push(-rate.ln());
    }
    assert_eq!(all.len(), 4, "TCG and KVM, quiet and busy");
    let centred = |logs: Vec<f64>| {
        let median = crate::estimate(logs.clone()).median;
        logs.into_iter().map(|log| log - median).collect()
    };
    all.into_values().map(centred).collect()
}

/// Two changes that help, and one that helps once the first of them is made, among those without any effect.
fn masked(on: &[usize]) -> f64 {
    let has = |number: usize| on.contains(&(DUDS + number));
    let factors = [(has(0), 0.25), (has(1), 0.6), (has(0) && has(2), 0.5)];
    factors
        .iter()
        .filter(|(is_on, _)| *is_on)
        .map(|(_, factor)| factor)
        .product()
}

/// So many tunings on each recording, of changes without any effect beside those that have one. A tuning begins at a
/// random boot of the recording, and goes on with those that followed it.
fn replay(runs: u64) {
    let (mut duds, mut kept_ones, mut better, mut have_gain, mut unmasked) = (0, 0, 0, 0, 0);
    let recorded = recorded();
    for (seed, logs) in (0..runs).flat_map(|seed| recorded.iter().map(move |logs| (seed, logs))) {
        let mut at = Rng::with_seed(7000 + seed).usize(..logs.len());
        let mut noise = |_: &mut Rng, _: f64| {
            at = (at + 1) % logs.len();
            logs[at]
        };
        let (_, found) = tuned_with(plan(DUDS + 3, 900), &masked, 2.0, seed, &mut noise);
        let kept = kept(&found);
        duds += usize::from(kept.iter().any(|number| *number < DUDS));
        unmasked += usize::from(kept.contains(&(DUDS + 2)));
        let mut random = Rng::with_seed(9000 + seed);
        for number in kept.iter().copied() {
            kept_ones += 1;
            let gain = masked(&kept) / masked(&without(&kept, number));
            let interval = found.outcome.candidates[number]
                .confirmation
                .unwrap()
                .ratio
                .interval
                .unwrap();
            have_gain += usize::from((interval.low..=interval.high).contains(&gain));
            // Once more, with it and without.
            let ratio = |_| {
                let (first, second) = (noise(&mut random, 0.0), noise(&mut random, 0.0));
                gain.ln()
                    + if random.bool() {
                        first - second
                    } else {
                        second - first
                    }
            };
            better += usize::from(crate::estimate((0..15).map(ratio).collect()).median < 0.0);
        }
    }
    let all = runs as usize * recorded.len();
    println!(
        "{all} tunings: {duds} kept one without effect; of {kept_ones} kept {better} better again, {have_gain} with the gain in the interval; \
         {unmasked} found the masked one"
    );
    assert!(duds * 100 <= 5 * all, "{duds} of {all}");
    assert!(kept_ones >= all, "{kept_ones} kept in {all}");
    assert!(
        better * 100 >= 95 * kept_ones,
        "{better} of {kept_ones} are better again"
    );
    assert!(
        have_gain * 100 >= 95 * kept_ones,
        "{have_gain} of {kept_ones} intervals have the gain"
    );
}

#[test]
fn replayed_on_the_noise_of_real_boots_what_is_kept_is_better_again() {
    replay(15);
}

/// As many as docs/tune.md states.
#[test]
#[ignore = "takes minutes"]
fn by_hand_a_thousand_tunings_are_replayed_on_the_noise_of_real_boots() {
    replay(250);
}

#[test]
fn one_that_stands_out_is_kept_before_the_others_are_screened_to_the_end() {
    let factors = [&[1.0; DUDS][..], &[0.5]].concat();
    for seed in 0..20 {
        let (plan, found) = tuned(plan(factors.len(), 900), &factors, 2.0, seed);
        assert!(
            kept(&found).contains(&DUDS),
            "{:#?}",
            found.outcome.candidates
        );
        let parts = &plan.guest_tune().unwrap().parts;
        let confirmation = parts
            .iter()
            .position(|part| part.phase == GuestTunePhase::Confirmation)
            .unwrap();
        let (before, confirmation) = (&parts[..confirmation], &parts[confirmation]);
        assert_eq!(confirmation.configurations, [vec![DUDS], Vec::new()]);
        // All once, then those that saved enough for it.
        assert_eq!(
            before.iter().map(|part| part.rounds).sum::<u32>(),
            3,
            "{parts:?}"
        );
        assert_eq!(before[0].configurations.len(), 14, "{parts:?}");
        assert!(
            before[1..]
                .iter()
                .all(|part| part.configurations.len() < 14),
            "{parts:?}"
        );
        // The others are screened beside it.
        let is_late = |part: &&GuestTunePart| part.first_round > confirmation.first_round;
        let mut screening = parts
            .iter()
            .filter(is_late)
            .filter(|part| part.phase == GuestTunePhase::Screening);
        assert!(
            screening.all(|part| part.configurations[0].contains(&DUDS)),
            "{parts:?}"
        );
        let screening = found.outcome.candidates[DUDS].screening.unwrap();
        assert!(
            screening.rounds == 3 && screening.ratio.median < 0.9,
            "{screening:?}"
        );
    }
}

#[test]
fn what_excludes_or_contains_another_is_not_kept_beside_it() {
    let mut plan = plan(4, 900);
    if let Study::TuneGuest(tune) = &mut plan.study {
        let set = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        tune.settings.candidates[0].set = set(&[("cache", "none")]);
        tune.settings.candidates[1].set = set(&[("cache", "none"), ("aio", "native")]);
        tune.settings.candidates[2].set = set(&[("aio", "io_uring")]);
    }
    // The second has the first in it.
    let factors = [0.8, 0.75, 0.9, 1.2];
    let (plan, found) = tuned(plan, &factors, 2.0, 3);
    assert_eq!(kept(&found), [1], "{:#?}", found.outcome.candidates);
    let why = |number: usize| found.outcome.candidates[number].why.clone().unwrap();
    assert!(why(0).contains("x1=on has it"), "{}", why(0));
    assert!(why(2).contains("exclusive with x1=on"), "{}", why(2));
    assert_ne!(found.outcome.candidates[3].verdict, TuneVerdict::Keep);
    assert_eq!(
        (found.tuned["aio"].as_str(), found.tuned["cache"].as_str()),
        ("native", "none")
    );
    let (before, after) = (found.before.unwrap(), found.after.unwrap());
    assert!(
        after > before * 1.15 && found.outcome.ended.is_none(),
        "{before} {after}"
    );
    let phases: Vec<GuestTunePhase> = plan
        .guest_tune()
        .unwrap()
        .parts
        .iter()
        .map(|part| part.phase)
        .collect();
    assert!(
        !phases.contains(&GuestTunePhase::Combination)
            && phases.last() == Some(&GuestTunePhase::Confirmation)
    );
}

#[test]
fn a_budget_ends_it_and_says_so_and_a_candidate_that_fails_to_boot_is_refused() {
    let (_, found) = tuned(plan(12, 20), &[0.5; 12], 2.0, 1);
    assert!(kept(&found).is_empty() && found.outcome.ended.unwrap().contains("--duration"));
    let mut plan = plan(1, 900);
    plan.begin_part(next_guest_step(&plan, &[]).unwrap(), 0);
    let good = done(Machine::TCG, result(WorkloadSpec::new(WorkloadName::Disk)));
    let error = "QEMU ended: no io_uring".to_owned();
    let bad = TrialRecord {
        variant: "x0=on".to_owned(),
        outcome: vmtax_model::Outcome::Failed {
            error: error.clone(),
        },
        ..good.clone()
    };
    let baseline = TrialRecord {
        variant: GuestTuneSpec::BASELINE.to_owned(),
        ..good
    };
    let interrupted = TrialRecord {
        outcome: vmtax_model::Outcome::Interrupted,
        ..bad.clone()
    };
    let found = tune_guest(&plan, &[baseline.clone(), interrupted]).unwrap();
    assert_eq!(
        (
            found.outcome.candidates[0].verdict,
            found.outcome.candidates[0].why.as_ref()
        ),
        (TuneVerdict::NotMeasured, None),
        "the run ended, not the candidate"
    );
    let trials = [baseline, bad];
    assert_eq!(next_guest_step(&plan, &trials), None);
    let found = tune_guest(&plan, &trials).unwrap();
    assert_eq!(
        (
            found.outcome.candidates[0].verdict,
            found.outcome.candidates[0].why.as_ref()
        ),
        (TuneVerdict::Refused, Some(&error))
    );
}

/// The changes of `bench/tune_exhaustive.py`, in its order.
const DISK: [(&str, &[(&str, &str)]); 7] = [
    ("cache=writeback", &[("cache", "writeback")]),
    ("cache=none", &[("cache", "none")]),
    ("aio=native", &[("aio", "native"), ("cache", "none")]),
    ("aio=io_uring", &[("aio", "io_uring")]),
    ("ioeventfd=on", &[("ioeventfd", "on")]),
    ("iothread=on", &[("ioeventfd", "on"), ("iothread", "on")]),
    ("queue-size=256", &[("queue-size", "256")]),
];

/// A disk as that benchmark found it: while each write is flushed a longer queue saves nothing.
fn disk(on: &[usize]) -> f64 {
    let has = |number: usize| on.contains(&number);
    let cached = has(0) || has(1) || has(2);
    let factors = [
        (has(0), 0.5),
        (has(1) || has(2), 0.6),
        (has(2), 0.9),
        (has(3), 0.5),
        (has(6) && cached, 0.63),
    ];
    factors
        .iter()
        .filter(|(is_on, _)| *is_on)
        .map(|(_, factor)| factor)
        .product()
}

fn disk_plan() -> Plan {
    let mut plan = plan(DISK.len(), 600);
    if let Study::TuneGuest(tune) = &mut plan.study {
        for (candidate, (name, set)) in tune.settings.candidates.iter_mut().zip(DISK) {
            candidate.name = name.to_owned();
            candidate.set = set
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
        }
    }
    plan
}

#[test]
fn a_change_that_another_masks_is_found_in_fewer_boots_than_two_tunings_take() {
    let runs = 60;
    for has_variance in [true, false] {
        let (mut boots, mut best) = (0, 0);
        for seed in 0..runs {
            let mut noise = |random: &mut Rng, seconds: f64| noise(random, seconds, has_variance);
            let (_, found) = tuned_with(disk_plan(), &disk, 3.6, seed, &mut noise);
            boots += found.boots;
            best += usize::from(kept(&found) == [0, 3, 6]);
        }
        println!("{boots} boots in {runs} tunings, {best} found the best of all");
        assert!(
            best * 100 >= 85 * runs as usize,
            "{best} of {runs} found the best"
        );
        assert!(
            u64::from(boots) <= 125 * runs,
            "{boots} boots in {runs} tunings"
        );
    }
}

/// Two changes that save little each, and one that saves much once both are made, among others without any effect.
fn masked_by_two(on: &[usize]) -> f64 {
    let has = |number: usize| on.contains(&number);
    let of_each = |number: usize| if has(number) { 0.88 } else { 1.0 };
    of_each(0) * of_each(1) * if has(0) && has(1) && has(2) { 0.7 } else { 1.0 }
}

#[test]
fn what_all_that_helps_masked_is_found_by_the_second_screening() {
    let runs = 60;
    let (mut again, mut found_again, mut duds) = (0, 0, 0);
    for seed in 0..runs {
        // A boot's noise of 3 %, so that the two are found at all.
        let mut noise = |random: &mut Rng, seconds: f64| noise(random, seconds, true) * 0.6;
        let (plan, found) = tuned_with(plan(8, 1800), &masked_by_two, 2.0, seed, &mut noise);
        let kept = kept(&found);
        duds += usize::from(kept.iter().any(|number| *number > 2));
        let parts = &plan.guest_tune().unwrap().parts;
        let second = parts
            .iter()
            .position(|part| part.phase == GuestTunePhase::SecondScreening);
        assert_eq!(second.is_some(), found.second_screening.is_some());
        let Some(second) = found
            .second_screening
            .filter(|second| second.beside == "x0=on + x1=on")
        else {
            continue;
        };
        again += 1;
        assert!(
            second.candidates.contains(&"x2=on".to_owned()) && second.candidates.len() <= 6,
            "{second:?}"
        );
        // Cheap: six candidates take two rounds, three of them two more, two or one of these decide.
        assert!(second.boots <= 60, "{second:?}");
        if kept == [0, 1, 2] {
            found_again += 1;
            assert_eq!(
                found.outcome.candidates[2].beside.as_deref(),
                Some("x0=on + x1=on"),
                "{:?}",
                found.outcome.candidates[2]
            );
        }
    }
    println!(
        "{again} of {runs} had a second screening, {found_again} found it, {duds} kept one without effect"
    );
    assert!(again * 100 >= 60 * runs as usize, "{again} of {runs}");
    assert!(found_again * 100 >= 90 * again, "{found_again} of {again}");
    assert!(duds * 100 <= 5 * runs as usize, "{duds} of {runs}");
}
