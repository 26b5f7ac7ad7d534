//! The stations that a request passed, and who made it.

use vmtax_model::Station;
use vmtax_trace::Moment;

/// Who made a request pass a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Guest(Moment),
    /// A thread of QEMU.
    Thread(i32),
    /// The host's kernel, or its disk.
    Host,
}

/// The stations of a request, each with who made it pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    marks: [Option<(u64, By)>; Station::ALL.len()],
    /// It was issued and taken from the ring without a notification in between.
    pub in_ring: bool,
    /// Its begin was seen in the guest's kernel: the stretch from there to the next station is a part of it.
    pub begins_in_kernel: bool,
    /// When the workload's last system call before its own stamp returned, if that was not the request's: it was busy
    /// with others when this one had come back.
    pub busy_until: Option<Moment>,
}

impl Way {
    pub fn new() -> Self {
        Way { marks: [None; Station::ALL.len()], in_ring: false, begins_in_kernel: false, busy_until: None }
    }

    pub fn set(&mut self, station: Station, at: u64, by: By) {
        self.marks[station as usize] = Some((at, by));
    }

    pub fn at(&self, station: Station) -> Option<u64> {
        self.marks[station as usize].map(|(at, _)| at)
    }

    /// When a thread of QEMU made the request pass a station, and which.
    pub fn thread(&self, station: Station) -> Option<(u64, i32)> {
        self.marks[station as usize].and_then(|(at, by)| match by {
            By::Thread(tid) => Some((at, tid)),
            By::Guest(_) | By::Host => None,
        })
    }

    /// The stations passed, in the order of the way.
    pub fn marks(&self) -> impl Iterator<Item = (Station, u64, By)> + '_ {
        Station::ALL.into_iter().filter_map(|s| self.marks[s as usize].map(|(at, by)| (s, at, by)))
    }

    /// Whether the stations follow each other, as well as clocks can tell that agree within `bound`.
    pub fn in_order(&self, bound: u64) -> bool {
        let mut latest = 0;
        self.marks().all(|(_, at, _)| {
            latest = latest.max(at);
            at.saturating_add(bound) >= latest
        })
    }

    /// The first of these that was passed.
    pub fn first_of(&self, stations: &[Station]) -> Option<u64> {
        stations.iter().find_map(|s| self.at(*s))
    }
}
