//! Shares of samples, with the interval that sampling leaves, and changes between two profiles, function by function.

use std::collections::{BTreeSet, HashMap};
use vmtax_model::samples::Profile;
use vmtax_model::{FunctionChange, ProfileChanges, SampleShare};

/// Half of the two-sided 95 % of a normal distribution, standard deviations.
const Z: f64 = 1.96;

/// A share of samples with its interval at 95 %.
pub fn share(part: u64, of: u64) -> SampleShare {
    share_within(Z, part, of)
}

/// A share of samples with its interval of `z` standard deviations of a normal distribution to both sides (Wilson's, which
/// holds for few samples and for shares near 0).
pub(crate) fn share_within(z: f64, part: u64, of: u64) -> SampleShare {
    let (k, n) = (part as f64, of.max(1) as f64);
    let p = k / n;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    SampleShare {
        samples: part,
        share: p,
        low: (middle - half).max(0.0),
        high: (middle + half).min(1.0),
    }
}

/// Probability that chance alone names a function that did not change, when two profiles are compared.
const WRONG: f64 = 0.05;

/// The functions whose own share of the samples (self) differs by more than sampling noise: their intervals do not
/// overlap. These are the wider the more functions are compared (Bonferroni's correction), so that among all of them chance
/// names one in fewer than one of twenty comparisons, however many there are.
pub fn changes(before: &Profile, after: &Profile) -> ProfileChanges {
    let (old, new) = (inside(before), inside(after));
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let compared = names.len();
    let z = deviations(WRONG / compared.max(1) as f64);
    let share_in = |counts: &HashMap<&str, u64>, name, profile: &Profile| {
        share_within(z, counts.get(name).copied().unwrap_or(0), profile.total())
    };
    let changes = names.into_iter().map(|name| FunctionChange {
        name: name.to_owned(),
        before: share_in(&old, name, before),
        after: share_in(&new, name, after),
    });
    let apart = |c: &FunctionChange| c.before.high < c.after.low || c.after.high < c.before.low;
    let mut changed: Vec<FunctionChange> = changes.filter(apart).collect();
    let size = |c: &FunctionChange| (c.after.share - c.before.share).abs();
    changed.sort_by(|a, b| size(b).total_cmp(&size(a)));
    ProfileChanges { compared, changed }
}

/// Returns the number of standard deviations that leave this much of a normal distribution outside, on both sides
/// together (Abramowitz and Stegun 26.2.23; off by less than 5e-4).
fn deviations(outside: f64) -> f64 {
    let t = (-2.0 * (outside / 2.0).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// Samples by the function that they were in.
fn inside(profile: &Profile) -> HashMap<&str, u64> {
    let mut counts = HashMap::new();
    for sample in &profile.samples {
        if let Some(&leaf) = profile.stacks[sample.stack].last() {
            *counts
                .entry(profile.functions[leaf].name.as_str())
                .or_default() += sample.weight;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::unfold;
    use std::path::Path;

    #[test]
    fn shares_have_wilsons_interval() {
        let half = share(50, 100);
        assert!(
            (half.low - 0.4038).abs() < 1e-4 && (half.high - 0.5962).abs() < 1e-4,
            "{half:?}"
        );
        let none = share(0, 100);
        assert!(
            none.low == 0.0 && (none.high - 0.0370).abs() < 1e-4,
            "{none:?}"
        );
        assert_eq!(share(0, 0).share, 0.0);
    }

    #[test]
    fn what_is_gone_is_named_and_what_may_be_chance_is_not() {
        let profile_of = |text: &str| unfold(text, Path::new("x")).unwrap();
        let before = profile_of("t;main;look_up 400\nt;main;other 300\nt;main 300\n");
        let after = profile_of("t;main;other 230\nt;main 260\nt;main;new 10\n");
        let ProfileChanges {
            compared,
            changed: found,
        } = changes(&before, &after);
        assert_eq!(compared, 4);
        let names: Vec<&str> = found.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["look_up", "main", "other", "new"]);
        assert_eq!((found[0].before.share, found[0].after.samples), (0.4, 0));
        assert_eq!(changes(&before, &before).changed, []);
        // 5 against 8 of a hundred say nothing.
        assert_eq!(
            changes(
                &profile_of("t;a 95\nt;b 5\n"),
                &profile_of("t;a 92\nt;b 8\n")
            )
            .changed,
            []
        );
    }

    #[test]
    fn among_many_functions_one_that_chance_may_have_changed_is_not_named() {
        // Of about a thousand samples 40, and then 85.
        let profile_with = |own: u64, others: u64| {
            let other = |number: u64| format!("t;f{number} {}\n", (1000 - own) / others);
            let lines: String = (0..others).map(other).collect();
            unfold(&(lines + &format!("t;own {own}\n")), Path::new("x")).unwrap()
        };
        let named = |others| {
            changes(&profile_with(40, others), &profile_with(85, others))
                .changed
                .iter()
                .any(|c| c.name == "own")
        };
        assert!(named(2) && !named(200));
    }

    #[test]
    fn deviations_are_those_of_tables() {
        for (outside, known) in [
            (0.05, 1.95996),
            (0.01, 2.57583),
            (1e-4, 3.89059),
            (1e-6, 4.89164),
        ] {
            assert!(
                (deviations(outside) - known).abs() < 5e-4,
                "{outside}: {}",
                deviations(outside)
            );
        }
    }
}
