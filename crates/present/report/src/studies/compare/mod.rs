//! `compare`: the significant differences of each variant from the baseline.

mod next;

pub use crate::number::duration;
pub use next::estimated;

use crate::charts::bars::{Intervals, change};
use crate::engine::{
    Block, Cell, Column, Figure, Filled, Notice, Origin, Report, Section, Table, Tile, figures,
    words,
};
use crate::number::{counted, percent, value};
use crate::text::{Joined, only_if};
use crate::view::verdict::{self, Pair, interval, tone};
use crate::view::{self, began, host, origin};
use crate::{ReportError, json as document};
use next::{compared, corrected, next, open, rounds_to_decide, why_open};
use serde::Serialize;
use vmtax_findings::{Against, CompareFindings, Compared, LayerFindings, Verdict};
use vmtax_model::shell_line;
use vmtax_recording::Recording;

/// The report; without a recording, of recordings that were compared with each other.
/// `layers`: what was found by layer, where that was asked for.
pub fn report<'a>(
    recording: Option<&'a Recording>,
    findings: &'a CompareFindings,
    layers: Option<&'a LayerFindings>,
) -> Report<'a> {
    let against = findings.against.as_slice();
    // Of a single variant the answer says all.
    let parts = if against.len() > 1 { against } else { &[] };
    let needed = |against| [corrected(findings, against), open(findings, against)];
    let needed = against.iter().flat_map(needed).flatten().collect();
    let place = recording.map_or(Vec::new(), |one| {
        [vec![began(one)], host(one), measured_on(one)].concat()
    });
    let warnings = match recording {
        Some(recording) => view::warnings(recording, &findings.warnings),
        None => view::in_words(&findings.warnings),
    };
    let observed = view::in_words(layers.map_or(&[], |layers| &layers.warnings));
    let missing = layers.map_or(Vec::new(), super::layers::sentences::missing);
    let next = recording.and_then(|recording| next(recording, findings));
    let method = warming_up(findings).into_iter();
    let traced = recording.map_or(1, |recording| super::layers::traced_runs(&recording.plan));
    let facts = recording.map_or(Vec::new(), |recording| view::facts(recording, &[]));
    Report {
        study: "compare",
        title: "Comparison".to_owned(),
        answer: answer(findings),
        basis: [vec![rounds(findings)], boots(findings), place].concat(),
        next: next.into_iter().collect(),
        origin: recording.map_or(Origin::default(), origin),
        tiles: parts.iter().map(|one| tile(one, findings)).collect(),
        advice: layers.map_or(Vec::new(), |layers| layers.advice.clone()),
        notices: vec![
            Notice::not_observed(missing),
            Notice::notes("Inconclusive", needed),
            Notice::warnings([warnings, observed].concat()),
        ],
        sections: against
            .iter()
            .map(|against| section(against, findings))
            .chain(layers.map_or(Vec::new(), |layers| super::layers::brief(layers, traced)))
            .chain(facts)
            .collect(),
        method: method.chain([findings.method.clone()]).collect(),
    }
}

fn tile(against: &Against, findings: &CompareFindings) -> Tile {
    let summary = summary(std::slice::from_ref(against), findings);
    Tile {
        class: class(against),
        text: format!("{}: {summary}.", against.variant),
        ..Tile::default()
    }
}

/// On which machines, with which workloads and which settings that all variants share.
fn measured_on(recording: &Recording) -> Vec<String> {
    let plan = &recording.plan;
    let work = plan.command().map_or_else(
        || view::layers::workload(recording),
        |command| shell_line(&command.argv),
    );
    let common = plan.common_settings();
    let common = common
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .joined(", ");
    let common = (!common.is_empty()).then(|| format!("{common} in all variants"));
    let all = [view::guests_in_short(plan), work].into_iter();
    all.chain(common).collect()
}

/// The findings, with what was found by layer, where that was asked for.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    findings: &'a CompareFindings,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<&'a LayerFindings>,
}

/// Recording and findings for scripts; docs/json.md describes them.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(
    recording: &Recording,
    findings: &CompareFindings,
    layers: Option<&LayerFindings>,
) -> Result<String, ReportError> {
    document(recording, &Both { findings, layers })
}

/// The colour of a variant's tile.
fn class(against: &Against) -> &'static str {
    let verdicts = || against.rows.iter().map(|row| row.comparison.verdict);
    let any = |verdict| verdicts().any(|one| one == verdict);
    match (any(Verdict::Slower), any(Verdict::Faster)) {
        (true, false) => "slower",
        (false, true) => "faster",
        (true, true) => "tcg",
        (false, false) if verdicts().all(|one| one == Verdict::Equivalent) => "same",
        (false, false) => "open",
    }
}

fn section<'a>(against: &'a Against, findings: &'a CompareFindings) -> Section<'a> {
    let title = format!("{} vs. baseline {}", against.variant, findings.baseline);
    if against.rows.is_empty() {
        return Section::new(
            title,
            [Block::Text("No metric was measured on both.".to_owned())],
        );
    }
    let caption = format!(
        "The variant's cost over the baseline's, logarithmic axis: left of the line is faster, right of it slower. The dot \
         is the median of {} (paired), the stroke its 95 % CI, the band: differences too small to matter (±{}).",
        pairs(findings),
        percent(findings.min_effect)
    );
    let figure = Figure {
        caption,
        table: Some(table(against, findings)),
        ..Figure::new(Intervals {
            against,
            min_effect: findings.min_effect,
        })
    };
    let all = Block::folded("All figures", [all_figures(against, findings)]);
    Section::new(title, [Block::Figure(figure), all])
}

fn table(against: &Against, findings: &CompareFindings) -> Table {
    let (min_effect, noise) = (findings.min_effect, NOISE.to_owned());
    let sides = ["baseline", "variant"].map(|name| figures(name).spare(3));
    measured(
        format!("What {} costs", against.variant),
        words("metric").cut(22, 14),
        against,
        sides,
    )
    .column(figures("slowdown (paired)"), |row| {
        Cell::strong(pair(row).text())
    })
    .column(figures("95 % CI").spare(4), |row| ends(row))
    .column(words("result").broken(18, 12), |row| {
        verdict_cell(row, min_effect)
    })
    .column(figures("p (Holm-adjusted)").spare(2), |row| {
        verdict::p_value(row.p_adjusted)
    })
    .column(figures("noise").spare(1).noted(Some(noise)), |row| {
        format!("±{}", percent(row.noise))
    })
    .done()
    .notes(notes(against, findings))
}

/// The interval, marked where only the correction contradicts it.
fn ends(row: &Compared) -> String {
    let mark = only_if(
        row.is_left_open_by_correction(),
        format!("{UNCORRECTED}\u{a0}"),
    );
    format!("{mark}{}", interval(&row.comparison.ratio))
}

const NOISE: &str =
    "Noise: the standard deviation of the rounds' ratios, estimated from their quartiles.";

/// Marks an interval that excludes ×1 while the verdict, which is corrected, does not.
const UNCORRECTED: &str = "†";

/// Returns the meaning of the columns and marks.
fn notes(against: &Against, findings: &CompareFindings) -> Vec<String> {
    let opposed = |row: &Compared| pair(row).is_opposed();
    let meaning = format!(
        "Slowdown: the median of {} (paired): variant ÷ baseline, for a rate: baseline ÷ variant; above ×1 the variant is slower, or uses more of a resource. \
         For a rate, the result is the change in the rate (slowdown ×1.25: 20 % lower).",
        pairs(findings)
    );
    let uncorrected = against.rows.iter().any(Compared::is_left_open_by_correction).then(|| {
        format!(
            "{UNCORRECTED} Excludes ×1 for this metric alone, not after the correction for {} (Holm).",
            compared(findings)
        )
    });
    let opposed = verdict::opposed_note(against.rows.iter().any(opposed));
    let all = [Some(meaning), uncorrected, opposed];
    all.into_iter().flatten().collect()
}

/// Returns the description of the pairs: rounds of two recordings have nothing in common but their number.
fn pairs(findings: &CompareFindings) -> &'static str {
    match findings.is_of_recordings() {
        true => "the ratios of each round of one recording to each of the other",
        false => "the rounds' ratios",
    }
}

fn pair(row: &Compared) -> Pair {
    Pair {
        cost: row.comparison.ratio.median,
        base: row.base.median,
        other: row.other.median,
        better: Some(row.metric.better()),
    }
}

/// The metrics with the medians of baseline and variant.
fn measured(
    title: String,
    metric: Column,
    against: &Against,
    sides: [Column; 2],
) -> Filled<&Compared> {
    Table::of(title, &against.rows)
        .column(metric, |row| row.metric.id())
        .columns(sides, |row| {
            [&row.base, &row.other].map(|side| value(row.metric.unit(), side.median))
        })
}

fn verdict_cell(row: &Compared, min_effect: f64) -> Cell {
    Cell::from(change(row, min_effect)).tone(tone(row.comparison.verdict))
}

fn all_figures(against: &Against, findings: &CompareFindings) -> Table {
    let sides = [findings.baseline.as_str(), against.variant.as_str()].map(figures);
    let p = |p: f64| format!("{p:.4}");
    measured(
        format!("All figures of {}", against.variant),
        words("metric"),
        against,
        sides,
    )
    .column(figures("slowdown (paired)"), |row| pair(row).text())
    .column(figures("95 % CI"), |row| ends(row))
    .figures(["p", "p (Holm)", "p (permutation)"], |row| {
        let alone = row.comparison.p.unwrap_or(1.0);
        [alone, row.p_adjusted, row.permutation].map(p)
    })
    .column(figures("slower in"), |row| percent(row.superiority))
    .column(figures("noise per round"), |row| {
        format!("±{}", percent(row.noise))
    })
    .column(figures("rounds"), |row| row.comparison.rounds.to_string())
    .column(words("result"), |row| {
        verdict_cell(row, findings.min_effect)
    })
    .done()
    .in_parts()
    .notes(notes(against, findings))
}

/// "n = 12 rounds (of at most 40: every result is conclusive)", "n = 23 rounds: ended before 40 by --budget or Ctrl-C".
fn rounds(findings: &CompareFindings) -> String {
    let n = format!("n = {}", counted(findings.rounds.into(), "round"));
    match findings.rounds_planned {
        _ if findings.is_of_recordings() => n,
        planned if findings.is_decided() => {
            format!("{n} (of at most {planned}: every result is conclusive)")
        }
        planned if findings.rounds < planned => {
            format!("{n}: ended before {planned} by --budget or Ctrl-C")
        }
        _ => n,
    }
}

/// That variants shared boots.
fn boots(findings: &CompareFindings) -> Vec<String> {
    let turns = "the variants take turns in one boot a round (A B B A)";
    only_if(findings.one_boot, vec![turns.to_owned()])
}

/// Repeats that did not count.
fn warming_up(findings: &CompareFindings) -> Option<String> {
    let (metric, most) = findings.warming_up.iter().max_by_key(|(_, cut)| **cut)?;
    let others = findings.warming_up.len() - 1;
    let others = only_if(others > 0, format!(" and {others} more"));
    let from = match findings.one_boot {
        true => "of each turn",
        false => "after each boot",
    };
    Some(format!(
        "Warm-up: of {metric}{others} the first {most} repeats {from} do not count, in all variants alike."
    ))
}

/// Returns the number of metrics with each result, and the largest difference: "1 of 5 metrics worse, 3 equivalent, 1
/// inconclusive; largest difference: cpu event rate, slower by 3.1 %".
fn summary(variants: &[Against], findings: &CompareFindings) -> String {
    let rows = variants.iter().flat_map(|against| &against.rows);
    let min_effect = findings.min_effect;
    let rows_with = |verdict: Verdict| {
        let rows = rows.clone();
        rows.filter(move |row| row.comparison.verdict == verdict)
    };
    let equivalent = format!("equivalent (±{})", percent(min_effect));
    let inconclusive = format!("inconclusive{}", why_open(variants));
    let verdicts = [
        (Verdict::Slower, "worse"),
        (Verdict::Faster, "better"),
        (Verdict::Equivalent, equivalent.as_str()),
        (Verdict::Inconclusive, inconclusive.as_str()),
        (Verdict::TooFewRounds, "without enough rounds"),
    ];
    let all = rows.clone().count();
    let counts = verdicts.map(|(verdict, word)| (rows_with(verdict).count(), word));
    let counts = counts.into_iter().filter(|(n, _)| *n > 0);
    let counts = match counts.collect::<Vec<(usize, &str)>>().as_slice() {
        [] => "no metric measured".to_owned(),
        [(1, word)] => format!("the one metric is {word}"),
        [(_, word)] => format!("all {all} metrics are {word}"),
        [(n, word), others @ ..] => {
            let others = others.iter().map(|(n, word)| format!(", {n} {word}"));
            format!("{n} of {all} metrics {word}{}", others.collect::<String>())
        }
    };
    // Twice as fast is as large a difference as twice as slow.
    let size = |row: &Compared| row.comparison.ratio.median.ln().abs();
    let largest = rows_with(Verdict::Slower)
        .chain(rows_with(Verdict::Faster))
        .max_by(|a, b| size(a).total_cmp(&size(b)));
    let largest = largest.map_or(String::new(), |row| {
        let by = change(row, min_effect);
        format!("; largest difference: {}, {by}", row.metric)
    });
    counts + &largest
}

/// All variants in one sentence, with the number of rounds that would decide more.
fn answer(findings: &CompareFindings) -> String {
    let baseline = &findings.baseline;
    if findings
        .against
        .iter()
        .all(|against| against.rows.is_empty())
    {
        return format!("No metric was measured on both {baseline} and a variant.");
    }
    let variants = findings
        .against
        .iter()
        .map(|against| against.variant.as_str());
    let (variants, summary) = (variants.joined(", "), summary(&findings.against, findings));
    let more = rounds_to_decide(findings);
    format!("{variants} vs. baseline {baseline}: {summary}{more}.")
}

#[cfg(test)]
mod tests {
    use super::{answer, corrected, open};
    use vmtax_findings::{
        Against, CompareFindings, Compared, Comparison, Estimate, Spread, Verdict,
    };
    use vmtax_model::{Interval, Metric};

    fn row(rounds: u32) -> Compared {
        let spread = |median| Spread {
            n: rounds,
            median,
            min: median,
            max: median,
            relative_spread: None,
            values: vec![median],
            latency: None,
        };
        Compared {
            metric: Metric::CpuEvents,
            base: spread(1.0),
            other: spread(1.1),
            comparison: Comparison {
                ratio: Estimate {
                    median: 1.1,
                    interval: None,
                },
                difference: None,
                rounds,
                p: None,
                verdict: Verdict::Inconclusive,
            },
            p_adjusted: 1.0,
            permutation: 1.0,
            superiority: 0.5,
            noise: 0.3,
            rounds_needed: None,
        }
    }

    fn sentence(rounds: u32, round_s: f64) -> String {
        let against = Against {
            variant: "b".to_owned(),
            rows: vec![row(rounds)],
        };
        open(
            &CompareFindings {
                rounds,
                round_s,
                ..CompareFindings::new("a", 0.02)
            },
            &against,
        )
        .unwrap_or_default()
    }

    #[test]
    fn thousands_of_rounds_are_named_only_where_they_can_be_estimated() {
        assert!(
            sentence(2, 10.0).ends_with("at least 6 rounds are needed."),
            "{}",
            sentence(2, 10.0)
        );
        assert!(
            sentence(12, 10.0).contains(
                "more than 2,000 rounds would be needed to detect a difference of 2.0\u{a0}%"
            ),
            "{}",
            sentence(12, 10.0)
        );
        assert!(
            sentence(4, 0.0).ends_with("with more --rounds."),
            "{}",
            sentence(4, 0.0)
        );
    }
    /// Slower in every round is not "too noisy": only the correction for the number of metrics is in its way.
    #[test]
    fn what_the_correction_alone_leaves_open_is_not_called_too_noisy() {
        let interval = Some(Interval {
            low: 1.05,
            high: 1.6,
            coverage: 0.96,
        });
        let mut slower = Compared {
            superiority: 1.0,
            rounds_needed: Some(15),
            ..row(6)
        };
        (slower.metric, slower.comparison.ratio.interval) = (Metric::DiskTail, interval);
        let findings_for = |rows: Vec<Compared>| {
            let against = vec![Against {
                variant: "b".to_owned(),
                rows,
            }];
            CompareFindings {
                against,
                rounds: 6,
                round_s: 5.0,
                ..CompareFindings::new("a", 0.02)
            }
        };
        let text = |found: &CompareFindings| answer(found).replace('\u{a0}', " ");
        let alone = findings_for(vec![slower.clone()]);
        assert_eq!(
            text(&alone),
            "b vs. baseline a: the one metric is inconclusive (disk.latency-p99 slower in 6 of 6 rounds, ×1.100; significant only without \
             Holm correction); about 9 more rounds (45 s) would decide."
        );
        let both = findings_for(vec![slower, row(6)]);
        assert_eq!(
            text(&both),
            "b vs. baseline a: all 2 metrics are inconclusive (disk.latency-p99 slower in 6 of 6 rounds, ×1.100; significant only without \
             Holm correction; 1 not significant: noise up to ±30 % per round); about 9 more rounds (45 s) would decide disk.latency-p99."
        );
        let needs = corrected(&both, &both.against[0]).unwrap();
        assert_eq!(
            needs,
            "disk.latency-p99 is slower in 6 of 6 rounds: too few rounds for 2 comparisons (Holm); if this continues, about 15 \
             rounds in all (9 more, 45 s) would decide."
        );
        assert!(
            open(&both, &both.against[0])
                .unwrap()
                .starts_with("cpu.events is inconclusive"),
            "only the noisy one"
        );
    }
}
