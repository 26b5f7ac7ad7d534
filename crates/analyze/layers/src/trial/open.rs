//! Reads a trial's folder: facts, the workload's stamps and both traces, on one clock; or the system calls of QEMU's threads,
//! and the user time after each, while requests were in flight.

use super::joined_trial::JoinedTrial;
use super::{Traces, TrialData};
use crate::LayersError;
use crate::disk::decode::{LOG_RESOLUTION_NS, read_log};
use crate::disk::operations::CalledOperations;
use crate::events::clocks::clock;
use crate::events::decode::{Trace, TraceReader, each, next, open};
use crate::events::{CallKind, Event, HostEvent};
use crate::join::joiner::Join;
use crate::join::{Operation, View};
use crate::net::{Frames, not_followed};
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use vmtax_clock::{ClockMap, GuestTicks};
use vmtax_findings::ClockFinding;
use vmtax_model::{
    EventCost, Missing, Probes, QemuThread, Role, Series, Side, Stamped, TraceFacts, TrialRecord,
    WorkloadName, files,
};
use vmtax_trace::{CallPhase, CallTimes, Moments};

/// Bytes of an operation where the workload does not say.
const BLOCK: u64 = 4096;

/// Joins the requests of an observed trial. `folder` has the files of [`vmtax_model::files`].
///
/// # Errors
/// [`LayersError`] when a file cannot be read, or the clock offset cannot be bounded.
pub fn join(folder: &Path, record: &TrialRecord) -> Result<JoinedTrial, LayersError> {
    let mut trial = JoinedTrial::new(read_all(folder, record)?);
    if let (Some(packets), Some(result)) = (&mut trial.packets, record.result()) {
        packets.unanswered = result.unanswered.unwrap_or_default();
    }
    Ok(trial)
}

/// The costs of both sides' events, if none is missing.
fn costs(
    facts: &TraceFacts,
    guest_is_traced: bool,
    host_is_traced: bool,
) -> Vec<(Side, EventCost)> {
    let sides = [
        (Side::Guest, guest_is_traced, &facts.guest_costs),
        (Side::Host, host_is_traced, &facts.host_costs),
    ];
    // QEMU's log takes time, too, and nobody knows how much.
    if !host_is_traced
        || sides
            .iter()
            .any(|(_, traced, costs)| *traced && costs.is_empty())
    {
        return Vec::new();
    }
    sides
        .into_iter()
        .flat_map(|(side, _, costs)| costs.iter().map(move |cost| (side, *cost)))
        .collect()
}

/// The files of a trial's folder, read or opened, with what its record says of them.
struct TrialFiles<'a> {
    record: &'a TrialRecord,
    facts: TraceFacts,
    /// True for a command, which does not stamp its requests.
    unstamped: bool,
    /// True for fio, whose system calls show its requests.
    by_calls: bool,
    series: Series,
    guest: Option<Trace>,
    host: Option<Trace>,
    /// The events of QEMU's log, in place of the host's trace.
    log: Vec<Event<HostEvent>>,
    /// The packets of round trips, where these are followed.
    frames: Option<Frames>,
}

impl<'a> TrialFiles<'a> {
    /// Reads the facts, the stamps and QEMU's log, and opens both traces.
    fn read(folder: &Path, record: &'a TrialRecord) -> Result<Self, LayersError> {
        let facts = facts(folder)?;
        let unstamped = record.workload.name == WorkloadName::Exec;
        let by_calls = record.workload.name == WorkloadName::Fio;
        let series = if unstamped || by_calls {
            Series::default()
        } else {
            series(folder)?
        };
        let table = record.probes.checkpoints();
        let guest = open(&folder.join(files::GUEST), table, Side::Guest)?;
        let host = open(&folder.join(files::HOST), table, Side::Host)?;
        let log = match &host {
            None => logged(&folder.join(files::HOST).join(files::QEMU_LOG), &facts)?,
            Some(_) => Vec::new(),
        };
        let frames = Frames::of_trial(record).filter(|_| record.probes == Probes::Network);
        Ok(TrialFiles {
            record,
            facts,
            unstamped,
            by_calls,
            series,
            guest,
            host,
            log,
            frames,
        })
    }

    /// Returns true if packets are followed.
    fn is_network(&self) -> bool {
        self.frames.is_some() || (self.unstamped && self.record.probes == Probes::Network)
    }

    /// Returns the extent to which the guest shows its requests.
    fn view(&self) -> View {
        match &self.guest {
            Some(_) if self.is_network() && self.facts.guest_nic.is_some() => View::Kernel,
            _ if !self.record.machine.has_kernel() => View::Driver,
            Some(guest) if self.facts.guest_disk.is_some() && guest.readers.has_requests() => {
                View::Kernel
            }
            _ => View::Blind,
        }
    }

    /// Returns true if the guest's requests can be followed.
    fn is_seen(&self, view: View) -> bool {
        // A command's requests, and fio's, are the guest's kernel's to tell. Which packet is whose shows where both sides were
        // traced.
        let is_stamped = !self.unstamped && !self.by_calls;
        match view {
            View::Kernel => true,
            View::Driver => is_stamped && (self.frames.is_none() || self.host.is_some()),
            View::Blind | View::Host => is_stamped && self.frames.is_none(),
        }
    }

    /// Returns the error of the clock and of the stamps in QEMU's log, host ticks.
    fn bound(&self, map: &ClockMap) -> u64 {
        let coarse = if self.log.is_empty() {
            0.0
        } else {
            LOG_RESOLUTION_NS
        };
        map.bound()
            .saturating_add((coarse * self.facts.tsc_mhz / 1000.0) as u64)
    }

    /// Returns the join for the requests that the trial makes, without events yet.
    fn join(&self, view: View, map: &ClockMap, bound: u64) -> Result<Join, LayersError> {
        let facts = &self.facts;
        if self.by_calls {
            return self.join_by_calls(map, bound);
        }
        let operations = in_host_ticks(&self.series, map);
        Ok(match (self.unstamped, self.frames) {
            (true, _) if self.is_network() => Join::packets(facts, bound, self.host.is_none()),
            (true, _) => Join::unstamped(facts, bound),
            (false, Some(frames)) => Join::network(facts, operations, frames, view, bound),
            (false, None) => Join::new(facts, operations, block_size(self.record), view, bound),
        })
    }

    /// Returns the join for operations that the guest's system calls show, which are read for that beforehand.
    fn join_by_calls(&self, map: &ClockMap, bound: u64) -> Result<Join, LayersError> {
        let mut called = CalledOperations::new(depth(self.record));
        if let Some(guest) = &self.guest {
            each(guest, |readers, event| {
                called.take(&readers.guest(event, &self.facts));
            })?;
        }
        let (operations, has_others) = called.finish();
        let host = |ticks| map.host(GuestTicks(ticks)).0;
        let on_host_clock = |operation: &Operation| Operation {
            begin: host(operation.begin),
            counted_from: host(operation.counted_from),
            end: host(operation.end),
            ..*operation
        };
        let operations = operations.iter().map(on_host_clock).collect();
        let join = Join::of_operations(&self.facts, operations, View::Kernel, bound);
        Ok(match has_others {
            true => join.among_others(),
            false => join,
        })
    }

    /// Returns what could not be observed, by the facts and by the traces that the recording lacks.
    fn missing(&self, view: View) -> Vec<Missing> {
        let mut missing = self.facts.missing.clone();
        let mut gone = |what: &str, folder: &str| {
            // Where nothing could be traced, the facts already say why.
            if self.facts.missing.is_empty() {
                let why = format!("the recording has no trace in {folder}");
                missing.push(Missing {
                    what: what.to_owned(),
                    why,
                    fix: "record the trial again".to_owned(),
                });
            }
        };
        if self.guest.is_none() && view == View::Blind {
            gone("the guest's kernel", files::GUEST);
        }
        if self.host.is_none() && self.log.is_empty() {
            gone("KVM, QEMU and the host's kernel", files::HOST);
        }
        missing
    }
}

pub(crate) fn read_all(folder: &Path, record: &TrialRecord) -> Result<TrialData, LayersError> {
    let trial = TrialFiles::read(folder, record)?;
    let (facts, host, frames) = (&trial.facts, trial.host.as_ref(), trial.frames);
    let view = trial.view();
    let of_guest = trial.guest.as_ref().filter(|_| view == View::Kernel);
    if !trial.is_seen(view) {
        return Err(LayersError::Unseen(
            facts.missing.iter().map(missing_text).collect(),
        ));
    }
    let costs = costs(facts, of_guest.is_some(), host.is_some());
    let map = clock(facts, &trial.series, of_guest, host, &trial.log, frames)?;
    let bound = trial.bound(&map);
    let join = trial.join(view, &map, bound)?;
    let mut missing = trial.missing(view);
    let clock = ClockFinding {
        bound_ns: bound as f64 * 1000.0 / facts.tsc_mhz,
        source: map.source().to_string(),
        drift_ns: map.moved() as f64 * 1000.0 / facts.tsc_mhz,
        violations: 0,
    };
    let traces = Traces {
        guest: trial.guest.as_ref(),
        host,
        log: trial.log,
        map: Some(&map),
        clock,
    };
    let mut data = traces.join(join, facts, |_, _| false)?;
    missing.append(&mut data.missing);
    missing.extend(frames.and_then(|_| not_followed(&data.joined.requests)));
    Ok(TrialData {
        missing,
        costs,
        ..data
    })
}

fn missing_text(missing: &Missing) -> String {
    format!(
        ". {}: {}; {}",
        missing.what,
        missing.why.trim_end_matches('.'),
        missing.fix
    )
}

fn read(path: &Path) -> Result<Vec<u8>, LayersError> {
    fs::read(path).map_err(|source| LayersError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads a file with JSON.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LayersError> {
    let wrong = |e: serde_json::Error| LayersError::Facts {
        path: path.to_owned(),
        reason: e.to_string(),
    };
    serde_json::from_slice(&read(path)?).map_err(wrong)
}

pub(super) fn facts(folder: &Path) -> Result<TraceFacts, LayersError> {
    let path = folder.join(files::FACTS);
    let facts: TraceFacts = read_json(&path)?;
    check(&path, facts.schema, facts.tsc_mhz)?;
    Ok(facts)
}

/// Checks what the facts of every trace begin with.
pub(super) fn check(path: &Path, schema: u32, tsc_mhz: f64) -> Result<(), LayersError> {
    let wrong = |reason: String| LayersError::Facts {
        path: path.to_owned(),
        reason,
    };
    if schema > vmtax_model::SCHEMA {
        return Err(wrong(format!("schema {schema} is from a newer vmtax")));
    }
    // Any plausible TSC.
    if !(1.0..=1e6).contains(&tsc_mhz) {
        return Err(wrong(format!("invalid TSC frequency of {tsc_mhz} MHz")));
    }
    Ok(())
}

pub(super) fn series(folder: &Path) -> Result<Series, LayersError> {
    let path = folder.join(files::SERIES);
    Series::from_bytes(&read(&path)?).map_err(|source| LayersError::Series { path, source })
}

pub(super) fn in_host_ticks(series: &Series, map: &ClockMap) -> Vec<Stamped> {
    let host = |ticks| map.host(GuestTicks(ticks)).0;
    let on_host_clock = |o: &Stamped| Stamped {
        begin: host(o.begin),
        end: host(o.end),
        key: o.key,
    };
    let mut operations: Vec<Stamped> = series.operations.iter().map(on_host_clock).collect();
    operations.sort_by_key(|o| o.begin);
    operations
}

/// Bytes of an operation.
fn block_size(record: &TrialRecord) -> u64 {
    record
        .result()
        .map_or(&record.workload, |r| &r.workload)
        .block_size()
        .unwrap_or(BLOCK)
}

/// Requests that a process of fio's jobs has in flight at most, by their `iodepth`.
fn depth(record: &TrialRecord) -> u64 {
    let job = record.workload.options.get("job");
    let words = job.iter().flat_map(|job| job.split_whitespace());
    let depths = words.filter_map(|word| word.strip_prefix("--iodepth=")?.parse().ok());
    depths.max().unwrap_or(1)
}

/// The events of QEMU's log; empty without one.
fn logged(path: &Path, facts: &TraceFacts) -> Result<Vec<Event<HostEvent>>, LayersError> {
    match File::open(path) {
        Ok(log) => read_log(log, path, &facts.moments),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LayersError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

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
                    .enter(event.tid, event.at, CallKind::from_call(nr, &args))
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
