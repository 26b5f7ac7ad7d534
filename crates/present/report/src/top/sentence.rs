//! Largest problem of a VM, in one sentence, with the next command.

use crate::text::plain;
use vmtax_model::{SettingPlace, TopSample, VmRates};

/// The first finding and the command that comes next; where there is none, that nothing was found.
pub fn sentence(vm: &VmRates) -> (String, Option<String>) {
    match vm.findings.first() {
        Some(advice) => {
            let lines = || {
                advice
                    .remedies
                    .iter()
                    .filter(|remedy| !remedy.line.is_empty())
            };
            // What a person can run as it stands comes before what changes a setting.
            let next = lines()
                .find(|remedy| remedy.place == SettingPlace::Vmtax)
                .or_else(|| lines().next());
            (
                plain(&advice.finding),
                next.map(|remedy| plain(&remedy.line)),
            )
        }
        None => ("No known problem in this interval.".to_owned(), None),
    }
}

/// The level, what it does, and what it cost, as the interval showed.
pub fn level_cost(sample: &TopSample) -> String {
    let does = match sample.level {
        0 => "counters",
        1 => "counters, QMP histograms",
        _ => "counters, QMP histograms, traces",
    };
    format!(
        "level {} ({does}): {:.1} % of a CPU",
        sample.level,
        sample.own_cpu * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Advice, Remedy};

    #[test]
    fn the_first_finding_is_the_sentence_and_a_hostile_one_is_harmless() {
        let remedy = |line: &str| Remedy {
            line: line.to_owned(),
            ..Remedy::default()
        };
        let finding = Advice {
            finding: "It is \u{1b}[31mslow.".to_owned(),
            remedies: vec![remedy(""), remedy("vmtax profile --vm a")],
            ..Advice::default()
        };
        let vm = VmRates {
            findings: vec![finding],
            ..VmRates::default()
        };
        let (text, next) = sentence(&vm);
        assert!(
            !text.contains('\u{1b}') && text.ends_with("slow."),
            "{text:?}"
        );
        assert_eq!(next.as_deref(), Some("vmtax profile --vm a"));
        assert_eq!(sentence(&VmRates::default()).1, None);
    }
}
