//! What observes a trial: each observer starts on a machine that runs, and leaves its artifacts in the trial's folder.

mod blocks;
mod inside;
mod observer;
mod profile;

pub(crate) use blocks::may_trace;
pub(crate) use observer::Observation;
pub use profile::profile;

use blocks::BlockObserver;
use inside::InsideObserver;
use observer::{Observer, unstorable};
use profile::ProfileObserver;
use vmtax_model::Probes;
use vmtax_recording::Writer;
use vmtax_vm::{MachineError, Observed, RunningMachine};

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
