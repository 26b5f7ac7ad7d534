//! Reads a trial's folder: facts, the workload's stamps and both traces, on one clock.

use super::joined_trial::JoinedTrial;
use super::trial_data::{Traces, TrialData};
use crate::disk::qemu_log;
use crate::error::LayersError;
use crate::events::clocks::clock;
use crate::events::event::{Event, HostEvent};
use crate::events::trace_reader::open;
use crate::join::joiner::Join;
use crate::join::match_params::View;
use crate::net::frames::Frames;
use crate::net::not_followed;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use vmtax_clock::{ClockMap, GuestTicks};
use vmtax_model::{
    ClockFinding, EventCost, Missing, Probes, Series, Side, Stamped, TraceFacts, TrialRecord,
    WorkloadName, files,
};

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

pub(crate) fn read_all(folder: &Path, record: &TrialRecord) -> Result<TrialData, LayersError> {
    let facts = facts(folder)?;
    // A command does not stamp its requests.
    let unstamped = record.workload.name == WorkloadName::Exec;
    let series = if unstamped {
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
    let frames = Frames::of(record).filter(|_| record.probes == Probes::Network);
    let is_network = frames.is_some() || (unstamped && record.probes == Probes::Network);
    let view = match &guest {
        Some(_) if is_network && facts.guest_nic.is_some() => View::Kernel,
        _ if !record.machine.has_kernel() => View::Driver,
        Some(guest) if facts.guest_disk.is_some() && guest.readers.has_requests() => View::Kernel,
        _ => View::Blind,
    };
    let of_guest = guest.as_ref().filter(|_| view == View::Kernel);
    // A command's requests are the guest's kernel's to tell. Which packet is whose shows where both sides were traced.
    let is_seen = match view {
        View::Kernel => true,
        View::Driver => !unstamped && (frames.is_none() || host.is_some()),
        View::Blind | View::Host => !unstamped && frames.is_none(),
    };
    if !is_seen {
        return Err(LayersError::Unseen(
            facts.missing.iter().map(missing_text).collect(),
        ));
    }
    let costs = costs(&facts, of_guest.is_some(), host.is_some());
    let map = clock(&facts, &series, of_guest, host.as_ref(), &log, frames)?;
    let coarse = if log.is_empty() {
        0.0
    } else {
        qemu_log::RESOLUTION_NS
    };
    let bound = map
        .bound()
        .saturating_add((coarse * facts.tsc_mhz / 1000.0) as u64);
    let operations = in_host_ticks(&series, &map);
    let join = match (unstamped, frames) {
        (true, _) if is_network => Join::packets(&facts, bound, host.is_none()),
        (true, _) => Join::unstamped(&facts, bound),
        (false, Some(frames)) => Join::network(&facts, operations, frames, view, bound),
        (false, None) => Join::new(&facts, operations, block_size(record), view, bound),
    };

    let mut missing = facts.missing.clone();
    let mut gone = |what: &str, folder: &str| {
        // Where nothing could be traced, the facts already say why.
        if facts.missing.is_empty() {
            let why = format!("the recording has no trace in {folder}");
            missing.push(Missing {
                what: what.to_owned(),
                why,
                fix: "record the trial again".to_owned(),
            });
        }
    };
    if guest.is_none() && view == View::Blind {
        gone("the guest's kernel", files::GUEST);
    }
    if host.is_none() && coarse == 0.0 {
        gone("KVM, QEMU and the host's kernel", files::HOST);
    }
    let clock = ClockFinding {
        bound_ns: bound as f64 * 1000.0 / facts.tsc_mhz,
        source: map.source().to_string(),
        drift_ns: map.moved() as f64 * 1000.0 / facts.tsc_mhz,
        violations: 0,
    };
    let traces = Traces {
        guest: guest.as_ref(),
        host: host.as_ref(),
        log,
        map: Some(&map),
        clock,
    };
    let mut data = traces.join(join, &facts, |_, _| false)?;
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

/// The events of QEMU's log; empty without one.
fn logged(path: &Path, facts: &TraceFacts) -> Result<Vec<Event<HostEvent>>, LayersError> {
    match File::open(path) {
        Ok(log) => qemu_log::read(log, path, &facts.moments),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LayersError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}
