//! `compare`: of each side what is proven against the baseline.

pub use crate::number::duration;

use crate::ReportError;
use crate::charts::intervals::{Intervals, verdict};
use crate::engine::{Block, Cell, Column, Figure, Filled, Notice, Origin, Report, Section, Table, Tile};
use crate::json::json as document;
use crate::number::{counted, factor, percent, ratio, value};
use crate::text::when;
use crate::view::verdict::{interval, tone};
use crate::view::{self, host, origin};
use serde::Serialize;
use vmtax_model::{Against, CompareFindings, Compared, LayerFindings, Verdict};
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
        figure: String::new(),
        text: format!("{}: {}.", against.side, summary(against)),
        limits: open(findings, against).unwrap_or_default(),
    };
    let place = recording.map_or(Vec::new(), |r| [vec![when(&r.manifest.started)], host(r)].concat());
    let warnings = match recording {
        Some(recording) => view::warnings(recording, &findings.warnings),
        None => view::in_words(&findings.warnings),
    };
    let observed = view::in_words(layers.map_or(&[], |layers| &layers.warnings));
    let warnings = warnings.into_iter().chain(observed).collect();
    let facts = recording.map_or(Vec::new(), |recording| view::facts(recording, &[]));
    Report {
        study: "compare",
        title: format!("Compared with {}", findings.baseline),
        basis: [vec![rounds(findings)], place].concat(),
        origin: recording.map_or(Origin::default(), origin),
        tiles: findings.against.iter().map(tile).collect(),
        advice: layers.map_or(Vec::new(), |layers| layers.advice.clone()),
        notices: vec![
            Notice::missing("Not observed", layers.map_or(Vec::new(), super::layers::words::missing)),
            Notice::warnings(warnings),
        ],
        sections: findings
            .against
            .iter()
            .map(|against| section(against, findings))
            .chain(layers.map_or(Vec::new(), super::layers::brief))
            .chain(facts)
            .collect(),
        method: warming_up(findings).into_iter().chain([findings.method.clone()]).collect(),
        ..Report::default()
    }
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

/// The colour of a side's answer.
fn class(against: &Against) -> &'static str {
    let any = |verdict| against.rows.iter().any(|r| r.comparison.verdict == verdict);
    match (any(Verdict::Slower), any(Verdict::Faster)) {
        (true, false) => "slower",
        (false, true) => "faster",
        (true, true) => "tcg",
        (false, false) if against.rows.iter().all(|r| r.comparison.verdict == Verdict::Equivalent) => "same",
        (false, false) => "open",
    }
}

fn section<'a>(against: &'a Against, findings: &'a CompareFindings) -> Section<'a> {
    let title = format!("{} against {}", against.side, findings.baseline);
    if against.rows.is_empty() {
        return Section::new(title, vec![Block::Text("No metric that both sides have.".to_owned())]);
    }
    let caption = format!(
        "The side's cost over the baseline's, on a logarithmic axis: left of the line is faster, right of it slower. The dot \
         is the median over rounds, the stroke its 95 % interval, the band what does not matter (±{}).",
        percent(findings.min_effect)
    );
    let figure = Figure {
        caption,
        table: Some(table(against, findings.min_effect)),
        ..Figure::new(Intervals { against, min_effect: findings.min_effect })
    };
    let all = Block::Folded("All figures".to_owned(), vec![Block::Table(all_figures(against, findings))]);
    Section::new(title, vec![Block::Figure(figure), all])
}

fn table(against: &Against, min_effect: f64) -> Table {
    let sides = ["baseline", "side"].map(|name| Column::figures(name).spare(3));
    measured(format!("What {} costs", against.side), Column::words("metric").cut(22, 14), against, sides)
        .column(Column::figures("cost"), |row| Cell::strong(ratio(row.comparison.ratio.median)))
        .column(Column::figures("95 % interval").spare(4), |row| interval(&row.comparison.ratio))
        .column(Column::words("verdict").broken(18, 12), |row| told(row, min_effect))
        .column(Column::figures("p").spare(2), |row| format!("{:.3}", row.p_adjusted))
        .column(Column::figures("noise").spare(1), |row| format!("±{}", percent(row.noise)))
        .done()
}

/// The metrics with what both sides measured.
fn measured(title: String, metric: Column, against: &Against, sides: [Column; 2]) -> Filled<&Compared> {
    Table::of(title, &against.rows)
        .column(metric, |row| row.metric.id())
        .columns(sides, |row| [&row.base, &row.other].map(|side| value(row.metric.unit(), side.median)))
}

fn told(row: &Compared, min_effect: f64) -> Cell {
    Cell::from(verdict(row, min_effect)).tone(tone(row.comparison.verdict))
}

fn all_figures(against: &Against, findings: &CompareFindings) -> Table {
    let sides = [findings.baseline.as_str(), against.side.as_str()].map(Column::figures);
    let p = |p: f64| format!("{p:.4}");
    measured(format!("All figures of {}", against.side), Column::words("metric"), against, sides)
        .column(Column::figures("cost"), |row| ratio(row.comparison.ratio.median))
        .column(Column::figures("95 % interval"), |row| interval(&row.comparison.ratio))
        .figures(["p", "p of all", "permutation"], |row| {
            [row.comparison.p.unwrap_or(1.0), row.p_adjusted, row.permutation].map(p)
        })
        .column(Column::figures("slower in"), |row| percent(row.superiority))
        .column(Column::figures("noise of a round"), |row| format!("±{}", percent(row.noise)))
        .column(Column::figures("rounds"), |row| row.comparison.rounds.to_string())
        .column(Column::words("verdict"), |row| told(row, findings.min_effect))
        .done()
        .in_parts()
}

/// What more could tell, of the metrics that are not decided; one sentence each side.
fn open(findings: &CompareFindings, against: &Against) -> Option<String> {
    let open: Vec<&Compared> = against.rows.iter().filter(|r| !r.comparison.verdict.is_decided()).collect();
    let noisiest = open.iter().max_by(|a, b| a.noise.total_cmp(&b.noise))?;
    let metrics = if open.len() == 1 { "1 metric is".to_owned() } else { format!("{} metrics are", open.len()) };
    if noisiest.comparison.rounds <= 1 {
        return Some(format!(
            "{metrics} inconclusive: n = 1 a side. One run tells nothing of how much two runs of the same would differ; it takes \
             {} rounds at least.",
            vmtax_analysis::FEWEST_ROUNDS
        ));
    }
    let noise = format!("a round's noise is up to ±{} ({})", percent(noisiest.noise), noisiest.metric);
    let more = match more(findings, &open) {
        Some((rounds, s)) => {
            format!("some {rounds} more rounds, {}, would tell {}", duration(s), percent(findings.min_effect))
        }
        None if findings.round_s > 0.0 => {
            format!("no affordable number of rounds would tell {}", percent(findings.min_effect))
        }
        None => "measure both sides in one `vmtax compare`, with more --rounds".to_owned(),
    };
    Some(format!("{metrics} inconclusive: {noise}; {more}."))
}

/// How many more rounds would tell all of these, and how many seconds they take.
fn more(findings: &CompareFindings, open: &[&Compared]) -> Option<(u32, f64)> {
    let wanted = open.iter().map(|r| r.rounds_to_tell).collect::<Option<Vec<u32>>>()?.into_iter().max()?;
    // What was foretold from the noise may be over: then chance was against it, or the difference is smaller.
    let more = wanted.saturating_sub(findings.rounds).max(findings.rounds / 4).max(1);
    Some((more, f64::from(more) * findings.round_s))
}

/// What is foretold of a comparison that goes on, with so many seconds left.
pub fn foretold(findings: &CompareFindings, left_s: f64) -> String {
    let open: Vec<&Compared> =
        findings.against.iter().flat_map(|a| &a.rows).filter(|r| !r.comparison.verdict.is_decided()).collect();
    let noise = open.iter().map(|r| r.noise).fold(0.0, f64::max);
    let wanted = percent(findings.min_effect);
    let begin = format!("after {} rounds a round's noise is up to ±{}", findings.rounds, percent(noise));
    match more(findings, &open) {
        Some((rounds, s)) if s <= left_s => {
            format!("{begin}: to tell {wanted} takes some {rounds} more, {}", duration(s))
        }
        Some((rounds, s)) => format!(
            "{begin}: to tell {wanted} of everything takes some {rounds} more, {}; the budget ends in {}",
            duration(s),
            duration(left_s)
        ),
        None => format!("{begin}: {wanted} of everything cannot be told; the budget ends in {}", duration(left_s)),
    }
}

/// "n = 12 rounds, decided", "n = 23 rounds of at most 40".
fn rounds(findings: &CompareFindings) -> String {
    let n = format!("n = {}", counted(findings.rounds.into(), "round"));
    match findings.rounds_planned {
        0 => n,
        planned if findings.is_decided() => format!("{n} of at most {planned}: all is decided"),
        planned => format!("{n} of at most {planned}"),
    }
}

/// Repeats that did not count.
fn warming_up(findings: &CompareFindings) -> Option<String> {
    let (metric, most) = findings.warming_up.iter().max_by_key(|(_, cut)| **cut)?;
    Some(format!(
        "Of each turn's repeats the first {most} did not count for {metric}{}: they were warming up, on all sides alike.",
        if findings.warming_up.len() > 1 {
            format!(" and {} more", findings.warming_up.len() - 1)
        } else {
            String::new()
        }
    ))
}

/// A side's answer in a sentence: "slower: 2 of 5 metrics (cpu.events by 3.1 %); the same: 3".
fn summary(against: &Against) -> String {
    let of = |verdict: Verdict| against.rows.iter().filter(move |r| r.comparison.verdict == verdict);
    let largest = |verdict: Verdict| {
        let most = of(verdict)
            .max_by(|a, b| a.comparison.ratio.median.ln().abs().total_cmp(&b.comparison.ratio.median.ln().abs()))?;
        let count = of(verdict).count();
        let word = if verdict == Verdict::Slower { "slower" } else { "faster" };
        let by =
            if verdict == Verdict::Slower { most.comparison.ratio.median } else { 1.0 / most.comparison.ratio.median };
        let most = format!("{} ×{}", most.metric.label(), factor(by));
        Some(if count == 1 { format!("{word}: {most}") } else { format!("{word}: {count} metrics, most {most}") })
    };
    let counted =
        |verdict: Verdict, word: &str| Some(of(verdict).count()).filter(|n| *n > 0).map(|n| format!("{word}: {n}"));
    let parts = [
        largest(Verdict::Slower),
        largest(Verdict::Faster),
        counted(Verdict::Equivalent, "equivalent"),
        counted(Verdict::Inconclusive, "inconclusive"),
        counted(Verdict::TooFewRounds, "too few rounds"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
