//! Known costs of virtualization. A rule evaluates evidence, says in one sentence what it found there, and names the
//! remedies as data. Pure: a rule knows neither where its evidence comes from nor how its finding is shown.

mod evidence;
mod in_effect;
mod rule;
mod rules;
#[cfg(test)]
mod test_evidence;

pub use evidence::{CodePattern, Evidence, Exits, GuestCodeSamples, HostLoad, Register};
pub use in_effect::VmPart;
pub use rule::{Finding, Rule};
pub use rules::{MAX_TICK_HZ, clock_read_rule, rules, why_run_queue_wait};

use rules::{
    HOST_CPUS_BUSY, RUN_QUEUE_WAITS, about_texts, configured_settings, costs, is_about_hang,
    settings_of_host_to_check, settings_to_check,
};
use vmtax_findings::Advice;
use vmtax_model::{HostFacts, Warning};

/// Advice that a report shows: more than this nobody reads at once.
pub const MAX_ADVICE: usize = 5;

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

/// Settings of the host that [`settings`] has for each of its VMs alike.
pub fn settings_of_host(evidence: &Evidence<'_>) -> Vec<Advice> {
    settings_of_host_to_check()
        .flat_map(|rule| rule.advice(evidence))
        .collect()
}

/// Returns true if a finding about the host says what a rule finds in each of its VMs.
pub fn says_of_all(host: &Advice, of_vm: &Advice) -> bool {
    host.rule == HOST_CPUS_BUSY && RUN_QUEUE_WAITS.contains(&of_vm.rule.as_str())
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

#[cfg(test)]
mod tests {
    use crate::{Evidence, rules};
    use std::collections::BTreeSet;
    use std::path::Path;
    use vmtax_model::{Remedy, SettingPlace};

    #[test]
    fn every_rule_has_an_identifier_of_its_own() {
        let ids: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), rules().count());
        let kebab = |id: &&str| {
            id.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        assert_eq!(ids.iter().find(|id| !kebab(id)), None);
    }

    #[test]
    fn no_rule_fires_without_evidence() {
        assert_eq!(crate::evaluate(&Evidence::default()), []);
    }

    #[test]
    fn every_setting_can_be_applied_read_back_and_undone() {
        for rule in rules() {
            for remedy in rule.remedies {
                let settable = remedy.place != SettingPlace::Instruction;
                let complete = !remedy.value.is_empty()
                    && remedy.cost.is_some()
                    && !remedy.line.is_empty()
                    && !remedy.read_back.is_empty()
                    && !remedy.undo.is_empty();
                assert!(
                    !remedy.action.is_empty() && !remedy.action.ends_with('.'),
                    "{}: {remedy:?}",
                    rule.id
                );
                assert!(
                    remedy.setting.is_empty() || (settable && complete),
                    "{}: {remedy:?}",
                    rule.id
                );
                let command = remedy.place == SettingPlace::Vmtax && !remedy.line.is_empty();
                assert!(
                    !settable || command || !remedy.setting.is_empty(),
                    "{}: {remedy:?}",
                    rule.id
                );
            }
        }
    }

    /// `make test` fails where the page is out of date; with VMTAX_WRITE_DOCS set, this writes it.
    #[test]
    fn the_page_of_rules_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/rules.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (head, _) = page.split_once("| rule |").unwrap();
        let current = format!("{head}{}", table());
        if std::env::var_os("VMTAX_WRITE_DOCS").is_some() {
            std::fs::write(&path, &current).unwrap();
        } else {
            assert!(
                page == current,
                "docs/rules.md is out of date: VMTAX_WRITE_DOCS=1 cargo test -p vmtax-rules"
            );
        }
    }

    fn table() -> String {
        let cell = |text: &str| text.replace('\n', " ").replace('|', "\\|");
        let remedy = |remedy: &Remedy<&str>| {
            let cost = remedy
                .cost
                .map_or(String::new(), |cost| format!("; {cost}"));
            let setting = match remedy.setting {
                "" => String::new(),
                setting => format!(" `{setting}={}`", remedy.value),
            };
            format!("{} ({}{setting}{cost})", cell(remedy.action), remedy.place)
        };
        let row = |rule: &crate::Rule| {
            let remedies: Vec<String> = rule.remedies.iter().map(remedy).collect();
            let remedies = if remedies.is_empty() {
                "none".to_owned()
            } else {
                remedies.join("<br>")
            };
            let source = if rule.source.is_empty() {
                "its own figures"
            } else {
                rule.source
            };
            format!(
                "| `{}` | {} | {remedies} | {} |\n",
                rule.id,
                cell(rule.finds),
                cell(source)
            )
        };
        let rows: String = rules().map(row).collect();
        format!(
            "| rule | finds | remedies (where `setting`; what applying costs) | source |\n|---|---|---|---|\n{rows}"
        )
    }
}
