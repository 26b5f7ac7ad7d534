//! A trial as a fresh process of this same binary, and the guest's side of a trial under probes; the requests of a running guest's
//! own kernel, traced for somebody who copied vmtax into it.

use crate::{AgentError, Failure, SendFrame, cpus, kernel, reply_or_broken, send_frame, ship};
use rustix::fd::BorrowedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use vmtax_model::{
    BatchEdge, DISK, Missing, ObservedDisk, ObservedGuest, Places, Probes, SCHEMA, Side,
    TrialResult, WorkloadSpec, files,
};
use vmtax_observe::{
    COST_OF_EVENTS, ProbeSet, Recorded, Tracer, cpu_buffer_kib, event_costs, guest_disk,
    guest_disks, guest_nic, mount_tracefs,
};
use vmtax_wire::{NET_MAC, Observed, Reply, encode};

/// Receives each begin and end of a batch while the workload waits; an error ends the workload.
pub(crate) type OnBatch<'a> = dyn FnMut(BatchEdge) -> io::Result<()> + 'a;

/// Runs a workload as a process of its own; its stamps, operation by operation, go to the file `series` if one is named, the
/// edges of its batches to `on_batch`.
pub(crate) fn run_in_fresh_process(
    workload: &WorkloadSpec,
    places: &Places,
    series: Option<&str>,
    on_batch: Option<&mut OnBatch<'_>>,
) -> Result<TrialResult, String> {
    let mut command = trial_command(workload, places, series);
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        // Should the agent and its watchdog both be killed. The thread that starts it waits for it.
        command
            .pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let output = match on_batch {
        None => command.stdin(Stdio::null()).output(),
        Some(on_batch) => output_with_batches(command, on_batch),
    };
    let output = output.map_err(|e| format!("{} could not be started: {e}", workload.name))?;
    if let Some(signal) = output.status.signal() {
        let hint = if signal == libc::SIGKILL {
            "; probably out of memory: use a larger --memory"
        } else {
            ""
        };
        let name = workload.name;
        return Err(format!("{name} was killed by signal {signal}{hint}"));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim().trim_start_matches("Error: ").to_owned());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("{} returned an invalid result: {e}", workload.name))
}

/// The command that runs a workload in a process of its own.
fn trial_command(workload: &WorkloadSpec, places: &Places, series: Option<&str>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "run", workload.name.as_str(), "--json"]);
    let options = workload.options.iter();
    command.args(options.map(|(option, value)| format!("{option}={value}")));
    command.args(series.iter().flat_map(|file| ["--series", file]));
    for (flag, place) in [
        ("--files", &places.files),
        ("--disk", &places.disk),
        ("--destroy", &places.destroy),
        ("--share", &places.share),
    ] {
        if let Some(path) = place {
            command.arg(flag).arg(path);
        }
    }
    if let Some(echo) = places.echo {
        command.arg("--echo").arg(echo.to_string());
    }
    command
}

/// Runs a command whose standard input is a socket on which it sends the edges of its batches.
fn output_with_batches(mut command: Command, on_batch: &mut OnBatch<'_>) -> io::Result<Output> {
    let (mut edges, theirs) = UnixStream::pair()?;
    command
        .arg("--notified")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    // Its copy of their end would keep the socket open.
    drop(command);
    std::thread::scope(|scope| {
        let ended =
            std::thread::Builder::new().spawn_scoped(scope, || Child::wait_with_output(child))?;
        let mut edge = [0; 8];
        let mut forwarded = Ok(());
        while forwarded.is_ok() && edges.read_exact(&mut edge).is_ok() {
            forwarded = on_batch(BatchEdge::from_bytes(edge)).and_then(|()| edges.write_all(&[0]));
        }
        // A workload that waits for an answer ends.
        drop(edges);
        ended
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that reads its output ended")))
    })
}

/// Each CPU's trace, in the guest: 100,000 requests of a dozen events of 40 bytes.
const BUFFER_KIB: u32 = 48 << 10;

/// Runs a workload under probes and sends the files of its trace, after the workload has ended and never meanwhile; gives the reply
/// that ends them.
///
/// # Errors
/// [`AgentError`] when the channel breaks; what goes wrong with the trial is in the reply.
pub(crate) fn run_observed(
    workload: &WorkloadSpec,
    probes: Probes,
    places: &Places,
    send: &mut SendFrame<'_>,
) -> Result<Reply, AgentError> {
    reply_or_broken(trial(workload, probes, places, send))
}

fn trial(
    workload: &WorkloadSpec,
    probes: Probes,
    places: &Places,
    send: &mut SendFrame<'_>,
) -> Result<Reply, Failure> {
    let say = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    // QEMU's system calls are traced on the host only.
    let checkpoints = probes.checkpoints();
    // A program of the host's stamps nothing: its system calls show its requests.
    let is_stamped = !workload.name.needs_host_program();
    let set = probes.follows_requests().then(|| match is_stamped {
        true => ProbeSet::guest(checkpoints),
        false => ProbeSet::guest_of_program(checkpoints),
    });
    let mut trace = GuestTracer::begin(places, NET_MAC, probes, set).map_err(Failure::Trial)?;
    let series = memfd_create("vmtax-series", MemfdFlags::CLOEXEC)
        .map_err(|e| Failure::Trial(say("allocating memory for time stamps")(e.into())))?;
    let mut series = File::from(series);
    let path = format!("/proc/{}/fd/{}", std::process::id(), series.as_raw_fd());
    let path = is_stamped.then_some(path);
    trace.on().map_err(Failure::Trial)?;
    let result = run_in_fresh_process(workload, places, path.as_deref(), None);
    trace.off().map_err(Failure::Trial)?;
    let result = result.map_err(Failure::Trial)?;
    ship(send, |ship| {
        if path.is_some() {
            let mut stamps = Vec::new();
            let read = series
                .rewind()
                .and_then(|()| series.read_to_end(&mut stamps));
            read.and_then(|_| ship(files::SERIES, &stamps))
                .map_err(say("sending the workload's time stamps"))?;
        }
        trace.save(ship)
    })?;
    Ok(Reply::Done {
        result: Box::new(result),
        observed: Some(trace.observed),
    })
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
            let path = places.disk.as_deref();
            let path = path.ok_or("the guest has no disk to observe")?;
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
        let tracer = self.tracer.as_ref();
        tracer.map_or(Ok(()), Tracer::on).map_err(|e| e.to_string())
    }

    /// Ends the recording of events.
    pub fn off(&self) -> Result<(), String> {
        let tracer = self.tracer.as_ref();
        tracer
            .map_or(Ok(()), Tracer::off)
            .map_err(|e| e.to_string())
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
        let observed = &mut self.observed;
        match event_costs(Side::Guest) {
            Ok(costs) => observed.costs = costs,
            Err(error) => observed
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

/// Room for events in the kernel, of all CPUs together, KiB.
const ROOM_KIB: usize = 64 << 10;
/// Of one CPU, KiB, at least and at most: a guest may have little memory.
const CPU_KIB: std::ops::RangeInclusive<usize> = (1 << 10)..=(8 << 10);
/// Bytes of the trace that are kept; then tracing ends.
const MAX_BYTES: u64 = 512 << 20;

/// A trace of this kernel's disks on virtio-blk and virtio-scsi that is ready to begin. Dropped, it leaves nothing in the guest.
pub struct GuestObserver {
    disks: Vec<ObservedDisk>,
    tracer: Tracer,
}

impl GuestObserver {
    /// Makes the tracefs instance.
    ///
    /// # Errors
    /// [`AgentError`] where there is none of these disks, or this user may not trace.
    pub fn start() -> Result<GuestObserver, AgentError> {
        let disks = guest_disks();
        if disks.is_empty() {
            return Err(AgentError::NoDisk);
        }
        let interrupts = disks.iter().flat_map(|disk| &disk.disk.interrupts);
        let interrupts: Vec<u32> = interrupts.copied().collect();
        let probes = ProbeSet::guest_of_others(DISK, &interrupts);
        let tracer = Tracer::start(&probes, cpu_buffer_kib(ROOM_KIB, CPU_KIB))?;
        Ok(GuestObserver { disks, tracer })
    }

    /// Traces until the time has passed or `stop` says so, and writes the file.
    ///
    /// # Errors
    /// [`AgentError`] where tracefs refuses, or the file cannot be written.
    pub fn record(
        self,
        output: BorrowedFd<'_>,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<ObservedGuest, AgentError> {
        let GuestObserver { disks, tracer } = self;
        let mut recorded = None;
        let mut send = |frame: &[u8]| send_frame(output, frame);
        let shipped = ship(&mut send, |ship| {
            let trace = tracer.record(time, MAX_BYTES, stop, ship);
            recorded = Some(trace.map_err(|e| e.to_string())?);
            Ok(())
        });
        shipped.map_err(|failure| match failure {
            Failure::Trial(error) => AgentError::Observe(error),
            Failure::Channel(AgentError::Channel(source)) => {
                AgentError::system("writing the trace", source)
            }
            Failure::Channel(error) => error,
        })?;
        let Recorded { begin, end, full } = recorded.unwrap_or(Recorded {
            begin: 0,
            end: 0,
            full: false,
        });
        let missing = tracer.missing().to_vec();

        let guest = ObservedGuest {
            schema: SCHEMA,
            kernel: kernel().release,
            cpus: cpus(),

            begin,
            end,
            disks,
            full,
            missing,
        };
        send(&encode(&guest)?)?;
        Ok(guest)
    }
}
