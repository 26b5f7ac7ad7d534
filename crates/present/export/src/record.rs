//! Requests as exports write them: whole nanoseconds since the first request's begin. Ends of neighbours are rounded
//! alike, so what follows each other without a gap in ticks does so in nanoseconds, and sums close.

use crate::joined::Trial;
use vmtax_layers::{JoinedRequest, JoinedTrial, Who};
use vmtax_model::{Checkpoint, Machine, State};

/// A trial as exports write it.
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
    pub fn of(trial: &Trial, which: impl Fn(&JoinedRequest) -> bool) -> Sheet {
        let joined = trial.joined;
        let chosen = || joined.requests.iter().zip(0..).filter(|(r, _)| which(r));
        let origin = chosen().map(|(r, _)| r.begin()).min().unwrap_or(0);
        let name = |i: usize| joined.name(Who::Thread(u16::try_from(i).unwrap_or(u16::MAX)));
        Sheet {
            run: trial.run.to_owned(),
            number: trial.number,
            machine: trial.machine,
            variant: trial.variant.to_owned(),
            round: trial.round,
            threads: joined
                .threads
                .iter()
                .enumerate()
                .map(|(i, t)| (name(i), t.tid))
                .collect(),
            requests: chosen()
                .map(|(r, number)| record(joined, r, number, origin))
                .collect(),
        }
    }

    /// Who, for people.
    pub fn name(&self, who: Who) -> &str {
        match who {
            Who::Guest => "guest",
            Who::Host => "host kernel",
            Who::Thread(i) => self
                .threads
                .get(usize::from(i))
                .map_or("worker", |(name, _)| name),
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
        let before = request
            .checkpoints()
            .take_while(|(s, _)| *s < segment.to)
            .last();
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
