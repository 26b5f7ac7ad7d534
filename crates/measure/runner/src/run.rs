//! Takes the turns of a plan.

mod written;

use crate::control;
use crate::exec;
use crate::images::{Images, no_means};
use crate::inside::looked_at_inside;
use crate::observe::{Observable, may_trace, observed};
use crate::pin::pin;
use crate::shares::{self, Way};
use crate::tool_output::Patterns;
use crate::{Means, RunError};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_host::ProcessorTime;
use vmtax_model::{Machine, ON_THE_HOST, Outcome, Plan, Probes, QemuFacts, Turn, Warning, WorkloadName, WorkloadSpec};
use vmtax_recording::Writer;
use vmtax_vm::micro_guest::qemu::HABIT_DEVICES;
use vmtax_vm::{
    DiskKind, HostSettings, Interrupt, MachineError, Needs, QemuMonitor, RunningMachine, Scratch, Setup, Sharing,
    Streams, no_files, processor_between,
};
use written::{Made, note_boot, note_memory_tree};

/// Below this, time stolen from the host during a trial is nothing to speak of.
const NOTABLE_STEAL_PERCENT: u32 = 5;

/// What a run is doing: for people who wait.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// Making disks and the initramfs.
    Preparing,
    /// A machine is coming up.
    Booting {
        /// Whose turn.
        turn: Turn,
    },
    /// A trial is under way.
    Trial {
        /// Which, from 0.
        number: u32,
        /// Whose turn.
        turn: Turn,
        /// What runs.
        workload: &'a WorkloadSpec,
        /// Under what.
        probes: Probes,
    },
    /// Its workload is about to begin.
    Working {
        /// Which, from 0.
        number: u32,
        /// The monitor of its guest's QEMU, to be copied by who has questions.
        monitor: Option<&'a QemuMonitor>,
    },
    /// A trial's workload came to its end.
    Over {
        /// Which, from 0.
        number: u32,
    },
    /// A trial has no result.
    Failed {
        /// Which, from 0.
        number: u32,
        /// Why.
        error: &'a MachineError,
    },
}

/// How a run ended that could be started.
#[derive(Debug)]
pub enum Ended {
    /// Every trial has a result.
    Complete,
    /// Some trials have none; the first reason.
    Incomplete(MachineError),
    /// A person or a signal stopped it; what came before is recorded.
    Interrupted,
}

/// Who is told how it goes, and asked whether it is to go on.
pub struct Watch<'a> {
    /// What happens.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
    /// After each whole round, by how many there are now: whether another is to be begun.
    pub go_on: &'a mut dyn FnMut(u32) -> bool,
}

/// Carries out the plan; its command, if it has one, between `streams`. Whatever ends it, the trials before are in the
/// recording, and nothing is left running.
///
/// # Errors
/// [`RunError`] when the plan cannot be carried out: what fails the first time will fail each time.
pub fn run(
    plan: &Plan,
    means: Option<&Means>,
    writer: &mut Writer,
    interrupt: &Interrupt,
    streams: Option<&Streams>,
    watch: &mut Watch<'_>,
) -> Result<Ended, RunError> {
    let Watch { progress, go_on } = watch;
    let patterns = exec::patterns(plan)?;
    progress(Progress::Preparing);
    let scratch = Scratch::create(writer.folder(), needs(plan)?)?;
    let images = Images::make(plan, means, &shares::methods(plan)?, &scratch)?;
    let ways = match plan.command() {
        Some(_) => exec::ways(plan, &images, &scratch)?,
        None => shares::ways(plan, &images, &scratch),
    };
    let rungs: Vec<Plan> = (0..plan.rungs()).map(|rung| plan.at_rung(rung)).collect();
    let mut run = Run {
        plan,
        rungs: &rungs,
        scratch: &scratch,
        images: &images,
        ways: &ways,
        qemus: means.map_or(&[], |m| &m.qemus),
        // Where the host's kernel may not be traced, QEMU's own log tells something.
        events: plan.looks() && !may_trace(),
        interrupt,
        streams,
        patterns: &patterns,
        number: 0,
        came_up: BTreeSet::new(),
        refused: BTreeMap::new(),
        first_failure: None,
        writer,
        progress,
    };
    let mut round = 0;
    for turn in plan.schedule() {
        if turn.round > round {
            round = turn.round;
            if !go_on(round) {
                break;
            }
        }
        run.take(turn)?;
        if interrupt.raised() {
            return Ok(Ended::Interrupted);
        }
    }
    Ok(run.first_failure.map_or(Ended::Complete, Ended::Incomplete))
}

fn needs(plan: &Plan) -> Result<Needs, RunError> {
    let shares::Written { files_bytes, share: written } = shares::written(plan)?;
    let guest = plan.machines.iter().any(|m| m.is_linux_guest());
    let images_mib = if guest { shares::images_mib(plan)? } else { 0 };
    let data = plan.workloads.iter().any(|w| w.name == WorkloadName::Seqread).then_some(DiskKind::Data);
    let layer = plan.command().filter(|_| guest).and_then(|c| c.scratch_mib);
    let disk = data.or(layer.map(|mib| DiskKind::Layer { mib }));
    // A command has the host's files.
    let files = guest && plan.command().is_none();
    Ok(Needs { disk, guest, files, files_bytes, tree: plan.tree.clone(), written, images_mib })
}

struct Run<'a> {
    plan: &'a Plan,
    /// The plan at each rung of its ladder.
    rungs: &'a [Plan],
    scratch: &'a Scratch,
    images: &'a Images,
    /// The plan's variants.
    ways: &'a [Way],
    /// Their QEMUs.
    qemus: &'a [QemuFacts],
    events: bool,
    interrupt: &'a Interrupt,
    streams: Option<&'a Streams>,
    /// What is looked for in a command's output.
    patterns: &'a Patterns,
    /// The next trial's.
    number: u32,
    /// Machines that came up once: a later failure there is an accident, not a verdict.
    came_up: BTreeSet<(Machine, usize)>,
    /// Rungs of a ladder at which a machine did not come up the first time, with the reason: not tried again.
    refused: BTreeMap<(Machine, usize, usize), String>,
    first_failure: Option<MachineError>,
    writer: &'a mut Writer,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl<'a> Run<'a> {
    fn take(&mut self, turn: Turn) -> Result<(), RunError> {
        let rung = (turn.machine, turn.variant, turn.rung);
        if let Some(why) = self.refused.get(&rung).cloned() {
            return self.write_failed(turn, 0, &why);
        }
        (self.progress)(Progress::Booting { turn });
        let way = &self.ways[turn.variant];
        let share = match &way.share {
            // The host itself has its files as they are.
            _ if !turn.machine.is_guest() => None,
            Ok(share) => share.as_ref(),
            Err(why) => return self.refuse(turn, MachineError::NoShare(why.clone())),
        };
        // Only what this guest finds is spoilt; the next is tried anew.
        if let Err(error) = self.scratch.clear() {
            (self.progress)(Progress::Failed { number: self.number, error: &error });
            self.write_failed(turn, 0, &error.to_string())?;
            self.first_failure.get_or_insert(error);
            return Ok(());
        }
        let log = self.log_folder(turn)?;
        let control_s = self.plan.comparison().map(|_| control::seconds());
        // The host itself is measured as it is.
        let settings = if turn.machine.is_guest() { way.variant.host() } else { BTreeMap::new() };
        let settings = HostSettings::set(&settings)?;
        let taken = self.take_with(turn, way, share, &log, (control_s, &settings.before()));
        settings.put_back()?;
        taken
    }

    fn take_with(
        &mut self,
        turn: Turn,
        way: &Way,
        share: Option<&Sharing>,
        log: &Path,
        (control_s, put_back): (Option<f64>, &[(PathBuf, String)]),
    ) -> Result<(), RunError> {
        let usual = &self.rungs[turn.rung].guest;
        let mut guest = if turn.machine.is_guest() { way.variant.guest(usual)? } else { usual.clone() };
        if !turn.machine.has_kernel() && self.plan.workloads.iter().any(|w| w.name == WorkloadName::GuestAntipatterns) {
            guest.qemu_args.extend(HABIT_DEVICES.map(str::to_owned));
        }
        let setup = Setup {
            machine: turn.machine,
            boot: self.images.boot(turn.machine, turn.variant)?,
            guest: &guest,
            disk: &way.disk,
            put_back,
            share,
            scratch: self.scratch,
            log,
            events: self.events,
            interrupt: self.interrupt,
        };
        match vmtax_vm::start(&setup) {
            Ok(session) => {
                self.came_up.insert((turn.machine, turn.variant));
                self.trials(turn, session, log, control_s)
            }
            Err(MachineError::Interrupted) => Ok(()),
            // What one size or share is refused another may be given.
            Err(error) if (self.plan.ladder().is_some() || share.is_some()) && turn.round == 0 => {
                self.refuse(turn, error)
            }
            Err(source) if !self.came_up.contains(&(turn.machine, turn.variant)) => {
                // Written down first: the recording, too, says why.
                let why = source.to_string();
                self.write_failed(turn, 0, &why)?;
                Err(RunError::FirstBoot { machine: turn.machine, source })
            }
            Err(error) => {
                (self.progress)(Progress::Failed { number: self.number, error: &error });
                self.skip(turn, 0, error)
            }
        }
    }

    /// Writes down that this turn has no result, and why it is not tried again.
    fn refuse(&mut self, turn: Turn, error: MachineError) -> Result<(), RunError> {
        let why = format!("{} does not come up: {error}", turn.machine);
        (self.progress)(Progress::Failed { number: self.number, error: &error });
        self.write_failed(turn, 0, &why)?;
        self.refused.insert((turn.machine, turn.variant, turn.rung), why);
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    fn trials(
        &mut self,
        turn: Turn,
        mut machine: Box<dyn RunningMachine + '_>,
        log: &Path,
        control_s: Option<f64>,
    ) -> Result<(), RunError> {
        note_boot(log, turn, &*machine)?;
        let mut warnings = machine.warnings().to_vec();
        if self.plan.comparison().is_some() {
            warnings.extend(machine.qemu()?.as_ref().and_then(pin));
        }
        let complaints = machine.hello().map_or(&[][..], |hello| &hello.complaints).iter();
        warnings.extend(complaints.map(|c| Warning::HalfUp { machine: turn.machine, complaint: c.clone() }));
        let all = self.all(turn);
        for (index, &(workload, probes)) in all.iter().enumerate() {
            (self.progress)(Progress::Trial { number: self.number, turn, workload, probes });
            let (started, clock, before) = (Timestamp::now(), Instant::now(), ProcessorTime::now());
            let spent = machine.processor();
            let deadline = Duration::from_secs(u64::from(self.plan.deadline_s));
            // Then it is told when the guest is ready.
            let inside = matches!(probes, Probes::Inside(_));
            if !inside {
                (self.progress)(Progress::Working { number: self.number, monitor: machine.monitor().as_ref() });
            }
            let (mut execution, mut of_command) = (None, None);
            let observes = matches!(probes, Probes::Layers | Probes::Calls);
            let qemu = self.qemus.get(turn.variant).filter(|_| observes);
            let events = self.events.then(|| log.join("qemu.events"));
            let disk = self.scratch.disk();
            let what = qemu.map(|qemu| Observable { machine: turn.machine, qemu, disk, probes, events });
            if observes && what.is_none() {
                return Err(no_means(turn.machine));
            }
            let store = what.as_ref().map(|_| self.writer.trial_files(self.number)).transpose()?;
            let (plan, streams, observe) = (self.plan, (self.streams, self.patterns), what.as_ref().zip(store));
            let work = |machine: &mut dyn RunningMachine| match observe {
                observe if plan.command().is_some() => {
                    let result;
                    (result, execution, of_command) = exec::run(machine, plan, streams, deadline, observe);
                    result
                }
                Some((what, store)) => {
                    observed(machine, what, store, |machine, files| machine.run(workload, probes, deadline, files))
                }
                None => Ok(machine.run(workload, Probes::None, deadline, &mut no_files)?.0),
            };
            let result = match probes {
                Probes::Inside(inside) => {
                    let files = self.writer.trial_files(self.number)?;
                    let (number, mut told) = (self.number, |progress: Progress<'_>| (self.progress)(progress));
                    looked_at_inside(&mut *machine, (inside, deadline), files, (number, &mut told), work)
                }
                _ => work(&mut *machine),
            };
            let wall_s = clock.elapsed().as_secs_f64();
            if !inside {
                (self.progress)(Progress::Over { number: self.number });
            }
            let mut warnings = warnings.clone();
            let percent = (ProcessorTime::now().stolen_since(&before) * 100.0).round() as u32;
            if percent >= NOTABLE_STEAL_PERCENT {
                warnings.push(Warning::StolenTime { percent });
            }
            let processor = spent.zip(machine.processor()).map(|(before, after)| processor_between(&before, &after));
            let processor = of_command.or(processor);
            let share = machine.share().cloned();
            warnings.extend(share.as_ref().and_then(|share| shares::few_open_files(workload, share)));
            let made = Made { started, wall_s, share, processor, control_s, execution, warnings };
            let scratch = self.scratch;
            let write = |outcome| self.write(turn, (workload, probes), outcome, made);
            match result {
                Ok(mut result) => {
                    let tree = shares::hosts_tree(&*machine, scratch);
                    result.kept.extend(shares::seen_by_the_host(&result, tree.as_deref()));
                    if index + 1 == all.len() && result.kept.iter().any(|k| k.what.ends_with(ON_THE_HOST)) {
                        // Nothing comes after it, so the guest may end as by a power cut, to see what that leaves.
                        machine.cut_off();
                        result.kept.extend(shares::left_behind(workload, tree.as_deref()));
                        return write(Outcome::Done { result: Box::new(result) });
                    }
                    write(Outcome::Done { result: Box::new(result) })?;
                }
                Err(MachineError::Interrupted) => return write(Outcome::Interrupted),
                Err(error) => {
                    let outcome = Outcome::Failed { error: error.to_string() };
                    write(outcome)?;
                    (self.progress)(Progress::Failed { number: self.number - 1, error: &error });
                    if !error.leaves_machine_up() {
                        return self.skip(turn, index + 1, error);
                    }
                    self.first_failure.get_or_insert(error);
                }
            }
        }
        note_memory_tree(log, turn, &*machine)?;
        machine.end();
        Ok(())
    }

    /// The trials of a turn: each workload under each of the plan's probes.
    fn all(&self, turn: Turn) -> Vec<(&'a WorkloadSpec, Probes)> {
        let plan = &self.rungs[turn.rung];
        plan.workloads.iter().flat_map(|w| plan.probes_in(turn).iter().map(move |&p| (w, p))).collect()
    }
}
