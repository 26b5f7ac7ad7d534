//! One trial under probes: the guest's side of it. What was traced is sent when the workload has ended, never during it.

use crate::AgentError;
use crate::serve::run_in_fresh_process;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use vmtax_model::{Missing, Places, Probes, TrialResult, WorkloadSpec, files};
use vmtax_observe::{ProbeSet, Tracer, guest_disk, mount_tracefs};
use vmtax_wire::{MAX_PIECE, Observed, Reply, piece};

/// Each processor's trace, in the guest: 100,000 requests of a dozen events of 40 bytes.
const BUFFER_KIB: u32 = 48 << 10;

/// Sends a frame.
pub(crate) type Send<'a> = dyn FnMut(&[u8]) -> Result<(), AgentError> + 'a;

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
        Ok((result, observed)) => Ok(Reply::Done { result: Box::new(result), observed: Some(observed) }),
        Err(trouble) => trouble.reply(),
    }
}

/// What broke an observed trial off.
pub(crate) enum Trouble {
    Trial(String),
    Channel(AgentError),
}

impl Trouble {
    /// What is replied, where the channel still carries it.
    pub fn reply(self) -> Result<Reply, AgentError> {
        match self {
            Trouble::Trial(error) => Ok(Reply::Failed { error }),
            Trouble::Channel(error) => Err(error),
        }
    }
}

/// Sends files, piece by piece, as `fill` hands them over by name.
pub(crate) fn ship(
    send: &mut Send<'_>,
    fill: impl FnOnce(&mut dyn FnMut(&str, &[u8]) -> io::Result<()>) -> Result<(), String>,
) -> Result<(), Trouble> {
    let mut broken = None;
    let filled = fill(&mut |name, bytes| {
        for part in bytes.chunks(MAX_PIECE) {
            let frame = piece(name, part).map_err(io::Error::other)?;
            if let Err(error) = send(&frame) {
                broken = Some(error);
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    });
    match broken {
        Some(error) => Err(Trouble::Channel(error)),
        None => filled.map_err(Trouble::Trial),
    }
}

fn trial(
    workload: &WorkloadSpec,
    probes: Probes,
    places: &Places,
    send: &mut Send<'_>,
) -> Result<(TrialResult, Observed), Trouble> {
    let say = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    // Only the host sees what system calls QEMU makes.
    let mut look = Look::begin(places, (probes == Probes::Layers).then(ProbeSet::guest)).map_err(Trouble::Trial)?;
    let series = memfd_create("vmtax-series", MemfdFlags::CLOEXEC)
        .map_err(|e| Trouble::Trial(say("making room for stamps")(e.into())))?;
    let mut series = File::from(series);
    let path = format!("/proc/{}/fd/{}", std::process::id(), series.as_raw_fd());
    look.on().map_err(Trouble::Trial)?;
    let result = run_in_fresh_process(workload, places, Some(&path));
    look.off().map_err(Trouble::Trial)?;
    let result = result.map_err(Trouble::Trial)?;
    ship(send, |ship| {
        let mut stamps = Vec::new();
        let read = series.rewind().and_then(|()| series.read_to_end(&mut stamps));
        read.and_then(|_| ship(files::SERIES, &stamps)).map_err(say("sending the workload's stamps"))?;
        look.save(ship)
    })?;
    Ok((result, look.observed))
}

/// A look at the measured disk's requests in this guest's kernel.
pub(crate) struct Look {
    /// What it takes to read them.
    pub observed: Observed,
    tracer: Option<Tracer>,
}

impl Look {
    /// Makes it ready; without probes it only tells which disk it is.
    pub fn begin(places: &Places, probes: Option<ProbeSet>) -> Result<Look, String> {
        let disk = places.disk.as_deref().ok_or("the guest has no disk to observe")?;
        let disk = Some(guest_disk(disk).map_err(|e| e.to_string())?);
        let mut missing = Vec::new();
        let tracer = probes.and_then(|set| tracer(&set, &mut missing));
        Ok(Look { observed: Observed { disk, missing }, tracer })
    }

    /// From now on events are kept.
    pub fn on(&self) -> Result<(), String> {
        self.tracer.as_ref().map_or(Ok(()), |tracer| tracer.on().map_err(|e| e.to_string()))
    }

    /// No longer.
    pub fn off(&self) -> Result<(), String> {
        self.tracer.as_ref().map_or(Ok(()), |tracer| tracer.off().map_err(|e| e.to_string()))
    }

    /// Hands over what was kept, and ends.
    pub fn save(&mut self, ship: &mut dyn FnMut(&str, &[u8]) -> io::Result<()>) -> Result<(), String> {
        self.tracer.take().map_or(Ok(()), |tracer| tracer.save(ship).map_err(|e| e.to_string()))
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
                mend: "use a guest kernel with tracing, as distributions have: `vmtax get kernel`".to_owned(),
            });
            None
        }
    }
}
