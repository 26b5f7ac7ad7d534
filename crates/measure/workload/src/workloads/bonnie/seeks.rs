//! Blocks read at random by five threads, one in ten of them written again. Each thread draws the next block's number
//! from one pipe into which all were written at once, as in Bonnie++: reading that pipe is part of what it times, and
//! whoever wrote them syncs the file meanwhile.

use super::blocks::Done;
use super::blocks::{File, block};
use crate::WorkloadError;
use rustix::fd::{AsFd, OwnedFd};
use std::fs::File as StdFile;
use std::io::{self, Write};
use vmtax_model::Latency;

const SEEKERS: u32 = 5;
/// One block in so many is written again.
const AGAIN: u32 = 10;
/// The drawing is the same in every trial.
const SEED: u64 = 4711;

/// Reads `seeks` random blocks with [`SEEKERS`] threads, and writes one in [`AGAIN`] of them again.
pub(super) fn run(file: &File, seeks: u32) -> Result<Done, WorkloadError> {
    let (tickets, mut source) = rustix::pipe::pipe()
        .map(|(r, w)| (r, StdFile::from(w)))
        .map_err(no_pipe)?;
    let mut seekers = Vec::new();
    for _ in 0..SEEKERS {
        seekers.push((
            file.open()?,
            block()?,
            tickets.try_clone().map_err(no_pipe)?,
        ));
    }
    drop(tickets);
    let own = file.open()?;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, (open, mut block, tickets)) in (1..).zip(seekers) {
            let seeker = move || seek(file, open, block.bytes(), &tickets);
            let started = std::thread::Builder::new().spawn_scoped(scope, seeker);
            running.push(started.map_err(|source| WorkloadError::Threads {
                number,
                threads: SEEKERS,
                source,
            })?);
        }
        let mut random = fastrand::Rng::with_seed(SEED);
        let numbers: Vec<u8> = (0..seeks)
            .flat_map(|_| random.u32(..1 << 31).to_ne_bytes())
            .collect();
        // Seekers that failed close their ends: their error is the one to report.
        let _ = source.write_all(&numbers);
        drop(source);
        // Here, too, as Bonnie++ closes its own: while the seekers are at work.
        file.finish(own)?;
        let mut all = (Latency::new(), u64::MAX, 0);
        for seeker in running {
            let Ok(done) = seeker.join() else {
                return Err(no_pipe(io::Error::other("a thread ended too early")));
            };
            let (latency, first, last) = done?;
            all.0.add(&latency);
            all = (all.0, all.1.min(first), all.2.max(last));
        }
        Ok(Done {
            latency: all.0,
            ns: file.clock.ns(all.1, all.2),
        })
    })
}

fn no_pipe(e: impl Into<io::Error>) -> WorkloadError {
    crate::share::error("make or read", "a pipe", e)
}

/// One seeker: its latencies, when it had its first block's number and when it had synced the file.
fn seek(
    file: &File,
    mut open: StdFile,
    block: &mut [u8],
    tickets: &OwnedFd,
) -> Result<(Latency, u64, u64), WorkloadError> {
    let (clock, mut latency) = (file.clock, Latency::new());
    let mut next = ticket(tickets)?;
    let first = clock.start();
    while let Some(drawn) = next {
        let number = u64::from(drawn) % file.blocks;
        clock.time(&mut latency, || {
            file.visit(&mut open, number, block, drawn % AGAIN == 0)
        })?;
        next = ticket(tickets)?;
    }
    file.finish(open)?;
    Ok((latency, first, clock.stop()))
}

/// The next number; `None` when all are drawn.
fn ticket(tickets: impl AsFd) -> Result<Option<u32>, WorkloadError> {
    let mut number = [0; 4];
    // Writes and reads are of whole numbers, and a pipe's page holds a whole number of them.
    match rustix::io::retry_on_intr(|| rustix::io::read(&tickets, &mut number)) {
        Ok(4) => Ok(Some(u32::from_ne_bytes(number))),
        Ok(_) => Ok(None),
        Err(e) => Err(no_pipe(e)),
    }
}
