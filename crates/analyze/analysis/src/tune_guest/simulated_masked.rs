//! Simulated tunings with a change whose effect another setting masks until that is changed: the share that finds it,
//! and the number of boots.

use super::simulated::{kept, noise, plan, tuned_with};
use fastrand::Rng;
use vmtax_model::{GuestTunePhase, Plan, Study};

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
