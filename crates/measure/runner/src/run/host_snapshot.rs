//! The host's clocks and counters before a trial, and what has changed after it.

use super::write_trial::TrialNotes;
use jiff::Timestamp;
use std::time::Instant;
use vmtax_host::CpuTime;
use vmtax_model::{CpuSeconds, Warning};
use vmtax_vm::RunningMachine;

/// Below this, steal time of the host during a trial is not reported, percent.
const NOTABLE_STEAL_PERCENT: u32 = 5;

/// The host's clocks and counters before a trial.
pub(super) struct HostSnapshot {
    started: Timestamp,
    clock: Instant,
    host: CpuTime,
    machine: Option<CpuSeconds>,
}

impl HostSnapshot {
    pub fn now(machine: &dyn RunningMachine) -> HostSnapshot {
        let (started, clock, host) = (Timestamp::now(), Instant::now(), CpuTime::now());
        HostSnapshot {
            started,
            clock,
            host,
            machine: machine.cpu_time(),
        }
    }

    /// Returns what the trial took of the host. `cpu_seconds` is what its command took, where that is known.
    pub fn notes(
        self,
        machine: &dyn RunningMachine,
        cpu_seconds: Option<CpuSeconds>,
    ) -> TrialNotes {
        let wall_s = self.clock.elapsed().as_secs_f64();
        let percent = (CpuTime::now().stolen_since(&self.host) * 100.0).round() as u32;
        let stolen = (percent >= NOTABLE_STEAL_PERCENT).then_some(Warning::StolenTime { percent });
        let whole = self
            .machine
            .zip(machine.cpu_time())
            .map(|(before, after)| after.since(&before));
        TrialNotes {
            started: self.started,
            wall_s,
            share: machine.share().cloned(),
            cpu_seconds: cpu_seconds.or(whole),
            control_s: None,
            execution: None,
            pinned: None,
            warnings: stolen.into_iter().collect(),
        }
    }
}
