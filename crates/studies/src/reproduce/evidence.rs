//! What the findings of a study say about a claim.

use super::published::Check;
use vmtax_model::{ClaimUnit, ClaimVerdict, Estimate, HostFacts, KvmClass, Machine};

/// Findings that claims can be tested against.
pub trait Evidence {
    /// What they say about a claim; `None` where it is about another study.
    fn test(&self, _check: &Check, _host: &HostFacts) -> Option<Tested> {
        None
    }
}

/// What was found about one claim: a figure, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested {
    /// The figure.
    pub measured: Option<Estimate>,
    /// What it counts.
    pub unit: ClaimUnit,
    /// Whether the claim stands.
    pub verdict: ClaimVerdict,
    /// What the verdict rests on, or why there is none.
    pub why: String,
}

impl Tested {
    /// A figure compared with bounds: its interval decides; of one that has none, the median.
    pub fn within(figure: Estimate, unit: ClaimUnit, at_least: Option<f64>, at_most: Option<f64>) -> Tested {
        let (low, high) = figure.interval.map_or((figure.median, figure.median), |i| (i.low, i.high));
        let (least, most) = (at_least.unwrap_or(f64::NEG_INFINITY), at_most.unwrap_or(f64::INFINITY));
        let verdict = if low >= least && high <= most {
            ClaimVerdict::Reproduced
        } else if high < least || low > most {
            ClaimVerdict::NotReproduced
        } else {
            ClaimVerdict::Inconclusive
        };
        Tested { measured: Some(figure), unit, verdict, why: explained(verdict, at_least, at_most, unit) }
    }

    /// A cost over another, that must be at least so many times.
    pub fn at_least(ratio: Estimate, at_least: f64) -> Tested {
        Tested::within(ratio, ClaimUnit::Ratio, Some(at_least), None)
    }

    /// Nothing can be said.
    pub fn untestable(why: impl Into<String>) -> Tested {
        Tested { measured: None, unit: ClaimUnit::Ratio, verdict: ClaimVerdict::NotTestable, why: why.into() }
    }

    /// A variant has no figure.
    pub fn no_value(variant: &str) -> Tested {
        Tested::untestable(format!("no trial gave a value with {variant}"))
    }

    /// A machine has no figure.
    pub fn absent(machine: Machine, host: &HostFacts) -> Tested {
        Tested::untestable(match (machine, host.kvm.class) {
            (machine, KvmClass::Absent) if machine.is_kvm() => "there is no /dev/kvm here".to_owned(),
            (Machine::KVM, KvmClass::EmulatesKernels) => "this host's KVM only emulates guest kernels".to_owned(),
            (machine, KvmClass::Broken | KvmClass::NoPermission) if machine.is_kvm() => {
                "KVM cannot be used here: `vmtax doctor` says why".to_owned()
            }
            _ => format!("no trial gave a value on {machine}"),
        })
    }
}

fn explained(verdict: ClaimVerdict, at_least: Option<f64>, at_most: Option<f64>, unit: ClaimUnit) -> String {
    let unit = match unit {
        ClaimUnit::Ratio => " times",
        ClaimUnit::Nanoseconds => " ns",
        ClaimUnit::Percent => " %",
        ClaimUnit::Count => " exits",
    };
    let open = if verdict == ClaimVerdict::Inconclusive {
        "; the interval contains the bound: more --rounds decide"
    } else {
        ""
    };
    let bound = match (at_least, at_most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or(f64::INFINITY)),
    };
    format!("{bound}{unit} is claimed{open}")
}
