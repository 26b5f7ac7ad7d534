//! The parts in which a guest is tuned: each is a comparison of some configurations.

use super::definition::Plan;
use super::study::{Compare, CompareSpec, Study};
use super::variant::Variant;
use crate::{GuestTunePart, GuestTuneSpec, GuestTuneStep};

/// Rounds of a part at most: what is decided ends it earlier.
const ROUNDS: u32 = 15;
/// The smallest difference that matters.
const MIN_EFFECT: f64 = 0.02;

impl Plan {
    /// Begins a part of the tuning after so many rounds; a plan of another study stays as it is.
    pub fn begin_part(&mut self, step: GuestTuneStep, first_round: u32) {
        let GuestTuneStep {
            phase,
            configurations,
        } = step;
        let Some(baseline) = self.variants.first().cloned() else {
            return;
        };
        let Study::TuneGuest(tune) = &mut self.study else {
            return;
        };
        for configuration in &configurations {
            let variant = tune.spec.variant(&baseline, configuration);
            if self.variants.iter().all(|known| known.name != variant.name) {
                self.variants.push(variant);
            }
        }
        self.rounds = first_round + ROUNDS;
        tune.spec.parts.push(GuestTunePart {
            phase,
            configurations,
            first_round,
            rounds: 0,
        });
    }

    /// A plan as it was before its guest was tuned.
    #[must_use]
    pub fn without_parts(mut self) -> Plan {
        if let Study::TuneGuest(tune) = &mut self.study {
            tune.spec.parts.clear();
            self.variants.truncate(1);
            self.rounds = 1;
        }
        self
    }

    /// Ends the part that was begun last, after so many rounds of its own.
    pub fn end_part(&mut self, rounds: u32) {
        if let Study::TuneGuest(tune) = &mut self.study {
            if let Some(part) = tune.spec.parts.last_mut() {
                part.rounds = rounds;
                self.rounds = part.first_round + rounds;
            }
        }
    }

    /// The comparison that measures the part that was begun last; `None` before the first.
    pub fn part(&self) -> Option<Plan> {
        let Study::TuneGuest(tune) = &self.study else {
            return None;
        };
        let (part, baseline) = (tune.spec.parts.last()?, self.variants.first()?);
        let variants: Vec<Variant> = part
            .configurations
            .iter()
            .map(|configuration| tune.spec.variant(baseline, configuration))
            .collect();
        let settings = Compare {
            min_effect: MIN_EFFECT,
            budget_s: None,
            one_boot: false,
        };
        Some(Plan {
            study: Study::Compare(CompareSpec {
                settings,
                command: tune.command.clone(),
            }),
            rounds: ROUNDS,
            seed: self.seed.wrapping_add(tune.spec.parts.len() as u64),
            variants,
            ..self.clone()
        })
    }
}

impl GuestTuneSpec {
    /// Trials with one probe each that its parts mean.
    pub(super) fn boots(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| u64::from(part.rounds) * part.configurations.len() as u64)
            .sum()
    }

    /// Returns the fault of the specification, as an error message; `None` if there is none.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let names = |candidate: &crate::GuestCandidate| candidate.name.clone();
        let mut known: Vec<String> = self.candidates.iter().map(names).collect();
        known.sort_unstable();
        let is_ascending = |numbers: &Vec<usize>| {
            numbers.windows(2).all(|pair| pair[0] < pair[1])
                && numbers
                    .last()
                    .is_none_or(|last| *last < self.candidates.len())
        };
        let rounds: u64 = self.parts.iter().map(|part| u64::from(part.rounds)).sum();
        if self.candidates.len() > GuestTuneSpec::MAX_CANDIDATES {
            Some("it has more than 24 candidates: leave some out")
        } else if known.windows(2).any(|pair| pair[0] == pair[1]) {
            Some("a candidate is listed twice: list it once")
        } else if self
            .candidates
            .iter()
            .any(|candidate| candidate.name.is_empty() || candidate.set.is_empty())
        {
            Some("a candidate has no name or sets nothing: leave it out")
        } else if self.budget_s == 0 {
            Some("budget-s must be above 0")
        } else if !self
            .parts
            .iter()
            .all(|part| part.configurations.iter().all(is_ascending))
        {
            Some("a part names a candidate that there is not: leave the parts out to tune again")
        } else if self
            .parts
            .windows(2)
            .any(|pair| pair[0].first_round > pair[1].first_round)
            || rounds > 10_000
        {
            Some(
                "its parts are not in the order of their rounds: leave the parts out to tune again",
            )
        } else {
            None
        }
    }
}
