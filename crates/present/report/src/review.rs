//! Known performance problems in texts: a configuration of a VM, fio's output, `perf kvm stat report`'s.

use crate::engine::{Block, Notice, Origin, Report, Section, Table, words};
use vmtax_findings::Advice;
use vmtax_model::SettingPlace;
use vmtax_model::number::counted;
use vmtax_rules::MAX_ADVICE;

/// Result of a review.
#[derive(Default)]
pub struct Review {
    /// The texts, by what they are: `libvirt domain web01 in web01.xml`.
    pub texts: Vec<String>,
    /// Parts of the texts that were not read, a sentence each.
    pub notes: Vec<String>,
    /// Number of rules that were checked.
    pub known: usize,
    /// Findings, most important first.
    pub advice: Vec<Advice>,
    /// Version of vmtax and the command that makes the review again.
    pub origin: Origin,
}

/// Makes the report of a review.
pub fn review(review: &Review) -> Report<'static> {
    let commands = review
        .advice
        .iter()
        .flat_map(|one| &one.remedies)
        .filter(|remedy| remedy.place == SettingPlace::Vmtax);
    let mut next: Vec<String> = Vec::new();
    for line in commands.map(|remedy| &remedy.line) {
        if !next.contains(line) && next.len() < 2 {
            next.push(line.clone());
        }
    }
    let notes = review.notes.iter().cloned();
    Report {
        study: "doctor",
        origin: review.origin.clone(),
        title: "Known performance problems".to_owned(),
        answer: answer(review),
        basis: review.texts.clone(),
        next,
        sections: further(&review.advice),
        advice: review.advice.clone(),
        notices: vec![Notice::notes(
            "Notes",
            notes.chain([MEASURES_NOTHING.to_owned()]).collect(),
        )],
        ..Report::default()
    }
}

const MEASURES_NOTHING: &str = "Nothing was measured here. A finding is what the text shows; its source says what that cost \
                                others. Only a measurement says what it costs this VM.";

fn answer(review: &Review) -> String {
    let checked = format!("{} checked", counted(review.known as u64, "rule"));
    match review.advice.as_slice() {
        [] => format!("The text shows no known performance problem; {checked}."),
        [only] => format!("{} No other finding; {checked}.", only.finding),
        [first, rest @ ..] => format!(
            "{} {} below.",
            first.finding,
            counted(rest.len() as u64, "more finding")
        ),
    }
}

/// Those behind the first five: what was found, with its source.
fn further(advice: &[Advice]) -> Vec<Section<'static>> {
    let rest = advice.get(MAX_ADVICE..).unwrap_or_default();
    if rest.is_empty() {
        return Vec::new();
    }
    let table = Table::of("Also found", rest)
        .column(words("finding").broken(60, 30), |one| one.finding.clone())
        .column(words("remedy").broken(40, 20), |one| {
            one.remedies
                .first()
                .map_or(String::new(), |remedy| remedy.action.clone())
        })
        .done();
    vec![Section::new("Also found", vec![Block::Table(table)])]
}
