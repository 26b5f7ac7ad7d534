//! Figures of many runs: series of what can be compared, and where they changed.
//!
//! E-divisive finds where a series of values changed its distribution, whatever the distributions are: D. S. Matteson, N. A.
//! James, *A Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data*, Journal of the American
//! Statistical Association 109 (2014), with distances to the power of 1. Here the distances are those of the values' ranks
//! within their segment (the energy statistic is then a multiple of Cramér and von Mises'): one run that took ten times as long
//! counts as one run, and a rate gives the same answer as its time.

use crate::estimate::median_of;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{
    Change, FactChange, HistoryFindings, PastFigure, REPORT_SCHEMA, SeriesFindings, SeriesKey,
};
use vmtax_model::{Better, Metric};

/// With fewer runs no split is rarer than one in twenty by chance.
pub const FEWEST_RUNS: usize = 8;
/// The search takes time with the third power of the runs; older ones are drawn and not searched.
const MOST_RUNS: usize = 300;
/// A change closer to an end, or to another, cannot be distinguished from a run or two that were disturbed.
const FEWEST_EACH: usize = 3;
/// With this many draws a level of 5 % is exact.
const DRAWS: usize = 999;
/// Share of series without a change that may be reported as changed.
const LEVEL: f64 = 0.05;

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
    let mut found = breaks(&values[first..]);
    found.iter_mut().for_each(|b| b.at += first);
    let ends: Vec<usize> = [first]
        .into_iter()
        .chain(found.iter().map(|b| b.at))
        .chain([values.len()])
        .collect();
    let typical = |from: usize, to: usize| median_of(values[from..to].iter().copied());
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
        "Changes are found by E-divisive (Matteson and James 2014) on \
         ranks, each accepted by a permutation test at {0:.0} %: {0:.0} % of unchanged series are reported as changed, if runs \
         are independent; a drift from run to run counts as a change too. A series needs \
         {FEWEST_RUNS} runs, with three before and three after a change; its position may be off by one run.",
        LEVEL * 100.0
    )
}

/// A change of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Break {
    /// The first value after it.
    at: usize,
    /// The p of the test by which it was let in.
    p: f64,
}

/// The best way to split a segment.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// The first value of the second part.
    at: usize,
    q: f64,
}

/// Where `values` change, in order: the best split of any segment so far is taken, until chance alone splits as well.
fn breaks(values: &[f64]) -> Vec<Break> {
    // The same figures give the same answer.
    let mut random = Rng::with_seed(2014);
    let mut breaks: Vec<Break> = Vec::new();
    let mut segments = vec![ranks(values)];
    loop {
        let splits: Vec<Option<Split>> = segments
            .iter()
            .map(|s| best_split(s, FEWEST_EACH))
            .collect();
        let found = splits
            .iter()
            .enumerate()
            .filter_map(|(i, split)| split.map(|s| (i, s)));
        let Some((which, split)) = found.max_by(|a, b| a.1.q.total_cmp(&b.1.q)) else {
            break;
        };
        let p = chance(&segments, split.q, &mut random);
        if p > LEVEL {
            break;
        }
        let begin: usize = segments[..which].iter().map(Vec::len).sum();
        let end = begin + segments[which].len();
        let at = begin + split.at;
        breaks.push(Break { at, p });
        segments.splice(
            which..=which,
            [ranks(&values[begin..at]), ranks(&values[at..end])],
        );
    }
    breaks.sort_by_key(|b| b.at);
    breaks
}

/// Returns the probability that segments in random order have a split as good as `q`.
fn chance(segments: &[Vec<f64>], q: f64, random: &mut Rng) -> f64 {
    let mut drawn = segments.to_vec();
    let mut as_good = 1; // the order that was there
    for _ in 0..DRAWS {
        let best = drawn.iter_mut().filter_map(|segment| {
            random.shuffle(segment);
            best_split(segment, FEWEST_EACH)
        });
        // Orders that only differ in rounding are as good.
        as_good += usize::from(best.map(|s| s.q).fold(0.0, f64::max) >= q * (1.0 - 1e-9));
        if as_good as f64 > LEVEL * (DRAWS + 1) as f64 {
            // It can no longer become a change.
            break;
        }
    }
    as_good as f64 / (DRAWS + 1) as f64
}

/// The split of `values` into one part, a second, and a rest, with the largest energy statistic between the two parts;
/// `None` where there are too few values for two parts of `fewest`.
fn best_split(values: &[f64], fewest: usize) -> Option<Split> {
    // within[i]: the sum of distances between the values i.. up to the end that was reached; from_first: of those before i.
    let mut within = vec![0.0; values.len()];
    let mut from_first = vec![0.0; values.len() + 1];
    let mut best: Option<Split> = None;
    for end in 1..=values.len() {
        let new = values[end - 1];
        let mut to_new = 0.0;
        for i in (0..end - 1).rev() {
            to_new += (values[i] - new).abs();
            within[i] += to_new;
        }
        from_first[end] = within[0];
        for at in fewest..=end.saturating_sub(fewest) {
            let q = statistic(at, end - at, from_first[at], within[at], within[0]);
            if best.is_none_or(|b| q > b.q) {
                best = Some(Split { at, q });
            }
        }
    }
    best
}

/// mn/(m+n) times the energy distance between n values and m others, from the sums of distances within each and among all.
fn statistic(n: usize, m: usize, within_n: f64, within_m: f64, all: f64) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let pairs = |k: f64| k * (k - 1.0) / 2.0;
    let energy =
        2.0 * (all - within_n - within_m) / (n * m) - within_n / pairs(n) - within_m / pairs(m);
    energy * n * m / (n + m)
}

/// Each value's rank from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let shared = from as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|i| ranks[*i] = shared);
        from += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{Estimate, PastRun};
    use vmtax_model::Machine;

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

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-9, "{got} {expected}");
    }

    /// Values computed in Python with the paper's definitions written out as loops over all pairs.
    #[test]
    fn splits_agree_with_the_definitions() {
        let step = [3.1, 2.9, 3.0, 3.3, 2.8, 4.1, 4.0, 4.4, 3.9, 4.2];
        let hump = [
            1.0, 50.0, 1.2, 1.1, 0.9, 1.05, 2.0, 2.1, 1.95, 2.2, 2.05, 1.0, 1.1, 0.95,
        ];
        let ties = [
            1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 3.0, 3.0, 4.0, 3.0, 1.0, 1.0, 2.0,
        ];
        for (values, at, raw, ranked) in [
            (&step[..], 5, 4.3, 15.0),
            (&hump, 6, 3.090909090909082, 10.90909090909091),
            (&ties, 6, 5.76, 21.12),
        ] {
            for fewest in [2, 3] {
                let split = best_split(values, fewest).unwrap();
                assert_eq!(split.at, at, "{values:?}");
                close(split.q, raw);
                close(best_split(&ranks(values), fewest).unwrap().q, ranked);
            }
        }
        assert!(best_split(&step[..5], 3).is_none());
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(ranks(&[30.0, 10.0, 20.0, 10.0]), [4.0, 1.5, 3.0, 1.5]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    /// Of the 40,320 orders of eight ranks 1,512 split as well as two levels of four, of the 5,040 of seven 504 as well as three
    /// and four (counted, all of them, in Python).
    #[test]
    fn chance_is_what_counting_all_orders_says() {
        let p = |count: usize| {
            let sorted: Vec<f64> = (1..=count).map(|i| i as f64).collect();
            let q = best_split(&sorted, FEWEST_EACH).unwrap().q;
            let mut random = Rng::with_seed(1);
            (0..40)
                .map(|_| chance(std::slice::from_ref(&sorted), q, &mut random))
                .sum::<f64>()
                / 40.0
        };
        assert!((p(8) - 0.0375).abs() < 0.003, "{}", p(8));
        assert_eq!(breaks(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).len(), 1);
        assert!(breaks(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).is_empty());
    }

    #[test]
    fn several_changes_are_found_in_order() {
        let wave = |i: usize| ((i * 7) % 10) as f64 / 10.0;
        let values: Vec<f64> = (0..45)
            .map(|i| [10.0, 20.0, 12.0][i / 15] + wave(i))
            .collect();
        let found = breaks(&values);
        assert_eq!(found.iter().map(|b| b.at).collect::<Vec<_>>(), [15, 30]);
        assert!(found.iter().all(|b| b.p <= LEVEL));
    }
}

/// Tests of the promises of the search for changes, on simulated series. `-- --nocapture` prints the figures of
/// docs/history.md.
#[cfg(test)]
mod simulated {
    use super::breaks;
    use crate::coverage::normal;
    use fastrand::Rng;

    /// Of each kind of step.
    const SERIES: u32 = 400;

    #[derive(Debug, Clone, Copy)]
    enum Noise {
        /// Log-normal, 5 %.
        Quiet,
        /// Pareto, α = 1.2: no variance.
        HeavyTailed,
        /// 2 %, but one run in eight three times as slow.
        Disturbed,
        /// 2 % around one of two levels a third apart, drawn for each run.
        Bimodal,
        /// 2 %, to two digits: many runs are equal.
        Coarse,
    }

    const ALL: [Noise; 5] = [
        Noise::Quiet,
        Noise::HeavyTailed,
        Noise::Disturbed,
        Noise::Bimodal,
        Noise::Coarse,
    ];

    impl Noise {
        fn draw(self, random: &mut Rng) -> f64 {
            match self {
                Noise::Quiet => (0.05 * normal(random)).exp(),
                Noise::HeavyTailed => 1.0 + 0.05 * ((1.0 - random.f64()).powf(-1.0 / 1.2) - 1.0),
                Noise::Disturbed => {
                    (0.02 * normal(random)).exp() * if random.u8(..8) == 0 { 3.0 } else { 1.0 }
                }
                Noise::Bimodal => {
                    (0.02 * normal(random)).exp() * if random.bool() { 1.33 } else { 1.0 }
                }
                Noise::Coarse => ((0.02 * normal(random)).exp() * 50.0).round() / 50.0,
            }
        }
    }

    /// The share of `count` series for which `says` holds.
    fn share(count: u32, mut says: impl FnMut(&mut Rng) -> bool) -> f64 {
        let mut random = Rng::with_seed(77);
        f64::from(
            (0..count)
                .map(|_| u32::from(says(&mut random)))
                .sum::<u32>(),
        ) / f64::from(count)
    }

    #[test]
    fn series_that_do_not_change_are_seldom_said_to() {
        for noise in ALL {
            for (runs, series) in [(8, 2000), (20, 2000), (50, 400)] {
                let said = share(series, |random| {
                    let values: Vec<f64> = (0..runs).map(|_| noise.draw(random)).collect();
                    !breaks(&values).is_empty()
                });
                println!("A/A {noise:?}, {runs} runs: {:.1} %", said * 100.0);
                let most = if series == 2000 { 0.06 } else { 0.08 };
                assert!(said <= most, "{noise:?}, {runs} runs: {said}");
            }
        }
    }

    #[test]
    fn steps_are_found_where_they_are() {
        // Noise, size of the step, runs before and after; at least so often any change, and one within a run of the step.
        let cases = [
            (Noise::Quiet, 1.1, 10, 10, 0.75, 0.60),
            (Noise::Quiet, 1.15, 10, 10, 0.95, 0.90),
            (Noise::Quiet, 1.2, 10, 10, 0.98, 0.95),
            (Noise::Quiet, 1.2, 20, 5, 0.95, 0.88),
            (Noise::Quiet, 1.2, 20, 3, 0.10, 0.05),
            (Noise::Quiet, 1.3, 20, 3, 0.10, 0.05),
            (Noise::Quiet, 1.3, 4, 4, 0.98, 0.95),
            (Noise::HeavyTailed, 1.3, 10, 10, 0.80, 0.70),
            (Noise::HeavyTailed, 1.5, 10, 10, 0.90, 0.80),
            (Noise::Disturbed, 1.1, 10, 10, 0.70, 0.55),
            (Noise::Bimodal, 1.1, 10, 10, 0.20, 0.10),
            (Noise::Bimodal, 1.5, 10, 10, 0.95, 0.95),
            (Noise::Coarse, 1.1, 10, 10, 0.98, 0.95),
        ];
        for (noise, step, before, after, least_any, least) in cases {
            let mut any = 0.0;
            let found = share(SERIES, |random| {
                let level = |i: usize| if i < before { 1.0 } else { step };
                let values: Vec<f64> = (0..before + after)
                    .map(|i| level(i) * noise.draw(random))
                    .collect();
                let breaks = breaks(&values);
                any += f64::from(u8::from(!breaks.is_empty())) / f64::from(SERIES);
                breaks.iter().any(|b| b.at.abs_diff(before) <= 1)
            });
            println!(
                "step {noise:?} x{step}, {before}+{after}: any {:.0} %, there {:.0} %",
                any * 100.0,
                found * 100.0
            );
            assert!(
                any >= least_any && found >= least,
                "{noise:?} {step} {before}+{after}: {any} {found}"
            );
        }
    }

    /// Not a promise but its limit: what runs that depend on each other do to it.
    #[test]
    fn runs_that_depend_on_each_other_pass_for_changes() {
        for dependence in [0.2, 0.5, 0.8] {
            let said = share(400, |random| {
                let mut level = 0.0;
                let values: Vec<f64> = (0..20)
                    .map(|_| {
                        level = dependence * level + normal(random);
                        (0.05 * level).exp()
                    })
                    .collect();
                !breaks(&values).is_empty()
            });
            println!("autocorrelation {dependence}: {:.1} %", said * 100.0);
            assert!(said > 0.05, "{dependence}: {said}");
        }
    }
}
