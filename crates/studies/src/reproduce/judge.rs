//! A case's claims against what was found.

use crate::reproduce::{Case, Check, Test, habits};
use std::collections::BTreeMap;
use vmtax_analysis::paired;
use vmtax_model::{
    CaseFindings, CaseRow, CaseUnit, CaseVerdict, CompareFindings, Estimate, ExecFindings, Findings, Growth,
    GrowthFindings, HabitFindings, HostFacts, KvmClass, LayerFindings, Machine, Metric, SCHEMA, ShareFindings,
};

/// What a recording was found to say; it depends on what was run.
#[derive(Debug, Clone, Copy)]
pub enum Measured<'a> {
    /// Of machines against native.
    Taxes(&'a Findings),
    /// Of costs along a ladder.
    Growth(&'a GrowthFindings),
    /// Of a request's way.
    Layers(&'a LayerFindings),
    /// Of ways to share a tree.
    Shares(&'a ShareFindings),
    /// Of guests held against each other.
    Compared(&'a CompareFindings),
    /// Of a command.
    Exec(&'a ExecFindings),
    /// Of habits of guest kernels.
    Habits(&'a HabitFindings),
}

/// What was found about one claim: a figure, or the reason why there is none.
pub(crate) type Found = (Option<Estimate>, CaseUnit, CaseVerdict, String);

/// The verdict on each of a case's claims, and on the whole.
pub fn judge(case: &Case, host: &HostFacts, measured: Measured<'_>) -> CaseFindings {
    let row = |test: &Test| {
        let (measured, unit, verdict, why) = found(&test.check, host, measured);
        CaseRow { what: test.what.clone(), published: test.published.clone(), measured, unit, verdict, why }
    };
    let rows: Vec<CaseRow> = case.tests.iter().map(row).collect();
    let any = |verdict| rows.iter().any(|r| r.verdict == verdict);
    let verdict = if any(CaseVerdict::DoesNotHoldHere) {
        CaseVerdict::DoesNotHoldHere
    } else if any(CaseVerdict::Holds) {
        CaseVerdict::Holds
    } else {
        CaseVerdict::NotTestableHere
    };
    CaseFindings {
        schema: SCHEMA,
        name: case.name.clone(),
        title: case.title.clone(),
        source: case.source.clone(),
        claim: case.claim.clone(),
        verdict,
        rows,
    }
}

fn found(check: &Check, host: &HostFacts, measured: Measured<'_>) -> Found {
    match (check, measured) {
        (Check::Law { metric, variant, law }, Measured::Growth(findings)) => {
            let Some(growth) = growth(findings, *metric, variant) else { return nothing(variant) };
            let names = |g: &Growth| g.law.is_some_and(|l| l == *law || g.or.contains(law));
            let verdict = match growth.law {
                None => CaseVerdict::NotTestableHere,
                Some(_) if names(growth) => CaseVerdict::Holds,
                Some(_) => CaseVerdict::DoesNotHoldHere,
            };
            let named = growth.law.map_or("too few rounds or rungs to name a law".to_owned(), |l| {
                let all: Vec<&str> = [l].iter().chain(&growth.or).map(|l| l.notation()).collect();
                format!("{}, where {} is claimed", all.join(" or "), law.notation())
            });
            (growth.change, CaseUnit::Ratio, verdict, format!("bottom to top; {named}"))
        }
        (Check::OneMore { metric, variant, against, at_least }, Measured::Growth(findings)) => {
            let one_more = |name: &str| growth(findings, *metric, name)?.one_more;
            let (Some(this), Some(that)) = (one_more(variant), one_more(against)) else { return nothing(variant) };
            // Against the most that the other may cost.
            let most = that.interval.map_or(that.median, |i| i.high.max(that.median));
            if most <= 0.0 {
                let why = format!("one more costs nothing with {against}");
                return (Some(this), CaseUnit::Nanoseconds, positive(&this), why);
            }
            let over = |ns: f64| ns / most;
            let ratio = Estimate {
                median: over(this.median),
                interval: this.interval.map(|i| vmtax_model::Interval { low: over(i.low), high: over(i.high), ..i }),
            };
            within(ratio, CaseUnit::Ratio, Some(*at_least), None)
        }
        (Check::At { metric, variant, against, size, at_least }, Measured::Growth(findings)) => {
            let costs = |name: &str| at_size(findings, *metric, name, *size);
            match paired(&costs(against), &costs(variant)) {
                Some(pair) => within(pair.ratio, CaseUnit::Ratio, Some(*at_least), None),
                None => {
                    untestable(format!("nothing was measured at {size} on both: the ladder ended below, or it failed"))
                }
            }
        }
        (Check::Tax { metric, machine, at_least }, Measured::Taxes(findings)) => {
            let tax = column(findings, *metric, *machine).and_then(|c| c.tax.as_ref());
            tax.map_or_else(|| absent(*machine, host), |t| within(t.ratio, CaseUnit::Ratio, Some(*at_least), None))
        }
        (Check::Printed { of, name, machine, at_least }, Measured::Exec(findings)) => {
            let row = findings.printed.iter().find(|row| row.of == *of && row.name == *name);
            let column = row.and_then(|row| row.machines.iter().find(|c| c.machine == *machine));
            let tax = column.and_then(|c| c.tax.as_ref());
            tax.map_or_else(|| absent(*machine, host), |t| within(t.ratio, CaseUnit::Ratio, Some(*at_least), None))
        }
        (Check::Side { metric, variant, at_least, at_most }, Measured::Compared(findings)) => {
            let side = findings.against.iter().find(|a| a.side == *variant);
            match side.and_then(|a| a.rows.iter().find(|r| r.metric == *metric)) {
                Some(row) => within(row.ratio, CaseUnit::Ratio, *at_least, *at_most),
                None => nothing(variant),
            }
        }
        (Check::Value { metric, machine, at_most }, Measured::Taxes(findings)) => {
            let spread = column(findings, *metric, *machine).and_then(|c| c.spread.as_ref());
            spread.map_or_else(
                || absent(*machine, host),
                |s| within(vmtax_analysis::estimate(s.values.clone()), CaseUnit::Nanoseconds, None, Some(*at_most)),
            )
        }
        (Check::Habit { habit, machine, at_least }, Measured::Habits(findings)) => {
            habits::ratio(habits::row(findings, *machine, *habit), *at_least).unwrap_or_else(|| absent(*machine, host))
        }
        (Check::Spared { habit, machine, at_least }, Measured::Habits(findings)) => {
            habits::spared(habits::row(findings, *machine, *habit), *at_least).unwrap_or_else(|| absent(*machine, host))
        }
        (Check::Share { layers, at_least }, Measured::Layers(findings)) => {
            let Some(column) = findings.columns.iter().find(|c| c.machine.has_kernel()) else {
                return untestable("no guest was observed".to_owned());
            };
            if let Some(missing) = column.missing.first() {
                return untestable(format!("not every layer was seen: {}: {}", missing.what, missing.why));
            }
            let percent = column.rows.iter().filter(|r| layers.contains(&r.layer)).map(|r| r.percent).sum();
            within(Estimate { median: percent, interval: None }, CaseUnit::Percent, Some(*at_least), None)
        }
        (Check::Faster { variant }, Measured::Layers(findings)) => {
            let Some(difference) = findings.differences.iter().find(|d| d.variant == *variant) else {
                return nothing(variant);
            };
            let verdict = match difference.faster {
                Some(true) => CaseVerdict::Holds,
                Some(false) => CaseVerdict::DoesNotHoldHere,
                None => CaseVerdict::NotTestableHere,
            };
            let why = if difference.faster.is_some() { "of the first's latency" } else { "no difference is shown" };
            (Some(difference.ratio), CaseUnit::Ratio, verdict, why.to_owned())
        }
        (Check::Way { metric, variant, at_least, at_most }, Measured::Shares(findings)) => {
            let Some(at) = way(findings, variant) else { return nothing(variant) };
            let cell = findings.rows.iter().find(|r| r.metric == *metric).and_then(|r| r.cells.get(at));
            match cell.and_then(|c| c.against.as_ref()) {
                Some(tax) => within(tax.ratio, CaseUnit::Ratio, *at_least, *at_most),
                None => {
                    untestable(why_not(findings, at).unwrap_or_else(|| format!("no trial gave a value with {variant}")))
                }
            }
        }
        (Check::Kept { variant, property, keeping }, Measured::Shares(findings)) => {
            let Some(at) = way(findings, variant) else { return nothing(variant) };
            let kept = findings.columns.get(at).and_then(|c| c.kept.iter().find(|k| k.what == *property));
            match kept {
                Some(kept) => {
                    let same = kept.keeping == *keeping;
                    (None, CaseUnit::Ratio, bounded(same, !same), kept.detail.clone())
                }
                None => untestable(why_not(findings, at).unwrap_or_else(|| format!("it was not tried with {variant}"))),
            }
        }
        _ => untestable("the recording is of another kind than the case".to_owned()),
    }
}

fn growth<'a>(findings: &'a GrowthFindings, metric: Metric, variant: &str) -> Option<&'a Growth> {
    findings.growths.iter().find(|g| g.metric == metric && g.variant == variant)
}

fn at_size(findings: &GrowthFindings, metric: Metric, variant: &str, size: u64) -> BTreeMap<u32, f64> {
    let rungs = growth(findings, metric, variant).map_or(&[][..], |g| g.rungs.as_slice());
    let rung = rungs.iter().find(|r| r.size == size);
    rung.map_or(BTreeMap::new(), |r| r.rounds.iter().map(|c| (c.round, c.ns)).collect())
}

/// Which column a way has.
fn way(findings: &ShareFindings, variant: &str) -> Option<usize> {
    findings.columns.iter().position(|c| c.machine.is_guest() && c.variant == variant)
}

/// Why this way, or the one that all are held against, gave nothing.
fn why_not(findings: &ShareFindings, at: usize) -> Option<String> {
    let failed = |at: usize| findings.columns.get(at).and_then(|c| c.failed.clone());
    failed(at).or_else(|| failed(findings.base))
}

fn column(findings: &Findings, metric: Metric, machine: Machine) -> Option<&vmtax_model::MachineColumn> {
    findings.rows.iter().find(|r| r.metric == metric)?.machines.iter().find(|c| c.machine == machine)
}

fn positive(estimate: &Estimate) -> CaseVerdict {
    if estimate.at_least() > 0.0 { CaseVerdict::Holds } else { CaseVerdict::DoesNotHoldHere }
}

/// A figure held against bounds: its interval decides; of one that has none, the median.
pub(crate) fn within(figure: Estimate, unit: CaseUnit, at_least: Option<f64>, at_most: Option<f64>) -> Found {
    let (low, high) = figure.interval.map_or((figure.median, figure.median), |i| (i.low, i.high));
    let (least, most) = (at_least.unwrap_or(f64::NEG_INFINITY), at_most.unwrap_or(f64::INFINITY));
    let verdict = bounded(low >= least && high <= most, high < least || low > most);
    (Some(figure), unit, verdict, told(verdict, at_least, at_most, unit))
}

fn bounded(within: bool, without: bool) -> CaseVerdict {
    match (within, without) {
        (true, _) => CaseVerdict::Holds,
        (_, true) => CaseVerdict::DoesNotHoldHere,
        _ => CaseVerdict::NotTestableHere,
    }
}

fn told(verdict: CaseVerdict, at_least: Option<f64>, at_most: Option<f64>, unit: CaseUnit) -> String {
    let unit = match unit {
        CaseUnit::Ratio => " times",
        CaseUnit::Nanoseconds => " ns",
        CaseUnit::Percent => " %",
        CaseUnit::Count => " exits",
    };
    let open =
        if verdict == CaseVerdict::NotTestableHere { "; the interval holds both: more --rounds decide" } else { "" };
    let bound = match (at_least, at_most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or(f64::INFINITY)),
    };
    format!("{bound}{unit} is claimed{open}")
}

pub(crate) fn untestable(why: String) -> Found {
    (None, CaseUnit::Ratio, CaseVerdict::NotTestableHere, why)
}

fn nothing(variant: &str) -> Found {
    untestable(format!("no trial gave a value with {variant}"))
}

/// Why a machine has no figure.
fn absent(machine: Machine, host: &HostFacts) -> Found {
    untestable(match (machine, host.kvm.class) {
        (Machine::KVM | Machine::MICRO_KVM, KvmClass::Absent) => "there is no /dev/kvm here".to_owned(),
        (Machine::KVM, KvmClass::EmulatesKernels) => "this host's KVM only emulates guest kernels".to_owned(),
        (Machine::KVM | Machine::MICRO_KVM, KvmClass::Broken | KvmClass::NoPermission) => {
            "KVM cannot be used here: `vmtax doctor` says why".to_owned()
        }
        _ => format!("no trial gave a value on {machine}"),
    })
}
