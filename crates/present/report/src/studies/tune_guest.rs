//! `tune` of a guest that is booted for it: which settings make its workload faster, and by how much.

use super::tune::{
    before_after, gain, measured, none_helped, ratios, result, value as guard_value,
};
use crate::engine::{Notice, Report, Section, Table, words};
use crate::number::{NONE, counted, duration, percent, value};
use crate::text::{Joined, only_if, when};
use crate::view::{self, host, origin};
use std::collections::BTreeMap;
use vmtax_model::{
    GuestTuneFindings, GuestTunePhase, GuestTuneRow, GuestTuneSpec, GuestTuneStep, Plan,
    SecondScreening, TrialRecord, TuneVerdict, Verdict, Warning, WorkloadName, shell_line,
};
use vmtax_recording::Recording;

/// Makes the report of a tuning run with test guests.
pub fn report<'a>(recording: &'a Recording, found: &'a GuestTuneFindings) -> Report<'a> {
    let plan = &recording.plan;
    let rounds = format!(
        "{} of fresh guests in random order, {}, {}",
        counted(found.rounds.into(), "round"),
        counted(found.boots.into(), "boot"),
        duration(found.seconds)
    );
    let mut warnings: Vec<Warning> = Vec::new();
    for warning in recording.trials.iter().flat_map(|trial| &trial.warnings) {
        vmtax_analysis::add_warning(&mut warnings, warning);
    }
    let ended = found
        .ended
        .iter()
        .map(|why| format!("{}.", capitalized(why)));
    let warnings = guards_that_cost(found)
        .chain(ended)
        .chain(view::warnings(recording, &warnings))
        .collect();
    let place = vec![
        rounds,
        view::guests_in_short(plan),
        workload(recording),
        from(found),
        when(&recording.manifest.started),
    ];
    Report {
        study: "compare",
        title: "Tuning of a guest".to_owned(),
        answer: answer(recording, found),
        basis: [place, host(recording)].concat(),
        next: next(recording, found),
        notices: vec![
            Notice::notes("Differences from the fio job", found.job_notes.clone()),
            Notice::notes(
                "Not copied from the VM",
                found
                    .like
                    .iter()
                    .flat_map(|like| like.not_twinned.clone())
                    .collect(),
            ),
            Notice::notes(
                "Not tried",
                found
                    .not_tried
                    .iter()
                    .map(|one| format!("{}: {}.", one.action, one.why))
                    .collect(),
            ),
            Notice::warnings(warnings),
        ],
        sections: sections(recording, found),
        method: method(recording),
        origin: origin(recording),
        ..Report::default()
    }
}

fn workload(recording: &Recording) -> String {
    let command = recording
        .plan
        .command()
        .map(|command| shell_line(&command.argv));
    command.unwrap_or_else(|| view::layers::workload(recording))
}

/// The settings with which it began.
fn from(found: &GuestTuneFindings) -> String {
    let share = |key: &str| key == "share" || key.starts_with("share.");
    let settings = found
        .baseline
        .iter()
        .filter(|(key, _)| !share(key))
        .map(|(key, value)| format!("{key}={value}"));
    let like = found.like.as_ref().map_or(String::new(), |like| {
        format!("twin of {}, disk {}, ", like.source, like.disk)
    });
    format!("{like}baseline {}", settings.joined(", "))
}

/// Returns the changes that are kept, with the total gain and the gain of each; or that there are none.
pub fn answer(recording: &Recording, found: &GuestTuneFindings) -> String {
    let what = workload(recording);
    let kept: Vec<&GuestTuneRow> = found
        .candidates
        .iter()
        .filter(|row| row.verdict == TuneVerdict::Keep)
        .collect();
    let Some(total) = found.total.filter(|_| !kept.is_empty()) else {
        let measured = found
            .candidates
            .iter()
            .filter(|row| row.screening.is_some())
            .count();
        let bound = found.at_most.map_or(String::new(), |most| {
            format!(
                " (at most {} of the time, of those that were measured to the end)",
                percent(most.max(0.0))
            )
        });
        let why = match measured {
            0 => "no change was measured".to_owned(),
            several => none_helped(several),
        };
        return format!("{what}: {why}{bound}; nothing is kept.");
    };
    let figures = found
        .before
        .zip(found.after)
        .map_or(String::new(), |(before, after)| {
            let unit = found.metric.unit();
            format!(
                ": {} {} → {} (medians)",
                found.metric.label(),
                value(unit, before),
                value(unit, after)
            )
        });
    // A limit that is removed is named "without …".
    let names = kept.iter().map(|row| row.candidate.name.as_str());
    let (without, with): (Vec<&str>, Vec<&str>) =
        names.partition(|name| name.starts_with("without "));
    let with = (!with.is_empty()).then(|| format!("with {}", with.join(", ")));
    let changes: Vec<String> = with
        .into_iter()
        .chain(without.into_iter().map(str::to_owned))
        .collect();
    let share = |row: &&GuestTuneRow| {
        Some(format!(
            "{} {}",
            row.candidate.name,
            gain(&row.confirmation?)
        ))
    };
    let shares: Vec<String> = kept.iter().filter_map(share).collect();
    let shares = match kept.len() {
        1 => String::new(),
        _ => format!(" Each beside the others: {}.", shares.join("; ")),
    };
    format!(
        "{}, {what} {}{figures}.{shares}",
        capitalized(&changes.join(" and ")),
        gain(&total)
    )
}

/// A sentence's beginning; names of settings stay as they are.
fn capitalized(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !word.contains('=') => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

fn next(recording: &Recording, found: &GuestTuneFindings) -> Vec<String> {
    if found.total.is_none() {
        return Vec::new();
    }
    let file = |name: &str| {
        recording
            .folder
            .join("tuned")
            .join(name)
            .display()
            .to_string()
    };
    let like = found.like.as_ref();
    if let Some((like, xml)) = like.and_then(|like| Some((like, like.domain_xml.as_deref()?))) {
        let line = |words: &[&str]| {
            shell_line(
                &words
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        let (diff, tuned, undo) = (file("domain.diff"), file("domain.xml"), file("undo.xml"));
        let cat = line(&["cat", &diff]);
        let define = |file: &str| line(&["virsh", "define", file]);
        let started = "then shut the domain down and start it";
        // Its secrets are not in the XML that was read, and would be gone after `virsh define`.
        if ["<graphics", "<cookie"]
            .iter()
            .any(|element| xml.contains(element))
        {
            let name = like.domain_name.as_deref().unwrap_or("DOMAIN");
            let (tuned, undo) = (format!("./{name}.tuned.xml"), format!("./{name}.undo.xml"));
            return vec![
                cat,
                format!(
                    "{} >{}",
                    line(&["virsh", "dumpxml", "--inactive", "--security-info", name]),
                    line(&[&undo])
                ),
                format!(
                    "{} && {}  # {started}",
                    line(&["patch", "-o", &tuned, &undo, &diff]),
                    define(&tuned)
                ),
                format!("{}  # undo", define(&undo)),
            ];
        }
        return vec![
            cat,
            format!("{}  # {started}", define(&tuned)),
            format!("{}  # undo", define(&undo)),
        ];
    }
    let of_disk = only_if(
        found.changes_disk(),
        vec!["qemu.args", "libvirt.xml", "UNDO.md"],
    );
    let of_guest = found.changes_guest().then_some("guest.md");
    let files = of_disk.into_iter().chain(of_guest).map(file);
    vec![shell_line(
        &["cat".to_owned()]
            .into_iter()
            .chain(files)
            .collect::<Vec<_>>(),
    )]
}

/// Figures besides the one that decides that are shown to be worse with what is kept.
fn guards_that_cost(found: &GuestTuneFindings) -> impl Iterator<Item = String> + '_ {
    let worse = found.guards.iter().filter(|row| {
        row.comparison
            .is_some_and(|one| one.verdict == Verdict::Slower)
    });
    worse.map(|row| {
        format!(
            "What is kept costs elsewhere: {}, {} → {}.",
            row.name,
            guard_value(row, row.before),
            guard_value(row, row.after)
        )
    })
}

fn sections<'a>(recording: &'a Recording, found: &'a GuestTuneFindings) -> Vec<Section<'a>> {
    let mut all = vec![Section::new("Changes", [changes(found)])];
    all.extend(before_after("Baseline vs. kept changes", &found.guards));
    all.push(Section::detail(
        "What is published of these changes",
        [published(found)],
    ));
    all.extend(view::facts(recording, &[]));
    all
}

fn changes(found: &GuestTuneFindings) -> Table {
    let mut notes = vec![
        "Time per operation with the change ÷ without it (for a rate, inverted): the median of the rounds' ratios, 95 % CI; below ×1 \
         is faster. Screening: on the baseline or, for those listed below, on top of other changes. Confirmation: all kept changes vs. \
         the same without this one (leave-one-out), on new boots."
            .to_owned(),
    ];
    notes.extend(screened_beside(found));
    notes.extend(found.second_screening.as_ref().map(second_screening));
    let why = |row: &GuestTuneRow| {
        let why = row.why.as_ref()?.trim_end_matches('.');
        Some(format!("{}: {why}.", row.candidate.name))
    };
    notes.extend(found.candidates.iter().filter_map(why));
    Table::of("Changes", &found.candidates)
        .column(words("change").broken(28, 16), |row| {
            row.candidate.name.clone()
        })
        .columns(measured(), |row| {
            // Inconclusive is what ran out of time; what was left out for a reason, which a note gives, is not kept.
            let is_left_out = row.verdict == TuneVerdict::Inconclusive && row.why.is_some();
            let [screening, confirmation] = ratios([&row.screening, &row.confirmation], "round");
            let result = result(row.verdict, is_left_out.then_some("not kept"));
            [screening, confirmation, result]
        })
        .done()
        .notes(notes)
}

/// Returns the changes that were screened on top of others, a line for each set of these others.
fn screened_beside(found: &GuestTuneFindings) -> Vec<String> {
    let mut beside: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &found.candidates {
        row.beside
            .iter()
            .for_each(|others| beside.entry(others).or_default().push(&row.candidate.name));
    }
    beside
        .into_iter()
        .map(|(others, names)| format!("Screened on top of {others}: {}.", names.join(", ")))
        .collect()
}

/// Returns the number of changes in the second screening, and those that were kept.
fn second_screening(second: &SecondScreening) -> String {
    let kept = if second.kept.is_empty() {
        "nothing".to_owned()
    } else {
        second.kept.join(", ")
    };
    format!(
        "Second screening, on top of {}, which may have masked other changes: {} in {}; kept of these: {kept}.",
        second.beside,
        counted(second.candidates.len() as u64, "change"),
        counted(second.boots.into(), "boot"),
    )
}

fn published(found: &GuestTuneFindings) -> Table {
    let or_none = |text: &str| {
        if text.is_empty() {
            NONE.to_owned()
        } else {
            text.to_owned()
        }
    };
    Table::of("What is published of these changes", &found.candidates)
        .column(words("change"), |row| row.candidate.name.clone())
        .column(words("applying it takes"), |row| {
            row.candidate
                .cost
                .map_or(NONE.to_owned(), |cost| cost.to_string())
        })
        .column(words("published").broken(40, 20), |row| {
            or_none(&row.candidate.source)
        })
        .column(words("when it harms").broken(40, 20), |row| {
            or_none(&row.candidate.trap)
        })
        .done()
}

fn method(recording: &Recording) -> Vec<String> {
    let how = "Each round boots every configuration once, in random order, and gives one ratio for each: time per operation, or the \
               inverse of a rate, with the change ÷ without it. A sequential sign test decides after 8, 11 and 15 rounds. A change that is over 5 % faster in \
               each of the first three rounds (the best one, if there are several) is measured again immediately on new boots, and the others are \
               screened on top of it; if a second change is over 10 % faster on top of the first in each of its first three rounds, the rest are \
               screened on top of both. A change whose median ratio after four rounds is not below ×1 is dropped. If time runs short, the slower half of the changes is dropped, \
               too, after two and after four rounds. The rest are combined, one at a time, those with the largest gain first. Changes that were not kept, but are \
               not slower either, are screened briefly once more on top of the combination, since they may help once another bottleneck is gone. \
               Then the result is measured again: all kept changes vs. the baseline, and vs. each set without one of them (leave-one-out). The reported gain comes \
               from these last rounds only, to avoid selection bias.";
    let disk = "The test disk is 256 MiB: with the host's page cache (cache=writeback) all reads are served from the host's memory; with a \
                larger disk they may not be.";
    let has_disk = recording
        .plan
        .workloads
        .iter()
        .any(|workload| workload.name == WorkloadName::Disk);
    [Some(how), has_disk.then_some(disk)]
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .collect()
}

/// Returns a text about the part of the run that begins with a step, for the progress on a terminal.
pub fn begins(plan: &Plan, trials: &[TrialRecord], step: &GuestTuneStep) -> Option<String> {
    let spec = plan.guest_tune()?;
    let found = vmtax_analysis::tune_guest(plan, trials)?;
    let left = (f64::from(spec.budget_s) - found.seconds).max(0.0);
    let time = format!("at most {} left", duration(left));
    let boots = counted(step.configurations.len() as u64, "boot");
    let first = step.configurations.first()?;
    Some(match step.phase {
        phase @ (GuestTunePhase::Screening | GuestTunePhase::SecondScreening) => {
            let open = counted(step.configurations.len() as u64 - 1, "change");
            let against = if first.is_empty() {
                "the baseline".to_owned()
            } else {
                spec.name(first)
            };
            let screening = match phase {
                GuestTunePhase::SecondScreening => {
                    format!(
                        "second screening: {open} once more against {against}, which may have masked them"
                    )
                }
                _ => format!("screening: {open} against {against}"),
            };
            format!(
                "{}{screening}, {boots} a round; {time}",
                news(spec, &found, first)
            )
        }
        GuestTunePhase::Combination => {
            let with = step.configurations.last()?;
            let more: Vec<usize> = with
                .iter()
                .copied()
                .filter(|number| !first.contains(number))
                .collect();
            format!(
                "it helped: {}; does {} help beside it? {boots} a round; {time}",
                spec.name(first),
                spec.name(&more)
            )
        }
        GuestTunePhase::Confirmation => {
            format!(
                "confirmation of {} against the baseline, on new boots: {boots} a round; {time}",
                spec.name(first)
            )
        }
    })
}

/// Returns the result since the last part because of which changes are screened on top of `base`; empty if there is
/// none.
fn news(spec: &GuestTuneSpec, found: &GuestTuneFindings, base: &[usize]) -> String {
    let Some(last) = spec.parts.last().filter(|_| !base.is_empty()) else {
        return String::new();
    };
    let before = last.configurations.first().map_or(&[][..], Vec::as_slice);
    let added: Vec<usize> = base
        .iter()
        .copied()
        .filter(|number| !before.contains(number))
        .collect();
    match (last.phase, found.total) {
        // Once, after its confirmation.
        (GuestTunePhase::Confirmation, Some(total)) => {
            format!(
                "confirmed: with {}, it {}. Next, beside it: ",
                spec.name(base),
                gain(&total)
            )
        }
        (GuestTunePhase::Screening, _) if !before.is_empty() && !added.is_empty() => {
            format!(
                "it helped beside {}: {}. Next, beside all: ",
                spec.name(before),
                spec.name(&added)
            )
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_a_capital_unless_a_setting_does() {
        assert_eq!(capitalized("without a limit"), "Without a limit");
        assert_eq!(capitalized("cache=none"), "cache=none");
        assert_eq!(capitalized(""), "");
    }
}
