//! Takes the turns of a plan.

use crate::exec;
use crate::images::{Images, no_means};
use crate::machine::Up;
use crate::observe::{Observable, may_trace, observed};
use crate::shares::{self, Way};
use crate::{Means, RunError};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_host::ProcessorTime;
use vmtax_machine::{Interrupt, MachineError, Needs, Scratch, Setup, Streams, processor_between};
use vmtax_model::{
    Execution, MachineName, ON_THE_HOST, Outcome, Plan, Probes, ProcessorSeconds, QemuFacts, ShareFacts, TrialRecord,
    Turn, Warning, WorkloadName, WorkloadSpec,
};
use vmtax_recording::Writer;

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
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Ended, RunError> {
    progress(Progress::Preparing);
    let scratch = Scratch::create(writer.folder(), needs(plan)?)?;
    let images = Images::make(plan, means, &shares::methods(plan)?, &scratch)?;
    let ways = match &plan.command {
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
        events: plan.probes.iter().any(|p| *p != Probes::None) && !may_trace(),
        interrupt,
        streams,
        number: 0,
        came_up: BTreeSet::new(),
        refused: BTreeMap::new(),
        first_failure: None,
        writer,
        progress,
    };
    for turn in plan.schedule() {
        run.take(turn)?;
        if interrupt.raised() {
            return Ok(Ended::Interrupted);
        }
    }
    Ok(run.first_failure.map_or(Ended::Complete, Ended::Incomplete))
}

fn needs(plan: &Plan) -> Result<Needs, RunError> {
    let mut files_bytes = 0;
    for rung in 0..plan.rungs() {
        let mut at_rung = 0;
        for workload in &plan.at_rung(rung).workloads {
            at_rung += vmtax_workload::file_bytes(workload)?;
        }
        files_bytes = files_bytes.max(at_rung);
    }
    let written = shares::written(plan)?;
    let disk = plan.workloads.iter().any(|w| w.name == WorkloadName::Seqread);
    let guest = plan.machines.iter().any(|m| m.is_guest() && !m.is_micro());
    let images_mib = if guest { shares::images_mib(plan)? } else { 0 };
    Ok(Needs { disk, guest, files_bytes, tree: plan.tree.clone(), written, images_mib })
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
    /// The next trial's.
    number: u32,
    /// Machines that came up once: a later failure there is an accident, not a verdict.
    came_up: BTreeSet<(MachineName, usize)>,
    /// Rungs of a ladder at which a machine did not come up the first time, with the reason: not tried again.
    refused: BTreeMap<(MachineName, usize, usize), String>,
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
        if let Err(error) = self.scratch.clear_tree() {
            (self.progress)(Progress::Failed { number: self.number, error: &error });
            self.write_failed(turn, 0, &error.to_string())?;
            self.first_failure.get_or_insert(error);
            return Ok(());
        }
        let log = self.log_folder(turn)?;
        let setup = Setup {
            target: self.images.target(turn.machine, turn.variant)?,
            cpus: self.rungs[turn.rung].guest.cpus,
            memory_mib: self.rungs[turn.rung].guest.memory_mib,
            disk: &way.disk,
            share,
            scratch: self.scratch,
            log: &log,
            events: self.events,
            boot_deadline: Duration::from_secs(u64::from(self.plan.guest.boot_deadline_s)),
            interrupt: self.interrupt,
        };
        match Up::start(&setup) {
            Ok(session) => {
                self.came_up.insert((turn.machine, turn.variant));
                self.trials(turn, session, &log)
            }
            Err(MachineError::Interrupted) => Ok(()),
            // What one size or share is refused another may be given.
            Err(error) if (self.plan.ladder.is_some() || share.is_some()) && turn.round == 0 => {
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

    fn trials(&mut self, turn: Turn, mut machine: Up<'_>, log: &Path) -> Result<(), RunError> {
        note_boot(log, turn, &machine)?;
        let mut warnings = machine.warnings().to_vec();
        let complaints = machine.complaints().iter();
        warnings.extend(complaints.map(|c| Warning::HalfUp { machine: turn.machine, complaint: c.clone() }));
        let all = self.all(turn);
        for (index, &(workload, probes)) in all.iter().enumerate() {
            (self.progress)(Progress::Trial { number: self.number, turn, workload, probes });
            let (started, clock, before) = (Timestamp::now(), Instant::now(), ProcessorTime::now());
            let spent = machine.processor();
            let deadline = Duration::from_secs(u64::from(self.plan.deadline_s));
            let (mut execution, mut of_command) = (None, None);
            let result = match probes {
                _ if self.plan.command.is_some() => {
                    let result;
                    (result, execution, of_command) = exec::run(&mut machine, self.plan, self.streams, deadline);
                    result
                }
                Probes::None => machine.run(workload, deadline),
                Probes::Layers | Probes::Calls => {
                    let qemu = self.qemus.get(turn.variant).ok_or_else(|| no_means(turn.machine))?;
                    let events = self.events.then(|| log.join("qemu.events"));
                    let what = Observable { machine: turn.machine, qemu, disk: self.scratch.disk(), probes, events };
                    let files = self.writer.trial_files(self.number)?;
                    observed(&mut machine, &what, workload, deadline, files)
                }
            };
            let wall_s = clock.elapsed().as_secs_f64();
            let mut warnings = warnings.clone();
            let percent = (ProcessorTime::now().stolen_since(&before) * 100.0).round() as u32;
            if percent >= NOTABLE_STEAL_PERCENT {
                warnings.push(Warning::StolenTime { percent });
            }
            let processor = spent.zip(machine.processor()).map(|(before, after)| processor_between(&before, &after));
            let processor = of_command.or(processor);
            let share = machine.share().cloned();
            warnings.extend(share.as_ref().and_then(|share| shares::few_open_files(workload, share)));
            let method = share.as_ref().map(|s| s.method);
            let made = Made { started, wall_s, share, processor, execution, warnings };
            let scratch = self.scratch;
            let write = |outcome| self.write(turn, (workload, probes), outcome, made);
            match result {
                Ok(mut result) => {
                    result.kept.extend(shares::seen_by_the_host(&result, method, scratch));
                    if index + 1 == all.len() && result.kept.iter().any(|k| k.what.ends_with(ON_THE_HOST)) {
                        // Nothing comes after it, so the guest may end as by a power cut, to see what that leaves.
                        drop(machine);
                        result.kept.extend(shares::left_behind(workload, scratch));
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
        machine.end();
        Ok(())
    }

    /// The trials of a turn: each workload under each of the plan's probes.
    fn all(&self, turn: Turn) -> Vec<(&'a WorkloadSpec, Probes)> {
        let plan = &self.rungs[turn.rung];
        plan.workloads.iter().flat_map(|w| plan.probes_on(turn.machine).iter().map(move |&p| (w, p))).collect()
    }

    /// Writes down that the turn's trials from `from` on have no result.
    fn skip(&mut self, turn: Turn, from: usize, error: MachineError) -> Result<(), RunError> {
        self.write_failed(turn, from, &format!("{} was not up any more: {error}", turn.machine))?;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    fn write_failed(&mut self, turn: Turn, from: usize, why: &str) -> Result<(), RunError> {
        for trial in self.all(turn).into_iter().skip(from) {
            let outcome = Outcome::Failed { error: why.to_owned() };
            self.write(turn, trial, outcome, Made::none())?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        turn: Turn,
        (workload, probes): (&WorkloadSpec, Probes),
        outcome: Outcome,
        made: Made,
    ) -> Result<(), RunError> {
        let variant =
            if turn.machine.is_guest() { self.plan.variants[turn.variant].name.clone() } else { String::new() };
        self.writer.write(&TrialRecord {
            schema: vmtax_model::SCHEMA,
            number: self.number,
            round: turn.round,
            machine: turn.machine,
            variant,
            rung: self.plan.size(turn.rung),
            probes,
            workload: workload.clone(),
            started: made.started.to_string(),
            wall_s: made.wall_s,
            outcome,
            share: made.share,
            processor: made.processor,
            execution: made.execution,
            warnings: made.warnings,
        })?;
        self.number += 1;
        Ok(())
    }

    /// One machine's logs in one round.
    fn log_folder(&self, turn: Turn) -> Result<PathBuf, RunError> {
        // By number: a variant's name may hold anything.
        let variant = if self.plan.variants.len() > 1 { format!("-{}", turn.variant) } else { String::new() };
        let rung = self.plan.size(turn.rung).map_or(String::new(), |size| format!("-at-{size}"));
        let name = format!("{:04}-{}{variant}{rung}", turn.round, turn.machine);
        let folder = self.writer.folder().join("turns").join(name);
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(folder),
            Err(source) => Err(failed("creating", &folder, source)),
        }
    }
}

/// What is noted of a trial besides how it ended.
struct Made {
    started: Timestamp,
    wall_s: f64,
    share: Option<ShareFacts>,
    processor: Option<ProcessorSeconds>,
    execution: Option<Execution>,
    warnings: Vec<Warning>,
}

impl Made {
    /// Of a trial that could not be begun.
    fn none() -> Made {
        Made {
            started: Timestamp::now(),
            wall_s: 0.0,
            share: None,
            processor: None,
            execution: None,
            warnings: Vec::new(),
        }
    }
}

/// `turn.json`: what a turn's trials have in common.
fn note_boot(log: &Path, turn: Turn, machine: &Up<'_>) -> Result<(), RunError> {
    let note = serde_json::json!({
        "schema": vmtax_model::SCHEMA,
        "round": turn.round,
        "machine": turn.machine,
        "variant": turn.variant,
        "rung": turn.rung,
        "boot_s": machine.boot().as_secs_f64(),
        "agent": machine.hello(),
    });
    let path = log.join("turn.json");
    fs::write(&path, format!("{note:#}\n")).map_err(|e| failed("writing", &path, e))
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> RunError {
    MachineError::System { what: format!("{verb} {}", path.display()), source }.into()
}
