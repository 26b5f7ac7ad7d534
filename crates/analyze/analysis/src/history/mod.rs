//! Figures of many runs: series of what can be compared, and where they changed.

mod divisive;
#[cfg(test)]
mod simulated;

use crate::overhead::estimate;
use divisive::{Break, LEVEL, breaks};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::{
    Better, Change, FactChange, HistoryFindings, Metric, PastFigure, REPORT_SCHEMA, SeriesFindings,
    SeriesKey,
};

/// With fewer runs no split is rarer than one in twenty by chance.
pub const FEWEST_RUNS: usize = 8;
/// The search takes time with the third power of the runs; older ones are drawn and not searched.
const MOST_RUNS: usize = 300;

/// Where a metric changed over the runs. Figures under different conditions are never compared.
pub fn history(metric: Metric, figures: Vec<(SeriesKey, PastFigure)>) -> HistoryFindings {
    let mut series: BTreeMap<SeriesKey, Vec<PastFigure>> = BTreeMap::new();
    for (key, figure) in figures {
        series.entry(key).or_default().push(figure);
    }
    let mut series: Vec<SeriesFindings> = series
        .into_iter()
        .map(|(key, all)| one(metric, key, all))
        .collect();
    // What was measured most often is what is asked for most likely.
    series.sort_by_key(|s| std::cmp::Reverse(s.figures.len()));
    HistoryFindings {
        schema: REPORT_SCHEMA,
        metric,
        series,
        method: method(),
    }
}

fn one(metric: Metric, key: SeriesKey, mut figures: Vec<PastFigure>) -> SeriesFindings {
    figures.sort_by(|a, b| (&a.run.started, &a.run.folder).cmp(&(&b.run.started, &b.run.folder)));
    let searched = figures.len().min(MOST_RUNS);
    let first = figures.len() - searched;
    let values: Vec<f64> = figures.iter().map(|f| f.value.median).collect();
    let found: Vec<Break> = breaks(&values[first..])
        .into_iter()
        .map(|b| Break {
            at: b.at + first,
            ..b
        })
        .collect();
    let ends: Vec<usize> = [first]
        .into_iter()
        .chain(found.iter().map(|b| b.at))
        .chain([values.len()])
        .collect();
    let typical = |from: usize, to: usize| estimate(values[from..to].to_vec()).median;
    let changes = found.iter().zip(ends.windows(3)).map(|(b, ends)| {
        let (before, after) = (typical(ends[0], ends[1]), typical(ends[1], ends[2]));
        let ratio = match metric.better() {
            Better::Lower => after / before,
            Better::Higher => before / after,
        };
        Change {
            at: b.at,
            p: b.p,
            before,
            runs_before: ends[1] - ends[0],
            after,
            runs_after: ends[2] - ends[1],
            ratio: Some(ratio).filter(|r| r.is_finite() && *r > 0.0),
            facts: around(&figures, b.at),
        }
    });
    SeriesFindings {
        changes: changes.collect(),
        key,
        searched,
        figures,
    }
}

/// Returns the facts that differ from one run to the next at a change, or one run beside it: its position may be off
/// by as much.
fn around(figures: &[PastFigure], at: usize) -> Vec<FactChange> {
    let pairs = (at.saturating_sub(1).max(1)..=at + 1).filter(|i| *i < figures.len());
    pairs
        .flat_map(|i| differences(&figures[i - 1].facts, &figures[i].facts, i))
        .collect()
}

fn differences(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    at: usize,
) -> Vec<FactChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let change = |fact: &String| FactChange {
        fact: fact.clone(),
        before: before.get(fact).cloned(),
        after: after.get(fact).cloned(),
        at,
    };
    differ.map(change).collect()
}

fn method() -> String {
    format!(
        "Each dot is the median over one run's rounds. Changes are found by E-divisive (Matteson and James 2014) on \
         ranks, each accepted by a permutation test at {:.0} %: of series that do not change, as many are reported as changed, if runs \
         do not depend on each other; a machine that drifts from run to run counts as a change too. It takes \
         {FEWEST_RUNS} runs, three before and three after a change; its position may be off by a run.",
        LEVEL * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Estimate, Machine, PastRun};

    fn key(host: &str) -> SeriesKey {
        SeriesKey {
            machine: Machine::TCG,
            variant: String::new(),
            step: String::new(),
            host: host.into(),
            settings: BTreeMap::new(),
        }
    }

    fn figure(i: usize, median: f64, qemu: &str) -> PastFigure {
        let started = format!("2026-11-20T12:{i:02}:00Z");
        PastFigure {
            run: PastRun {
                folder: format!("run-{i}"),
                started,
                name: "quick".into(),
                recorded: true,
            },
            n: 6,
            value: Estimate {
                median,
                interval: None,
            },
            facts: BTreeMap::from([
                ("QEMU".to_owned(), qemu.to_owned()),
                ("vmtax".to_owned(), "0.1.0".to_owned()),
            ]),
        }
    }

    /// Eight runs with QEMU 7.2, eight with 10.0, which is a fifth slower; given in any order.
    fn upgraded(host: &str) -> Vec<(SeriesKey, PastFigure)> {
        let noise = [0.0, 0.03, 0.01, 0.02, 0.05, 0.04, 0.07, 0.06];
        let level = |i: usize| {
            if i < 8 {
                (1000.0, "7.2.22")
            } else {
                (800.0, "10.0.2")
            }
        };
        let one = |i: usize| {
            (
                key(host),
                figure(i, level(i).0 * (1.0 + noise[i % 8]), level(i).1),
            )
        };
        (0..16).rev().map(one).collect()
    }

    #[test]
    fn a_change_is_found_with_its_size_and_what_came_with_it() {
        let found = history(Metric::CpuEvents, upgraded("one"));
        let [series] = &found.series[..] else {
            panic!("{found:?}")
        };
        let [change] = &series.changes[..] else {
            panic!("{series:?}")
        };
        assert_eq!(
            (change.at, change.runs_before, change.runs_after),
            (8, 8, 8)
        );
        assert_eq!(series.figures[0].run.folder, "run-0");
        // Medians 1035 and 828 of events a second: 1.25 times the cost.
        assert!(
            (change.before - 1035.0).abs() < 1e-9 && (change.after - 828.0).abs() < 1e-9,
            "{change:?}"
        );
        assert!((change.ratio.unwrap() - 1.25).abs() < 1e-9);
        let [fact] = &change.facts[..] else {
            panic!("{change:?}")
        };
        assert_eq!((fact.fact.as_str(), fact.at), ("QEMU", 8));
        assert_eq!(
            (fact.before.as_deref(), fact.after.as_deref()),
            (Some("7.2.22"), Some("10.0.2"))
        );
        // Of a time the same figures say that it got faster.
        assert!(
            history(Metric::MutexTime, upgraded("one")).series[0].changes[0]
                .ratio
                .unwrap()
                < 0.81
        );
    }

    #[test]
    fn hosts_are_not_one_series() {
        // Alternating between two hosts, one of them twice as fast: no change in either.
        let all = (0..20).map(|i| {
            let (host, level) = if i < 10 { ("slow", 1.0) } else { ("fast", 2.0) };
            (
                key(host),
                figure(i, level * (1.0 + 0.01 * ((i * 7) % 10) as f64), "7.2"),
            )
        });
        let found = history(Metric::CpuEvents, all.collect());
        assert_eq!(found.series.len(), 2);
        assert!(
            found
                .series
                .iter()
                .all(|s| s.figures.len() == 10 && s.changes.is_empty()),
            "{found:?}"
        );
    }

    #[test]
    fn few_runs_and_zeros_are_survived() {
        for count in 0..20 {
            for value in [0.0, 1.0] {
                let all = (0..count)
                    .map(|i| (key("one"), figure(i, value, "7.2")))
                    .collect();
                let found = history(Metric::CpuEvents, all);
                assert!(
                    found.series.iter().all(|s| s.changes.is_empty()),
                    "{count} {value}"
                );
            }
        }
        let stopped = (0..16)
            .map(|i| (key("one"), figure(i, if i < 8 { 1.0 } else { 0.0 }, "7.2")))
            .collect();
        assert_eq!(
            history(Metric::CpuEvents, stopped).series[0].changes[0].ratio,
            None
        );
    }
}
