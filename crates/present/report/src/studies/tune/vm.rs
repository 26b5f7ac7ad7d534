//! `tune` of a running VM: which live changes helped, and by how much.

use super::{before_after, course, differing, gain, guards_that_cost, value};
use crate::engine::{Notice, Report, Section, Table, figures, words};
use crate::number::{NONE, counted, percent};
use crate::text::{Joined, only_if};
use crate::view::{origin, vm};
use vmtax_findings::{TuneFindings, TuneRow};
use vmtax_model::{
    Candidate, LiveSetting, TunePhase, TuneRecord, TuneSpec, TuneStep, VmFacts, shell_line,
};
use vmtax_recording::Recording;

/// Makes the report of a tuning run of a running VM.
pub fn report<'a>(recording: &'a Recording, found: &'a TuneFindings) -> Report<'a> {
    let seconds = found.outcome.seconds;
    let is_measured = found.applied && seconds > 0.0;
    let measured = is_measured.then(|| format!("measured for {seconds:.0} s"));
    Report {
        study: "compare",
        title: format!("Live settings of {}", vm::name(&found.vm)),
        basis: vm::recorded(recording, &found.vm, measured),
        answer: answer(found),
        next: next(recording, found),
        notices: super::notices(
            &found.outcome,
            vec![Notice::notes("Also changed", differing(&found.moved))],
            guards_that_cost(&found.moved).collect(),
        ),
        sections: sections(found),
        method: only_if(found.applied, method(found)),
        origin: origin(recording),
        ..Report::default()
    }
}

/// Returns the changes that helped, with their gain; else the changes to try; or that there are none.
fn answer(found: &TuneFindings) -> String {
    let name = vm::name(&found.vm);
    let [first, others @ ..] = &found.outcome.candidates[..] else {
        return nothing_to_try(&name, found);
    };
    if !found.applied {
        return format!("{name}: {}", to_try(&first.candidate, others.len()));
    }
    super::answer(&name, &found.outcome, "", |total, rows| {
        let actions = rows.iter().map(|row| &*row.candidate.change.action);
        let actions = actions.joined("; ");
        let state = if found.is_on { "Kept" } else { "Reverted" };
        let change = if rows.len() == 1 { "change" } else { "changes" };
        // The figure that counts, where it is one of the VM's.
        let moved = found.moved.iter().find(|row| row.name == found.metric);
        let moved = moved.map_or(String::new(), |row| {
            format!(
                " {}",
                course(row.before, row.after, |figure| value(row, figure))
            )
        });
        let (gain, metric) = (gain(total), &found.metric);
        format!("{name}: {metric}{moved}, {gain}. {state} {change}: {actions}.")
    })
}

/// "web01 (its disks were not observed): no change to try while it runs: no cause was found that `tune` can address."
fn nothing_to_try(name: &str, found: &TuneFindings) -> String {
    let unobserved = found.unobserved.as_ref();
    let not = unobserved.map_or(String::new(), |what| format!(" ({what} were not observed)"));
    let why = match found.outcome.not_tried.len() as u64 {
        0 => ": no cause was found that `tune` can address".to_owned(),
        1 => "; below is a remedy that `tune` does not try, with the reason".to_owned(),
        n => format!("; below are {n} remedies that `tune` does not try, with the reasons"),
    };
    let may_see_more = unobserved.is_some() && found.vm.needs_root();
    let as_root = only_if(may_see_more, " Run vmtax as root.");
    format!("{name}{not}: no change to try while it runs{why}.{as_root}")
}

/// "3 changes to try, first: Unpin its vCPUs (its cause takes up to 12 % of the VM's time). Nothing was changed yet."
fn to_try(first: &Candidate, others: usize) -> String {
    let most = match first.ceiling {
        0.0 => String::new(),
        ceiling => format!(
            " (its cause takes up to {} of the VM's time)",
            percent(ceiling)
        ),
    };
    let first_of_several = only_if(others > 0, ", first".to_owned());
    format!(
        "{} to try{first_of_several}: {}{most}. Nothing was changed yet.",
        counted(others as u64 + 1, "change"),
        first.change.action
    )
}

fn next(recording: &Recording, found: &TuneFindings) -> Vec<String> {
    let diagnose = format!("vmtax diagnose {}", found.vm.argument());
    let folder = shell_line(&[recording.folder.display().to_string()]);
    match (found.applied, found.is_on) {
        (false, _) if found.outcome.candidates.is_empty() => vec![diagnose],
        (false, _) => vec![command(&found.vm, " --apply")],
        (true, true) => vec![format!("vmtax undo {folder}")],
        (true, false) => vec![diagnose],
    }
}

/// Returns the command that tunes a VM, with these options: as root where only root may change the VM.
pub fn command(vm: &VmFacts, options: &str) -> String {
    let sudo = only_if(vm.needs_root(), "sudo ");
    format!("{sudo}vmtax tune --vm {}{options}", vm.argument())
}

fn sections(found: &TuneFindings) -> Vec<Section<'_>> {
    let title = match found.applied {
        true => "Changes",
        false => "Changes to try",
    };
    let is_any = !found.outcome.candidates.is_empty();
    let changes = is_any.then(|| Section::new(title, [changes(found)]));
    let moved = before_after("Without vs. with the kept changes", &found.moved);
    changes.into_iter().chain(moved).collect()
}

fn changes(found: &TuneFindings) -> Table {
    let at_most = "Time affected: the most of the VM's time that the cause takes; of a disk the time in which requests wait. A latency \
                   can fall by a larger part.";
    let table = super::changes(&found.outcome).column(figures("time affected"), |row| {
        match row.candidate.ceiling {
            ceiling if ceiling > 0.0 => percent(ceiling),
            _ => NONE.to_owned(),
        }
    });
    let (table, meaning) = if found.applied {
        let meaning = format!("{} {at_most}", super::of_ratios("pair"));
        (super::measured(table, "pair"), meaning)
    } else {
        let settings = table.column(words("settings").broken(24, 16), |row| settings(row));
        (settings, at_most.to_owned())
    };
    let notes = super::notes(&found.outcome, meaning, None);
    table.done().notes(notes)
}

/// The settings and their new values; of many the first.
fn settings(row: &TuneRow<Candidate>) -> String {
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

fn method(found: &TuneFindings) -> Vec<String> {
    let how = "Each change is measured in pairs, with and without it, under the VM's own load; of two consecutive pairs one is A B and \
               the other B A, in random order. A pair gives one ratio: time per operation, or the inverse of a rate, with the change ÷ without it. A sequential \
               sign test decides after 8, 11 and 15 pairs; a change that is 5 % slower in each of its first three pairs is reverted. Changes that help are \
               measured again, with the other helpful changes on, and then all kept changes vs. none: the reported gain comes from these pairs only, \
               to avoid selection bias.";
    let causes = found.outcome.candidates.iter().map(|row| &row.candidate);
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
    if last.is_some_and(|last| last.is_of(plan.phase, &plan.changed)) {
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
    use vmtax_findings::{BeforeAfter, Comparison, Estimate, TuneOutcome, TuneVerdict, Verdict};
    use vmtax_model::{
        Ability, AbilityName, ChangeCost, Interval, LiveChange, LiveMetric, Missing, NotTried,
        SettingValue, VmFacts,
    };

    fn row(action: &str, verdict: TuneVerdict) -> TuneRow<Candidate> {
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
            beside: None,
            screening: None,
            confirmation: None,
        }
    }

    fn found(candidates: Vec<TuneRow<Candidate>>, applied: bool) -> TuneFindings {
        TuneFindings {
            vm: VmFacts {
                name: Some("db".to_owned()),
                ..VmFacts::unknown(7)
            },
            applied,
            unobserved: None,
            metric: LiveMetric::Latency.label().to_owned(),
            moved: Vec::new(),
            is_on: false,
            outcome: TuneOutcome {
                total: None,
                candidates,
                not_tried: Vec::new(),
                ended: None,
                seconds: 30.0,
            },
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
        let mut helped = TuneFindings {
            moved: vec![moved],
            is_on: true,
            ..found(vec![kept.clone()], true)
        };
        helped.outcome.total = Some(total);
        let answer = |found: &TuneFindings| answer(found).replace('\u{a0}', " ");
        assert_eq!(
            answer(&helped),
            "db: latency of disk requests (BLKAVG) fell from 46.0 ms to 881 µs, time per operation ×0.0200 (95 % CI 0.01000–0.0800). Kept change: \
             Remove the I/O limits of disk0."
        );
        let rejected = TuneRow {
            screening: Some(total),
            ..row("Unpin", TuneVerdict::Reject)
        };
        assert_eq!(
            answer(&found(vec![rejected], true)),
            "db: the change that was tried did not measurably help; nothing is kept."
        );
        let open = TuneRow {
            screening: Some(total),
            ..row("Unpin", TuneVerdict::Inconclusive)
        };
        assert_eq!(
            answer(&found(vec![open], true)),
            "db: the change that was tried has no conclusive result; nothing is kept."
        );
        let refused = row("Unpin", TuneVerdict::Refused);
        assert_eq!(
            answer(&found(vec![refused], true)),
            "db: no change was measured; nothing is kept."
        );
        assert_eq!(
            answer(&found(vec![kept.clone(), kept.clone()], false)),
            "db: 2 changes to try, first: Remove the I/O limits of disk0 (its cause takes up to 90 % of the VM's time). Nothing was changed yet."
        );
        assert_eq!(
            answer(&found(Vec::new(), true)),
            "db: no change to try while it runs: no cause was found that `tune` can address."
        );
        assert_eq!(settings(&kept), "I/O limits of d0: none");
    }

    #[test]
    fn where_nothing_is_tried_the_answer_says_what_was_not_observed_and_what_is_left_to_do() {
        let mut none = found(Vec::new(), false);
        none.outcome.not_tried = vec![NotTried {
            finding: "The main loop (TID 7) waits for a host CPU.".to_owned(),
            action: "Pin the thread".to_owned(),
            line: String::new(),
            why: "set it yourself".to_owned(),
        }];
        assert_eq!(
            answer(&none),
            "db: no change to try while it runs; below is a remedy that `tune` does not try, with the reason."
        );
        none.outcome.not_tried.clear();
        none.unobserved = Some("its disks".to_owned());
        none.vm.abilities = vec![Ability {
            what: AbilityName::SetAffinity,
            missing: Some(Missing {
                what: "host CPUs of its threads".to_owned(),
                why: "the process belongs to another user".to_owned(),
                fix: "run vmtax as root".to_owned(),
            }),
        }];
        assert_eq!(
            answer(&none),
            "db (its disks were not observed): no change to try while it runs: no cause was found that `tune` can address. Run vmtax as root."
        );
        assert_eq!(
            command(&none.vm, " --apply"),
            "sudo vmtax tune --vm db --apply"
        );
        none.vm.abilities.clear();
        assert_eq!(command(&none.vm, ""), "vmtax tune --vm db");
    }
}
