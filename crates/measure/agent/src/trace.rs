//! The guest's side of a trial under probes. The trace is sent after the workload ends, never during it.

use crate::AgentError;
use crate::outbox::{Failure, Send, ship};
use crate::trial::run_in_fresh_process;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use vmtax_model::{Missing, Places, Probes, Side, TrialResult, WorkloadSpec, files};
use vmtax_observe::{
    COST_OF_EVENTS, ProbeSet, Tracer, event_costs, guest_disk, guest_nic, mount_tracefs,
};
use vmtax_wire::{NET_MAC, Observed, Reply};

/// Each CPU's trace, in the guest: 100,000 requests of a dozen events of 40 bytes.
const BUFFER_KIB: u32 = 48 << 10;

/// Runs a workload under probes and sends the files of its trace; gives the reply that ends them.
///
/// # Errors
/// [`AgentError`] when the channel breaks; what goes wrong with the trial is in the reply.
pub(crate) fn run_observed(
    workload: &WorkloadSpec,
    probes: Probes,
    places: &Places,
    send: &mut Send<'_>,
) -> Result<Reply, AgentError> {
    match trial(workload, probes, places, send) {
        Ok((result, observed)) => Ok(Reply::Done {
            result: Box::new(result),
            observed: Some(observed),
        }),
        Err(failure) => failure.reply(),
    }
}

fn trial(
    workload: &WorkloadSpec,
    probes: Probes,
    places: &Places,
    send: &mut Send<'_>,
) -> Result<(TrialResult, Observed), Failure> {
    let say = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    // QEMU's system calls are traced on the host only.
    let mut trace = GuestTracer::begin(
        places,
        NET_MAC,
        probes,
        probes
            .follows_requests()
            .then(|| ProbeSet::guest(probes.checkpoints())),
    )
    .map_err(Failure::Trial)?;
    let series = memfd_create("vmtax-series", MemfdFlags::CLOEXEC)
        .map_err(|e| Failure::Trial(say("making room for stamps")(e.into())))?;
    let mut series = File::from(series);
    let path = format!("/proc/{}/fd/{}", std::process::id(), series.as_raw_fd());
    trace.on().map_err(Failure::Trial)?;
    let result = run_in_fresh_process(workload, places, Some(&path), None);
    trace.off().map_err(Failure::Trial)?;
    let result = result.map_err(Failure::Trial)?;
    ship(send, |ship| {
        let mut stamps = Vec::new();
        let read = series
            .rewind()
            .and_then(|()| series.read_to_end(&mut stamps));
        read.and_then(|_| ship(files::SERIES, &stamps))
            .map_err(say("sending the workload's stamps"))?;
        trace.save(ship)
    })?;
    Ok((result, trace.observed))
}

/// A trace of the requests to the measured disk or network card in this guest's kernel.
pub(crate) struct GuestTracer {
    /// Data that is needed to read the events.
    pub observed: Observed,
    tracer: Option<Tracer>,
}

impl GuestTracer {
    /// Makes it ready, for the disk of `places` or the network card with the address `mac`; without a `set` it only tells which
    /// device it is.
    pub fn begin(
        places: &Places,
        mac: &str,
        probes: Probes,
        set: Option<ProbeSet>,
    ) -> Result<GuestTracer, String> {
        let (mut disk, mut nic) = (None, None);
        if probes == Probes::Network {
            nic = Some(Box::new(guest_nic(mac).map_err(|e| e.to_string())?));
        } else {
            let path = places
                .disk
                .as_deref()
                .ok_or("the guest has no disk to observe")?;
            disk = Some(guest_disk(path).map_err(|e| e.to_string())?);
        }
        let mut missing = Vec::new();
        let tracer = set.and_then(|set| tracer(&set, &mut missing));
        Ok(GuestTracer {
            observed: Observed {
                disk,
                nic,
                missing,
                costs: Vec::new(),
            },
            tracer,
        })
    }

    /// From now on events are kept.
    pub fn on(&self) -> Result<(), String> {
        self.tracer
            .as_ref()
            .map_or(Ok(()), |tracer| tracer.on().map_err(|e| e.to_string()))
    }

    /// Ends the recording of events.
    pub fn off(&self) -> Result<(), String> {
        self.tracer
            .as_ref()
            .map_or(Ok(()), |tracer| tracer.off().map_err(|e| e.to_string()))
    }

    /// Hands over what was kept, ends, and measures what its events cost.
    pub fn save(
        &mut self,
        ship: &mut dyn FnMut(&str, &[u8]) -> io::Result<()>,
    ) -> Result<(), String> {
        let Some(tracer) = self.tracer.take() else {
            return Ok(());
        };
        tracer.save(ship).map_err(|e| e.to_string())?;
        drop(tracer);
        match event_costs(Side::Guest) {
            Ok(costs) => self.observed.costs = costs,
            Err(error) => self
                .observed
                .missing
                .push(Missing::for_error(COST_OF_EVENTS, &error)),
        }
        Ok(())
    }
}

/// A tracer over the guest's kernel; `None`, with the reason in `missing`, where this kernel has none.
fn tracer(set: &ProbeSet, missing: &mut Vec<Missing>) -> Option<Tracer> {
    match mount_tracefs().and_then(|()| Tracer::start(set, BUFFER_KIB)) {
        Ok(tracer) => {
            missing.extend_from_slice(tracer.missing());
            Some(tracer)
        }
        Err(error) => {
            missing.push(Missing {
                what: "the guest's kernel".to_owned(),
                why: error.to_string(),
                fix: "use a guest kernel with tracing, as distributions have: `vmtax get kernel`"
                    .to_owned(),
            });
            None
        }
    }
}
