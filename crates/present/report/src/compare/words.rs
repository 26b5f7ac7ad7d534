//! What a comparison is called, for terminal and page.

use crate::number::{factor, percent, range};
use crate::view;
use vmtax_model::{Against, CompareFindings, Compared, Shown};
use vmtax_recording::Recording;

/// "faster by 3.1 %".
pub fn verdict(row: &Compared, detect: f64) -> String {
    let by = |ratio: f64| if ratio > 2.0 { format!("×{}", factor(ratio)) } else { percent(ratio - 1.0) };
    match row.shown {
        Shown::Slower => format!("slower by {}", by(row.ratio.median)),
        // By how much more of it is had in the same time.
        Shown::Faster => format!("faster by {}", by(1.0 / row.ratio.median)),
        Shown::Same => format!("the same within ±{}", percent(detect)),
        Shown::NotShown => "not shown".to_owned(),
        Shown::TooFewRounds => "not shown: too few rounds".to_owned(),
    }
}

/// The 95 % interval of the ratio.
pub fn interval(row: &Compared) -> String {
    row.ratio.interval.as_ref().map_or_else(|| crate::number::NONE.to_owned(), range)
}

/// What more could tell, of the metrics that are not decided; one sentence each side.
pub fn open(findings: &CompareFindings, against: &Against) -> Option<String> {
    let open: Vec<&Compared> = against.rows.iter().filter(|r| !r.shown.is_decided()).collect();
    let noisiest = open.iter().max_by(|a, b| a.noise.total_cmp(&b.noise))?;
    let metrics = if open.len() == 1 { "1 metric is".to_owned() } else { format!("{} metrics are", open.len()) };
    if noisiest.rounds <= 1 {
        return Some(format!(
            "{metrics} not shown: n = 1 a side. One run tells nothing of how much two runs of the same would differ; it takes \
             {} rounds at least.",
            vmtax_analysis::FEWEST_ROUNDS
        ));
    }
    let noise = format!("a round's noise is up to ±{} ({})", percent(noisiest.noise), noisiest.metric);
    let more = match more(findings, &open) {
        Some((rounds, s)) => {
            format!("some {rounds} more rounds, {}, would tell {}", duration(s), percent(findings.detect))
        }
        None if findings.round_s > 0.0 => {
            format!("no affordable number of rounds would tell {}", percent(findings.detect))
        }
        None => "measure both sides in one `vmtax compare`, with more --rounds".to_owned(),
    };
    Some(format!("{metrics} not shown: {noise}; {more}."))
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
        findings.against.iter().flat_map(|a| &a.rows).filter(|r| !r.shown.is_decided()).collect();
    let noise = open.iter().map(|r| r.noise).fold(0.0, f64::max);
    let wanted = percent(findings.detect);
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

/// "40 s", "12 min", "3.2 h".
pub fn duration(s: f64) -> String {
    match s {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// "n = 12 rounds, decided", "n = 23 rounds of at most 40".
pub fn rounds(findings: &CompareFindings) -> String {
    let plural = if findings.rounds == 1 { "" } else { "s" };
    let n = format!("n = {} round{plural}", findings.rounds);
    match findings.rounds_planned {
        0 => n,
        planned if findings.is_decided() => format!("{n} of at most {planned}: all is decided"),
        planned => format!("{n} of at most {planned}"),
    }
}

/// Repeats that did not count.
pub fn warming_up(findings: &CompareFindings) -> Option<String> {
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

/// What the reader has to know.
pub fn warnings(recording: Option<&Recording>, findings: &CompareFindings) -> Vec<String> {
    match recording {
        Some(recording) => view::warnings(recording, &findings.warnings),
        None => findings.warnings.iter().map(ToString::to_string).collect(),
    }
}

/// A side's answer in a sentence: "slower: 2 of 5 metrics (cpu.events by 3.1 %); the same: 3".
pub fn summary(against: &Against) -> String {
    let of = |shown: Shown| against.rows.iter().filter(move |r| r.shown == shown);
    let largest = |shown: Shown| {
        let most = of(shown).max_by(|a, b| a.ratio.median.ln().abs().total_cmp(&b.ratio.median.ln().abs()))?;
        let count = of(shown).count();
        let word = if shown == Shown::Slower { "slower" } else { "faster" };
        let by = if shown == Shown::Slower { most.ratio.median } else { 1.0 / most.ratio.median };
        let most = format!("{} ×{}", most.metric.label(), factor(by));
        Some(if count == 1 { format!("{word}: {most}") } else { format!("{word}: {count} metrics, most {most}") })
    };
    let counted = |shown: Shown, word: &str| Some(of(shown).count()).filter(|n| *n > 0).map(|n| format!("{word}: {n}"));
    let parts = [
        largest(Shown::Slower),
        largest(Shown::Faster),
        counted(Shown::Same, "the same"),
        counted(Shown::NotShown, "not shown"),
        counted(Shown::TooFewRounds, "too few rounds"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
