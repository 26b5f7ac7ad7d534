//! A clock frequency that moves with the load.

use super::host::problem;
use crate::{Finding, Rule};
use vmtax_model::{HostProblem, Setting};

pub(super) const CPU_GOVERNOR: Rule = Rule {
    id: "cpu-governor",
    finds: "a CPU frequency that follows the load: figures of different runs are then of different frequencies",
    remedies: &[Setting::named("host.governor")
        .remedy("performance", "Set it to performance before comparing runs")],
    source: "Linux kernel documentation, CPU Performance Scaling",
    evaluate: |evidence| {
        let asked =
            evidence.overhead.is_some() || !problem(evidence, HostProblem::CpuGovernor).is_empty();
        let host = evidence.host.filter(|_| asked);
        let governor = host.and_then(|host| host.cpu.governor.as_deref());
        let finding = |governor: &str| Finding {
            values: vec![("BEFORE", governor.escape_default().to_string())],
            ..Finding::new(format!(
                "The host CPUs' frequency followed the load (governor '{}').",
                governor.escape_default()
            ))
        };
        let varies = governor.filter(|governor| *governor != "performance");
        varies.map(finding).into_iter().collect()
    },
};

#[cfg(test)]
mod tests {
    use crate::test_evidence::{Overheads, advice};
    use vmtax_model::Machine;

    fn advice_for(governor: Option<&str>) -> Vec<vmtax_findings::Advice> {
        let mut overheads = Overheads::new(Machine::KVM, &[]);
        overheads.host.cpu.governor = governor.map(str::to_owned);
        advice("cpu-governor", &overheads.evidence())
    }

    #[test]
    fn a_governor_that_follows_the_load_is_undone_to_what_it_was() {
        let found = advice_for(Some("powersave"));
        assert!(
            found[0].finding.contains("(governor 'powersave')"),
            "{found:?}"
        );
        assert_eq!(
            found[0].remedies[0].undo,
            "sudo cpupower frequency-set -g powersave"
        );
    }

    #[test]
    fn a_fixed_frequency_is_no_finding() {
        assert_eq!(advice_for(Some("performance")), []);
        assert_eq!(advice_for(None), []);
    }
}
