//! Runs the slots of a plan's schedule.

mod host;
mod state;
mod trials;

pub(crate) use state::BeforePart;
pub use state::CommandFailure;

use crate::observe::may_trace;
use crate::requirements::Requirements;
use crate::shares::{self, ShareSetup};
use crate::tool_output::Patterns;
use crate::workspace::Workspace;
use crate::{AfterRound, Decide, Progress, RunError, Watch};
use host::{Placement, control_seconds};
use state::{Run, SizeTimes};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;
use vmtax_model::{Guest, Slot, Variant, WorkloadName};
use vmtax_recording::Writer;
use vmtax_vm::micro_guest::qemu::ANTIPATTERN_DEVICES;
use vmtax_vm::{HostSettings, MachineError, Setup, Sharing};
use vmtax_workload::CheckedPlan;

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
    let Parts { workspace, before } = parts;
    let metrics = plan.command().map_or(&[][..], |command| &command.metrics);
    let patterns = Patterns::new(metrics)?;
    let workspace = match workspace {
        Some(made) => made,
        none => {
            (watch.progress)(Progress::Preparing);
            none.insert(Workspace::create(plan, requirements, writer.folder())?)
        }
    };
    let Workspace { scratch, images } = &*workspace;
    let share_setups = match plan.shares_host_root() {
        true => shares::root_setups(plan, &images.refused, scratch)?,
        false => shares::share_setups(plan, &images.refused, scratch),
    };
    let run = Run {
        plan,
        steps: plan.checked_steps(),
        scratch,
        images,
        share_setups: &share_setups,
        requirements,
        // Without tracing of the host's kernel, QEMU's own log of trace events is the source.
        events: plan.is_observed() && !may_trace(),
        interrupt: watch.interrupt,
        streams: watch.streams,
        patterns: &patterns,
        number: before.map_or(0, |before| before.trials),
        before: *before,
        booted: BTreeSet::new(),
        refused: BTreeMap::new(),
        first_failure: None,
        has_command_failed: false,
        command_failure: None,
        kept_steps: plan.steps(),
        size_times: SizeTimes::before_run(plan),
        slot_began: Instant::now(),
        writer,
        progress: &mut *watch.progress,
    };
    run.rounds(&mut *watch.decide)
}

impl<'a> Run<'a> {
    /// Runs the boots of the schedule, round by round, as long as `decide` asks for another.
    fn rounds(mut self, decide: &mut dyn Decide) -> Result<Ended, RunError> {
        let (plan, mut round) = (self.plan, 0);
        let schedule = plan.schedule();
        let mut boots: Vec<&[Slot]> = schedule.chunk_by(|a, b| plan.share_boot(a, b)).collect();
        for next in 0..boots.len() {
            if std::mem::take(&mut self.has_command_failed) {
                self.advance_baseline(&mut boots[next..], round);
            }
            let boot = boots[next];
            if boot[0].round > round {
                round = boot[0].round;
                match decide.after_round(self.writer.folder(), round) {
                    AfterRound::Another => {}
                    AfterRound::End => break,
                    AfterRound::Whole => {
                        self.writer.shorten(round)?;
                        break;
                    }
                }
            }
            if self.is_left_out(boot[0])? {
                continue;
            }
            self.slot_began = Instant::now();
            self.run_boot(boot)?;
            if self.interrupt.raised() {
                return Ok(Ended::Interrupted);
            }
            if let Some(failure) = self.command_failure.take() {
                return Ok(Ended::CommandFailed(failure));
            }
            self.note_time(boot[boot.len() - 1]);
        }
        Ok(self
            .first_failure
            .map_or(Ended::Complete, Ended::Incomplete))
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
            self.tell_failed(self.number, &error);
            self.write_failed(boot, 0, &error.to_string())?;
            self.first_failure.get_or_insert(error);
            return Ok(());
        }
        let log = self.log_folder(slot)?;
        let control_s = self.plan.comparison().map(|_| control_seconds());
        // Natively the host's settings stay.
        let settings = if slot.machine.is_guest() {
            variant_setup.variant.host()
        } else {
            BTreeMap::new()
        };
        let settings = HostSettings::set(&settings)?;
        let conditions = Conditions {
            variant_setup,
            share,
            log: &log,
            control_s,
            restored: &settings.before(),
        };
        let outcome = self.boot(boot, &conditions);
        settings.restore()?;
        outcome
    }

    /// Boots the slots' machine, and makes their trials.
    fn boot(&mut self, boot: &[Slot], conditions: &Conditions<'_>) -> Result<(), RunError> {
        let slot = self.booted_slot(boot);
        let Conditions {
            variant_setup: ShareSetup { variant, disk, .. },
            share,
            log,
            control_s,
            restored,
        } = *conditions;
        let guest = self.guest(slot, variant)?;
        let placement = Placement::choose(&guest, self.plan.comparison().is_some());
        let is_guest = slot.machine.is_guest();
        let setup = Setup {
            machine: slot.machine,
            pinned: placement.vcpus(),
            boot: self
                .images
                .boot(slot.machine, self.kernel(slot), self.program(slot))?,
            guest: &guest,
            disk,
            restored,
            share,
            network: self.plan.workloads.iter().any(|w| w.name.needs_network()),
            backend: if is_guest { variant.backend()? } else { None },
            command: self.plan.command(),
            scratch: self.scratch,
            log,
            events: self.events,
            interrupt: self.interrupt,
        };
        let image = if is_guest {
            self.scratch.make_image(disk)
        } else {
            Ok(())
        };
        match image.and_then(|()| vmtax_vm::start(&setup)) {
            Ok(session) => {
                self.booted.insert((slot.machine, slot.variant));
                self.trials(boot, session, log, control_s, &placement)
            }
            Err(error) => self.note_no_boot(boot, error, share.is_some()),
        }
    }

    /// The guest of a slot, with the devices that its workloads need.
    fn guest(&self, slot: Slot, variant: &Variant) -> Result<Guest, RunError> {
        let usual = &self.steps[slot.step].plan.guest;
        let mut guest = if slot.machine.is_guest() {
            variant.guest(usual)?
        } else {
            usual.clone()
        };
        let mut workloads = self.plan.workloads.iter();
        if !slot.machine.has_kernel()
            && workloads.any(|w| w.name == WorkloadName::GuestAntipatterns)
        {
            let devices = ANTIPATTERN_DEVICES.map(str::to_owned);
            guest.qemu_args.extend(devices);
        }
        Ok(guest)
    }

    /// Writes down that a machine did not boot; an error where it would fail each time.
    fn note_no_boot(
        &mut self,
        boot: &[Slot],
        error: MachineError,
        has_share: bool,
    ) -> Result<(), RunError> {
        let slot = self.booted_slot(boot);
        match error {
            MachineError::Interrupted => Ok(()),
            // Another size, share, backend or candidate may work.
            error if slot.round == 0 && (self.is_one_of_several(slot, &error) || has_share) => {
                self.refuse(boot, error)
            }
            source if !self.booted.contains(&(slot.machine, slot.variant)) => {
                // Recorded first, so that the recording has the reason.
                self.write_failed(boot, 0, &source.to_string())?;
                Err(RunError::FirstBoot {
                    machine: slot.machine,
                    source,
                })
            }
            error => {
                self.tell_failed(self.number, &error);
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
        self.tell_failed(self.number, &error);
        self.write_failed(boot, 0, &why)?;
        self.refused
            .insert((slot.machine, slot.variant, slot.step), why);
        self.first_failure.get_or_insert(error);
        Ok(())
    }
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
