//! The agent's loop: receives requests, runs workloads, sends replies.

use crate::block_queue::BlockQueue;
use crate::outbox::{send, send_frame};
use crate::sampling::GuestSampling;
use crate::trace::run_observed;
use crate::trial::{OnBatch, kernel, run_in_fresh_process};
use crate::{AgentError, exec, share};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::time::Duration;
use vmtax_clock::{GUEST_CELL, HOST_CELL, Shared};
use vmtax_model::{BatchEdge, Places, Probes, WorkloadSpec};
use vmtax_wire::{Decoder, Frame, Hello, Reply, Request};

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
    let mut places = places.clone();
    send(channel, &Reply::Hello(hello(complaints)))?;
    let mut decoder = Decoder::new();
    let mut sampling = None;
    let mut block_queue = places.disk.as_deref().map(BlockQueue::of);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        while let Some(frame) = decoder.frame() {
            let Frame::Message(request) = frame? else {
                continue;
            };
            let reply = match request {
                Request::Run {
                    workload,
                    probes: Probes::None,
                } => run(&workload, &places, &mut |edge| {
                    forward(edge, channel, &mut decoder)
                }),
                Request::StartSampling {
                    inside,
                    shortest_call,
                } => {
                    drop(sampling.take()); // of a trial that failed
                    sampling = Some(GuestSampling::start(inside, &shortest_call, &places));
                    Reply::Sampling
                }
                Request::StopSampling => match sampling.take() {
                    Some(sampling) => sampling.stop(&mut |frame| send_frame(channel, frame))?,
                    None => Reply::Failed {
                        error: "no sampling was started".to_owned(),
                    },
                },
                Request::Run { workload, probes } => {
                    run_observed(&workload, probes, &places, &mut |frame| {
                        send_frame(channel, frame)
                    })?
                }
                Request::Share { mount } => match share::mount(&mount) {
                    Ok(line) => {
                        places.share = Some(vmtax_wire::SHARE.into());
                        Reply::Shared { mount: line }
                    }
                    Err(error) => Reply::Failed { error },
                },
                Request::SetBlockQueue { attributes } => {
                    match block_queue.as_mut().map(|queue| queue.set(&attributes)) {
                        Some(Ok(())) => Reply::BlockQueueSet,
                        Some(Err(error)) => Reply::Failed {
                            error: error.to_string(),
                        },
                        None => Reply::Failed {
                            error: "this guest has no measured disk".to_owned(),
                        },
                    }
                }
                Request::Root {
                    host_name,
                    writable,
                    network,
                } => match exec::prepare(&host_name, &writable, network, &places) {
                    Ok(()) => Reply::Rooted,
                    Err(error) => Reply::Failed { error },
                },
                Request::Exec { launch, probes } => {
                    exec::run(&launch, &places, probes, channel, &mut decoder)?
                }
                // Of a command that has ended meanwhile.
                // Or of a workload that did.
                Request::GoOn
                | Request::Signal { .. }
                | Request::Close { .. }
                | Request::Resize { .. } => continue,
                Request::Ping => ping(),
                Request::Leave => return Ok(()),
            };
            send(channel, &reply)?;
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut buffer)) {
            Ok(0) => return Ok(()),
            Ok(n) => decoder.push(&buffer[..n]),
            Err(e) => return Err(AgentError::Channel(e.into())),
        }
    }
}

fn hello(complaints: Vec<String>) -> Hello {
    Hello {
        vmtax: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        complaints,
    }
}

fn run(workload: &WorkloadSpec, places: &Places, on_batch: &mut OnBatch<'_>) -> Reply {
    match run_in_fresh_process(workload, places, None, Some(on_batch)) {
        Ok(result) => Reply::Done {
            result: Box::new(result),
            observed: None,
        },
        Err(error) => Reply::Failed { error },
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
                return Err(io::Error::other(
                    "a request other than to go on while a workload runs",
                ));
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
fn ping() -> Reply {
    let answered = Shared::guest()
        .and_then(|shared| vmtax_clock::answer(&shared, HOST_CELL, GUEST_CELL, PING_TIMEOUT));
    match answered {
        Ok(()) => Reply::Pinged,
        Err(error) => Reply::Failed {
            error: error.to_string(),
        },
    }
}
