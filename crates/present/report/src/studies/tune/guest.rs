//! `tune` of a guest that is booted for it: which settings make its workload faster, and by how much.

use super::{before_after, capitalized, course, gain, guards_that_cost};
use crate::engine::{Notice, Report, Section, Table, words};
use crate::number::{NONE, counted, duration, percent, value};
use crate::text::{Joined, only_if};
use crate::view::{self, host, origin};
use vmtax_findings::{GuestTuneFindings, SecondScreening, TuneRow};
use vmtax_model::{
    GuestCandidate, GuestTunePhase, GuestTuneSpec, GuestTuneStep, Plan, SECRET_REMOVED,
    TrialRecord, Warning, shell_line,
};
use vmtax_recording::Recording;

/// Makes the report of a tuning run with test guests.
pub fn report<'a>(recording: &'a Recording, found: &'a GuestTuneFindings) -> Report<'a> {
    let plan = &recording.plan;
    let (rounds, boots) = (
        counted(found.rounds.into(), "round"),
        counted(found.boots.into(), "boot"),
    );
    let time = duration(found.outcome.seconds);
    let place = vec![
        format!("{rounds} of fresh guests in random order, {boots}, {time}"),
        view::guests_in_short(plan),
        workload(recording),
        from(found),
        view::began(recording),
    ];
    let not_copied = found.like.iter().flat_map(|like| like.not_twinned.clone());
    let notes = vec![
        Notice::notes("Differences from the fio job", found.job_notes.clone()),
        Notice::notes("Not copied from the VM", not_copied.collect()),
    ];
    Report {
        study: "compare",
        title: "Settings of a test guest".to_owned(),
        answer: answer(recording, found),
        basis: [place, host(recording)].concat(),
        next: next(recording, found),
        notices: super::notices(&found.outcome, notes, warnings(recording, found)),
        sections: sections(recording, found),
        method: method(recording),
        origin: origin(recording),
        ..Report::default()
    }
}

/// Returns the figures that got worse, and the warnings of all trials.
fn warnings(recording: &Recording, found: &GuestTuneFindings) -> Vec<String> {
    let mut of_trials: Vec<Warning> = Vec::new();
    for warning in recording.trials.iter().flat_map(|trial| &trial.warnings) {
        vmtax_analysis::add_warning(&mut of_trials, warning);
    }
    guards_that_cost(&found.guards)
        .chain(view::warnings(recording, &of_trials))
        .collect()
}

fn workload(recording: &Recording) -> String {
    let command = recording.plan.command();
    let command = command.map(|command| shell_line(&command.argv));
    command.unwrap_or_else(|| view::layers::workload(recording))
}

/// The settings with which it began.
fn from(found: &GuestTuneFindings) -> String {
    let share = |key: &str| key == "share" || key.starts_with("share.");
    let settings = found.baseline.iter().filter(|(key, _)| !share(key));
    let settings = settings.map(|(key, value)| format!("{key}={value}"));
    let like = found.like.as_ref().map_or(String::new(), |like| {
        format!("configuration of {}, disk {}; ", like.source, like.disk)
    });
    format!("{like}baseline {}", settings.joined(", "))
}

/// Returns the changes that are kept, with the total gain and the gain of each; or that there are none, and how much those may
/// bring that were not kept.
pub fn answer(recording: &Recording, found: &GuestTuneFindings) -> String {
    let what = workload(recording);
    let bound = found.at_most.map_or(String::new(), |most| {
        let most = percent(most.max(0.0));
        format!(" (upper bound of the gain of the fully measured changes: {most} of the time)")
    });
    super::answer(&what, &found.outcome, &bound, |total, rows| {
        let medians = found.before.zip(found.after);
        let figure = medians.map_or(what.clone(), |(before, after)| {
            let course = course(before, after, |median| value(found.metric.unit(), median));
            format!("{} of {what} {course} (medians)", found.metric.label())
        });
        let (changes, gain) = (kept(&rows), gain(total));
        format!("{changes}, {figure}: {gain}.{}", shares(&rows))
    })
}

/// "With aio=native and without limits": a limit that is removed is named "without …".
fn kept(rows: &[&TuneRow<GuestCandidate>]) -> String {
    let names = rows.iter().map(|row| row.candidate.name.as_str());
    let (without, with): (Vec<&str>, Vec<&str>) =
        names.partition(|name| name.starts_with("without "));
    let with = (!with.is_empty()).then(|| format!("with {}", with.join(", ")));
    let without = without.into_iter().map(str::to_owned);
    capitalized(&with.into_iter().chain(without).joined(" and "))
}

/// Returns the contribution of each of several changes, as a sentence.
fn shares(rows: &[&TuneRow<GuestCandidate>]) -> String {
    let share = |row: &&TuneRow<GuestCandidate>| {
        let gain = gain(&row.confirmation?);
        Some(format!("{} {gain}", row.candidate.name))
    };
    let shares = rows.iter().filter_map(share).joined("; ");
    only_if(
        rows.len() > 1,
        format!(" Contribution of each, with the others kept: {shares}."),
    )
}

fn next(recording: &Recording, found: &GuestTuneFindings) -> Vec<String> {
    if found.outcome.total.is_none() {
        return Vec::new();
    }
    let like = found.like.as_ref();
    if let Some((like, xml)) = like.and_then(|like| Some((like, like.domain_xml.as_deref()?))) {
        return for_domain(recording, like.domain_name.as_deref(), xml);
    }
    let of_disk = only_if(
        found.changes_disk(),
        vec!["qemu.args", "libvirt.xml", "UNDO.md"],
    );
    let of_guest = found.changes_guest().then_some("guest.md");
    let files = of_disk.into_iter().chain(of_guest);
    let files = files.map(|name| tuned_file(recording, name));
    let words: Vec<String> = ["cat".to_owned()].into_iter().chain(files).collect();
    vec![shell_line(&words)]
}

/// A file of what is kept, in the recording.
fn tuned_file(recording: &Recording, name: &str) -> String {
    let file = recording.folder.join("tuned").join(name);
    file.display().to_string()
}

/// Returns the commands that change a libvirt domain with this XML to what is kept, and the one that undoes it.
fn for_domain(recording: &Recording, name: Option<&str>, xml: &str) -> Vec<String> {
    let line =
        |words: &[&str]| shell_line(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
    let [diff, tuned, undo] =
        ["domain.diff", "domain.xml", "undo.xml"].map(|name| tuned_file(recording, name));
    let cat = line(&["cat", &diff]);
    let define = |file: &str| line(&["virsh", "define", file]);
    let started = "then shut the domain down and start it";
    // Its secrets are not in the XML that was read, and would be gone after `virsh define`.
    if !["<graphics", "<cookie", SECRET_REMOVED]
        .iter()
        .any(|element| xml.contains(element))
    {
        return vec![
            cat,
            format!("{}  # {started}", define(&tuned)),
            format!("{}  # undo", define(&undo)),
        ];
    }
    let name = name.unwrap_or("DOMAIN");
    let (tuned, undo) = (format!("./{name}.tuned.xml"), format!("./{name}.undo.xml"));
    let dump = line(&["virsh", "dumpxml", "--inactive", "--security-info", name]);
    let patch = line(&["patch", "-o", &tuned, &undo, &diff]);
    vec![
        cat,
        format!("{dump} >{}", line(&[&undo])),
        format!("{patch} && {}  # {started}", define(&tuned)),
        format!("{}  # undo", define(&undo)),
    ]
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
    let meaning = super::of_ratios("round")
        + " Screening: on the baseline or, for those listed below, on top of other changes. Confirmation: all kept changes vs. \
           the same without this one (leave-one-out), on new boots.";
    let second = found.second_screening.as_ref().map(second_screening);
    super::measured(super::changes(&found.outcome), "round")
        .done()
        .notes(super::notes(&found.outcome, meaning, second))
}

/// Returns the number of changes in the second screening, and those that were kept.
fn second_screening(second: &SecondScreening) -> String {
    let kept = match &second.kept[..] {
        [] => "nothing".to_owned(),
        kept => kept.join(", "),
    };
    format!(
        "Second screening, on top of {}, which may have masked other changes: {} in {}; kept of these: {kept}.",
        second.beside,
        counted(second.candidates.len() as u64, "change"),
        counted(second.boots.into(), "boot"),
    )
}

fn published(found: &GuestTuneFindings) -> Table {
    let or_none = |text: &str| if text.is_empty() { NONE } else { text }.to_owned();
    let rows = found.outcome.candidates.iter();
    let candidates = rows.map(|row| &row.candidate);
    Table::of("What is published of these changes", candidates)
        .column(words("change"), |one| one.name.clone())
        .column(words("applying it takes"), |one| {
            one.cost.map_or(NONE.to_owned(), |cost| cost.to_string())
        })
        .column(words("published result").broken(40, 20), |one| {
            or_none(&one.source)
        })
        .column(words("drawback").broken(40, 20), |one| or_none(&one.trap))
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
    let mut workloads = recording.plan.workloads.iter();
    let has_disk = workloads.any(|workload| workload.name.needs_disk());
    let all = [Some(how), has_disk.then_some(disk)];
    all.into_iter().flatten().map(str::to_owned).collect()
}

/// Returns a text about the part of the run that begins with a step, for the progress on a terminal.
pub fn begins(plan: &Plan, trials: &[TrialRecord], step: &GuestTuneStep) -> Option<String> {
    let spec = plan.guest_tune()?;
    let found = vmtax_analysis::tune_guest(plan, trials)?;
    let left = (f64::from(spec.budget_s) - found.outcome.seconds).max(0.0);
    let time = format!("at most {} left", duration(left));
    let boots = counted(step.configurations.len() as u64, "boot");
    let first = step.configurations.first()?;
    Some(match step.phase {
        phase @ (GuestTunePhase::Screening | GuestTunePhase::SecondScreening) => {
            let open = counted(step.configurations.len() as u64 - 1, "change");
            let against = match &first[..] {
                [] => "the baseline".to_owned(),
                first => spec.name(first),
            };
            let screening = match phase {
                GuestTunePhase::SecondScreening => format!(
                    "second screening: {open} once more against {against}, which may have masked them"
                ),
                _ => format!("screening: {open} against {against}"),
            };
            let news = news(spec, &found, first);
            format!("{news}{screening}, {boots} a round; {time}")
        }
        GuestTunePhase::Combination => {
            let more = added(step.configurations.last()?, first);
            let [helped, more] = [&first[..], &more].map(|changes| spec.name(changes));
            format!("it helped: {helped}; does {more} help on top of it? {boots} a round; {time}")
        }
        GuestTunePhase::Confirmation => {
            let kept = spec.name(first);
            format!(
                "confirmation of {kept} against the baseline, on new boots: {boots} a round; {time}"
            )
        }
    })
}

/// The changes of a configuration that are not in another.
fn added(changes: &[usize], before: &[usize]) -> Vec<usize> {
    let changes = changes.iter().copied();
    changes.filter(|number| !before.contains(number)).collect()
}

/// Returns the result since the last part because of which changes are screened on top of `base`; empty if there is
/// none.
fn news(spec: &GuestTuneSpec, found: &GuestTuneFindings, base: &[usize]) -> String {
    let Some(last) = spec.parts.last().filter(|_| !base.is_empty()) else {
        return String::new();
    };
    let before = last.configurations.first().map_or(&[][..], Vec::as_slice);
    let added = added(base, before);
    match (last.phase, found.outcome.total) {
        // Once, after its confirmation.
        (GuestTunePhase::Confirmation, Some(total)) => {
            let (kept, gain) = (spec.name(base), gain(&total));
            format!("confirmed: with {kept}, {gain}. Next, on top of it: ")
        }
        (GuestTunePhase::Screening, _) if !before.is_empty() && !added.is_empty() => {
            let [before, added] = [before, &added].map(|changes| spec.name(changes));
            format!("it helped on top of {before}: {added}. Next, on top of all: ")
        }
        _ => String::new(),
    }
}
