//! Hosts of one class compared with each other: which are outliers, and which facts explain it. `docs/fleet.md` says what it
//! promises.

mod classes;
mod facts;
mod outliers;
#[cfg(test)]
mod simulated;

use crate::estimate::median_of;
use classes::{Classes, Deviation, Deviations, IDENTITY, classes, deviations, named};
use facts::ExplainedHost;
use outliers::{FEWEST_HOSTS, HostDeviations, Judged, judge, spread};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{
    FLEET_LEVEL, FactEffect, FleetData, FleetFindings, HostClass, HostRow, HostVerdict,
    MetricOutlier, REPORT_SCHEMA,
};
use vmtax_model::number::counted;

/// Of the facts of a run, what it did: nothing that a host has.
const OF_THE_RUN: &str = "study";

/// The hosts of a dataset. `class_by`: the facts that hosts of a class have in common; `min_effect`: the smallest difference
/// that matters, relative.
pub fn fleet(data: &FleetData, class_by: &[String], min_effect: f64) -> FleetFindings {
    let mut warnings = data.warnings.clone();
    let classes = classes(data, class_by, &mut warnings);
    let found = deviations(data, &classes);
    let series: BTreeSet<u32> = found.all.iter().map(|d| d.series).collect();
    // Half of the chance of a false alarm is for all metrics together, half for each by itself.
    let overall = judge(&by_class(&classes, overall(&found)), min_effect, 2);
    let rows = ordered(&overall);
    let places = rows.iter().enumerate();
    let place: BTreeMap<usize, usize> = places.map(|(at, host)| (host.id, at)).collect();
    let metric_outliers = metric_outliers(
        data,
        &classes,
        &found,
        &rows,
        &place,
        series.len(),
        min_effect,
    );
    note_what_is_left_out(data, &classes, &found, &rows, &mut warnings);
    let (facts, first_fact) = explain(data, &classes, &rows, class_by, &mut warnings);
    let (names, hosts) = tables(&classes, &rows);
    let days = || {
        rows.iter()
            .flat_map(|host| &classes.hosts[host.id].runs)
            .map(|run| data.runs[*run].date.as_str())
    };
    FleetFindings {
        schema: REPORT_SCHEMA,
        class_by: class_by.to_vec(),
        min_effect,
        runs: data.runs.len() as u32,
        figures: found.figures,
        metrics: series.len() as u32,
        dates: [days().min(), days().max()].map(|day| day.unwrap_or_default().to_owned()),
        classes: names,
        hosts,
        metric_outliers,
        facts,
        first_fact,
        warnings,
        method: method(min_effect),
    }
}

/// Of each host its runs' deviations in the typical metric: the median over all that the run measured.
fn overall(found: &Deviations) -> Vec<HostDeviations> {
    let mut all: Vec<&Deviation> = found.all.iter().collect();
    all.sort_by_key(|d| (d.host, d.run));
    let hosts = all.chunk_by(|a, b| a.host == b.host);
    let runs = |host: &[&Deviation]| {
        let runs = host.chunk_by(|a, b| a.run == b.run);
        runs.map(|run| median_of(run.iter().map(|d| d.value)))
            .collect()
    };
    hosts
        .map(|host| HostDeviations {
            id: host[0].host,
            runs: runs(host),
        })
        .collect()
}

fn by_class(classes: &Classes, hosts: Vec<HostDeviations>) -> Vec<Vec<HostDeviations>> {
    let mut of_class: Vec<Vec<_>> = classes.names.iter().map(|_| Vec::new()).collect();
    for host in hosts {
        of_class[classes.hosts[host.id].class].push(host);
    }
    of_class
}

/// Returns the hosts in the order of a report: slower ones, faster ones, those of too few runs, then the others; the
/// furthest first.
fn ordered(judged: &[Judged]) -> Vec<&Judged> {
    let rank = |host: &Judged| match host.verdict {
        HostVerdict::Slower => 0,
        HostVerdict::Faster => 1,
        HostVerdict::TooFewRuns => 2,
        HostVerdict::Typical => 3,
    };
    let mut all: Vec<&Judged> = judged.iter().collect();
    all.sort_by(|a, b| {
        rank(a)
            .cmp(&rank(b))
            .then(b.deviation.abs().total_cmp(&a.deviation.abs()))
    });
    all
}

fn is_outlier(verdict: HostVerdict) -> bool {
    matches!(verdict, HostVerdict::Slower | HostVerdict::Faster)
}

/// Hosts that are outliers in one metric, where they are not over all.
fn metric_outliers(
    data: &FleetData,
    classes: &Classes,
    found: &Deviations,
    overall: &[&Judged],
    place: &BTreeMap<usize, usize>,
    metrics: usize,
    min_effect: f64,
) -> Vec<MetricOutlier> {
    let mut outliers = Vec::new();
    for one in found.all.chunk_by(|a, b| a.series == b.series) {
        let hosts = one.chunk_by(|a, b| a.host == b.host);
        let hosts = hosts
            .map(|runs| HostDeviations {
                id: runs[0].host,
                runs: runs.iter().map(|d| d.value).collect(),
            })
            .collect();
        let judged = judge(&by_class(classes, hosts), min_effect, 2 * metrics);
        for host in judged.into_iter().filter(|host| is_outlier(host.verdict)) {
            let Some(&at) = place
                .get(&host.id)
                .filter(|at| !is_outlier(overall[**at].verdict))
            else {
                continue;
            };
            let series = data.series[one[0].series as usize].clone();
            outliers.push(MetricOutlier {
                host: at,
                series,
                ratio: host.ratio,
                p: host.p,
                verdict: host.verdict,
            });
        }
    }
    let far = |o: &MetricOutlier| o.ratio.median.ln().abs();
    outliers.sort_by(|a, b| a.host.cmp(&b.host).then(far(b).total_cmp(&far(a))));
    outliers
}

fn note_what_is_left_out(
    data: &FleetData,
    classes: &Classes,
    found: &Deviations,
    judged: &[&Judged],
    warnings: &mut Vec<String>,
) {
    let compared: BTreeSet<usize> = judged.iter().map(|host| host.id).collect();
    let alone = classes
        .hosts
        .iter()
        .enumerate()
        .filter(|(id, _)| !compared.contains(id));
    let alone: Vec<&str> = alone.map(|(_, host)| host.name.as_str()).collect();
    if !alone.is_empty() {
        let (hosts, verb) = plural(alone.len() as u64, "host");
        warnings.push(format!(
            "{hosts} {verb} not compared ({}): {FEWEST_HOSTS} hosts of a class must have run the same workload with the same settings. Wider \
             classes, --class, have more hosts.",
            named(alone),
        ));
    } else if found.alone > 0 {
        let (figures, verb) = plural(found.alone, "figure");
        warnings.push(format!(
            "{figures} {verb} left out: fewer than {FEWEST_HOSTS} hosts of a class ran the same workload with the same settings. Run one plan \
             on all hosts: vmtax run plan.toml.",
        ));
    }
    if !found.undirected.is_empty() {
        let metrics: BTreeSet<&str> = found
            .undirected
            .iter()
            .map(|i| data.series[*i as usize].metric.as_str())
            .collect();
        let (count, verb) = plural(metrics.len() as u64, "metric");
        warnings.push(format!(
            "{count} {verb} left out: the dataset does not say whether higher or lower is better ({}).",
            named(metrics)
        ));
    }
}

/// Explains the outliers by facts, or all hosts if there are no outliers; returns the facts' effects, and the values
/// of the first fact.
fn explain(
    data: &FleetData,
    classes: &Classes,
    rows: &[&Judged],
    class_by: &[String],
    warnings: &mut Vec<String>,
) -> (Vec<FactEffect>, Vec<String>) {
    let known = data.runs.iter().flat_map(|run| run.facts.keys());
    let is_fact = |name: &&str| {
        !IDENTITY.contains(name) && *name != OF_THE_RUN && !class_by.iter().any(|by| by == name)
    };
    let names: BTreeSet<&str> = known.map(String::as_str).filter(is_fact).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let values = rows.iter().map(|row| {
        let runs = &classes.hosts[row.id].runs;
        names.iter().map(|name| common_value(data, runs, name))
    });
    let values: Vec<Vec<CommonValue>> = values.map(Iterator::collect).collect();
    note_changed_facts(&names, &values, warnings);
    let has_outliers = rows.iter().any(|host| is_outlier(host.verdict));
    let hosts = rows.iter().zip(&values).map(|(row, values)| {
        let is_outlier = is_outlier(row.verdict);
        ExplainedHost {
            class: classes.hosts[row.id].class,
            deviation: row.deviation,
            is_subject: is_outlier || !has_outliers,
            is_outlier,
            values: values.iter().map(|common| common.value).collect(),
        }
    });
    let hosts: Vec<ExplainedHost> = hosts.collect();
    let effects = facts::facts(&names, &hosts);
    let first = effects
        .first()
        .and_then(|effect| names.iter().position(|name| *name == effect.fact));
    let first = first.map_or_else(Vec::new, |fact| {
        hosts
            .iter()
            .map(|host| host.values[fact].to_owned())
            .collect()
    });
    (effects, first)
}

/// Warns of facts that changed from run to run; `values` of each host, in the order of the facts' names.
fn note_changed_facts(names: &[&str], values: &[Vec<CommonValue>], warnings: &mut Vec<String>) {
    let changed = names.iter().enumerate().filter_map(|(fact, name)| {
        let hosts = values.iter().filter(|host| host[fact].has_others).count();
        (hosts > 0).then(|| format!("{name} on {hosts} hosts"))
    });
    let changed: Vec<String> = changed.collect();
    if !changed.is_empty() {
        warnings.push(format!(
            "Facts changed from run to run ({}): of each host the value of most of its runs counts. The query \"Which figures drift?\" of \
             docs/dataset.md compares before and after.",
            named(changed.iter().map(String::as_str))
        ));
    }
}

/// A host's value of a fact.
struct CommonValue<'a> {
    /// Value of most of its runs; empty where it is not known.
    value: &'a str,
    /// True if some runs have another value.
    has_others: bool,
}

fn common_value<'a>(data: &'a FleetData, runs: &[usize], name: &str) -> CommonValue<'a> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs {
        let value = data.runs[*run].facts.get(name);
        *counts.entry(value.map_or("", String::as_str)).or_default() += 1;
    }
    let has_others = counts.len() > 1;
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    CommonValue {
        value: most.map_or("", |(value, _)| value),
        has_others,
    }
}

/// Classes that were compared, the largest first, and their hosts.
fn tables(classes: &Classes, rows: &[&Judged]) -> (Vec<HostClass>, Vec<HostRow>) {
    let mut of_class: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for row in rows {
        of_class
            .entry(classes.hosts[row.id].class)
            .or_default()
            .push(row.deviation);
    }
    let mut order: Vec<(usize, Vec<f64>)> = of_class.into_iter().collect();
    order.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
    let place: BTreeMap<usize, usize> = order
        .iter()
        .enumerate()
        .map(|(at, (class, _))| (*class, at))
        .collect();
    let names = order.iter().map(|(class, hosts)| HostClass {
        name: classes.names[*class].clone(),
        hosts: hosts.len() as u32,
        spread: spread(hosts.iter().copied()).1.exp_m1(),
    });
    let hosts = rows.iter().map(|row| HostRow {
        host: classes.hosts[row.id].name.clone(),
        class: place[&classes.hosts[row.id].class],
        runs: row.runs,
        ratio: row.ratio,
        p: row.p,
        verdict: row.verdict,
    });
    (names.collect(), hosts.collect())
}

/// "1 host" and "is", "2 hosts" and "are".
fn plural(n: u64, what: &str) -> (String, &'static str) {
    (counted(n, what), if n == 1 { "is" } else { "are" })
}

fn method(min_effect: f64) -> String {
    format!(
        "Hosts are compared only with hosts of their class. A run's figure is the median, over its metrics, of the cost relative to the \
         class's median host. A host is an outlier if three conditions hold: (1) its runs rank higher (or lower) among all runs of the \
         class than chance explains (p < {1:.0} %), whatever the noise; (2) its median is further from the class's than normally \
         distributed hosts are, by the class's MAD; (3) it differs by at least {0:.1} %. Both tests are corrected for all hosts, metrics and both directions \
         (Holm): at most {1:.0} % of datasets without an outlier show one. Runs count as independent. The test of a host property (fact) ranks \
         hosts within their classes, corrected for all values and properties: again at most {1:.0} % of datasets show one by chance. What a property \
         explains is the share of the outliers' difference (without outliers, of all hosts') that disappears when only hosts with the same value are \
         compared; the interval includes that of each value's difference from the most common one (Hodges and Lehmann). A property that \
         explains the difference may not be the cause: change it on one host and measure again.",
        min_effect * 100.0,
        FLEET_LEVEL * 100.0
    )
}
