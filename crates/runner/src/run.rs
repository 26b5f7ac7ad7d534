//! Takes the turns of a plan.

use crate::{Means, RunError};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_host::ProcessorTime;
use vmtax_machine::{GuestImage, Interrupt, MachineError, Needs, Scratch, Session, Setup, Target};
use vmtax_model::{MachineName, Outcome, Plan, TrialRecord, Turn, Warning, WorkloadName, WorkloadSpec};
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

/// Carries out the plan. Whatever ends it, the trials before are in the recording, and nothing is left running.
///
/// # Errors
/// [`RunError`] when the plan cannot be carried out: what fails the first time will fail each time.
pub fn run(
    plan: &Plan,
    means: Option<&Means>,
    writer: &mut Writer,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Ended, RunError> {
    progress(Progress::Preparing);
    let scratch = Scratch::create(writer.folder(), needs(plan)?)?;
    let image = match means {
        Some(means) => Some(guest_image(means, &scratch)?),
        None => None,
    };
    let mut run = Run {
        plan,
        scratch: &scratch,
        image: image.as_ref(),
        interrupt,
        number: 0,
        came_up: BTreeSet::new(),
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
    for workload in &plan.workloads {
        files_bytes += vmtax_workload::file_bytes(workload)?;
    }
    let disk = plan.workloads.iter().any(|w| w.name == WorkloadName::Seqread);
    Ok(Needs { disk, guest: plan.machines.iter().any(|m| m.is_guest()), files_bytes })
}

fn guest_image(means: &Means, scratch: &Scratch) -> Result<GuestImage, RunError> {
    let initramfs = scratch.folder().join("initramfs.cpio");
    vmtax_kernel::initramfs(&means.kernel, Path::new("/proc/self/exe"), &initramfs)?;
    let vmlinux = scratch.folder().join("vmlinux");
    let direct = vmtax_kernel::unpack_vmlinux(&means.kernel, &vmlinux);
    let kernel = if direct { vmlinux } else { means.kernel.image.clone() };
    Ok(GuestImage { qemu: means.qemu.clone(), kernel, initramfs })
}

fn target(machine: MachineName, image: Option<&GuestImage>) -> Result<Target<'_>, RunError> {
    let no_means = || RunError::NoMachine { machine, reason: "no QEMU and kernel were found for it".to_owned() };
    Ok(match machine {
        MachineName::Native => Target::Native,
        MachineName::Kvm => Target::Kvm(image.ok_or_else(no_means)?),
        MachineName::Tcg => Target::Tcg(image.ok_or_else(no_means)?),
    })
}

struct Run<'a> {
    plan: &'a Plan,
    scratch: &'a Scratch,
    image: Option<&'a GuestImage>,
    interrupt: &'a Interrupt,
    /// The next trial's.
    number: u32,
    /// Machines that came up once: a later failure there is an accident, not a verdict.
    came_up: BTreeSet<MachineName>,
    first_failure: Option<MachineError>,
    writer: &'a mut Writer,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Run<'_> {
    fn take(&mut self, turn: Turn) -> Result<(), RunError> {
        (self.progress)(Progress::Booting { turn });
        let log = self.log_folder(turn)?;
        let setup = Setup {
            target: target(turn.machine, self.image)?,
            cpus: self.plan.guest.cpus,
            memory_mib: self.plan.guest.memory_mib,
            scratch: self.scratch,
            log: &log,
            boot_deadline: Duration::from_secs(u64::from(self.plan.guest.boot_deadline_s)),
            interrupt: self.interrupt,
        };
        match Session::start(&setup) {
            Ok(session) => {
                self.came_up.insert(turn.machine);
                self.trials(turn, session, &log)
            }
            Err(MachineError::Interrupted) => Ok(()),
            Err(source) if !self.came_up.contains(&turn.machine) => {
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

    fn trials(&mut self, turn: Turn, mut session: Session<'_>, log: &Path) -> Result<(), RunError> {
        note_boot(log, turn, &session)?;
        let mut warnings = session.warnings().to_vec();
        let complaints = session.hello().complaints.iter();
        warnings.extend(complaints.map(|c| Warning::HalfUp { machine: turn.machine, complaint: c.clone() }));
        for (index, workload) in self.plan.workloads.iter().enumerate() {
            (self.progress)(Progress::Trial { number: self.number, turn, workload });
            let (started, clock, before) = (Timestamp::now(), Instant::now(), ProcessorTime::now());
            let result = session.run(workload, Duration::from_secs(u64::from(self.plan.deadline_s)));
            let wall_s = clock.elapsed().as_secs_f64();
            let mut warnings = warnings.clone();
            let percent = (ProcessorTime::now().stolen_since(&before) * 100.0).round() as u32;
            if percent >= NOTABLE_STEAL_PERCENT {
                warnings.push(Warning::StolenTime { percent });
            }
            match result {
                Ok(result) => {
                    let outcome = Outcome::Done { result: Box::new(result) };
                    self.write(turn, workload, started, wall_s, outcome, warnings)?;
                }
                Err(MachineError::Interrupted) => {
                    return self.write(turn, workload, started, wall_s, Outcome::Interrupted, warnings);
                }
                Err(error) => {
                    (self.progress)(Progress::Failed { number: self.number, error: &error });
                    let outcome = Outcome::Failed { error: error.to_string() };
                    self.write(turn, workload, started, wall_s, outcome, warnings)?;
                    if !error.leaves_machine_up() {
                        return self.skip(turn, index + 1, error);
                    }
                    self.first_failure.get_or_insert(error);
                }
            }
        }
        session.end();
        Ok(())
    }

    /// Writes down that the turn's workloads from `from` on have no result.
    fn skip(&mut self, turn: Turn, from: usize, error: MachineError) -> Result<(), RunError> {
        self.write_failed(turn, from, &format!("{} was not up any more: {error}", turn.machine))?;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    fn write_failed(&mut self, turn: Turn, from: usize, why: &str) -> Result<(), RunError> {
        for workload in &self.plan.workloads[from..] {
            let outcome = Outcome::Failed { error: why.to_owned() };
            self.write(turn, workload, Timestamp::now(), 0.0, outcome, Vec::new())?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        turn: Turn,
        workload: &WorkloadSpec,
        started: Timestamp,
        wall_s: f64,
        outcome: Outcome,
        warnings: Vec<Warning>,
    ) -> Result<(), RunError> {
        self.writer.write(&TrialRecord {
            schema: vmtax_model::SCHEMA,
            number: self.number,
            round: turn.round,
            machine: turn.machine,
            workload: workload.clone(),
            started: started.to_string(),
            wall_s,
            outcome,
            warnings,
        })?;
        self.number += 1;
        Ok(())
    }

    /// One machine's logs in one round.
    fn log_folder(&self, turn: Turn) -> Result<PathBuf, RunError> {
        let folder = self.writer.folder().join("turns").join(format!("{:04}-{}", turn.round, turn.machine));
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(folder),
            Err(source) => Err(failed("creating", &folder, source)),
        }
    }
}

/// `turn.json`: what a turn's trials have in common.
fn note_boot(log: &Path, turn: Turn, session: &Session<'_>) -> Result<(), RunError> {
    let note = serde_json::json!({
        "schema": vmtax_model::SCHEMA,
        "round": turn.round,
        "machine": turn.machine,
        "boot_s": session.boot().as_secs_f64(),
        "agent": session.hello(),
    });
    let path = log.join("turn.json");
    fs::write(&path, format!("{note:#}\n")).map_err(|e| failed("writing", &path, e))
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> RunError {
    MachineError::System { what: format!("{verb} {}", path.display()), source }.into()
}
