//! `compare`: the significant differences of each variant from the baseline.

mod next;

pub use crate::number::duration;
pub use next::estimated;

use crate::ReportError;
use crate::charts::intervals::{Intervals, verdict as sentence};
use crate::engine::{
    Block, Cell, Column, Figure, Filled, Notice, Origin, Report, Section, Table, Tile,
};
use crate::json::json as document;
use crate::number::{count, counted, percent, value};
use crate::text::when;
use crate::view::verdict::{self, interval, tone};
use crate::view::{self, host, origin};
use next::{more, next};
use serde::Serialize;
use vmtax_model::{Against, CompareFindings, Compared, LayerFindings, Verdict, shell_line};
use vmtax_recording::Recording;

/// The report; without a recording, of recordings that were compared with each other.
/// `layers`: what was found by layer, where that was asked for.
pub fn report<'a>(
    recording: Option<&'a Recording>,
    findings: &'a CompareFindings,
    layers: Option<&'a LayerFindings>,
) -> Report<'a> {
    let tile = |against: &Against| Tile {
        class: class(against),
        text: format!(
            "{}: {}.",
            against.variant,
            summary(against.rows.iter(), findings)
        ),
        ..Tile::default()
    };
    // Of a single variant the answer says all.
    let parts = if findings.against.len() > 1 {
        findings.against.as_slice()
    } else {
        &[]
    };
    let needed = findings
        .against
        .iter()
        .flat_map(|against| [corrected(findings, against), open(findings, against)]);
    let needed = needed.flatten().collect();
    let place = recording.map_or(Vec::new(), |r| {
        [vec![when(&r.manifest.started)], host(r), measured_on(r)].concat()
    });
    let warnings = match recording {
        Some(recording) => view::warnings(recording, &findings.warnings),
        None => view::in_words(&findings.warnings),
    };
    let observed = view::in_words(layers.map_or(&[], |layers| &layers.warnings));
    let warnings = warnings.into_iter().chain(observed).collect();
    let traced = recording.map_or(1, |recording| super::layers::traced_runs(&recording.plan));
    let facts = recording.map_or(Vec::new(), |recording| view::facts(recording, &[]));
    Report {
        study: "compare",
        title: "Comparison".to_owned(),
        answer: answer(findings),
        basis: [vec![rounds(findings)], boots(findings), place].concat(),
        next: recording
            .and_then(|recording| next(recording, findings))
            .into_iter()
            .collect(),
        origin: recording.map_or(Origin::default(), origin),
        tiles: parts.iter().map(tile).collect(),
        advice: layers.map_or(Vec::new(), |layers| layers.advice.clone()),
        notices: vec![
            Notice::missing(
                "Not observed",
                layers.map_or(Vec::new(), super::layers::words::missing),
            ),
            Notice::notes("Inconclusive", needed),
            Notice::warnings(warnings),
        ],
        sections: findings
            .against
            .iter()
            .map(|against| section(against, findings))
            .chain(layers.map_or(Vec::new(), |layers| super::layers::brief(layers, traced)))
            .chain(facts)
            .collect(),
        method: warming_up(findings)
            .into_iter()
            .chain([findings.method.clone()])
            .collect(),
    }
}

/// On which machines, with which workloads and which settings that all variants share.
fn measured_on(recording: &Recording) -> Vec<String> {
    let plan = &recording.plan;
    let work = plan.command().map_or_else(
        || view::layers::workload(recording),
        |command| shell_line(&command.argv),
    );
    let common: Vec<String> = plan
        .common_settings()
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let common = (!common.is_empty()).then(|| format!("{} in all variants", common.join(", ")));
    [view::guests_in_short(plan), work]
        .into_iter()
        .chain(common)
        .collect()
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
    let both = Both { findings, layers };
    document(recording, &both)
}

/// The colour of a variant's tile.
fn class(against: &Against) -> &'static str {
    let any = |verdict| against.rows.iter().any(|r| r.comparison.verdict == verdict);
    match (any(Verdict::Slower), any(Verdict::Faster)) {
        (true, false) => "slower",
        (false, true) => "faster",
        (true, true) => "tcg",
        (false, false)
            if against
                .rows
                .iter()
                .all(|r| r.comparison.verdict == Verdict::Equivalent) =>
        {
            "same"
        }
        (false, false) => "open",
    }
}

fn section<'a>(against: &'a Against, findings: &'a CompareFindings) -> Section<'a> {
    let title = format!("{} vs. baseline {}", against.variant, findings.baseline);
    if against.rows.is_empty() {
        return Section::new(
            title,
            vec![Block::Text("No metric was measured on both.".to_owned())],
        );
    }
    let caption = format!(
        "The variant's cost over the baseline's, logarithmic axis: left of the line is faster, right of it slower. The dot \
         is the median of {} (paired), the stroke its 95 % CI, the band what does not matter (±{}).",
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
    let all = Block::Folded(
        "All figures".to_owned(),
        vec![Block::Table(all_figures(against, findings))],
    );
    Section::new(title, vec![Block::Figure(figure), all])
}

fn table(against: &Against, findings: &CompareFindings) -> Table {
    let min_effect = findings.min_effect;
    let sides = ["baseline", "variant"].map(|name| Column::figures(name).spare(3));
    measured(
        format!("What {} costs", against.variant),
        Column::words("metric").cut(22, 14),
        against,
        sides,
    )
    .column(Column::figures("slowdown (paired)"), |row| {
        Cell::strong(paired(row))
    })
    .column(Column::figures("95 % CI").spare(4), |row| ends(row))
    .column(Column::words("result").broken(18, 12), |row| {
        verdict_cell(row, min_effect)
    })
    .column(Column::figures("p (Holm-adjusted)").spare(2), |row| {
        verdict::p_value(row.p_adjusted)
    })
    .column(
        Column::figures("noise")
            .spare(1)
            .noted(Some(NOISE.to_owned())),
        |row| format!("±{}", percent(row.noise)),
    )
    .done()
    .notes(notes(against, findings))
}

/// The interval, marked where only the correction contradicts it.
fn ends(row: &Compared) -> String {
    let mark = if row.is_left_open_by_correction() {
        format!("{UNCORRECTED}\u{a0}")
    } else {
        String::new()
    };
    format!("{mark}{}", interval(&row.comparison.ratio))
}

const NOISE: &str =
    "Noise: the standard deviation of the rounds' ratios, estimated from their quartiles.";

/// Marks an interval that excludes ×1 while the verdict, which is corrected, does not.
const UNCORRECTED: &str = "†";

/// Returns the meaning of the columns and marks.
fn notes(against: &Against, findings: &CompareFindings) -> Vec<String> {
    let opposed = |row: &Compared| {
        verdict::is_opposed(
            row.comparison.ratio.median,
            row.base.median,
            row.other.median,
            Some(row.metric.better()),
        )
    };
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
    [meaning]
        .into_iter()
        .chain(uncorrected)
        .chain(opposed)
        .collect()
}

/// Returns the description of the pairs: rounds of two recordings have nothing in common but their number.
fn pairs(findings: &CompareFindings) -> &'static str {
    match findings.is_of_recordings() {
        true => "the ratios of each round of one recording to each of the other",
        false => "the rounds' ratios",
    }
}

fn paired(row: &Compared) -> String {
    verdict::paired(
        row.comparison.ratio.median,
        row.base.median,
        row.other.median,
        Some(row.metric.better()),
    )
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
    Cell::from(sentence(row, min_effect)).tone(tone(row.comparison.verdict))
}

fn all_figures(against: &Against, findings: &CompareFindings) -> Table {
    let sides = [findings.baseline.as_str(), against.variant.as_str()].map(Column::figures);
    let p = |p: f64| format!("{p:.4}");
    measured(
        format!("All figures of {}", against.variant),
        Column::words("metric"),
        against,
        sides,
    )
    .column(Column::figures("slowdown (paired)"), |row| paired(row))
    .column(Column::figures("95 % CI"), |row| ends(row))
    .figures(["p", "p (Holm)", "p (permutation)"], |row| {
        [
            row.comparison.p.unwrap_or(1.0),
            row.p_adjusted,
            row.permutation,
        ]
        .map(p)
    })
    .column(Column::figures("slower in"), |row| percent(row.superiority))
    .column(Column::figures("noise of a round"), |row| {
        format!("±{}", percent(row.noise))
    })
    .column(Column::figures("rounds"), |row| {
        row.comparison.rounds.to_string()
    })
    .column(Column::words("result"), |row| {
        verdict_cell(row, findings.min_effect)
    })
    .done()
    .in_parts()
    .notes(notes(against, findings))
}

/// Returns the rounds needed for the metrics that only the correction leaves open; one sentence for each variant.
fn corrected(findings: &CompareFindings, against: &Against) -> Option<String> {
    let rows: Vec<&Compared> = against
        .rows
        .iter()
        .filter(|row| row.is_left_open_by_correction())
        .collect();
    let names: Vec<String> = rows
        .iter()
        .map(|row| format!("{} is {}", row.metric, mostly(row)))
        .collect();
    let more = more(findings, &rows).map_or(String::new(), |(rounds, s)| {
        let time = if s > 0.0 {
            format!(", {}", duration(s))
        } else {
            String::new()
        };
        let all = counted((findings.rounds + rounds).into(), "round");
        format!("; if this continues, about {all} in all ({rounds} more{time}) would decide")
    });
    let compared = compared(findings);
    (!rows.is_empty()).then(|| {
        format!(
            "{}: too few rounds for {compared} (Holm){more}.",
            names.join(", ")
        )
    })
}

/// "slower in 6 of 6 rounds".
fn mostly(row: &Compared) -> String {
    let direction = if row.comparison.ratio.median < 1.0 {
        "faster"
    } else {
        "slower"
    };
    format!(
        "{direction} in {} of {}",
        row.rounds_ahead(),
        counted(row.comparison.rounds.into(), "round")
    )
}

/// For how many of what the p are corrected.
fn compared(findings: &CompareFindings) -> String {
    counted(
        findings
            .against
            .iter()
            .map(|against| against.rows.len() as u64)
            .sum(),
        "comparison",
    )
}

/// Returns the rounds needed for the other metrics without a decision; one sentence for each variant.
fn open(findings: &CompareFindings, against: &Against) -> Option<String> {
    let open = against
        .rows
        .iter()
        .filter(|r| !r.comparison.verdict.is_decided() && !r.is_left_open_by_correction());
    let open: Vec<&Compared> = open.collect();
    let noisiest = open.iter().max_by(|a, b| a.noise.total_cmp(&b.noise))?;
    let metrics = match open.as_slice() {
        [one] => format!("{} is", one.metric),
        several => format!("{} metrics are", several.len()),
    };
    if noisiest.comparison.rounds <= 1 {
        return Some(format!(
            "{metrics} inconclusive: n = 1 per variant, so the run-to-run variance is unknown. At least {} rounds are needed.",
            vmtax_model::FEWEST_ROUNDS
        ));
    }
    let noise = match open.len() {
        1 => format!("a round's noise is ±{}", percent(noisiest.noise)),
        _ => format!(
            "a round's noise is up to ±{} ({})",
            percent(noisiest.noise),
            noisiest.metric
        ),
    };
    let more = match more(findings, &open) {
        Some((rounds, s)) => {
            format!(
                "about {rounds} more rounds, {}, would be needed to detect a difference of {}",
                duration(s),
                percent(findings.min_effect)
            )
        }
        None if findings.round_s <= 0.0 => {
            "measure both in one `vmtax compare` with more --rounds".to_owned()
        }
        // Too few to estimate more.
        None if noisiest.comparison.rounds < vmtax_analysis::MIN_ROUNDS => {
            format!("at least {} rounds are needed", vmtax_model::FEWEST_ROUNDS)
        }
        None => format!(
            "more than {} rounds would be needed to detect a difference of {}: use a quieter host, or a larger --min-effect",
            count(vmtax_analysis::MAX_ROUNDS.into()),
            percent(findings.min_effect)
        ),
    };
    Some(format!("{metrics} inconclusive: {noise}; {more}."))
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
    findings
        .one_boot
        .then(|| turns.to_owned())
        .into_iter()
        .collect()
}

/// Repeats that did not count.
fn warming_up(findings: &CompareFindings) -> Option<String> {
    let (metric, most) = findings.warming_up.iter().max_by_key(|(_, cut)| **cut)?;
    Some(format!(
        "Warm-up: of {metric}{} the first {most} repeats {} do not count, in all variants alike.",
        if findings.warming_up.len() > 1 {
            format!(" and {} more", findings.warming_up.len() - 1)
        } else {
            String::new()
        },
        if findings.one_boot {
            "of each turn"
        } else {
            "after each boot"
        }
    ))
}

/// Returns the number of metrics with each result, and the largest difference: "1 of 5 metrics worse, 3 equivalent, 1
/// inconclusive; largest difference: cpu event rate, slower by 3.1 %".
fn summary<'a>(
    rows: impl Iterator<Item = &'a Compared> + Clone,
    findings: &CompareFindings,
) -> String {
    let min_effect = findings.min_effect;
    let rows_with = |verdict: Verdict| {
        rows.clone()
            .filter(move |r| r.comparison.verdict == verdict)
    };
    let verdicts = [
        (Verdict::Slower, "worse".to_owned()),
        (Verdict::Faster, "better".to_owned()),
        (
            Verdict::Equivalent,
            format!("equivalent (±{})", percent(min_effect)),
        ),
        (
            Verdict::Inconclusive,
            format!("inconclusive{}", why_open(rows.clone(), findings)),
        ),
        (Verdict::TooFewRounds, "without enough rounds".to_owned()),
    ];
    let all = rows.clone().count();
    let counts: Vec<(usize, String)> = verdicts
        .into_iter()
        .map(|(verdict, word)| (rows_with(verdict).count(), word))
        .filter(|(n, _)| *n > 0)
        .collect();
    let counts: Vec<String> = match counts.as_slice() {
        [] => vec!["no metric measured".to_owned()],
        [(1, word)] => vec![format!("the one metric is {word}")],
        [(_, word)] => vec![format!("all {all} metrics are {word}")],
        [(n, word), others @ ..] => {
            let first = format!("{n} of {all} metrics {word}");
            std::iter::once(first)
                .chain(others.iter().map(|(n, word)| format!("{n} {word}")))
                .collect()
        }
    };
    // Twice as fast is as large a difference as twice as slow.
    let size = |row: &Compared| row.comparison.ratio.median.ln().abs();
    let largest = rows_with(Verdict::Slower)
        .chain(rows_with(Verdict::Faster))
        .max_by(|a, b| size(a).total_cmp(&size(b)));
    let largest = largest.map_or(String::new(), |row| {
        format!(
            "; largest difference: {}, {}",
            row.metric,
            sentence(row, min_effect)
        )
    });
    format!("{}{largest}", counts.join(", "))
}

/// Why metrics are inconclusive: what does not differ is equivalent.
fn why_open<'a>(rows: impl Iterator<Item = &'a Compared>, findings: &CompareFindings) -> String {
    let open = rows
        .filter(|row| row.comparison.verdict == Verdict::Inconclusive && row.comparison.rounds > 1);
    let (corrected, noisy): (Vec<&Compared>, Vec<_>) =
        open.partition(|row| row.is_left_open_by_correction());
    let noise = noisy.iter().map(|row| row.noise).max_by(f64::total_cmp);
    let noise = noise.map(|noise| match corrected.is_empty() {
        true => format!("noise: up to ±{} per round", percent(noise)),
        false => format!(
            "{} not significant: noise up to ±{} per round",
            noisy.len(),
            percent(noise)
        ),
    });
    let left = match corrected.as_slice() {
        [] => None,
        [row] => Some(format!(
            "{} {}, significant before",
            row.metric,
            mostly(row)
        )),
        several => Some(format!("{} significant before", several.len())),
    };
    let left = left.map(|left| {
        format!(
            "{left}, not after Holm's correction for {}",
            compared(findings)
        )
    });
    let all: Vec<String> = [left, noise].into_iter().flatten().collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" ({})", all.join("; "))
    }
}

/// All variants in one sentence.
fn answer(findings: &CompareFindings) -> String {
    let rows = findings.against.iter().flat_map(|against| &against.rows);
    if rows.clone().next().is_none() {
        return format!(
            "No metric was measured on both {} and a variant.",
            findings.baseline
        );
    }
    let variants: Vec<&str> = findings
        .against
        .iter()
        .map(|against| against.variant.as_str())
        .collect();
    format!(
        "{} vs. baseline {}: {}.",
        variants.join(", "),
        findings.baseline,
        summary(rows, findings)
    )
}

#[cfg(test)]
mod tests {
    use super::{answer, corrected, open};
    use vmtax_model::{
        Against, CompareFindings, Compared, Comparison, Estimate, Interval, Metric, Spread, Verdict,
    };

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
            "b vs. baseline a: the one metric is inconclusive (disk.latency-p99 slower in 6 of 6 rounds, significant before, not after \
             Holm's correction for 1 comparison)."
        );
        let both = findings_for(vec![slower, row(6)]);
        assert_eq!(
            text(&both),
            "b vs. baseline a: all 2 metrics are inconclusive (disk.latency-p99 slower in 6 of 6 rounds, significant before, not after \
             Holm's correction for 2 comparisons; 1 not significant: noise up to ±30 % per round)."
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
