//! The totals and times of the published sysbench report ([`vmtax_model::WorkloadName::reference`]), and which of a run's are smaller.

use crate::trials::Trials;
use vmtax_model::{Plan, parse_size};

/// Describes the totals and times that the run made smaller than the report, one phrase for each workload; `None` if
/// there are none.
pub(crate) fn smaller(plan: &Plan, done: &Trials) -> Option<String> {
    let mut phrases: Vec<String> = Vec::new();
    for planned in &plan.workloads {
        // The agent says every option as it took effect; the plan only those that differ from the defaults.
        let took_effect = done
            .of_workload(planned.name)
            .next()
            .map_or(planned, |r| &r.workload);
        let reference = planned.name.reference().iter();
        let options: Vec<String> = reference
            .filter_map(|(option, reference)| {
                let used = took_effect.options.get(*option)?;
                (amount(used)? < amount(reference)?)
                    .then(|| format!("{option}={used} (--full: {reference})"))
            })
            .collect();
        if !options.is_empty() {
            phrases.push(format!("{} with {}", planned.name, options.join(", ")));
        }
    }
    (!phrases.is_empty()).then(|| phrases.join("; "))
}

/// A number, with an optional suffix for powers of 1024.
fn amount(text: &str) -> Option<f64> {
    parse_size(text)
        .map(|bytes| bytes as f64)
        .or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{WorkloadName, WorkloadSpec};

    #[test]
    fn amounts() {
        assert_eq!(amount("2G"), Some(2_147_483_648.0));
        assert_eq!(amount("8k"), Some(8192.0));
        assert_eq!(amount("0.5"), Some(0.5));
        assert_eq!(amount(""), None);
        assert_eq!(amount("é"), None);
    }

    #[test]
    fn every_option_of_the_reference_is_one_of_its_workload() {
        for &workload in WorkloadName::ALL {
            let reference = workload.reference().iter();
            let spec = reference.fold(WorkloadSpec::new(workload), |spec, (option, value)| {
                spec.with(option, value)
            });
            vmtax_workload::check(&spec).unwrap();
        }
    }
}
