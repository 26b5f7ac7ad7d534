//! The agent's loop: receives requests, runs workloads, sends replies. And a guest's first process around it: sets up the system
//! that workloads need, serves requests, and powers off.

use crate::devices::{
    BlockQueue, configure_measured_card, disk_with_serial, load_modules, measured_disk, mount_tree,
    wait_for,
};
use crate::trial::{run_in_fresh_process, run_observed};
use crate::{AgentError, SendFrame, cpus, exec, kernel, reply_or_broken, send, send_frame, ship};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use rustix::system::RebootCommand;
use rustix::termios;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_clock::{GUEST_CELL, HOST_CELL, Shared};
use vmtax_model::{
    BatchEdge, CallCounts, CountBy, Inside, Missing, Places, Probes, WorkloadSpec, files,
};
use vmtax_observe::{CallCounter, GuestSampler, mount_tracefs};
use vmtax_wire::{Decoder, FILES_SERIAL, Frame, Hello, PORT, Reply, Request};

const CONSOLE: &str = "/dev/ttyS0";
const FILES: &str = "/files";

/// Runs as PID 1 until the controller sends `Leave`, then powers the guest off. Errors go to the console.
pub fn init() -> ! {
    if let Err(e) = set_up_and_serve() {
        eprintln!("vmtax agent: {e}");
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    // Only a kernel without power-off comes here: ending PID 1 makes it panic, which ends the guest too.
    std::process::exit(1)
}

fn set_up_and_serve() -> Result<(), AgentError> {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        let _ = fs::create_dir_all(at);
        mount(kind, at, kind, MountFlags::empty(), None)
            .map_err(|e| AgentError::system(format!("mounting {kind} on {at}"), e))?;
    }
    let mut complaints = load_modules("modules");
    let channel = match port() {
        Some(port) => port,
        None => console()?,
    };
    let disk = measured_disk();
    let files = disk_with_serial(FILES_SERIAL).and_then(|disk| mount_files(&disk, &mut complaints));
    let echo =
        configure_measured_card().and_then(|echo| echo.map_err(|why| complaints.push(why)).ok());
    serve(
        channel,
        &Places {
            files,
            destroy: disk.clone(),
            disk,
            share: None,
            echo,
            notified: false,
        },
        complaints,
    )
}

/// The virtio-serial port of the controller, waited for where the kernel has such ports at all: without it the console
/// has to do.
fn port() -> Option<File> {
    let class = Path::new("/sys/class/virtio-ports");
    if !class.exists() {
        return None;
    }
    wait_for(|| {
        let mut entries = fs::read_dir(class).ok()?.flatten();
        let ours = entries.find(|e| {
            fs::read_to_string(e.path().join("name")).is_ok_and(|name| name.trim_end() == PORT)
        })?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(Path::new("/dev").join(ours.file_name()))
            .ok()
    })
}

/// The serial console as a channel: raw, and with the kernel's log kept off it.
fn console() -> Result<File, AgentError> {
    let open = rustix::fs::open(CONSOLE, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    let tty = open.map_err(|_| AgentError::NoChannel(PathBuf::from(CONSOLE)))?;
    let mut attributes = termios::tcgetattr(&tty)
        .map_err(|e| AgentError::system("reading the console's mode", e))?;
    attributes.make_raw();
    termios::tcsetattr(&tty, termios::OptionalActions::Now, &attributes)
        .map_err(|e| AgentError::system("switching the console to raw mode", e))?;
    // Level 1: only emergencies. They would be skipped as noise, but would tear a frame apart.
    let _ = fs::write("/proc/sys/kernel/printk", "1");
    Ok(File::from(tty))
}

fn mount_files(disk: &Path, complaints: &mut Vec<String>) -> Option<PathBuf> {
    let mounted = fs::create_dir_all(FILES)
        .and_then(|()| mount(disk, FILES, "ext4", MountFlags::NOATIME, None).map_err(Into::into));
    match mounted {
        Ok(()) => Some(PathBuf::from(FILES)),
        Err(e) => {
            let disk = disk.display();
            complaints.push(format!("mounting ext4 from {disk} on {FILES}: {e}"));
            None
        }
    }
}

/// The longest exchange of time stamps.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the greeting, then answers requests until `Leave` or the end of the channel.
///
/// # Errors
/// [`AgentError`] when the channel breaks or carries what is no request.
pub fn serve(
    channel: impl AsFd,
    places: &Places,
    complaints: Vec<String>,
) -> Result<(), AgentError> {
    let channel = channel.as_fd();
    let hello = Hello {
        vmtax: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel(),
        cpus: cpus(),
        complaints,
    };
    send(channel, &Reply::Hello(hello))?;
    let mut server = Server {
        channel,
        places: places.clone(),
        decoder: Decoder::new(),
        sampling: None,
        block_queue: places.disk.as_deref().map(BlockQueue::of_disk),
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        while let Some(frame) = server.decoder.frame() {
            match frame? {
                Frame::Message(Request::Leave) => return Ok(()),
                Frame::Message(request) => {
                    if let Some(reply) = server.answer(request)? {
                        send(channel, &reply)?;
                    }
                }
                Frame::Piece { .. } => {}
            }
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut buffer)) {
            Ok(0) => return Ok(()),
            Ok(n) => server.decoder.push(&buffer[..n]),
            Err(e) => return Err(AgentError::Channel(e.into())),
        }
    }
}

/// An agent that answers requests, and what earlier ones started.
struct Server<'a> {
    channel: BorrowedFd<'a>,
    places: Places,
    decoder: Decoder,
    sampling: Option<GuestSampling>,
    block_queue: Option<BlockQueue>,
}

impl Server<'_> {
    /// Runs a workload; its batches are the controller's to measure.
    fn run(&mut self, workload: &WorkloadSpec) -> Reply {
        let channel = self.channel;
        let mut on_batch = |edge| forward(edge, channel, &mut self.decoder);
        let ran = run_in_fresh_process(workload, &self.places, None, Some(&mut on_batch));
        reply_to(ran, |result| Reply::Done {
            result: Box::new(result),
            observed: None,
        })
    }

    /// Carries a request out. `None` for one of a command or of a workload that has ended meanwhile.
    fn answer(&mut self, request: Request) -> Result<Option<Reply>, AgentError> {
        let channel = self.channel;
        let mut send = |frame: &[u8]| send_frame(channel, frame);
        Ok(Some(match request {
            Request::Run {
                workload,
                probes: Probes::None,
            } => self.run(&workload),
            Request::Run { workload, probes } => {
                run_observed(&workload, probes, &self.places, &mut send)?
            }
            Request::StartSampling {
                inside,
                shortest_call,
            } => {
                drop(self.sampling.take()); // of a trial that failed
                self.sampling = Some(GuestSampling::start(inside, &shortest_call, &self.places));
                Reply::Sampling
            }
            Request::StopSampling => match self.sampling.take() {
                Some(sampling) => sampling.stop(&mut send)?,
                None => failed("no sampling was started"),
            },
            Request::Share { mount } => reply_to(mount_tree(&mount), |line| {
                self.places.share = Some(vmtax_wire::SHARE.into());
                Reply::Shared { mount: line }
            }),
            Request::SetBlockQueue { attributes } => match &mut self.block_queue {
                Some(queue) => reply_to(queue.set(&attributes), |()| Reply::BlockQueueSet),
                None => failed("this guest has no measured disk"),
            },
            Request::Root {
                host_name,
                writable,
                network,
            } => {
                let made = exec::prepare(&host_name, &writable, network, &self.places);
                reply_to(made, |()| Reply::Rooted)
            }
            Request::Exec { launch, probes } => {
                exec::run(&launch, &self.places, probes, channel, &mut self.decoder)?
            }
            Request::Ping => reply_to(ping(), |()| Reply::Pinged),
            Request::Leave
            | Request::GoOn
            | Request::Signal { .. }
            | Request::Close { .. }
            | Request::Resize { .. } => return Ok(None),
        }))
    }
}

fn reply_to<T>(result: Result<T, impl ToString>, reply: impl FnOnce(T) -> Reply) -> Reply {
    result.map_or_else(failed, reply)
}

fn failed(error: impl ToString) -> Reply {
    Reply::Failed {
        error: error.to_string(),
    }
}

/// Sends the begin or end of a batch to the controller and waits until it says to go on.
fn forward(edge: BatchEdge, channel: BorrowedFd<'_>, decoder: &mut Decoder) -> io::Result<()> {
    send(channel, &Reply::Batch { edge }).map_err(io::Error::other)?;
    let mut buffer = [0; 4096];
    loop {
        match decoder.frame() {
            Some(Ok(Frame::Message(Request::GoOn))) => return Ok(()),
            Some(Ok(_)) => {
                let why = "an unexpected request while a workload runs";
                return Err(io::Error::other(why));
            }
            Some(Err(e)) => return Err(io::Error::other(e)),
            None => {}
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut buffer))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => decoder.push(&buffer[..n]),
        }
    }
}

/// Answers exchanges of stamps until the controller ends them.
fn ping() -> Result<(), vmtax_clock::ClockError> {
    let shared = Shared::guest()?;
    vmtax_clock::answer(&shared, HOST_CELL, GUEST_CELL, PING_TIMEOUT)
}

/// Number of measurements of the overhead of counting, alternating with and without it: the minimum of each counts.
const REPEATS: usize = 3;

/// A guest that is sampled from its inside.
#[derive(Debug)]
pub(crate) struct GuestSampling {
    sampler: Option<GuestSampler>,
    counter: Option<CallCounter>,
    added_ns: Option<f64>,
    missing: Vec<Missing>,
}

impl GuestSampling {
    /// Starts to sample and to count, as far as this kernel lets it.
    pub fn start(inside: Inside, shortest_call: &WorkloadSpec, places: &Places) -> GuestSampling {
        let mut missing = Vec::new();
        let mut lacking = |what: &str, error: &dyn std::error::Error| {
            missing.push(Missing::for_error(what, error))
        };
        if inside.calls.is_some() {
            // Kernels without BPF are traced; before 5.2 what that takes has to be in a folder.
            let _ = mount_tracefs();
        }
        // Before anything else is there that could cost.
        let by = inside.calls;
        let added_ns = by.and_then(|by| added_ns(by, shortest_call, places));
        if inside.calls.is_some() {
            // So that the programs which count have names among what is sampled; older kernels have no such switch.
            let _ = std::fs::write("/proc/sys/net/core/bpf_jit_kallsyms", "1");
        }
        let counter = inside.calls.and_then(|by| {
            let counter = CallCounter::start(by == CountBy::Process);
            counter
                .map_err(|e| lacking("the guest's system calls", &e))
                .ok()
        });
        let sampler = (inside.hz > 0).then(|| GuestSampler::begin(inside, vec![exec::ROOT.into()]));
        let what = "samples of the guest's programs";
        let sampler = sampler.and_then(|s| s.map_err(|e| lacking(what, &e)).ok());
        GuestSampling {
            sampler,
            counter,
            added_ns,
            missing,
        }
    }

    /// Ends it, and sends what was found; gives the reply that comes last.
    ///
    /// # Errors
    /// [`AgentError`] when the channel breaks; what else goes wrong is in the reply.
    pub fn stop(self, send: &mut SendFrame<'_>) -> Result<Reply, AgentError> {
        let added_ns = self.added_ns;
        let counts = |counter: &CallCounter| {
            let rows = counter.read().map_err(|e| e.to_string())?;
            let counts = CallCounts {
                method: counter.method(),
                rows,
                lost: counter.lost(),
                added_ns,
            };
            serde_json::to_vec(&counts).map_err(|e| e.to_string())
        };
        // The programs that count stay until what was sampled has names: theirs are among them.
        let calls = self.counter.as_ref().map(counts);
        let profile = self
            .sampler
            .map(|sampler| serde_json::to_vec(&sampler.end()).map_err(|e| e.to_string()));
        let sent = ship(send, |ship| {
            for (name, bytes) in [(files::GUEST_CALLS, calls), (files::GUEST_PROFILE, profile)] {
                let Some(bytes) = bytes.transpose()? else {
                    continue;
                };
                ship(name, &bytes).map_err(|e| format!("sending the guest's samples: {e}"))?;
            }
            Ok(())
        });
        reply_or_broken(sent.map(|()| Reply::Samples {
            missing: self.missing,
        }))
    }
}

/// Measures the time that counting adds to the shortest call, ns, by the workload that times this call.
fn added_ns(by: CountBy, shortest_call: &WorkloadSpec, places: &Places) -> Option<f64> {
    let once = || {
        let result = run_in_fresh_process(shortest_call, places, None, None).ok()?;
        result.measures.first().map(|m| m.value)
    };
    let (mut without, mut with) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..REPEATS {
        without = without.min(once()?);
        let counter = CallCounter::start(by == CountBy::Process).ok()?;
        with = with.min(once()?);
        drop(counter);
    }
    Some(with - without)
}
