//! Known costs of virtualization. A rule evaluates evidence, says in one sentence what it found there, and names the
//! remedies as data. Pure: a rule knows neither where its evidence comes from nor how its finding is shown.

mod evidence;
mod in_effect;
mod rule;
mod rules;
#[cfg(test)]
mod test_evidence;
#[cfg(test)]
mod tests;

pub use evidence::{CodePattern, Evidence, Exits, GuestCodeSamples, Register};
pub use in_effect::VmPart;
pub use rule::{Finding, Rule};
pub use rules::{MAX_TICK_HZ, clock_read_rule, rules, why_run_queue_wait};

use rules::{about_texts, configured_settings, costs, is_about_hang, settings_to_check};
use vmtax_findings::Advice;
use vmtax_model::{HostFacts, Warning};

/// More than this nobody reads at once.
const MAX_ADVICE: usize = 5;

/// Findings of all rules in the evidence, in the order of [`sort`].
pub fn evaluate(evidence: &Evidence<'_>) -> Vec<Advice> {
    let mut all: Vec<Advice> = costs().flat_map(|rule| rule.advice(evidence)).collect();
    sort(&mut all);
    all
}

/// Sorts advice: that a VM does not run comes first, then what gives back most. What gives back the same keeps its order.
pub fn sort(advice: &mut [Advice]) {
    let rank = |advice: &Advice| {
        if is_about_hang(&advice.rule) {
            f64::INFINITY
        } else {
            advice.gain
        }
    };
    advice.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
}

/// Settings of a running VM and its host that are worth a check. What they cost was not measured: they are no causes, and a VM that
/// has them is healthy.
pub fn settings(evidence: &Evidence<'_>) -> Vec<Advice> {
    settings_to_check()
        .chain(configured_settings())
        .flat_map(|rule| rule.advice(evidence))
        .collect()
}

/// Known costs that texts show which somebody pasted: what was measured first, by its share, then what a configuration has.
pub fn review(evidence: &Evidence<'_>) -> Vec<Advice> {
    let mut all: Vec<Advice> = about_texts(evidence)
        .flat_map(|rule| rule.advice(evidence))
        .collect();
    sort(&mut all);
    all
}

/// Number of the rules that [`review`] asks about this evidence.
pub fn known_in_texts(evidence: &Evidence<'_>) -> usize {
    about_texts(evidence).count()
}

/// The first five of [`evaluate`].
pub fn advice(evidence: &Evidence<'_>) -> Vec<Advice> {
    let mut all = evaluate(evidence);
    all.truncate(MAX_ADVICE);
    all
}

/// Returns the meaning and the remedies of each warning, in their order.
pub fn about(warnings: &[Warning]) -> Vec<Advice> {
    let advice_for = |warning| {
        evaluate(&Evidence {
            warnings: std::slice::from_ref(warning),
            ..Evidence::default()
        })
    };
    warnings.iter().flat_map(advice_for).collect()
}

/// The host's facts, each check with what the rule about its problem says to do.
pub fn with_remedies(mut facts: HostFacts) -> HostFacts {
    let advice = evaluate(&Evidence {
        host: Some(&facts),
        checks: &facts.checks,
        ..Evidence::default()
    });
    for check in &mut facts.checks {
        let of_problem = |advice: &&Advice| {
            let mut problem = check.problem.iter();
            problem.any(|problem| problem.into_str() == advice.rule)
        };
        if let Some(advice) = advice.iter().find(of_problem) {
            check.remedies.clone_from(&advice.remedies);
        }
    }
    facts
}
