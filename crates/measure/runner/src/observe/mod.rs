//! What observes a trial: each observer starts on a machine that runs, and leaves its artifacts in the trial's folder.

mod blocks;
mod inside;
mod profile;

pub(crate) use blocks::may_trace;
pub use profile::profile;

use blocks::BlockObserver;
use inside::InsideObserver;
use profile::ProfileObserver;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use vmtax_model::{Machine, Missing, Ping, Probes, ProfileSettings, QemuFacts};
use vmtax_recording::{RecordingError, TrialFiles, Writer};
use vmtax_vm::{MachineError, Observed, RunningMachine};

/// Observes one trial of a machine. Dropped, it ends and leaves no facts.
trait Observer {
    /// Takes a file that the guest's agent sends when the work is done; `None` for one that expects none.
    fn file(&mut self, _name: &str, _bytes: &[u8]) -> Option<Result<(), String>> {
        None
    }

    /// Ends observing; `observed` is what the agent says of its own tracing.
    fn stop(self: Box<Self>, machine: &mut dyn RunningMachine, observed: Option<Observed>) -> Result<(), MachineError>;
}

/// What is observed in a trial, and what it takes.
pub(crate) struct Observation<'a> {
    /// On which machine.
    pub machine: Machine,
    /// Its QEMU.
    pub qemu: Option<&'a QemuFacts>,
    /// The file behind its measured disk.
    pub disk: Option<PathBuf>,
    /// With what.
    pub probes: Probes,
    /// How its QEMU is profiled.
    pub profile: Option<&'a ProfileSettings>,
    /// How long the guest may take to send what it observed.
    pub deadline: Duration,
    /// The log of QEMU's own events, where the host's kernel may not be traced.
    pub events: Option<PathBuf>,
}

/// The observers of a trial, in the order in which they started.
pub(crate) struct Observers(Vec<Box<dyn Observer>>);

impl Observers {
    /// Starts what observes the trial of that number.
    pub fn start(
        machine: &mut dyn RunningMachine,
        what: &Observation<'_>,
        (writer, number): (&Writer, u32),
    ) -> Result<Observers, MachineError> {
        let files = || writer.trial_files(number).map_err(|e| unstorable(&e));
        let mut all: Vec<Box<dyn Observer>> = Vec::new();
        match what.probes {
            Probes::None => {}
            Probes::Layers | Probes::Calls => all.push(Box::new(BlockObserver::start(machine, what, files()?)?)),
            Probes::Inside(inside) => {
                all.push(Box::new(InsideObserver::start(machine, inside, what.deadline, files()?)?))
            }
        }
        if let Some(spec) = what.profile {
            all.extend(ProfileObserver::start(machine, what.machine, spec, files()?)?.map(|o| Box::new(o) as Box<_>));
        }
        Ok(Observers(all))
    }

    /// Takes a file that the guest's agent sends when the work is done.
    pub fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let taken = self.0.iter_mut().find_map(|observer| observer.file(name, bytes));
        taken.unwrap_or_else(|| Err("nobody expects a file".to_owned()))
    }

    /// Ends observing, in the opposite order.
    pub fn stop(self, machine: &mut dyn RunningMachine, observed: Option<Observed>) -> Result<(), MachineError> {
        let mut observed = observed;
        self.0.into_iter().rev().try_for_each(|observer| observer.stop(machine, observed.take()))
    }
}

/// Those of the exchanges that took place; what stood in the way of the others is missing.
fn answered(pings: Vec<Result<Ping, MachineError>>, missing: &mut Vec<Missing>) -> Vec<Ping> {
    let mut done = Vec::new();
    for ping in pings {
        match ping {
            Ok(ping) => done.push(ping),
            // Without exchanges, cause and effect among the requests still bound the clocks.
            Err(error) => missing.push(Missing {
                what: "exchanges of stamps, which bring both sides' clocks together".to_owned(),
                why: error.to_string(),
                mend:
                    "use a guest kernel with PCI devices in sysfs; without, requests themselves bound the clocks, less \
                       well"
                        .to_owned(),
            }),
        }
    }
    done
}

fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> MachineError {
    move |source| MachineError::System { what: what.to_owned(), source: io::Error::other(source) }
}

fn unstorable(error: &RecordingError) -> MachineError {
    let source = io::Error::other(error.to_string());
    MachineError::System { what: "storing what was observed".to_owned(), source }
}

/// Appends a value as JSON to the files of a trial.
fn store<T: serde::Serialize>(files: &mut TrialFiles, name: &str, value: &T) -> Result<(), MachineError> {
    let bytes = serde_json::to_vec(value).map_err(failed("storing what was observed"))?;
    files.append(name, &bytes).map_err(|e| unstorable(&e))
}
