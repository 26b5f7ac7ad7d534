//! A request as it was joined: what exports write, one record each.

use std::num::NonZeroU64;
use vmtax_model::{RequestKind, State, Station};

/// How many stations there are.
const STATIONS: usize = Station::ALL.len();

/// Who works for a request, or should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The guest, on one of its processors.
    Guest,
    /// The host's kernel, or its disk.
    Host,
    /// A thread of QEMU: the position in [`crate::JoinedTrial::threads`].
    Thread(u16),
}

/// A piece of a request's way in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The station to which the stretch leads that this is a piece of.
    pub to: Station,
    /// What the request did.
    pub state: State,
    /// Who worked, or should have.
    pub who: Who,
    /// How long, host ticks.
    pub ticks: u64,
}

/// One operation of the workload, or one request of a command's, followed through the layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedRequest {
    times: [Option<NonZeroU64>; STATIONS],
    who: [Who; STATIONS],
    /// Where on the disk, bytes; 0 for what is about none.
    pub offset: u64,
    /// What it asks for.
    pub kind: RequestKind,
    /// The way without a gap from [`JoinedRequest::first`] to [`JoinedRequest::last`], in order; none has length 0. Those
    /// that lead to [`Station::End`] are what the workload did for other requests when this one had come back.
    pub pieces: Box<[Piece]>,
}

impl JoinedRequest {
    pub(crate) fn new(offset: u64, kind: RequestKind) -> Self {
        JoinedRequest { times: [None; STATIONS], who: [Who::Host; STATIONS], offset, kind, pieces: Box::default() }
    }

    pub(crate) fn set(&mut self, station: Station, at: u64, who: Who) {
        self.times[station as usize] = NonZeroU64::new(at);
        self.who[station as usize] = who;
    }

    /// When the request passed a station, host ticks; `None` where it did not, or nobody saw it.
    pub fn at(&self, station: Station) -> Option<u64> {
        self.times[station as usize].map(NonZeroU64::get)
    }

    /// Who made it pass a station.
    pub fn who(&self, station: Station) -> Who {
        self.who[station as usize]
    }

    /// The stations that it passed, in order, the workload's own among them.
    pub fn stations(&self) -> impl Iterator<Item = (Station, u64)> + '_ {
        Station::ALL.into_iter().filter_map(|s| Some((s, self.at(s)?)))
    }

    /// When it began, host ticks, by the workload's own stamp; of a command's, when the guest's block layer took it in.
    pub fn begin(&self) -> u64 {
        self.at(Station::Begin).unwrap_or(0)
    }

    /// When it had ended, host ticks, likewise; of a command's, when the block layer completed it.
    pub fn end(&self) -> u64 {
        self.at(Station::End).unwrap_or(0)
    }

    /// How long it took by the workload's own stamps, ticks.
    pub fn total(&self) -> u64 {
        self.end().saturating_sub(self.begin())
    }

    /// Where its pieces begin, host ticks: the first moment that a tracer saw.
    pub fn first(&self) -> u64 {
        let Some((station, at)) = self.stations().find(|(s, _)| *s != Station::Begin) else { return 0 };
        // Of a command's request a tracer saw the begin, too, and a piece leads from there.
        let from_begin = self.pieces.first().is_some_and(|piece| piece.to == station && station != Station::End);
        if from_begin { self.begin() } else { at }
    }

    /// Where its pieces end, host ticks: the last of it that a tracer saw.
    pub fn last(&self) -> u64 {
        self.first() + self.pieces.iter().map(|p| p.ticks).sum::<u64>()
    }
}
