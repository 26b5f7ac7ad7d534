//! The trials of a machine that runs: each workload, or the plan's command, once under each of the plan's probes.

use super::host::{HostSnapshot, Placement, stood_still};
use super::state::{CommandFailure, Run, Trial, TrialNotes, note_boot, note_memory_tree};
use crate::observe::{Observation, Observers, TrialStore};
use crate::tool_output::{Patterns, figures};
use crate::workspace::no_program;
use crate::{Progress, RunError, shares};
use std::path::Path;
use std::time::Duration;
use vmtax_model::{
    CpuSeconds, Execution, Machine, NOT_FOUND, ON_THE_HOST, Outcome, Probes, Setting, SharedBoot,
    Slot, Study, TrialResult, Warning, WorkloadSpec,
};
use vmtax_vm::{CommandRun, Finished, MachineError, Ran, RunningMachine, no_files};

impl Run<'_> {
    fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.plan.timeout_s))
    }

    /// Makes the trials of slots that share a boot on the machine that runs, and ends it.
    pub(super) fn trials(
        &mut self,
        boot: &[Slot],
        mut machine: Box<dyn RunningMachine + '_>,
        log: &Path,
        control_s: Option<f64>,
        placement: &Placement,
    ) -> Result<(), RunError> {
        let mut booted = self.booted_slot(boot);
        booted.round = self.round(booted);
        note_boot(log, booted, &*machine)?;
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
            if !self.trials_of_first(&boot[index..], &mut *machine, log, control_s, placement)? {
                return Ok(());
            }
        }
        note_memory_tree(log, boot[0], &*machine)?;
        machine.end();
        Ok(())
    }

    /// Runs a slot's workloads once, for no figure: else of all turns of a boot the first alone would be on a cold guest.
    fn warm_up(&self, slot: Slot, machine: &mut dyn RunningMachine) -> Result<(), MachineError> {
        let mut workloads = self.steps[slot.step].specs(slot.variant).iter();
        workloads.try_for_each(|workload| {
            machine
                .run(workload, Probes::None, self.timeout(), &mut no_files)
                .map(drop)
        })
    }

    /// Gives the measured disk the attributes of a slot's variant, where variants that share a boot differ in them.
    fn set_block_queue(
        &self,
        slot: Slot,
        machine: &mut dyn RunningMachine,
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
    fn trials_of_first(
        &mut self,
        slots: &[Slot],
        machine: &mut dyn RunningMachine,
        log: &Path,
        control_s: Option<f64>,
        placement: &Placement,
    ) -> Result<bool, RunError> {
        let slot = slots[0];
        let warnings = warnings(slot, machine, placement);
        let all = self.slot_trials(slot);
        for (index, &trial) in all.iter().enumerate() {
            let Trial { workload, probes } = trial;
            (self.progress)(Progress::Trial {
                number: self.number,
                slot,
                workload,
                probes,
            });
            let before = HostSnapshot::now(machine);
            let done = self.work(slot, machine, trial, log)?;
            let result = match done.execution.as_ref().map_or(0, |done| done.status) {
                0 => done.result,
                status => self.note_failure(slot, status, done.result),
            };
            let mut notes = TrialNotes {
                control_s,
                execution: done.execution,
                pinned: placement.cpus.clone(),
                ..before.notes(machine, done.cpu_seconds)
            };
            notes.warnings.splice(0..0, warnings.iter().cloned());
            self.warn(slot, workload, &mut notes);
            let goes_on = match result {
                Ok(mut result) => {
                    self.keep_output(&mut result)?;
                    let is_last = index + 1 == all.len() && slots.len() == 1;
                    let cut_off = self.note_tree(machine, workload, &mut result, is_last);
                    let result = Box::new(result);
                    self.write(slot, trial, Outcome::Done { result }, notes)?;
                    !cut_off && self.command_failure.is_none()
                }
                Err(error) => self.note_error(slots, index, trial, notes, error)?,
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes down a trial of the first slot that has no result; whether the machine still runs. Where it does not, the
    /// trials after `index` have none either.
    fn note_error(
        &mut self,
        slots: &[Slot],
        index: usize,
        trial: Trial<'_>,
        notes: TrialNotes,
        error: MachineError,
    ) -> Result<bool, RunError> {
        if matches!(error, MachineError::Interrupted) {
            self.write(slots[0], trial, Outcome::Interrupted, notes)?;
            return Ok(false);
        }
        let outcome = Outcome::Failed {
            error: error.to_string(),
        };
        self.write(slots[0], trial, outcome, notes)?;
        self.tell_failed(self.number - 1, &error);
        self.note_program_failure(slots[0], trial.workload, &error);
        if self.command_failure.is_some() {
            return Ok(false);
        }
        if !error.leaves_machine_running() {
            self.skip(slots, index + 1, error)?;
            return Ok(false);
        }
        self.first_failure.get_or_insert(error);
        Ok(true)
    }

    /// Moves the output of the program that made the requests to a file of the trial.
    fn keep_output(&self, result: &mut TrialResult) -> Result<(), RunError> {
        if let Some(output) = result.output.take() {
            let mut files = self.writer.trial_files(self.number)?;
            files.append(vmtax_model::files::FIO, output.as_bytes())?;
        }
        Ok(())
    }

    /// Adds the warnings that are about the figures of one trial.
    fn warn(&self, slot: Slot, workload: &WorkloadSpec, notes: &mut TrialNotes) {
        let spent = notes.cpu_seconds.as_ref();
        let still = stood_still(workload.name, slot.machine, notes.wall_s, spent);
        let checked = self.steps[slot.step].workload(slot.variant, workload.name);
        let served = notes.share.as_ref().zip(checked);
        let few = served.and_then(|(share, workload)| shares::few_open_files(workload, share));
        notes.warnings.extend(still.into_iter().chain(few));
    }

    /// Runs one workload, or the plan's command, while the trial's observers observe it.
    fn work(
        &self,
        slot: Slot,
        machine: &mut dyn RunningMachine,
        Trial { workload, probes }: Trial<'_>,
        log: &Path,
    ) -> Result<TrialOutcome, RunError> {
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
            timeout: self.timeout(),
            events: self.events.then(|| log.join("qemu.events")),
        };
        let Some(command) = self.plan.command() else {
            let result = self.run_workload(machine, workload, &what);
            return Ok(TrialOutcome::without_command(result));
        };
        let Some(streams) = self.streams else {
            let error = "the plan's command needs standard streams".to_owned();
            let result = Err(MachineError::Workload(error));
            return Ok(TrialOutcome::without_command(result));
        };
        let run = CommandRun {
            command,
            streams,
            timeout: what.timeout,
        };
        Ok(self.run_command(machine, run, &what))
    }

    fn run_workload(
        &self,
        machine: &mut dyn RunningMachine,
        workload: &WorkloadSpec,
        what: &Observation<'_>,
    ) -> Result<TrialResult, MachineError> {
        let mut observers = Observers::start(machine, what, &self.store())?;
        let (result, observed) =
            machine.run(workload, traced(what), what.timeout, &mut |name, bytes| {
                observers.file(name, bytes)
            })?;
        observers.stop(machine, observed).map(|()| result)
    }

    /// Runs the plan's command, with the shell lines before and after it.
    fn run_command(
        &self,
        machine: &mut dyn RunningMachine,
        run: CommandRun<'_>,
        what: &Observation<'_>,
    ) -> TrialOutcome {
        let prepared = prepare(machine, run);
        let started = prepared.and_then(|()| Observers::start(machine, what, &self.store()));
        let mut observers = match started {
            Ok(observers) => observers,
            Err(error) => return TrialOutcome::without_command(Err(error)),
        };
        let ran = machine.exec(run, traced(what), &mut |name, bytes| {
            observers.file(name, bytes)
        });
        let (ran, execution, cpu_seconds, is_alive) = match ran {
            Ok(Ran::Done(mut finished)) => {
                parse_output(&mut finished, self.patterns);
                let done = *finished;
                let ran = Ok((done.result, done.observed));
                (ran, Some(done.execution), done.cpu_seconds, true)
            }
            Ok(Ran::NotRun(status, error)) => {
                let execution = Execution {
                    status,
                    ..Execution::default()
                };
                let error = Err(MachineError::Workload(error));
                (error, Some(execution), None, true)
            }
            Ok(Ran::Stopped) => (Err(MachineError::Interrupted), None, None, false),
            Err(error) => (Err(error), None, None, false),
        };
        let result =
            ran.and_then(|(result, observed)| observers.stop(machine, observed).map(|()| result));
        // A machine that ended needs no cleanup.
        let cleaned = match is_alive {
            true => shell(machine, "cleanup", run.command.cleanup.as_deref(), run),
            false => Ok(()),
        };
        TrialOutcome {
            result: result.and_then(|result| cleaned.map(|()| result)),
            execution,
            cpu_seconds,
        }
    }

    /// Where the artifacts of the next trial go.
    fn store(&self) -> TrialStore<'_> {
        TrialStore {
            writer: self.writer,
            number: self.number,
        }
    }

    /// Adds what the host sees of the tree that was written to. Where nothing comes after it, the guest ends as by a power
    /// cut, to see what that leaves: whether it did.
    fn note_tree(
        &self,
        machine: &mut dyn RunningMachine,
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

    /// Notes a failure of the plan's command in this slot; the trial's result, an error where it must not count.
    fn note_failure(
        &mut self,
        slot: Slot,
        status: i32,
        result: Result<TrialResult, MachineError>,
    ) -> Result<TrialResult, MachineError> {
        self.has_command_failed = self.ends_at_failure();
        if self.is_baseline(slot) && self.ends_at_failure() {
            self.command_failure = Some(CommandFailure {
                machine: slot.machine,
                status,
                said: None,
            });
        } else if self.excludes_failures() {
            let why = match status {
                126 => "the command cannot be executed (exit status 126)".to_owned(),
                127 => "the command, or a program that it runs, was not found (exit status 127)"
                    .to_owned(),
                _ => format!(
                    "the command ended with exit status {status}: --ignore-failure counts it nevertheless"
                ),
            };
            return result.and(Err(MachineError::Workload(why)));
        }
        result
    }

    /// Notes that the host's program failed on the baseline: there is nothing to compare with then.
    fn note_program_failure(&mut self, slot: Slot, workload: &WorkloadSpec, error: &MachineError) {
        let MachineError::Workload(said) = error else {
            return;
        };
        if !workload.name.needs_host_program() {
            return;
        }
        self.has_command_failed = true;
        if self.is_baseline(slot) {
            self.command_failure = Some(CommandFailure {
                machine: slot.machine,
                status: match vmtax_workload::fio_status(said) {
                    Some(0) => 1,
                    Some(status) => status,
                    None => NOT_FOUND,
                },
                said: Some(said.clone()),
            });
        }
    }

    /// Returns true for a slot of the baseline: the first variant, natively where that is measured.
    fn is_baseline(&self, slot: Slot) -> bool {
        let is_native_measured = self.plan.machines.contains(&Machine::NATIVE);
        slot.variant == 0 && (slot.machine == Machine::NATIVE || !is_native_measured)
    }

    /// Moves the baseline's boot of this round to the front, if it is still to come: the command failed elsewhere, and
    /// where it fails on the baseline, too, the run ends. Boots are in random order otherwise.
    pub(super) fn advance_baseline(&self, boots: &mut [&[Slot]], round: u32) {
        let is_next = |boot: &&[Slot]| {
            boot.iter()
                .any(|slot| slot.round == round && self.is_baseline(*slot))
        };
        if let Some(at) = boots.iter().position(is_next) {
            boots[..=at].rotate_right(1);
        }
    }

    /// Returns true if the first failure of the plan's command on the baseline ends the run. A command that runs once, as
    /// a shell on a terminal does, has ended anyway; of a published result the claims say what counts.
    fn ends_at_failure(&self) -> bool {
        let counts_failures = self
            .plan
            .command()
            .is_none_or(|command| command.ignore_failure);
        !counts_failures
            && self.plan.reproduces.is_none()
            && (self.before.is_some() || self.plan.trials() > 1)
    }

    /// Returns true if a failing run of the plan's command has no result: where variants are compared, one that makes it fail would
    /// pass for the fastest.
    fn excludes_failures(&self) -> bool {
        self.ends_at_failure() && !matches!(self.plan.study, Study::Exec(_))
    }
}

/// Runs one of the command's shell lines, by the name of its option, if it is given.
fn shell(
    machine: &mut dyn RunningMachine,
    option: &str,
    line: Option<&str>,
    run: CommandRun<'_>,
) -> Result<(), MachineError> {
    line.map_or(Ok(()), |line| machine.shell(option, line, run))
}

/// Sets the command up and warms it up, by runs that count for nothing, then prepares the measured run.
fn prepare(machine: &mut dyn RunningMachine, run: CommandRun<'_>) -> Result<(), MachineError> {
    let command = run.command;
    let (prepare, cleanup) = (command.prepare.as_deref(), command.cleanup.as_deref());
    shell(machine, "setup", command.setup.as_deref(), run)?;
    for _ in 0..command.warmup {
        shell(machine, "prepare", prepare, run)?;
        // The measured run will say so itself if the command fails.
        if let Ran::Stopped = machine.exec(run, Probes::None, &mut no_files)? {
            return Err(MachineError::Interrupted);
        }
        shell(machine, "cleanup", cleanup, run)?;
    }
    shell(machine, "prepare", prepare, run)
}

/// The probes that the agent traces. Those inside a guest its own observer starts.
fn traced(what: &Observation<'_>) -> Probes {
    match what.probes {
        Probes::Inside(_) => Probes::None,
        probes => probes,
    }
}

/// Reads metrics from the output: those of known tools from standard output, those of the user's patterns from either stream.
fn parse_output(finished: &mut Finished, patterns: &Patterns) {
    let [stdout, stderr] = &finished.printed;
    let (output, errors) = (stdout.text(), stderr.text());
    let mut printed = figures(&output);
    let (named, mut missing) = patterns.find(&[&output, &errors]);
    printed.extend(named);
    if !missing.is_empty() && (stdout.is_cut() || stderr.is_cut()) {
        missing.push("only the first and the last 256 KiB of the output were searched".to_owned());
    }
    finished.result.notes.extend(missing);
    finished.execution.printed = printed;
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

/// The outcome of a trial.
struct TrialOutcome {
    result: Result<TrialResult, MachineError>,
    /// Outcome of the command, if it started.
    execution: Option<Execution>,
    /// The host CPU time that the command used.
    cpu_seconds: Option<CpuSeconds>,
}

impl TrialOutcome {
    fn without_command(result: Result<TrialResult, MachineError>) -> TrialOutcome {
        TrialOutcome {
            result,
            execution: None,
            cpu_seconds: None,
        }
    }
}
