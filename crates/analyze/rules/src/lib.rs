//! Known costs of virtualization. A rule looks at evidence, says in one sentence what it found there, and names the
//! remedies as data. Pure: a rule knows neither where its evidence comes from nor how its finding is shown.

mod evidence;
mod number;
mod rule;
mod rules;
#[cfg(test)]
mod test_evidence;
#[cfg(test)]
mod tests;

pub use evidence::{CodePattern, Evidence, Exits, GuestCodeSamples, Register};
pub use rule::{Finding, Rule};
pub use rules::{MAX_TICK_HZ, RULES};

use vmtax_model::Advice;

/// More than this nobody reads at once.
const MAX_ADVICE: usize = 5;

/// What every rule finds in the evidence, what gives back most first.
pub fn evaluate(evidence: &Evidence<'_>) -> Vec<Advice> {
    let mut all: Vec<Advice> = RULES.iter().flat_map(|rule| rule.advice(evidence)).collect();
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    all
}

/// The first five of [`evaluate`].
pub fn advice(evidence: &Evidence<'_>) -> Vec<Advice> {
    let mut all = evaluate(evidence);
    all.truncate(MAX_ADVICE);
    all
}
