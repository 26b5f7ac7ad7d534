//! Durations of the system calls of QEMU's threads, and of the user time after each, while requests were in flight.

use super::open::{facts, in_host_ticks, series};
use crate::error::LayersError;
use crate::events::calls::CallKind;
use crate::events::clocks::clock;
use crate::events::trace_reader::{TraceReader, next, open};
use crate::events::{Event, HostEvent};
use std::ops::RangeInclusive;
use std::path::Path;
use vmtax_model::{Missing, Moments, Probes, QemuThread, Role, Side, TraceFacts, files};
use vmtax_trace::{CallPhase, CallTimes};

/// The system calls of QEMU's threads in one trial.
pub(crate) struct TrialCalls {
    calls: CallTimes<CallKind>,
    threads: Vec<QemuThread>,
    /// Ticks per microsecond.
    mhz: f64,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}

impl TrialCalls {
    /// For calls that begin and end within a period, host ticks.
    pub fn new(facts: &TraceFacts, during: RangeInclusive<u64>) -> Self {
        TrialCalls {
            calls: CallTimes::new(during),
            threads: facts.threads.clone(),
            mhz: facts.tsc_mhz,
            missing: facts.missing.clone(),
        }
    }

    pub fn take(&mut self, event: &Event<HostEvent>) {
        match event.what {
            HostEvent::Enter { nr, args } => {
                self.calls
                    .enter(event.tid, event.at, CallKind::of(nr, &args))
            }
            HostEvent::Exit => self.calls.exit(event.tid, event.at),
            _ => {}
        }
    }

    /// By role, in ns. An unknown thread ended before the trial did: a worker.
    pub fn by_role(&self) -> impl Iterator<Item = (Role, CallPhase<CallKind>, Moments)> {
        self.calls.times.iter().map(|((tid, phase), moments)| {
            let known = self.threads.iter().find(|t| t.tid == *tid);
            (
                known.map_or(Role::Worker, |t| t.role.clone()),
                *phase,
                moments.scaled(1000.0 / self.mhz),
            )
        })
    }
}

/// The system calls of a trial that traced them, from its first operation to the end of its last.
///
/// # Errors
/// [`LayersError`] when a file cannot be read.
pub(crate) fn calls(folder: &Path) -> Result<TrialCalls, LayersError> {
    let facts = facts(folder)?;
    let series = series(folder)?;
    let host = open(
        &folder.join(files::HOST),
        Probes::Calls.checkpoints(),
        Side::Host,
    )?;
    // Without a common clock all traced calls count, a few before and after the workload included.
    let map = host
        .as_ref()
        .and_then(|host| clock(&facts, &series, None, Some(host), &[], None).ok());
    let during = map.map_or(0..=u64::MAX, |map| {
        let operations = in_host_ticks(&series, &map);
        let end = operations.iter().map(|o| o.end).max().unwrap_or(u64::MAX);
        operations.first().map_or(0, |o| o.begin)..=end
    });
    let mut calls = TrialCalls::new(&facts, during);
    let mut losses = Vec::new();
    let mut side = host
        .as_ref()
        .map(|host| TraceReader::begin(host, |ticks| ticks))
        .transpose()?;
    while let Some(event) = next(&mut side, |r, e| r.host(e, &facts))? {
        calls.take(&event);
    }
    if let Some(side) = side {
        side.end(&mut losses, &mut calls.missing);
    }
    let lost = losses.iter().map(|l| l.events).sum::<u64>();
    if lost > 0 {
        calls.missing.push(Missing {
            what: "some system calls of QEMU".to_owned(),
            why: format!("{lost} events were lost: some calls are missing, or two count as one"),
            fix: "use a smaller count=".to_owned(),
        });
    }
    Ok(calls)
}
