//! Observers of a trial: each starts on a VM, and leaves its artifacts in the trial's folder.

mod blocks;
mod diagnose;
mod observer;
mod profile;
mod queues;
mod tune;
mod vm_blocks;

pub(crate) use blocks::may_trace;
pub(crate) use diagnose::diagnose;
pub(crate) use observer::{Observation, TrialStore};
pub(crate) use profile::{expected_stops, profile, vm_exits};
pub(crate) use tune::tune;
pub(crate) use vm_blocks::vm_layers;

use blocks::BlockObserver;
use observer::{Observer, failed};
use profile::{InsideObserver, ProfileObserver};
use vmtax_model::Probes;
use vmtax_vm::{MachineError, Observed, RunningMachine};

/// The observers of a trial, in the order in which they started.
pub(crate) struct Observers(Vec<Box<dyn Observer>>);

impl Observers {
    /// Starts what observes the trial: the host's side on the vm, the guest's with what the guests of vmtax can do.
    pub fn start(
        machine: &mut dyn RunningMachine,
        what: &Observation<'_>,
        trial: &TrialStore<'_>,
    ) -> Result<Observers, MachineError> {
        let mut all: Vec<Box<dyn Observer>> = Vec::new();
        let vm = machine.vm().cloned();
        match what.probes {
            Probes::None => {}
            Probes::Layers | Probes::Network | Probes::Calls => {
                let vm = vm.clone().ok_or(MachineError::NoAgent {
                    machine: what.machine,
                })?;
                let observer = BlockObserver::start(vm, machine, what, trial.files()?)?;
                all.push(Box::new(observer));
            }
            Probes::Inside(inside) => {
                let (vm, timeout, files) = (vm.clone(), what.timeout, trial.files()?);
                let observer = InsideObserver::start(vm, machine, inside, timeout, files)?;
                all.push(Box::new(observer));
            }
        }
        if let Some((vm, spec)) = vm.as_ref().zip(what.profile) {
            // The micro-guest makes no breakpoints.
            let may_ask = !what.machine.has_kernel();
            let observer = ProfileObserver::start(vm.clone(), spec, may_ask, trial.files()?);
            all.push(Box::new(observer.map_err(failed("profiling QEMU"))?));
        }
        Ok(Observers(all))
    }

    /// Takes a file that the guest's agent sends when the work is done.
    pub fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let taken = self
            .0
            .iter_mut()
            .find_map(|observer| observer.file(name, bytes));
        taken.unwrap_or_else(|| Err("nobody expects a file".to_owned()))
    }

    /// Ends observing, in the opposite order.
    pub fn stop(
        self,
        machine: &mut dyn RunningMachine,
        mut observed: Option<Observed>,
    ) -> Result<(), MachineError> {
        let mut all = self.0.into_iter().rev();
        all.try_for_each(|observer| observer.stop(machine, observed.take()))
    }
}
