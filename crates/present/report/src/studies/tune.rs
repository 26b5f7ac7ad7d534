//! `tune`: which live changes of a running VM helped, and by how much.

use crate::engine::{Cell, Column, Notice, Report, Section, Table, Tone, figures, words};
use crate::number::{self, NONE, bytes, counted, factor, nanoseconds, percent, significant};
use crate::text::{Joined, only_if};
use crate::view::verdict::interval;
use crate::view::{origin, vm};
use vmtax_findings::{BeforeAfter, Comparison, TuneFindings, TuneRow, TuneVerdict};
use vmtax_model::{
    Candidate, Interval, LiveSetting, TunePhase, TuneRecord, TuneSpec, TuneStep, shell_line,
};
use vmtax_recording::Recording;

/// Makes the report of a tuning run of a running VM.
pub fn report<'a>(recording: &'a Recording, found: &'a TuneFindings) -> Report<'a> {
    let origin = origin(recording);
    let measured = format!("measured for {:.0} s", found.seconds);
    let not_tried = found.not_tried.iter().map(not_tried);
    let ended = found.ended.iter();
    let ended = ended.map(|why| format!("{}.", why.trim_end_matches('.')));
    Report {
        study: "compare",
        title: format!("Tuning of {}", vm::name(&found.vm)),
        basis: vm::recorded(recording, &found.vm, found.applied.then_some(measured)),
        answer: answer(found),
        next: next(recording, found),
        notices: vec![
            Notice::notes("Not tried", not_tried.collect()),
            Notice::warnings(ended.collect()),
        ],
        sections: sections(found),
        method: only_if(found.applied, method(found)),
        origin,
        ..Report::default()
    }
}

/// Returns the changes that helped, with their gain; else the changes to try; or that there are none.
fn answer(found: &TuneFindings) -> String {
    let name = vm::name(&found.vm);
    let kept = found
        .candidates
        .iter()
        .filter(|row| row.verdict == TuneVerdict::Keep);
    let kept: Vec<&TuneRow> = kept.collect();
    let [first, others @ ..] = &found.candidates[..] else {
        return format!(
            "{name}: there is nothing to try while it runs: no cause was found that a live setting removes."
        );
    };
    if !found.applied {
        return format!("{name}: to try: {}", to_try(&first.candidate, others.len()));
    }
    let Some(total) = found.total.filter(|_| !kept.is_empty()) else {
        let none_helped = none_helped(found.candidates.len());
        return format!("{name}: {none_helped}; nothing is kept.");
    };
    let actions = kept
        .iter()
        .map(|row| &*row.candidate.change.action)
        .joined("; ");
    let state = match (found.is_on, kept.len() > 1) {
        (true, false) => "It was left on",
        (true, true) => "They were left on",
        (false, false) => "It is not kept",
        (false, true) => "They are not kept",
    };
    // The figure that counts, where it is one of the VM's.
    let moved = found.moved.iter().find(|row| row.name == found.metric);
    let moved = moved.map_or(String::new(), |row| {
        format!(", {} → {}", value(row, row.before), value(row, row.after))
    });
    let (gain, metric) = (gain(&total), &found.metric);
    format!("{name} {gain}: {metric}{moved}. {actions}. {state}.")
}

/// "Unpin its vCPUs (at most 12 % of the time), and 2 other changes. Nothing was changed yet."
fn to_try(first: &Candidate, others: usize) -> String {
    let most = match first.ceiling {
        0.0 => String::new(),
        ceiling => format!(" (at most {} of the time)", percent(ceiling)),
    };
    let others = only_if(
        others > 0,
        format!(", and {}", counted(others as u64, "other change")),
    );
    format!(
        "{}{most}{others}. Nothing was changed yet.",
        first.change.action
    )
}

/// That none of so many changes helped.
pub(super) fn none_helped(tried: usize) -> String {
    match tried {
        1 => "the change that was tried did not measurably help".to_owned(),
        n => format!("none of {n} changes measurably helped"),
    }
}

/// "is 2.39 times as fast (95 % CI 2.20–3.61)", "takes 31 % less time per operation (95 % CI 12 % to 40 %)": `comparison`
/// is faster.
pub(super) fn gain(comparison: &Comparison) -> String {
    let ratio = &comparison.ratio;
    let ci = |range: fn(&Interval) -> String| {
        let text = |i: &Interval| format!(" (95 % CI {})", range(i));
        ratio.interval.as_ref().map_or(String::new(), text)
    };
    if ratio.median < 0.5 {
        let ci = ci(|i| format!("{}–{}", factor(1.0 / i.high), factor(1.0 / i.low)));
        return format!("is {} times as fast{ci}", factor(1.0 / ratio.median));
    }
    let ci = ci(|i| format!("{} to {}", percent(1.0 - i.high), percent(1.0 - i.low)));
    let less = percent(1.0 - ratio.median);
    format!("takes {less} less time per operation{ci}")
}

/// A figure in its unit.
pub(super) fn value(row: &BeforeAfter, value: f64) -> String {
    match row.unit.as_str() {
        "ns" => nanoseconds(value),
        "fraction" => percent(value),
        "bytes per second" => format!("{}/s", bytes(value as u64)),
        _ => format!("{}/s", significant(value)),
    }
}

fn next(recording: &Recording, found: &TuneFindings) -> Vec<String> {
    let argument = found.vm.argument();
    let folder = shell_line(&[recording.folder.display().to_string()]);
    match (found.applied, found.is_on) {
        (false, _) if found.candidates.is_empty() => vec![format!("vmtax diagnose {argument}")],
        (false, _) => vec![format!("vmtax tune --vm {argument} --apply")],
        (true, true) => vec![format!("vmtax undo {folder}")],
        (true, false) => vec![format!("vmtax diagnose {argument}")],
    }
}

fn not_tried(remedy: &vmtax_model::NotTried) -> String {
    let line = only_if(!remedy.line.is_empty(), format!(": `{}`", remedy.line));
    format!("{}: {}{line}", remedy.action, remedy.why)
}

fn sections(found: &TuneFindings) -> Vec<Section<'_>> {
    let title = match found.applied {
        true => "Changes",
        false => "Changes to try",
    };
    let is_any = !found.candidates.is_empty();
    let changes = is_any.then(|| Section::new(title, [changes(found)]));
    let moved = before_after("Without vs. with the kept changes", &found.moved);
    changes.into_iter().chain(moved).collect()
}

fn changes(found: &TuneFindings) -> Table {
    let action = |row: &TuneRow| row.candidate.change.action.clone();
    let table = Table::of("Changes", &found.candidates)
        .column(words("change").broken(28, 16), |row| action(row))
        .column(figures("at most"), |row| match row.candidate.ceiling {
            ceiling if ceiling > 0.0 => percent(ceiling),
            _ => NONE.to_owned(),
        });
    let table = if found.applied {
        table.columns(measured(), |row| {
            let [screening, confirmation] = ratios([&row.screening, &row.confirmation], "pair");
            [screening, confirmation, result(row.verdict, None)]
        })
    } else {
        table.column(words("settings").broken(24, 16), |row| settings(row))
    };
    let meaning = if found.applied {
        "Time per operation with the change ÷ without it (for a rate, inverted): the median of the pairs' ratios, 95 % CI; below ×1 is \
         faster. At most: the fraction of the time that its cause takes."
    } else {
        "At most: the fraction of the time that its cause takes."
    };
    let why = |row: &TuneRow| Some(format!("{}: {}.", action(row), row.why.as_ref()?));
    let whys = found.candidates.iter().filter_map(why);
    let meaning = [meaning.to_owned()].into_iter();
    table.done().notes(meaning.chain(whys).collect())
}

/// The columns of what was measured of a change.
pub(super) fn measured() -> [Column; 3] {
    let ratio = |name| figures(name).broken(14, 12);
    [ratio("screening"), ratio("confirmation"), words("result")]
}

/// The cells of both measurements of a change, each of so many pairs or rounds (`what`).
pub(super) fn ratios(comparisons: [&Option<Comparison>; 2], what: &str) -> [Cell; 2] {
    comparisons.map(|comparison| {
        let text = |found: &Comparison| {
            let range = match found.ratio.interval {
                Some(_) => interval(&found.ratio),
                None => counted(found.rounds.into(), what),
            };
            format!("{} ({range})", number::ratio(found.ratio.median))
        };
        Cell::from(comparison.as_ref().map_or(NONE.to_owned(), text))
    })
}

/// The cell of a change's result, in other words than its own where there are some.
pub(super) fn result(verdict: TuneVerdict, words: Option<&str>) -> Cell {
    let tone = match verdict {
        TuneVerdict::Keep => Tone::Good,
        TuneVerdict::Reject => Tone::Bad,
        TuneVerdict::Refused => Tone::Warn,
        TuneVerdict::Inconclusive | TuneVerdict::NotMeasured => Tone::Soft,
    };
    Cell::from(words.map_or_else(|| verdict.to_string(), str::to_owned)).tone(tone)
}

/// The settings and their new values; of many the first.
fn settings(row: &TuneRow) -> String {
    let [first, others @ ..] = &row.candidate.change.settings[..] else {
        return String::new();
    };
    let value = match &first.setting {
        LiveSetting::DiskLimits { .. } if first.value == "{}" => "none",
        _ => &first.value,
    };
    let more = only_if(!others.is_empty(), format!(", and {} more", others.len()));
    format!("{}: {value}{more}", first.setting.label())
}

/// Figures without and with what is kept; `None` where there are none.
pub(super) fn before_after<'a>(title: &'static str, rows: &[BeforeAfter]) -> Option<Section<'a>> {
    let of_comparison = |row: &BeforeAfter, text: fn(&Comparison) -> String| {
        row.comparison.as_ref().map_or(NONE.to_owned(), text)
    };
    let note =
        "Medians of the measurements; ratio: the median of the paired ratios, with ÷ without.";
    let table = Table::of(title, rows)
        .column(words("metric"), |row| row.name.clone())
        .column(figures("without"), |row| value(row, row.before))
        .column(figures("with"), |row| value(row, row.after))
        .column(figures("ratio"), |row| {
            of_comparison(row, |found| number::ratio(found.ratio.median))
        })
        .column(figures("95 % CI").spare(2), |row| {
            of_comparison(row, |found| interval(&found.ratio))
        })
        .done()
        .notes(vec![note.to_owned()]);
    (!rows.is_empty()).then(|| Section::new(title, [table]))
}

fn method(found: &TuneFindings) -> Vec<String> {
    let how = "Each change is measured in pairs, with and without it, under the VM's own load; of two consecutive pairs one is A B and \
               the other B A, in random order. A pair gives one ratio: time per operation, or the inverse of a rate, with the change ÷ without it. A sequential \
               sign test decides after 8, 11 and 15 pairs; a change that is 5 % slower in each of its first three pairs is reverted. Changes that help are \
               measured again, with the other helpful changes on, and then all kept changes vs. none: the reported gain comes from these pairs only, \
               to avoid selection bias.";
    let causes = found.candidates.iter().map(|row| &row.candidate);
    let causes = causes.map(|one| format!("{}: {}", one.change.action, one.finding));
    [how.to_owned()].into_iter().chain(causes).collect()
}

/// Returns a text about the part of the run that begins with a step, for the progress on a terminal; `None` if the
/// step is the next pair of the same question.
pub fn begins(spec: &TuneSpec, records: &[TuneRecord], step: &TuneStep) -> Option<String> {
    let TuneStep::Pair(plan) = step else {
        return None;
    };
    let last = records.iter().rev().find_map(|record| match record {
        TuneRecord::Pair { plan, .. } => Some(plan),
        _ => None,
    });
    if last.is_some_and(|last| last.phase == plan.phase && last.changed == plan.changed) {
        return None;
    }
    let action = |number: &usize| Some(spec.candidates.get(*number)?.change.action.as_str());
    let actions = plan.changed.iter().filter_map(action).joined("; ");
    let number = plan.changed.first().map_or(1, |first| first + 1);
    Some(match plan.phase {
        TunePhase::Screening => {
            let all = spec.candidates.len();
            format!(
                "change {number} of {all}: {actions}: measured with and without, up to 15 pairs"
            )
        }
        TunePhase::Confirmation => format!("it helped; measured again: {actions}"),
        TunePhase::Total => format!("all kept changes vs. none: {actions}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{Estimate, Verdict};
    use vmtax_model::{ChangeCost, LiveChange, LiveMetric, SettingValue, VmFacts};

    fn row(action: &str, verdict: TuneVerdict) -> TuneRow {
        let setting = LiveSetting::DiskLimits {
            device: "d0".to_owned(),
        };
        let change = LiveChange {
            action: action.to_owned(),
            cost: ChangeCost::Live,
            metric: Some(LiveMetric::Latency),
            disk: None,
            settings: vec![SettingValue {
                setting,
                value: "{}".to_owned(),
            }],
        };
        let candidate = Candidate {
            rule: String::new(),
            finding: "It is slow.".to_owned(),
            ceiling: 0.9,
            change,
        };
        TuneRow {
            candidate,
            verdict,
            why: None,
            screening: None,
            confirmation: None,
        }
    }

    fn found(candidates: Vec<TuneRow>, applied: bool) -> TuneFindings {
        TuneFindings {
            vm: VmFacts {
                name: Some("db".to_owned()),
                ..VmFacts::unknown(7)
            },
            applied,
            metric: LiveMetric::Latency.label().to_owned(),
            total: None,
            moved: Vec::new(),
            candidates,
            is_on: false,
            not_tried: Vec::new(),
            ended: None,
            seconds: 30.0,
        }
    }

    #[test]
    fn the_answer_says_what_helped_or_that_nothing_did_or_what_to_try() {
        let interval = Some(Interval {
            low: 0.01,
            high: 0.08,
            coverage: 0.95,
        });
        let ratio = Estimate {
            median: 0.02,
            interval,
        };
        let total = Comparison {
            ratio,
            difference: None,
            rounds: 8,
            p: None,
            verdict: Verdict::Faster,
        };
        let moved = BeforeAfter {
            name: LiveMetric::Latency.label().to_owned(),
            unit: "ns".to_owned(),
            before: 46e6,
            after: 881e3,
            comparison: None,
        };
        let kept = row("Remove the I/O limits of disk0", TuneVerdict::Keep);
        let helped = TuneFindings {
            total: Some(total),
            moved: vec![moved],
            is_on: true,
            ..found(vec![kept.clone()], true)
        };
        let answer = |found: &TuneFindings| answer(found).replace('\u{a0}', " ");
        assert_eq!(
            answer(&helped),
            "db is 50.0 times as fast (95 % CI 12.5–100): latency of disk requests (BLKAVG), 46.0 ms → 881 µs. Remove the I/O limits of disk0. \
             It was left on."
        );
        let rejected = row("Unpin", TuneVerdict::Reject);
        assert_eq!(
            answer(&found(vec![rejected], true)),
            "db: the change that was tried did not measurably help; nothing is kept."
        );
        assert_eq!(
            answer(&found(vec![kept.clone(), kept.clone()], false)),
            "db: to try: Remove the I/O limits of disk0 (at most 90 % of the time), and 1 other change. Nothing was changed yet."
        );
        assert!(answer(&found(Vec::new(), true)).contains("nothing to try"));
        assert_eq!(settings(&kept), "I/O limits of d0: none");
    }
}
