//! Runs the slots of a plan's schedule.

mod command_failure;
mod host_snapshot;
mod size_times;
mod state;
mod workspace;
mod write_trial;

use crate::RunError;
use crate::control;
use crate::exec;
use crate::images::no_program;
use crate::observe::{Observation, Observers, TrialStore, may_trace};
use crate::pin::Placement;
use crate::requirements::Requirements;
use crate::shares::{self, ShareSetup};
use crate::stood_still::stood_still;
use crate::watch::{AfterRound, Progress, Watch};
use host_snapshot::HostSnapshot;
use size_times::SizeTimes;
pub(crate) use state::BeforePart;
pub use state::CommandFailure;
use state::{Run, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_model::{
    CpuSeconds, Execution, ON_THE_HOST, Outcome, Probes, Setting, SharedBoot, Slot, TrialResult,
    Warning, WorkloadName, WorkloadSpec,
};
use vmtax_recording::Writer;
use vmtax_vm::micro_guest::qemu::ANTIPATTERN_DEVICES;
use vmtax_vm::{CommandRun, HostSettings, MachineError, RunningMachine, Setup, Sharing, no_files};
use vmtax_workload::CheckedPlan;
use workspace::Workspace;
use write_trial::{note_boot, note_memory_tree};

/// End of a run.
#[derive(Debug)]
pub enum Ended {
    /// Every trial has a result.
    Complete,
    /// Some trials have none; the first reason.
    Incomplete(MachineError),
    /// The user or a signal stopped it; the trials before are recorded.
    Interrupted,
    /// The plan's command failed on the baseline: what it takes then says nothing.
    CommandFailed(CommandFailure),
}

/// State that the parts of a tuning share; a plan that is carried out as a whole begins without any.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Made by the first part: it has to have what the later ones need.
    workspace: Option<Workspace>,
    /// Rounds and trials that the recording has already.
    pub before: Option<BeforePart>,
}

/// Runs the plan. However it ends, completed trials are in the recording and nothing is left running.
///
/// # Errors
/// [`RunError`] when the plan cannot be run: the error would occur each time.
pub(crate) fn run(
    plan: &CheckedPlan,
    requirements: Option<&Requirements>,
    parts: &mut Parts,
    writer: &mut Writer,
    watch: &mut Watch<'_>,
) -> Result<Ended, RunError> {
    let Watch {
        interrupt,
        streams,
        progress,
        decide,
    } = watch;
    let Parts { workspace, before } = parts;
    let patterns = exec::patterns(plan)?;
    let workspace = match workspace {
        Some(made) => made,
        none => {
            progress(Progress::Preparing);
            none.insert(Workspace::create(plan, requirements, writer.folder())?)
        }
    };
    let Workspace { scratch, images } = &*workspace;
    let share_setups = match plan.command() {
        Some(_) => exec::share_setups(plan, images, scratch)?,
        None => shares::share_setups(plan, images, scratch),
    };
    let mut run = Run {
        plan,
        steps: plan.checked_steps(),
        scratch,
        images,
        share_setups: &share_setups,
        requirements,
        // Without tracing of the host's kernel, QEMU's own log of trace events is the source.
        events: plan.is_observed() && !may_trace(),
        interrupt,
        streams: *streams,
        patterns: &patterns,
        number: before.map_or(0, |before| before.trials),
        before: *before,
        booted: BTreeSet::new(),
        refused: BTreeMap::new(),
        first_failure: None,
        has_command_failed: false,
        command_failure: None,
        kept_steps: plan.steps(),
        size_times: SizeTimes::of(plan),
        slot_began: Instant::now(),
        writer,
        progress,
    };
    let mut round = 0;
    let schedule = plan.schedule();
    let mut boots: Vec<&[Slot]> = schedule.chunk_by(|a, b| plan.share_boot(a, b)).collect();
    for next in 0..boots.len() {
        if std::mem::take(&mut run.has_command_failed) {
            run.advance_baseline(&mut boots[next..], round);
        }
        let boot = boots[next];
        if boot[0].round > round {
            round = boot[0].round;
            match decide.after_round(run.writer.folder(), round) {
                AfterRound::Another => {}
                AfterRound::End => break,
                AfterRound::Whole => {
                    run.writer.shorten(round)?;
                    break;
                }
            }
        }
        if run.is_left_out(boot[0])? {
            continue;
        }
        run.slot_began = Instant::now();
        run.run_boot(boot)?;
        if interrupt.raised() {
            return Ok(Ended::Interrupted);
        }
        if let Some(failure) = run.command_failure {
            return Ok(Ended::CommandFailed(failure));
        }
        run.note_time(boot[boot.len() - 1]);
    }
    Ok(run.first_failure.map_or(Ended::Complete, Ended::Incomplete))
}

impl<'a> Run<'a> {
    /// The first slot of a boot, with the variant that the machine boots as.
    fn booted_slot(&self, boot: &[Slot]) -> Slot {
        Slot {
            variant: self.plan.booted_variant(boot[0]),
            ..boot[0]
        }
    }

    /// Boots a machine once, for one slot or all those that share the boot.
    fn run_boot(&mut self, boot: &[Slot]) -> Result<(), RunError> {
        let slot = self.booted_slot(boot);
        let step = (slot.machine, slot.variant, slot.step);
        if let Some(why) = self.refused.get(&step).cloned() {
            return self.write_failed(boot, 0, &why);
        }
        (self.progress)(Progress::Booting { slot });
        let variant_setup = &self.share_setups[slot.variant];
        let share = match &variant_setup.share {
            // Natively nothing is shared.
            _ if !slot.machine.is_guest() => None,
            Ok(share) => share.as_ref(),
            Err(why) => return self.refuse(boot, MachineError::NoShare(why.clone())),
        };
        // Only this guest is affected; the next one is tried again.
        if let Err(error) = self.scratch.clear() {
            (self.progress)(Progress::Failed {
                number: self.number,
                error: &error,
            });
            self.write_failed(boot, 0, &error.to_string())?;
            self.first_failure.get_or_insert(error);
            return Ok(());
        }
        let log = self.log_folder(slot)?;
        let control_s = self.plan.comparison().map(|_| control::seconds());
        // Natively the host's settings stay.
        let settings = if slot.machine.is_guest() {
            variant_setup.variant.host()
        } else {
            BTreeMap::new()
        };
        let settings = HostSettings::set(&settings)?;
        let outcome = self.boot(
            boot,
            &Conditions {
                variant_setup,
                share,
                log: &log,
                control_s,
                restored: &settings.before(),
            },
        );
        settings.restore()?;
        outcome
    }

    /// Boots the slots' machine, and makes their trials.
    fn boot(&mut self, boot: &[Slot], conditions: &Conditions<'_>) -> Result<(), RunError> {
        let slot = self.booted_slot(boot);
        let Conditions {
            variant_setup,
            share,
            log,
            control_s,
            restored,
        } = *conditions;
        let usual = &self.steps[slot.step].plan.guest;
        let mut guest = if slot.machine.is_guest() {
            variant_setup.variant.guest(usual)?
        } else {
            usual.clone()
        };
        if !slot.machine.has_kernel()
            && self
                .plan
                .workloads
                .iter()
                .any(|w| w.name == WorkloadName::GuestAntipatterns)
        {
            guest
                .qemu_args
                .extend(ANTIPATTERN_DEVICES.map(str::to_owned));
        }
        let placement = Placement::of(&guest, self.plan.comparison().is_some());
        let setup = Setup {
            machine: slot.machine,
            pinned: placement.vcpus(),
            boot: self
                .images
                .boot(slot.machine, self.kernel(slot), self.program(slot))?,
            guest: &guest,
            disk: &variant_setup.disk,
            restored,
            share,
            network: self.plan.workloads.iter().any(|w| w.name.needs_network()),
            backend: if slot.machine.is_guest() {
                variant_setup.variant.backend()?
            } else {
                None
            },
            command: self.plan.command(),
            scratch: self.scratch,
            log,
            events: self.events,
            interrupt: self.interrupt,
        };
        let image = if slot.machine.is_guest() {
            self.scratch.make_image(&variant_setup.disk)
        } else {
            Ok(())
        };
        match image.and_then(|()| vmtax_vm::start(&setup)) {
            Ok(session) => {
                self.booted.insert((slot.machine, slot.variant));
                self.trials(boot, session, log, control_s, &placement)
            }
            Err(MachineError::Interrupted) => Ok(()),
            // Another size, share, backend or candidate may work.
            Err(error)
                if slot.round == 0 && (self.is_one_of_several(slot, &error) || share.is_some()) =>
            {
                self.refuse(boot, error)
            }
            Err(source) if !self.booted.contains(&(slot.machine, slot.variant)) => {
                // Recorded first, so that the recording has the reason.
                let why = source.to_string();
                self.write_failed(boot, 0, &why)?;
                Err(RunError::FirstBoot {
                    machine: slot.machine,
                    source,
                })
            }
            Err(error) => {
                (self.progress)(Progress::Failed {
                    number: self.number,
                    error: &error,
                });
                self.skip(boot, 0, error)
            }
        }
    }

    /// Returns true if the size, the candidate or the network that failed to boot is one among others that the plan
    /// has.
    fn is_one_of_several(&self, slot: Slot, error: &MachineError) -> bool {
        let of_network = matches!(
            error,
            MachineError::NoNetwork(_) | MachineError::NoNamespace { .. }
        );
        self.plan.range().is_some()
            || self.is_candidate(slot)
            || (of_network
                && self
                    .plan
                    .variants
                    .iter()
                    .filter(|variant| variant.is_on(slot.machine))
                    .count()
                    > 1)
    }

    /// Writes down that these slots have no result, and why they are not tried again.
    fn refuse(&mut self, boot: &[Slot], error: MachineError) -> Result<(), RunError> {
        let slot = self.booted_slot(boot);
        let why = match &error {
            // Nothing was booted.
            MachineError::NoShare(why) => why.clone(),
            _ => format!("{} failed to boot: {error}", slot.machine),
        };
        (self.progress)(Progress::Failed {
            number: self.number,
            error: &error,
        });
        self.write_failed(boot, 0, &why)?;
        self.refused
            .insert((slot.machine, slot.variant, slot.step), why);
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// Makes the trials of slots that share a boot on the machine that runs, and ends it.
    fn trials(
        &mut self,
        boot: &[Slot],
        mut machine: Box<dyn RunningMachine + '_>,
        log: &Path,
        control_s: Option<f64>,
        placement: &Placement,
    ) -> Result<(), RunError> {
        let booted = self.booted_slot(boot);
        note_boot(
            log,
            Slot {
                round: self.round(booted),
                ..booted
            },
            &*machine,
        )?;
        if let Some(vm) = machine.vm() {
            placement.pin(&vm.threads());
        }
        if self.plan.shared_boot() == Some(SharedBoot::Variants) {
            match self.warm_up(boot[0], &mut *machine) {
                Err(MachineError::Interrupted) => return Ok(()),
                Err(error) if !error.leaves_machine_running() => return self.skip(boot, 0, error),
                // The trials will say so themselves.
                Ok(()) | Err(_) => {}
            }
        }
        for (index, slot) in boot.iter().enumerate() {
            if index > 0 {
                self.note_time(boot[index - 1]);
                if self.is_left_out(*slot)? {
                    break;
                }
            }
            match self.set_block_queue(*slot, &mut *machine) {
                Ok(()) => {}
                Err(MachineError::Interrupted) => return Ok(()),
                // It would each time.
                Err(error @ MachineError::BlockQueue(_)) if slot.round == 0 => {
                    self.write_failed(&boot[index..], 0, &error.to_string())?;
                    return Err(error.into());
                }
                Err(error) => return self.skip(&boot[index..], 0, error),
            }
            if !self.slot_trials(&boot[index..], &mut *machine, log, control_s, placement)? {
                return Ok(());
            }
        }
        note_memory_tree(log, boot[0], &*machine)?;
        machine.end();
        Ok(())
    }

    /// Runs a slot's workloads once, for no figure: else of all turns of a boot the first alone would be on a cold guest.
    fn warm_up(
        &self,
        slot: Slot,
        machine: &mut (dyn RunningMachine + '_),
    ) -> Result<(), MachineError> {
        let timeout = Duration::from_secs(u64::from(self.plan.timeout_s));
        let mut workloads = self.steps[slot.step].specs(slot.variant).iter();
        workloads.try_for_each(|workload| {
            machine
                .run(workload, Probes::None, timeout, &mut no_files)
                .map(drop)
        })
    }

    /// Gives the measured disk the attributes of a slot's variant, where variants that share a boot differ in them.
    fn set_block_queue(
        &self,
        slot: Slot,
        machine: &mut (dyn RunningMachine + '_),
    ) -> Result<(), MachineError> {
        let is_shared = self.plan.shared_boot() == Some(SharedBoot::Variants);
        if !is_shared
            || !self
                .plan
                .differing_settings()
                .iter()
                .any(|key| key.starts_with(Setting::BLOCK_QUEUE))
        {
            return Ok(());
        }
        let usual = &self.steps[slot.step].plan.guest;
        let guest = self.plan.variants[slot.variant]
            .guest(usual)
            .map_err(|e| MachineError::BlockQueue(e.to_string()))?;
        machine.set_block_queue(&guest.block_queue())
    }

    /// Makes the trials of the first of these slots; whether the machine still runs.
    fn slot_trials(
        &mut self,
        slots: &[Slot],
        machine: &mut (dyn RunningMachine + '_),
        log: &Path,
        control_s: Option<f64>,
        placement: &Placement,
    ) -> Result<bool, RunError> {
        let slot = slots[0];
        let warnings = warnings(slot, machine, placement);
        let all = self.all(slot);
        for (index, &trial) in all.iter().enumerate() {
            let Trial { workload, probes } = trial;
            (self.progress)(Progress::Trial {
                number: self.number,
                slot,
                workload,
                probes,
            });
            let before = HostSnapshot::now(machine);
            let TrialOutcome {
                mut result,
                execution,
                cpu_seconds,
            } = self.work(slot, machine, trial, log)?;
            if let Some(status) = execution
                .as_ref()
                .map(|execution| execution.status)
                .filter(|status| *status != 0)
            {
                result = self.note_failure(slot, status, result);
            }
            let mut notes = before.notes(machine, cpu_seconds);
            (notes.control_s, notes.execution, notes.pinned) =
                (control_s, execution, placement.cpus.clone());
            notes.warnings.splice(0..0, warnings.iter().cloned());
            notes.warnings.extend(stood_still(
                workload.name,
                slot.machine,
                notes.wall_s,
                notes.cpu_seconds.as_ref(),
            ));
            let checked = self.steps[slot.step].workload(slot.variant, workload.name);
            notes.warnings.extend(
                notes
                    .share
                    .as_ref()
                    .zip(checked)
                    .and_then(|(s, w)| shares::few_open_files(w, s)),
            );
            match result {
                Ok(mut result) => {
                    let is_last = index + 1 == all.len() && slots.len() == 1;
                    let cut_off = self.note_tree(machine, workload, &mut result, is_last);
                    self.write(
                        slot,
                        trial,
                        Outcome::Done {
                            result: Box::new(result),
                        },
                        notes,
                    )?;
                    if cut_off || self.command_failure.is_some() {
                        return Ok(false);
                    }
                }
                Err(MachineError::Interrupted) => {
                    self.write(slot, trial, Outcome::Interrupted, notes)?;
                    return Ok(false);
                }
                Err(error) => {
                    let outcome = Outcome::Failed {
                        error: error.to_string(),
                    };
                    self.write(slot, trial, outcome, notes)?;
                    (self.progress)(Progress::Failed {
                        number: self.number - 1,
                        error: &error,
                    });
                    if self.command_failure.is_some() {
                        return Ok(false);
                    }
                    if !error.leaves_machine_running() {
                        self.skip(slots, index + 1, error)?;
                        return Ok(false);
                    }
                    self.first_failure.get_or_insert(error);
                }
            }
        }
        Ok(true)
    }

    /// Runs one workload, or the plan's command, while the trial's observers observe it.
    fn work(
        &self,
        slot: Slot,
        machine: &mut (dyn RunningMachine + '_),
        Trial { workload, probes }: Trial<'_>,
        log: &Path,
    ) -> Result<TrialOutcome, RunError> {
        let timeout = Duration::from_secs(u64::from(self.plan.timeout_s));
        let program = self.program(slot);
        if matches!(probes, Probes::Layers | Probes::Network | Probes::Calls) && program.is_none() {
            return Err(no_program(slot.machine));
        }
        let what = Observation {
            machine: slot.machine,
            program,
            disk: self.scratch.disk(),
            probes,
            profile: self.plan.profile(),
            timeout,
            events: self.events.then(|| log.join("qemu.events")),
        };
        let store = TrialStore {
            writer: self.writer,
            number: self.number,
        };
        // The guest's agent itself traces these alone.
        let traced = if matches!(probes, Probes::Inside(_)) {
            Probes::None
        } else {
            probes
        };
        let Some(command) = self.plan.command() else {
            let observed = Observers::start(machine, &what, &store).and_then(|mut observers| {
                let (result, observed) =
                    machine.run(workload, traced, timeout, &mut |name, bytes| {
                        observers.file(name, bytes)
                    })?;
                observers.stop(machine, observed).map(|()| result)
            });
            return Ok(TrialOutcome {
                result: observed,
                execution: None,
                cpu_seconds: None,
            });
        };
        let Some(streams) = self.streams else {
            let error = "the plan's command needs standard streams".to_owned();
            return Ok(TrialOutcome::failed(MachineError::Workload(error)));
        };
        let run = CommandRun {
            command,
            streams,
            timeout,
        };
        let prepared = exec::shell(machine, command.before(), run);
        let started = prepared.and_then(|()| Observers::start(machine, &what, &store));
        let mut observers = match started {
            Ok(observers) => observers,
            Err(error) => return Ok(TrialOutcome::failed(error)),
        };
        let ran = exec::run(machine, run, self.patterns, traced, &mut |name, bytes| {
            observers.file(name, bytes)
        });
        let result = ran
            .ran
            .and_then(|(result, observed)| observers.stop(machine, observed).map(|()| result));
        // A machine that ended needs no cleanup.
        let cleaned = if ran.alive {
            exec::shell(machine, command.after().into_iter(), run)
        } else {
            Ok(())
        };
        let result = result.and_then(|result| cleaned.map(|()| result));
        Ok(TrialOutcome {
            result,
            execution: ran.execution,
            cpu_seconds: ran.cpu_seconds,
        })
    }

    /// Adds what the host sees of the tree that was written to. Where nothing comes after it, the guest ends as by a power
    /// cut, to see what that leaves: whether it did.
    fn note_tree(
        &self,
        machine: &mut (dyn RunningMachine + '_),
        workload: &WorkloadSpec,
        result: &mut TrialResult,
        last: bool,
    ) -> bool {
        let tree = shares::tree_on_host(machine, self.scratch);
        result
            .kept
            .extend(shares::check_on_host(result, tree.as_deref()));
        let cut_off = last && result.kept.iter().any(|k| k.what.ends_with(ON_THE_HOST));
        if cut_off {
            machine.cut_off();
            result
                .kept
                .extend(shares::check_after_power_cut(workload, tree.as_deref()));
        }
        cut_off
    }
}

/// Warnings that apply to all figures from this machine.
fn warnings(slot: Slot, machine: &dyn RunningMachine, placement: &Placement) -> Vec<Warning> {
    let mut warnings = machine.warnings().to_vec();
    warnings.extend(
        placement
            .warning
            .iter()
            .filter(|_| slot.machine.is_guest())
            .cloned(),
    );
    let complaints = machine
        .hello()
        .map_or(&[][..], |hello| &hello.complaints)
        .iter();
    warnings.extend(complaints.map(|c| Warning::PartialBoot {
        machine: slot.machine,
        complaint: c.clone(),
    }));
    warnings
}

/// Under which conditions a slot is run.
struct Conditions<'a> {
    variant_setup: &'a ShareSetup,
    share: Option<&'a Sharing>,
    /// The folder of its logs.
    log: &'a Path,
    /// Time of the fixed work beside a comparison's slots, seconds.
    control_s: Option<f64>,
    /// Settings of the host, as they were.
    restored: &'a [(PathBuf, String)],
}

/// The outcome of a trial.
struct TrialOutcome {
    result: Result<TrialResult, MachineError>,
    /// Outcome of the command, if it started.
    execution: Option<Execution>,
    /// The host CPU time that the command used.
    cpu_seconds: Option<CpuSeconds>,
}

impl TrialOutcome {
    fn failed(error: MachineError) -> TrialOutcome {
        TrialOutcome {
            result: Err(error),
            execution: None,
            cpu_seconds: None,
        }
    }
}
