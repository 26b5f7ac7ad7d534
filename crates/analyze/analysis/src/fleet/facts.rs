//! Facts that explain the differences between hosts.

use super::outliers::sum_at_most;
use crate::compare::{holm, normal, shift};
use crate::estimate::{exp, median_of};
use std::collections::BTreeMap;
use vmtax_findings::{Estimate, FLEET_LEVEL, FactEffect, FactValue};
use vmtax_model::Interval;

/// Above so many hosts their ranks' sum is as good as normal.
const FEW: usize = 20;

/// Of a fact so many values are compared with the most common one: nearly every host may have one of its own.
const MAX_VALUES: usize = 200;

/// A host, as far as facts may explain it.
pub struct ExplainedHost<'a> {
    pub class: usize,
    /// ln of its ratio to the class's median host.
    pub deviation: f64,
    /// True if the host's deviation is to be explained.
    pub is_subject: bool,
    pub is_outlier: bool,
    /// Of each fact its value; empty where it is not known.
    pub values: Vec<&'a str>,
}

/// Returns the effect of each fact; facts without two values in any class are left out.
pub fn facts(names: &[&str], hosts: &[ExplainedHost]) -> Vec<FactEffect> {
    let ranks = ranks(hosts);
    let mut effects: Vec<(Vec<usize>, FactEffect)> = names
        .iter()
        .enumerate()
        .filter_map(|(fact, name)| {
            Some((partition(fact, hosts), effect(fact, name, hosts, &ranks)?))
        })
        .collect();
    let all: Vec<f64> = effects.iter().map(|(_, effect)| effect.p).collect();
    for ((_, effect), p) in effects.iter_mut().zip(holm(&all)) {
        effect.p = p;
    }
    let all: Vec<(Vec<usize>, String)> = effects
        .iter()
        .map(|(p, effect)| (p.clone(), effect.fact.clone()))
        .collect();
    for (partition, effect) in &mut effects {
        let same = all
            .iter()
            .filter(|(other, name)| other == partition && *name != effect.fact);
        effect.same_as = same.map(|(_, name)| name.clone()).collect();
    }
    let mut effects: Vec<FactEffect> = effects.into_iter().map(|(_, effect)| effect).collect();
    let weight = |effect: &FactEffect| (effect.p <= FLEET_LEVEL, effect.explained.median);
    effects.sort_by(|a, b| {
        weight(b)
            .partial_cmp(&weight(a))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    effects
}

/// Groups hosts with the same value of a fact, and returns the number of each host's group.
fn partition(fact: usize, hosts: &[ExplainedHost]) -> Vec<usize> {
    let mut groups = BTreeMap::new();
    let of_host = hosts.iter().map(|host| {
        let next = groups.len();
        *groups.entry(host.values[fact]).or_insert(next)
    });
    of_host.collect()
}

/// Rank of a host among those of its class, ties the worst.
struct Rank {
    /// From below, over the size of the class.
    low: f64,
    /// From above, over the size of the class.
    high: f64,
    /// Hosts of the class.
    class_size: usize,
}

/// Returns the rank of each host.
fn ranks(hosts: &[ExplainedHost]) -> Vec<Rank> {
    let mut classes: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for host in hosts {
        classes.entry(host.class).or_default().push(host.deviation);
    }
    classes
        .values_mut()
        .for_each(|all| all.sort_by(f64::total_cmp));
    let of_host = hosts.iter().map(|host| {
        let (sorted, v) = (&classes[&host.class], host.deviation);
        let share = |count: usize| count as f64 / sorted.len() as f64;
        let (low, below) = (
            sorted.partition_point(|other| *other <= v),
            sorted.partition_point(|other| *other < v),
        );
        Rank {
            low: share(low),
            high: share(sorted.len() - below),
            class_size: sorted.len(),
        }
    });
    of_host.collect()
}

fn effect(fact: usize, name: &str, hosts: &[ExplainedHost], ranks: &[Rank]) -> Option<FactEffect> {
    let values_of_class = by_value(fact, hosts);
    if values_of_class.is_empty() {
        return None;
    }
    let mut of_value: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (value, members) in values_of_class.values().flatten() {
        of_value.entry(value).or_default().extend(members);
    }
    let least = of_value
        .values()
        .map(|members| by_ranks(members, hosts, ranks))
        .fold(1.0, f64::min);
    let counts = counts(fact, hosts);
    let mut order: Vec<&str> = of_value.keys().copied().collect();
    order.sort_by_key(|value| std::cmp::Reverse(of_value[value].len()));
    let reference = order[0];
    let levels = levels(&values_of_class, reference, hosts);
    let mut compared: Vec<&str> = order[1..].to_vec();
    // Those of outliers first, then those of most hosts.
    compared.sort_by_key(|value| counts[value].outliers == 0);
    compared.truncate(MAX_VALUES);
    let subjects = compared
        .iter()
        .filter(|&&value| counts[value].subjects > 0)
        .count()
        .max(1);
    let shifts: BTreeMap<&str, Estimate> = compared
        .into_iter()
        .filter_map(|value| {
            Some((
                value,
                against(value, reference, &values_of_class, &levels, hosts, subjects)?,
            ))
        })
        .collect();
    let values = order.iter().map(|&value| FactValue {
        value: value.to_owned(),
        hosts: counts[value].hosts,
        outliers: counts[value].outliers,
        ratio: shifts.get(value).copied().map(exp),
    });
    Some(FactEffect {
        fact: name.to_owned(),
        explained: explained(fact, hosts, &levels, &shifts),
        p: (least * of_value.len() as f64).min(1.0),
        same_as: Vec::new(),
        values: values.collect(),
    })
}

/// Hosts with a value of a fact.
#[derive(Default)]
struct Counts {
    hosts: u32,
    subjects: u32,
    outliers: u32,
}

/// In one pass: a fact may have a value for each host.
fn counts<'a>(fact: usize, hosts: &[ExplainedHost<'a>]) -> BTreeMap<&'a str, Counts> {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    for host in hosts {
        let of_value = counts.entry(host.values[fact]).or_default();
        of_value.hosts += 1;
        of_value.subjects += u32::from(host.is_subject);
        of_value.outliers += u32::from(host.is_outlier);
    }
    counts
}

/// Returns the probability that chance gives these hosts ranks as far from the middle, within their classes.
fn by_ranks(members: &[usize], hosts: &[ExplainedHost], ranks: &[Rank]) -> f64 {
    let low: f64 = members.iter().map(|&i| ranks[i].low).sum();
    let high: f64 = members.iter().map(|&i| ranks[i].high).sum();
    let least = low.min(high);
    if members.len() <= FEW {
        return (2.0 * sum_at_most(members.len(), least)).min(1.0);
    }
    let mut of_class: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for &i in members {
        of_class
            .entry(hosts[i].class)
            .or_insert((0.0, ranks[i].class_size as f64))
            .0 += 1.0;
    }
    let mean: f64 = of_class
        .values()
        .map(|(k, n)| k * (n + 1.0) / 2.0 / n)
        .sum();
    let variance: f64 = of_class
        .values()
        .map(|(k, n)| k * (n - k) * (n + 1.0) / 12.0 / n / n)
        .sum();
    if variance > 0.0 {
        (2.0 * normal((least - mean) / variance.sqrt())).min(1.0)
    } else {
        1.0
    }
}

/// Hosts of a class by their value of a fact.
type ByValue<'a> = BTreeMap<usize, BTreeMap<&'a str, Vec<usize>>>;

/// Returns the hosts of each class in which they differ in a fact.
fn by_value<'a>(fact: usize, hosts: &[ExplainedHost<'a>]) -> ByValue<'a> {
    let mut by_value = ByValue::new();
    for (i, host) in hosts.iter().enumerate() {
        let values = by_value.entry(host.class).or_default();
        values.entry(host.values[fact]).or_default().push(i);
    }
    by_value.retain(|_, values| values.len() > 1);
    by_value
}

/// In each class that has hosts with the reference value their median deviation.
fn levels(by_value: &ByValue, reference: &str, hosts: &[ExplainedHost]) -> BTreeMap<usize, f64> {
    let level = |members: &Vec<usize>| median_of(members.iter().map(|&i| hosts[i].deviation));
    by_value
        .iter()
        .filter_map(|(class, values)| Some((*class, level(values.get(reference)?))))
        .collect()
}

/// By how much hosts with the value differ from those with the reference value, in classes that have both: ln of the ratio.
fn against(
    value: &str,
    reference: &str,
    by_value: &ByValue,
    levels: &BTreeMap<usize, f64>,
    hosts: &[ExplainedHost],
    values: usize,
) -> Option<Estimate> {
    let (mut base, mut other) = (Vec::new(), Vec::new());
    for (class, level) in levels {
        let (Some(with), Some(without)) =
            (by_value[class].get(value), by_value[class].get(reference))
        else {
            continue;
        };
        other.extend(with.iter().map(|&i| hosts[i].deviation - level));
        base.extend(without.iter().map(|&i| hosts[i].deviation - level));
    }
    shift(&base, &other, FLEET_LEVEL / values as f64)
}

/// The share of the subjects' deviation that is gone where each is compared with hosts of its value. Its interval: the least and
/// the largest share for any shifts within their intervals.
fn explained(
    fact: usize,
    hosts: &[ExplainedHost],
    levels: &BTreeMap<usize, f64>,
    shifts: &BTreeMap<&str, Estimate>,
) -> Estimate {
    let (mut before, mut fixed) = (0.0, 0.0);
    let mut of_value: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for host in hosts.iter().filter(|host| host.is_subject) {
        before += host.deviation.abs();
        let (level, value) = (levels.get(&host.class), host.values[fact]);
        match level.filter(|_| shifts.contains_key(value)) {
            Some(level) => {
                let rests = of_value.entry(value).or_default();
                rests.push(host.deviation - level);
            }
            None => fixed += (host.deviation - level.copied().unwrap_or(0.0)).abs(),
        }
    }
    let share = |after: f64| match before > 0.0 {
        true => (1.0 - after / before).max(0.0),
        false => 0.0,
    };
    let (mut after, mut least, mut most) = (fixed, fixed, fixed);
    let mut coverage = Some(1.0);
    for (value, rests) in of_value {
        let found = &shifts[value];
        let rest = |shift: f64| rests.iter().map(|v| (v - shift).abs()).sum::<f64>();
        after += rest(found.median);
        coverage = coverage
            .zip(found.interval)
            .map(|(sum, i)| sum - (1.0 - i.coverage));
        if let Some(i) = found.interval {
            // The sum of distances is convex: least at the median, largest at an end.
            least += rest(median_of(rests.iter().copied()).clamp(i.low, i.high));
            most += rest(i.low).max(rest(i.high));
        }
    }
    let interval = coverage.map(|coverage| Interval {
        low: share(most),
        high: share(least),
        coverage,
    });
    Estimate {
        median: share(after),
        interval,
    }
}
