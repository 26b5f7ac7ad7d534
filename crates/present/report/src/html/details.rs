//! Every trial in sysbench's figures, folded away.

use super::Page;
use crate::sysbench;
use maud::{Markup, html as markup};
use vmtax_model::{Machine, Outcome, TrialRecord, WorkloadName};

pub fn details(page: &Page) -> Markup {
    let trials = &page.recording.trials;
    markup! {
        section {
            h2 { "Every trial" }
            p.intro { (trials.len()) " trials in the figures that sysbench prints. " span.source { code { (page.command()) " --details" } } }
            div.folded {
                @for workload in WorkloadName::ALL {
                    @for machine in Machine::ALL { (group(trials, *workload, *machine)) }
                }
            }
        }
    }
}

fn group(trials: &[TrialRecord], workload: WorkloadName, machine: Machine) -> Markup {
    let is_of_group = |t: &&TrialRecord| t.workload.name == workload && t.machine == machine;
    let some: Vec<&TrialRecord> = trials.iter().filter(is_of_group).collect();
    markup! {
        @if !some.is_empty() {
            details {
                summary { (workload) " on " span.key.(machine) { (machine) } span.source { " " (outcomes(&some)) } }
                @for trial in some { pre { (sysbench::trial(trial)) } }
            }
        }
    }
}

fn outcomes(trials: &[&TrialRecord]) -> String {
    let done = trials.iter().filter(|t| matches!(t.outcome, Outcome::Done { .. })).count();
    let other = trials.len() - done;
    if other == 0 { format!("{done} done") } else { format!("{done} done, {other} without a result") }
}
