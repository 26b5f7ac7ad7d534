//! The requests of a recording's observed trials, one trial at a time: all of a long recording would not fit into memory.

use crate::ExportError;
use crate::run::Run;
use vmtax_layers::{JoinedRequest, JoinedTrial, VmTrial};
use vmtax_model::{Machine, Study, TrialRecord, files};
use vmtax_recording::Recording;

/// A trial's joined requests, with what tells the trial from others.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// ID of the run, as in all tables.
    pub run: &'a str,
    /// Number of the trial in the recording.
    pub number: u32,
    /// Where it ran.
    pub machine: Machine,
    /// In which of the plan's variants; empty for the only one.
    pub variant: &'a str,
    /// In which round, from 0.
    pub round: u32,
    /// Requests of the trial, joined.
    pub joined: &'a JoinedTrial,
}

/// The observed trials of a recording.
pub struct ObservedTrials<'a> {
    recording: &'a Recording,
    run: String,
    trials: Vec<&'a TrialRecord>,
    /// Of a running VM, or of imported traces: each disk or network card stands for a trial.
    devices: Vec<VmTrial>,
}

impl<'a> ObservedTrials<'a> {
    /// Of a recording; empty where nothing was observed.
    ///
    /// # Errors
    /// [`ExportError`] when a trace cannot be read, or the run has no date.
    pub fn of(recording: &'a Recording) -> Result<ObservedTrials<'a>, ExportError> {
        let is_observed = |t: &&TrialRecord| t.probes.follows_requests() && t.result().is_some();
        let devices = match recording.plan.study {
            // Of imported traces without requests there is no such file.
            Study::Import(_) if !recording.trial_folder(0).join(files::VM_TRACE).exists() => {
                Vec::new()
            }
            Study::VmLayers(_) | Study::Import(_) => {
                vmtax_layers::join_vm(&recording.trial_folder(0))?
            }
            _ => Vec::new(),
        };
        let trials = recording.trials.iter().filter(is_observed).collect();
        Ok(ObservedTrials {
            recording,
            run: Run::of(recording, false)?.id,
            trials,
            devices,
        })
    }

    /// Returns true if nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.trials.is_empty() && self.devices.is_empty()
    }

    /// Returns the number of observed trials; each disk or network card of a running VM counts as one.
    pub fn len(&self) -> usize {
        self.trials.len() + self.devices.len()
    }

    /// Passes on each, its requests joined.
    ///
    /// # Errors
    /// [`ExportError`] when a trace cannot be read, or of `pass_on`.
    pub fn for_each(
        &self,
        mut pass_on: impl FnMut(Trial<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let run = self.run.as_str();
        for record in &self.trials {
            let joined = vmtax_layers::join(&self.recording.trial_folder(record.number), record)?;
            let (number, machine, round) = (record.number, record.machine, record.round);
            pass_on(Trial {
                run,
                number,
                machine,
                variant: &record.variant,
                round,
                joined: &joined,
            })?;
        }
        for (
            number,
            VmTrial {
                machine,
                device,
                joined,
            },
        ) in (0..).zip(&self.devices)
        {
            pass_on(Trial {
                run,
                number,
                machine: *machine,
                variant: device,
                round: 0,
                joined,
            })?;
        }
        Ok(())
    }
}

/// The request that a share of a trial's requests, 0 to 1, does not outlast; `None` of a trial without requests.
pub fn at_quantile(trial: &JoinedTrial, share: f64) -> Option<&JoinedRequest> {
    let mut order: Vec<&JoinedRequest> = trial.requests.iter().collect();
    order.sort_by_key(|r| r.total());
    let rank = (share.clamp(0.0, 1.0) * order.len() as f64).ceil() as usize;
    order.get(rank.saturating_sub(1)).copied()
}
