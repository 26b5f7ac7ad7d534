//! The trait of running machines.

use crate::MachineError;
use crate::agent::command::{CommandRun, Ran};
use crate::agent::messages::Files;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use vmtax_model::{
    CpuSeconds, Inside, Missing, Ping, Probes, QemuThread, ShareFacts, TrialResult, Warning,
    WorkloadSpec,
};
use vmtax_vmm::Vm;
use vmtax_wire::{Hello, Observed};

/// A machine that runs and waits for workloads. The defaults are those of a machine without an agent. Dropping it
/// ends the machine.
pub trait RunningMachine {
    /// From the start of its process until it accepts workloads.
    fn boot(&self) -> Duration;

    /// From the start of its process until it has its share too.
    fn ready(&self) -> Duration {
        self.boot()
    }

    /// The agent's greeting, where there is an agent.
    fn hello(&self) -> Option<&Hello> {
        None
    }

    /// Warnings that apply to all figures from this machine.
    fn warnings(&self) -> &[Warning] {
        &[]
    }

    /// Returns the settings of the guest's share that took effect.
    fn share(&self) -> Option<&ShareFacts> {
        None
    }

    /// The threads of the processes that its network consists of: the echo server, passt; none without a network.
    fn network_threads(&self) -> Vec<QemuThread> {
        Vec::new()
    }

    /// Where the host sees the tree that the guest shares, if that is not where it lies: as long as the machine runs.
    fn served(&self) -> Option<PathBuf> {
        None
    }

    /// Kills the machine, as a power cut would, but not the server of its share.
    fn cut_off(&mut self) {}

    /// The host CPU time that the machine has used; `None` natively.
    fn cpu_time(&self) -> Option<CpuSeconds> {
        None
    }

    /// Runs one workload to its end. Under probes, the files of the guest's trace and the workload's own stamps go to
    /// `files` before it returns.
    ///
    /// # Errors
    /// [`MachineError`]; after one that does not leave the machine running, it is of no more use.
    fn run(
        &mut self,
        workload: &WorkloadSpec,
        probes: Probes,
        timeout: Duration,
        files: &mut Files<'_>,
    ) -> Result<(TrialResult, Option<Observed>), MachineError>;

    /// Runs a command between the user's streams, under `probes`; what these recorded goes to `files`. The first stop
    /// request goes to the command as SIGINT, the second kills the machine.
    ///
    /// # Errors
    /// [`MachineError`]; after one the machine is of no more use.
    fn exec(
        &mut self,
        _: CommandRun<'_>,
        _: Probes,
        _: &mut Files<'_>,
    ) -> Result<Ran, MachineError> {
        Err(MachineError::Workload(
            "the micro-guest has no kernel and cannot run a command".to_owned(),
        ))
    }

    /// Runs a shell line before or after the command, in its environment but without its input; what it prints goes to
    /// standard error, and processes that it leaves stay.
    ///
    /// # Errors
    /// As [`RunningMachine::exec`]; and when the line fails, named after its option.
    fn shell(&mut self, _option: &str, _line: &str, _: CommandRun<'_>) -> Result<(), MachineError> {
        Err(MachineError::Workload(
            "the micro-guest has no kernel and cannot run a shell".to_owned(),
        ))
    }

    /// Restores what the last call changed, then sets these attributes of the measured disk's request queue in the guest.
    ///
    /// # Errors
    /// [`MachineError::BlockQueue`] where the guest refuses one.
    fn set_block_queue(&mut self, _: &BTreeMap<String, String>) -> Result<(), MachineError> {
        Err(MachineError::BlockQueue(
            "the micro-guest has no kernel with such a queue".to_owned(),
        ))
    }

    /// Has the guest sample and count itself from now on; without effect in a guest without a kernel.
    ///
    /// # Errors
    /// [`MachineError`] when it does not answer.
    fn start_sampling(&mut self, _: Inside) -> Result<(), MachineError> {
        Ok(())
    }

    /// Ends that; the samples go to `files`. Returns what could not be sampled.
    ///
    /// # Errors
    /// [`MachineError`] when it does not answer within `timeout`, or has nothing to give.
    fn stop_sampling(
        &mut self,
        _timeout: Duration,
        _files: &mut Files<'_>,
    ) -> Result<Vec<Missing>, MachineError> {
        Ok(Vec::new())
    }

    /// Exchanges time stamps with the guest for `duration`, to align the clocks of host and guest.
    ///
    /// # Errors
    /// [`MachineError::Clock`] when the guest does not answer, [`MachineError::NoAgent`] for the host itself.
    fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError>;

    /// The virtual machine that it is, as it is observed from the host; `None` natively.
    fn vm(&self) -> Option<&Vm>;

    /// Shuts the machine down: the agent exits, a guest powers off.
    fn end(self: Box<Self>);
}
