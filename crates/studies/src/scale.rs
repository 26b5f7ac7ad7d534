//! How a cost grows with a size.

use crate::analysis::Analysis;
use crate::reproduce::{Check, Evidence, Tested};
use std::collections::BTreeMap;
use vmtax_analysis::paired;
use vmtax_model::{CaseUnit, CaseVerdict, Estimate, Growth, GrowthFindings, HostFacts, Interval, Law, Metric};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Scale<'a> {
    recording: &'a Recording,
    findings: GrowthFindings,
}

impl<'a> Scale<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Scale<'a> {
        Scale { recording, findings: vmtax_analysis::growth(&recording.plan, &recording.trials) }
    }
}

impl Analysis for Scale<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::growth::report(self.recording, &self.findings)
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::growth::json(self.recording, &self.findings)
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }
}

impl Evidence for GrowthFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        Some(match check {
            Check::Law { metric, variant, law } => {
                growth(self, *metric, variant).map_or_else(|| Tested::no_value(variant), |growth| by_law(growth, *law))
            }
            Check::OneMore { metric, variant, against, at_least } => {
                let one_more = |name: &str| growth(self, *metric, name)?.one_more;
                match (one_more(variant), one_more(against)) {
                    (Some(this), Some(that)) => one_more_over(this, that, against, *at_least),
                    _ => Tested::no_value(variant),
                }
            }
            Check::At { metric, variant, against, size, at_least } => {
                let costs = |name: &str| at_size(self, *metric, name, *size);
                match paired(&costs(against), &costs(variant)) {
                    Some(pair) => Tested::at_least(pair.ratio, *at_least),
                    None => Tested::untestable(format!(
                        "nothing was measured at {size} on both: the ladder ended below, or it failed"
                    )),
                }
            }
            _ => return None,
        })
    }
}

fn by_law(growth: &Growth, claimed: Law) -> Tested {
    let measured = growth.change;
    let tested = |verdict, named: String| Tested {
        measured,
        unit: CaseUnit::Ratio,
        verdict,
        why: format!("bottom to top; {named}"),
    };
    let Some(law) = growth.law else {
        return tested(CaseVerdict::NotTestableHere, "too few rounds or rungs to name a law".to_owned());
    };
    let laws: Vec<Law> = [law].iter().chain(&growth.or).copied().collect();
    let verdict = if laws.contains(&claimed) { CaseVerdict::Holds } else { CaseVerdict::DoesNotHoldHere };
    let all: Vec<&str> = laws.iter().map(|law| law.notation()).collect();
    tested(verdict, format!("{}, where {} is claimed", all.join(" or "), claimed.notation()))
}

/// What one more costs, over the most that one more of the other may cost.
fn one_more_over(this: Estimate, that: Estimate, against: &str, at_least: f64) -> Tested {
    let most = that.interval.map_or(that.median, |i| i.high.max(that.median));
    if most <= 0.0 {
        let verdict = if this.at_least() > 0.0 { CaseVerdict::Holds } else { CaseVerdict::DoesNotHoldHere };
        let why = format!("one more costs nothing with {against}");
        return Tested { measured: Some(this), unit: CaseUnit::Nanoseconds, verdict, why };
    }
    let over = |ns: f64| ns / most;
    let interval = this.interval.map(|i| Interval { low: over(i.low), high: over(i.high), ..i });
    Tested::at_least(Estimate { median: over(this.median), interval }, at_least)
}

fn growth<'a>(findings: &'a GrowthFindings, metric: Metric, variant: &str) -> Option<&'a Growth> {
    findings.growths.iter().find(|g| g.metric == metric && g.variant == variant)
}

fn at_size(findings: &GrowthFindings, metric: Metric, variant: &str, size: u64) -> BTreeMap<u32, f64> {
    let rungs = growth(findings, metric, variant).map_or(&[][..], |g| g.rungs.as_slice());
    let rung = rungs.iter().find(|r| r.size == size);
    rung.map_or(BTreeMap::new(), |r| r.rounds.iter().map(|c| (c.round, c.ns)).collect())
}
