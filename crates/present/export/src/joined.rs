//! The requests of a recording's observed trials, one trial at a time: all of a long recording would not fit into memory.

use crate::{ExportError, Run};
use vmtax_findings::State;
use vmtax_layers::{JoinedRequest, JoinedTrial, VmTrial, Who};
use vmtax_model::{Checkpoint, Machine, Study, TrialRecord, VmStudy, files};
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
    /// Reads the observed trials of a recording; empty where nothing was observed.
    ///
    /// # Errors
    /// [`ExportError`] when a trace cannot be read, or the run has no date.
    pub fn read(recording: &'a Recording) -> Result<ObservedTrials<'a>, ExportError> {
        let is_observed = |t: &&TrialRecord| t.probes.follows_requests() && t.result().is_some();
        let folder = recording.trial_folder(0);
        let devices = match recording.plan.study {
            // Of imported traces without requests there is no such file.
            Study::Import(_) if !folder.join(files::VM_TRACE).exists() => Vec::new(),
            Study::Vm(VmStudy::VmLayers, _) | Study::Import(_) => vmtax_layers::join_vm(&folder)?,
            _ => Vec::new(),
        };
        let trials = recording.trials.iter().filter(is_observed).collect();
        Ok(ObservedTrials {
            recording,
            run: Run::identify(recording, false)?.id,
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
            pass_on(Trial {
                run,
                number: record.number,
                machine: record.machine,
                variant: &record.variant,
                round: record.round,
                joined: &joined,
            })?;
        }
        for (number, vm) in (0..).zip(&self.devices) {
            pass_on(Trial {
                run,
                number,
                machine: vm.machine,
                variant: &vm.device,
                round: 0,
                joined: &vm.joined,
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

/// A trial as exports write it. Times are whole nanoseconds since the first request's begin. Ends of neighbors are rounded alike, so
/// what follows each other without a gap in ticks does so in nanoseconds, and sums close.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    pub run: String,
    pub number: u32,
    pub machine: Machine,
    pub variant: String,
    pub round: u32,
    /// QEMU's threads as [`Who::Thread`] numbers them: what each is for, and its number on the host.
    pub threads: Vec<(String, i32)>,
    pub requests: Vec<Record>,
}

/// Request as an export writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Number among the trial's joined requests, from 0.
    pub number: u32,
    /// Where on the disk, bytes.
    pub offset: u64,
    /// When it passed each checkpoint, ns.
    pub checkpoints: [Option<u64>; Checkpoint::COUNT],
    /// The path between the first and the last checkpoint that a tracer saw.
    pub slices: Vec<Slice>,
}

/// A segment of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice {
    pub from: Checkpoint,
    pub to: Checkpoint,
    pub state: State,
    pub who: Who,
    /// Begin of the segment, in ns.
    pub begin: u64,
    /// End of the segment, in ns.
    pub end: u64,
}

impl Record {
    fn at(&self, checkpoint: Checkpoint) -> u64 {
        self.checkpoints[checkpoint as usize].unwrap_or(0)
    }

    /// By the workload's own stamp, ns.
    pub fn begin(&self) -> u64 {
        self.at(Checkpoint::Begin)
    }

    /// By the workload's own stamp, ns.
    pub fn end(&self) -> u64 {
        self.at(Checkpoint::End)
    }

    /// Returns the time that no segment accounts for, in ns.
    pub fn unexplained(&self) -> u64 {
        let explained: u64 = self.slices.iter().map(|s| s.end - s.begin).sum();
        (self.end() - self.begin()).saturating_sub(explained)
    }
}

impl Sheet {
    /// The requests of a trial for which `which` holds; times count from the begin of the first of them.
    pub fn of_trial(trial: &Trial, which: impl Fn(&JoinedRequest) -> bool) -> Sheet {
        let joined = trial.joined;
        let chosen = || joined.requests.iter().zip(0..).filter(|(r, _)| which(r));
        let origin = chosen().map(|(r, _)| r.begin()).min().unwrap_or(0);
        let requests = chosen().map(|(r, number)| record(joined, r, number, origin));
        let threads = joined.threads.iter().enumerate();
        let name = |i: usize| joined.name(Who::Thread(u16::try_from(i).unwrap_or(u16::MAX)));
        Sheet {
            run: trial.run.to_owned(),
            number: trial.number,
            machine: trial.machine,
            variant: trial.variant.to_owned(),
            round: trial.round,
            threads: threads.map(|(i, t)| (name(i), t.tid)).collect(),
            requests: requests.collect(),
        }
    }

    /// Who, for people.
    pub fn name(&self, who: Who) -> &str {
        match who {
            Who::Guest => "guest",
            Who::Host => "host kernel",
            Who::Thread(i) => {
                let thread = self.threads.get(usize::from(i));
                thread.map_or("worker", |(name, _)| name)
            }
        }
    }
}

fn record(trial: &JoinedTrial, request: &JoinedRequest, number: u32, origin: u64) -> Record {
    // A request's first event is not before the operation that it belongs to.
    let ns = |at: u64| trial.ns(at.saturating_sub(origin)).round() as u64;
    let mut at = request.first();
    let slices = request.segments.iter().map(|segment| {
        let begin = at;
        at += segment.ticks;
        let passed = request.checkpoints();
        let before = passed.take_while(|(s, _)| *s < segment.to).last();
        Slice {
            from: before.map_or(Checkpoint::Begin, |(s, _)| s),
            to: segment.to,
            state: segment.state,
            who: segment.who,
            begin: ns(begin),
            end: ns(at),
        }
    });
    let slices = slices.collect();
    Record {
        number,
        offset: request.key,
        checkpoints: Checkpoint::ALL.map(|s| request.at(s).map(ns)),
        slices,
    }
}

#[cfg(test)]
pub(crate) mod specimen {
    //! Trials to write in tests.

    use super::{Record, Sheet, Slice};
    use vmtax_findings::State;
    use vmtax_layers::Who;
    use vmtax_model::{Checkpoint, Machine};

    /// From each checkpoint to the next: which state, who, how long in ns; the first stretch begins 500 ns into the operation.
    const WAY: &[(Checkpoint, State, Who, u64)] = {
        use Checkpoint as S;
        &[
            (S::GuestIssue, State::Running, Who::Guest, 20_000),
            (S::GuestNotify, State::GuestRunnable, Who::Guest, 4_000),
            (S::QemuWake, State::Waiting, Who::Thread(0), 30_000),
            (S::QemuWake, State::Runnable, Who::Thread(0), 11_000),
            (S::QemuPop, State::Running, Who::Thread(0), 9_000),
            (S::HostIssue, State::Lock, Who::Thread(1), 2_000),
            (S::HostIssue, State::Running, Who::Host, 5_000),
            (S::HostComplete, State::Running, Who::Host, 47_000),
            (S::QemuPush, State::Running, Who::Thread(0), 9_000),
            (S::GuestReturn, State::Running, Who::Guest, 18_000),
        ]
    };
    /// Time after the last checkpoint that a tracer saw, in ns.
    const REST: u64 = 700;

    fn request(number: u32, begin: u64) -> Record {
        let mut checkpoints = [None; Checkpoint::COUNT];
        let (mut at, mut from) = (begin + 500, Checkpoint::GuestCall);
        checkpoints[Checkpoint::Begin as usize] = Some(begin);
        checkpoints[from as usize] = Some(at);
        let mut slices: Vec<Slice> = Vec::new();
        for (to, state, who, ns) in WAY {
            if let Some(before) = slices.last().filter(|s| s.to != *to) {
                from = before.to;
            }
            slices.push(Slice {
                from,
                to: *to,
                state: *state,
                who: *who,
                begin: at,
                end: at + ns,
            });
            at += ns;
            checkpoints[*to as usize] = Some(at);
        }
        checkpoints[Checkpoint::End as usize] = Some(at + REST);
        Record {
            number,
            offset: u64::from(number) * 4096,
            checkpoints,
            slices,
        }
    }

    /// A trial whose requests begin every `apart` ns: below 155,000 they overlap.
    pub fn sheet(number: u32, variant: &str, requests: u32, apart: u64) -> Sheet {
        Sheet {
            run: "20261125T091310Z-layers-3f2a91bc0d1e".to_owned(),
            number,
            machine: Machine::TCG,
            variant: variant.to_owned(),
            round: number / 2,
            threads: vec![("main loop".to_owned(), 4242), ("worker".to_owned(), 4250)],
            requests: (0..requests)
                .map(|i| request(i, u64::from(i) * apart))
                .collect(),
        }
    }
}
