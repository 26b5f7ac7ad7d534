//! The findings of a study as evidence for or against a claim.

use super::published::Check;
use vmtax_model::{ClaimUnit, ClaimVerdict, Estimate, HostFacts, Interval, KvmClass, Machine};

/// Findings that claims can be tested against.
pub trait Evidence {
    /// Tests a claim against these findings; `None` if the claim is about another study.
    fn test(&self, _check: &Check, _host: &HostFacts) -> Option<Tested> {
        None
    }
}

/// Result for one claim: a figure, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested {
    /// Measured figure; `None` if there is none.
    pub measured: Option<Estimate>,
    /// Unit of the figure.
    pub unit: ClaimUnit,
    /// Result: reproduced, not reproduced, inconclusive or not testable.
    pub verdict: ClaimVerdict,
    /// Bounds that the result rests on, or the reason why there is none.
    pub why: String,
    /// Factor on the number of rounds that would decide an inconclusive claim, approximate: an interval narrows with
    /// the square root of the rounds.
    pub times: Option<f64>,
}

impl Tested {
    /// A figure compared with bounds: its interval decides. A figure without one is inconclusive.
    pub fn within(
        figure: Estimate,
        unit: ClaimUnit,
        at_least: Option<f64>,
        at_most: Option<f64>,
    ) -> Tested {
        let claimed = claimed(at_least, at_most, unit);
        let Some(Interval { low, high, .. }) = figure.interval else {
            return Tested::inconclusive(Some(figure), unit, claimed, None);
        };
        let (least, most) = (
            at_least.unwrap_or(f64::NEG_INFINITY),
            at_most.unwrap_or(f64::INFINITY),
        );
        let verdict = if low >= least && high <= most {
            ClaimVerdict::Reproduced
        } else if high < least || low > most {
            ClaimVerdict::NotReproduced
        } else {
            // An end that crosses a bound has to come so much closer to the median.
            let times =
                |end: f64, bound: f64| ((end - figure.median) / (bound - figure.median)).powi(2);
            let crossed = |bound: &f64| (low..high).contains(bound);
            let ends = |bound: f64| times(if bound < figure.median { low } else { high }, bound);
            let times = [least, most]
                .into_iter()
                .filter(crossed)
                .map(ends)
                .reduce(f64::max);
            return Tested::inconclusive(
                Some(figure),
                unit,
                format!("{claimed}; the interval contains the bound"),
                times,
            );
        };
        Tested {
            measured: Some(figure),
            unit,
            verdict,
            why: claimed,
            times: None,
        }
    }

    /// It takes more rounds.
    pub fn inconclusive(
        measured: Option<Estimate>,
        unit: ClaimUnit,
        why: String,
        times: Option<f64>,
    ) -> Tested {
        Tested {
            measured,
            unit,
            verdict: ClaimVerdict::Inconclusive,
            why,
            times,
        }
    }

    /// A cost over another, that must be at least so many times.
    pub fn at_least(ratio: Estimate, at_least: f64) -> Tested {
        Tested::within(ratio, ClaimUnit::Ratio, Some(at_least), None)
    }

    /// Nothing can be said.
    pub fn untestable(why: impl Into<String>) -> Tested {
        Tested {
            measured: None,
            unit: ClaimUnit::Ratio,
            verdict: ClaimVerdict::NotTestable,
            why: why.into(),
            times: None,
        }
    }

    /// A variant has no figure.
    pub fn no_value(variant: &str) -> Tested {
        Tested::untestable(format!("no trial gave a value with {variant}"))
    }

    /// A machine has no figure.
    pub fn absent(machine: Machine, host: &HostFacts) -> Tested {
        Tested::untestable(match (machine, host.kvm.class) {
            (machine, KvmClass::Absent) if machine.is_kvm() => {
                "there is no /dev/kvm here".to_owned()
            }
            (Machine::KVM, KvmClass::EmulatesKernels) => {
                "this host's KVM only emulates guest kernels".to_owned()
            }
            (machine, KvmClass::Broken | KvmClass::NoPermission) if machine.is_kvm() => {
                "KVM cannot be used here: `vmtax doctor` says why".to_owned()
            }
            _ => format!("no trial gave a value on {machine}"),
        })
    }
}

fn claimed(at_least: Option<f64>, at_most: Option<f64>, unit: ClaimUnit) -> String {
    let (times, unit) = match unit {
        ClaimUnit::Ratio => ("×", ""),
        ClaimUnit::Nanoseconds => ("", " ns"),
        ClaimUnit::Percent => ("", " %"),
        ClaimUnit::Count => ("", " exits"),
        ClaimUnit::Exponent => ("", " as exponent"),
    };
    let bound = match (at_least, at_most) {
        (Some(least), Some(most)) => format!("{times}{least} to {times}{most}"),
        (Some(least), None) => format!("at least {times}{least}"),
        (None, most) => format!("at most {times}{}", most.unwrap_or(f64::INFINITY)),
    };
    format!("claimed: {bound}{unit}")
}
