//! The traces of both sides, joined: the requests of a trial, or of one device of a running VM.

pub(crate) mod joined_trial;
mod observed;
pub(crate) mod open;
mod shared_requests;
pub(crate) mod vm;
pub(crate) mod vm_data;

use crate::LayersError;
use crate::events::decode::Readers;
use crate::events::decode::{Loss, Trace, TraceReader, next};
use crate::events::{Event, GuestEvent, HostEvent};
use crate::join::Joined;
use crate::join::joiner::Join;
use std::collections::BTreeMap;
use std::mem;
use vmtax_clock::{ClockMap, GuestTicks};
use vmtax_findings::{ClockFinding, RequestKind};
use vmtax_model::{EventCost, Missing, Side, TraceFacts};

/// The joined requests of a trial, or of one device of a running VM, before any is rejected.
#[derive(Clone)]
pub(crate) struct TrialData {
    pub joined: Joined,
    pub losses: Vec<Loss>,
    pub clock: ClockFinding,
    /// Ticks per microsecond.
    pub mhz: f64,
    pub missing: Vec<Missing>,
    /// Time of the guest's first event, host ticks.
    pub first: Option<u64>,
    /// Costs of recorded events: empty if they are not known of each side that was traced.
    pub costs: Vec<(Side, EventCost)>,
}

impl TrialData {
    /// Returns the requests of each kind with the rest of the data.
    pub fn by_kind(mut self) -> BTreeMap<RequestKind, TrialData> {
        let Joined {
            requests,
            rejected,
            parts,
            threads,
            may_lack,
            ..
        } = mem::take(&mut self.joined);
        self.joined = Joined {
            threads,
            may_lack,
            ..Joined::default()
        };
        let mut kinds: BTreeMap<RequestKind, TrialData> = BTreeMap::new();
        for request in requests {
            let data = kinds.entry(request.kind).or_insert_with(|| self.clone());
            data.joined.requests.push(request);
        }
        for rejected in rejected {
            let data = kinds.entry(rejected.kind).or_insert_with(|| self.clone());
            data.joined.rejected.push(rejected);
        }
        for part in parts {
            let data = kinds.entry(part.kind).or_insert_with(|| self.clone());
            data.joined.parts.push(part);
        }
        kinds
    }
}

/// The traces of both sides, and how their clocks are joined.
struct Traces<'a> {
    pub guest: Option<&'a Trace>,
    pub host: Option<&'a Trace>,
    /// The events of QEMU's log, in place of the host's trace.
    pub log: Vec<Event<HostEvent>>,
    /// From the guest's ticks to the host's; `None` where they are the same.
    pub map: Option<&'a ClockMap>,
    pub clock: ClockFinding,
}

impl<'a> Traces<'a> {
    /// Both sides of a VM that its host alone traced: all times are of the host's counter.
    pub fn of_host(host: &'a Trace) -> Traces<'a> {
        Traces {
            guest: None,
            host: Some(host),
            log: Vec::new(),
            map: None,
            clock: ClockFinding {
                source: "all events are of the host".to_owned(),
                ..ClockFinding::default()
            },
        }
    }

    /// Hands the events of both sides to the join in the order of time. Those of the host that are of another device
    /// than the join's, as `is_other` says, pass without what they tell.
    pub fn join(
        self,
        mut join: Join,
        facts: &TraceFacts,
        is_other: impl Fn(&Readers, &vmtax_trace::Event<'_>) -> bool,
    ) -> Result<TrialData, LayersError> {
        let on_host = |ticks| self.map.map_or(ticks, |map| map.host(GuestTicks(ticks)).0);
        let begin = |trace| TraceReader::begin(trace, on_host);
        let mut guest = self.guest.map(begin).transpose()?;
        let begin = |trace| TraceReader::begin(trace, |ticks| ticks);
        let mut host = self.host.map(begin).transpose()?;
        let mut log = self.log.into_iter();
        let next_of_host = || match &mut host {
            None => Ok(log.next()),
            Some(_) => next(&mut host, |readers, event| {
                let found = readers.host(event, facts);
                let what = if is_other(readers, event) {
                    HostEvent::Other
                } else {
                    found.what
                };
                Event { what, ..found }
            }),
        };
        let next_of_guest = || next(&mut guest, |readers, event| readers.guest(event, facts));
        let first = feed(&mut join, next_of_guest, next_of_host)?;
        let (mut losses, mut missing) = (Vec::new(), Vec::new());
        if let Some(side) = guest {
            side.end(&mut losses, &mut missing);
        }
        if let Some(side) = host {
            side.end(&mut losses, &mut missing);
        }
        Ok(TrialData {
            joined: join.finish(),
            losses,
            clock: self.clock,
            mhz: facts.tsc_mhz,
            missing,
            first,
            costs: Vec::new(),
        })
    }
}

/// Hands the events of both sides to the join in the order of time; gives that of the guest's first, host ticks.
fn feed(
    join: &mut Join,
    mut next_of_guest: impl FnMut() -> Result<Option<Event<GuestEvent>>, LayersError>,
    mut next_of_host: impl FnMut() -> Result<Option<Event<HostEvent>>, LayersError>,
) -> Result<Option<u64>, LayersError> {
    let (mut guest, mut host) = (next_of_guest()?, next_of_host()?);
    let first = guest.map(|event| event.at);
    loop {
        match (&guest, &host) {
            (Some(g), h) if h.as_ref().is_none_or(|h| g.at <= h.at) => {
                join.guest(g);
                guest = next_of_guest()?;
            }
            (_, Some(h)) => {
                join.host(h);
                host = next_of_host()?;
            }
            _ => return Ok(first),
        }
    }
}
