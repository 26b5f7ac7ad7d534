//! A run that is under way: its state, the sizes that a budget leaves it, the files that it writes.

use crate::requirements::Requirements;
use crate::shares::ShareSetup;
use crate::tool_output::Patterns;
use crate::workspace::Images;
use crate::{Progress, RunError};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_model::{
    CpuSeconds, Execution, FEWEST_ROUNDS, KernelFacts, Machine, Outcome, PinnedCpus, Plan, Probes,
    ShareFacts, SharedBoot, SizeRange, Slot, TrialRecord, Warning, WorkloadSpec,
};
use vmtax_recording::Writer;
use vmtax_vm::{Interrupt, MachineError, RunningMachine, Scratch, Streams, VmmProgram};
use vmtax_vmm::{Monitor, Vm};
use vmtax_workload::{CheckedPlan, CheckedStep};

/// Rounds and trials that a recording has of the parts of a tuning before the one that is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeforePart {
    /// Number of rounds.
    pub rounds: u32,
    /// Number of trials.
    pub trials: u32,
}

/// A failure of the plan's command, or of the host's program that makes its requests, on the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    /// Where it ran.
    pub machine: Machine,
    /// Exit status; 128 + n for signal n, 127 where the program was not found.
    pub status: i32,
    /// Message of the program; `None` of a command, whose output was passed on.
    pub said: Option<String>,
}

/// A run under way, with all that its trials share.
pub(super) struct Run<'a> {
    pub plan: &'a CheckedPlan,
    /// The plan at each step of its range.
    pub steps: &'a [CheckedStep],
    pub scratch: &'a Scratch,
    pub images: &'a Images,
    /// The plan's variants.
    pub share_setups: &'a [ShareSetup],
    pub requirements: Option<&'a Requirements>,
    pub events: bool,
    pub interrupt: &'a Interrupt,
    pub streams: Option<&'a Streams>,
    /// Patterns of the metrics that are read from a command's output.
    pub patterns: &'a Patterns,
    /// The next trial's.
    pub number: u32,
    /// Rounds and trials that the recording has of earlier parts of a tuning.
    pub before: Option<BeforePart>,
    /// Machines that booted once: a later failure there is an accident, not a verdict.
    pub booted: BTreeSet<(Machine, usize)>,
    /// Steps of a range at which a machine failed to boot the first time, with the reason: not tried again.
    pub refused: BTreeMap<(Machine, usize, usize), String>,
    pub first_failure: Option<MachineError>,
    /// True after the plan's command failed in the last boot.
    pub has_command_failed: bool,
    /// A failure of the plan's command that ends the run.
    pub command_failure: Option<CommandFailure>,
    /// Number of the range's steps that are measured: a budget may leave the last ones out.
    pub kept_steps: usize,
    pub size_times: Option<SizeTimes<'a>>,
    /// When the slot began, with the boot that it has alone or is the first of.
    pub slot_began: Instant,
    pub writer: &'a mut Writer,
    pub progress: &'a mut dyn FnMut(Progress<'_>),
}

/// A trial to be made.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub workload: &'a WorkloadSpec,
    pub probes: Probes,
}

impl<'a> Run<'a> {
    /// The VMM of the slot's machine.
    pub fn program(&self, slot: Slot) -> Option<&'a VmmProgram> {
        self.requirements?.program(slot.machine, slot.variant)
    }

    /// The kernel of the slot's guest; `None` without one.
    pub fn kernel(&self, slot: Slot) -> Option<&'a KernelFacts> {
        self.requirements?.kernels().get(slot.variant)
    }

    /// Tells who waits why a trial has no result.
    pub fn tell_failed(&mut self, number: u32, error: &MachineError) {
        (self.progress)(Progress::Failed { number, error });
    }

    /// Returns true if a budget leaves the slot's size out, which is decided before its first trial. After a budget's
    /// first round, the sizes that are kept stay.
    pub fn is_left_out(&mut self, slot: Slot) -> Result<bool, RunError> {
        let exceeds = |times: &SizeTimes<'_>| slot.round == 0 && times.exceeds_budget(slot.step);
        if slot.step < self.kept_steps && self.size_times.as_ref().is_some_and(exceeds) {
            self.kept_steps = slot.step;
            if let Some(range) = self.writer.keep_sizes(slot.step)? {
                (self.progress)(Progress::LeftOut { range });
            }
        }
        Ok(slot.step >= self.kept_steps)
    }

    /// Returns true if the slot is of a candidate of a tuning: its baseline is the first variant of all.
    pub fn is_candidate(&self, slot: Slot) -> bool {
        self.before
            .is_some_and(|before| before.rounds > 0 || slot.variant > 0)
    }

    /// The slot's round in the recording.
    pub fn round(&self, slot: Slot) -> u32 {
        self.before
            .map_or(0, |before| before.rounds)
            .saturating_add(slot.round)
    }

    /// The first slot of a boot, with the variant that the machine boots as.
    pub fn booted_slot(&self, boot: &[Slot]) -> Slot {
        Slot {
            variant: self.plan.booted_variant(boot[0]),
            ..boot[0]
        }
    }

    /// Notes what the slot took; the next one begins.
    pub fn note_time(&mut self, slot: Slot) {
        let took = self.slot_began.elapsed();
        self.slot_began = Instant::now();
        if let Some(times) = self.size_times.as_mut().filter(|_| slot.round == 0) {
            times.add(slot.step, took);
        }
    }

    /// The trials of a slot: each workload under each of the plan's probes.
    pub fn slot_trials(&self, slot: Slot) -> Vec<Trial<'a>> {
        let step = &self.steps[slot.step];
        let workloads = step.specs(slot.variant).iter();
        let probes = || step.plan.probes_in(slot).iter();
        workloads
            .flat_map(|workload| probes().map(move |&probes| Trial { workload, probes }))
            .collect()
    }
}

impl Run<'_> {
    /// Writes down that the trials of slots that share a boot have no result, from the first slot's trial `from` on.
    pub(super) fn skip(
        &mut self,
        boot: &[Slot],
        from: usize,
        error: MachineError,
    ) -> Result<(), RunError> {
        self.write_failed(
            boot,
            from,
            &format!("{} no longer ran: {error}", boot[0].machine),
        )?;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// Writes down why the trials of slots that share a boot failed, from the first slot's trial `from` on.
    pub(super) fn write_failed(
        &mut self,
        boot: &[Slot],
        from: usize,
        why: &str,
    ) -> Result<(), RunError> {
        let mut all = Vec::new();
        for &slot in boot.iter().filter(|slot| slot.step < self.kept_steps) {
            all.extend(
                self.slot_trials(slot)
                    .into_iter()
                    .map(|trial| (slot, trial)),
            );
        }
        for (slot, trial) in all.into_iter().skip(from) {
            let outcome = Outcome::Failed {
                error: why.to_owned(),
            };
            self.write(slot, trial, outcome, TrialNotes::none())?;
        }
        Ok(())
    }

    /// Writes down a trial.
    pub(super) fn write(
        &mut self,
        slot: Slot,
        Trial { workload, probes }: Trial<'_>,
        outcome: Outcome,
        notes: TrialNotes,
    ) -> Result<(), RunError> {
        let variant = if slot.machine.is_guest() {
            self.plan.variants[slot.variant].name.clone()
        } else {
            String::new()
        };
        self.writer.write(&TrialRecord {
            schema: vmtax_model::SCHEMA,
            number: self.number,
            round: self.round(slot),
            machine: slot.machine,
            variant,
            step: self.plan.size(slot.step),
            turn: (self.plan.shared_boot() == Some(SharedBoot::Variants)).then_some(slot.turn),
            probes,
            workload: workload.clone(),
            started: notes.started.to_string(),
            wall_s: notes.wall_s,
            outcome,
            share: notes.share,
            cpu_seconds: notes.cpu_seconds,
            control_s: notes.control_s,
            execution: notes.execution,
            pinned: notes.pinned,
            warnings: notes.warnings,
        })?;
        self.number += 1;
        Ok(())
    }

    /// One machine's logs in one round.
    pub(super) fn log_folder(&self, slot: Slot) -> Result<PathBuf, RunError> {
        let shared = self.plan.shared_boot();
        // By number: a variant's name may hold anything.
        let has_variant = self.plan.variants.len() > 1 && shared != Some(SharedBoot::Variants);
        let variant = if has_variant {
            format!("-{}", slot.variant)
        } else {
            String::new()
        };
        let size = self
            .plan
            .size(slot.step)
            .filter(|_| shared != Some(SharedBoot::Sizes));
        let step = size.map_or(String::new(), |size| format!("-at-{size}"));
        let name = format!("{:04}-{}{variant}{step}", self.round(slot), slot.machine);
        let folder = self.writer.folder().join("turns").join(name);
        fs::create_dir_all(&folder).map_err(|e| failed("creating", &folder, e))?;
        Ok(folder)
    }
}

/// Notes on a trial besides how it ended.
pub(super) struct TrialNotes {
    pub started: Timestamp,
    pub wall_s: f64,
    pub share: Option<ShareFacts>,
    pub cpu_seconds: Option<CpuSeconds>,
    pub control_s: Option<f64>,
    pub execution: Option<Execution>,
    pub pinned: Option<PinnedCpus>,
    pub warnings: Vec<Warning>,
}

impl TrialNotes {
    /// Returns the notes on a trial that could not be begun.
    pub(super) fn none() -> TrialNotes {
        TrialNotes {
            started: Timestamp::now(),
            wall_s: 0.0,
            share: None,
            cpu_seconds: None,
            control_s: None,
            execution: None,
            pinned: None,
            warnings: Vec::new(),
        }
    }
}

/// `turn.json`: what a slot's trials have in common.
pub(super) fn note_boot(
    log: &Path,
    slot: Slot,
    machine: &dyn RunningMachine,
) -> Result<(), RunError> {
    let note = serde_json::json!({
        "schema": vmtax_model::SCHEMA,
        "round": slot.round,
        "machine": slot.machine,
        "variant": slot.variant,
        "step": slot.step,
        "boot_s": machine.boot().as_secs_f64(),
        "ready_s": machine.ready().as_secs_f64(),
        "agent": machine.hello(),
    });
    let path = log.join("turn.json");
    fs::write(&path, format!("{note:#}\n")).map_err(|e| failed("writing", &path, e))
}

/// Where KVM runs the guest: which device has which address, by which the guest's exits are named later. At the slot's end,
/// as a guest places its devices itself. A monitor that does not answer costs the names alone.
pub(super) fn note_memory_tree(
    log: &Path,
    slot: Slot,
    machine: &dyn RunningMachine,
) -> Result<(), RunError> {
    if !slot.machine.is_kvm() {
        return Ok(());
    }
    let Some(Ok(tree)) = machine.vm().and_then(Vm::monitor).map(Monitor::memory_tree) else {
        return Ok(());
    };
    let path = log.join(vmtax_model::files::MEMORY_TREE);
    fs::write(&path, tree).map_err(|e| failed("writing", &path, e))
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> RunError {
    MachineError::System {
        what: format!("{verb} {}", path.display()),
        source,
    }
    .into()
}

/// A growth law needs so many sizes: they are measured whatever they take.
const FEWEST_SIZES: usize = 3;

/// Time of each size of a range with a budget in the first round, which has them in ascending order.
pub(super) struct SizeTimes<'a> {
    range: &'a SizeRange,
    budget_s: u32,
    /// Number of boots of a round that are taken to be as long as the ones that were timed: where all sizes share a
    /// boot, the first decides for the others.
    boots: usize,
    /// Seconds, of the sizes that were begun.
    spent: Vec<f64>,
}

impl<'a> SizeTimes<'a> {
    /// Makes the times of a plan's range before its first round; `None` without a budget.
    pub fn before_run(plan: &'a Plan) -> Option<SizeTimes<'a>> {
        let range = plan.range()?;
        let boots = if range.one_boot {
            plan.boots_per_round()
        } else {
            1
        };
        Some(SizeTimes {
            range,
            budget_s: range.budget_s?,
            boots,
            spent: Vec::new(),
        })
    }

    /// A machine ran at a step, in the first round.
    pub fn add(&mut self, step: usize, took: Duration) {
        self.spent.resize(self.spent.len().max(step + 1), 0.0);
        self.spent[step] += took.as_secs_f64();
    }

    /// Returns true if six rounds of the sizes up to this step, which is the next, would exceed the budget. The step's
    /// time is taken from the line through the two before it: a size whose time grows faster costs more.
    pub fn exceeds_budget(&self, step: usize) -> bool {
        let sizes = &self.range.steps;
        let [.., before, last] = self.spent[..] else {
            return false;
        };
        if step < FEWEST_SIZES || step != self.spent.len() {
            return false;
        }
        let run =
            (sizes[step] - sizes[step - 1]) as f64 / (sizes[step - 1] - sizes[step - 2]) as f64;
        let next = last + (last - before).max(0.0) * run;
        let round = (self.spent.iter().sum::<f64>() + next) * self.boots as f64;
        round * f64::from(FEWEST_ROUNDS) > f64::from(self.budget_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::Study;

    #[test]
    fn sizes_are_left_out_from_where_six_rounds_exceed_the_budget() {
        let steps = || vec![1000, 4000, 16_000, 64_000, 256_000];
        let text = "rounds = 6\nmachines = [\"tcg\"]\n[tree]\nfiles = 10\nbytes = 10000\n[range]\noption = \"open-fids.count\"\n\
                    steps = [1, 2, 3]\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n[[workload]]\nname = \"open-fids\"\n";
        let plan = |budget_s, one_boot| {
            let range = SizeRange {
                budget_s,
                one_boot,
                ..SizeRange::new("open-fids.count", steps())
            };
            Plan {
                study: Study::Scale(range),
                ..Plan::from_toml(text).unwrap()
            }
        };
        let exceeds_budget = |budget_s, spent: &[u64]| {
            let plan = plan(budget_s, false);
            let mut times = SizeTimes::before_run(&plan)?;
            for (step, seconds) in spent.iter().enumerate() {
                // Two machines.
                times.add(step, Duration::from_secs(*seconds));
                times.add(step, Duration::from_secs(*seconds));
            }
            Some(times.exceeds_budget(spent.len()))
        };
        assert_eq!(exceeds_budget(None, &[1, 2, 4]), None);
        // 2 + 4 + 8 s, and 24 s expected: 228 s in six rounds.
        assert_eq!(exceeds_budget(Some(229), &[1, 2, 4]), Some(false));
        assert_eq!(exceeds_budget(Some(227), &[1, 2, 4]), Some(true));
        assert_eq!(
            exceeds_budget(Some(1), &[1, 2]),
            Some(false),
            "three sizes are measured in any case"
        );
        assert_eq!(exceeds_budget(Some(1), &[]), Some(false));
        // A size that took less than the one before does not promise less of the next.
        assert_eq!(exceeds_budget(Some(119), &[2, 4, 2]), Some(true));
        assert_eq!(exceeds_budget(Some(120), &[2, 4, 2]), Some(false));
        // In one boot for all sizes the first variant's times count for both.
        for (budget_s, exceeds) in [(229, false), (227, true)] {
            let plan = plan(Some(budget_s), true);
            let mut times = SizeTimes::before_run(&plan).unwrap();
            for (step, seconds) in [1, 2, 4].into_iter().enumerate() {
                times.add(step, Duration::from_secs(seconds));
            }
            assert_eq!(times.exceeds_budget(3), exceeds);
        }
    }
}
