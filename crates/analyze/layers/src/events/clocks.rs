//! How both sides' clocks compare in one trial.

use super::event::{Event, GuestEvent, HostEvent, Mark};
use super::trace_reader::{Trace, each};
use crate::error::LayersError;
use std::collections::HashMap;
use vmtax_clock::{ClockMap, Evidence, GuestTicks, HostTicks};
use vmtax_model::{Checkpoint, Ping, Series, TraceFacts};

/// A bound that leaves nothing to be wished for, microseconds.
const GOOD_US: f64 = 0.5;

/// How both sides' clocks compare: by what was recorded of it; where that is missing or says little, also by causes and
/// effects among the requests.
pub(crate) fn clock(
    facts: &TraceFacts,
    series: &Series,
    guest: Option<&Trace>,
    host: Option<&Trace>,
    log: &[Event<HostEvent>],
) -> Result<ClockMap, LayersError> {
    let mut evidence = Evidence::new(&steady(&facts.pings), facts.kvm_offset);
    let recorded = evidence.map();
    if recorded.as_ref().is_ok_and(|map| map.bound() as f64 <= GOOD_US * facts.tsc_mhz) {
        return Ok(recorded?);
    }
    let (mut issues, mut completes) = (TimesByKey::default(), TimesByKey::default());
    let (mut pops, mut pushes) = (TimesByKey::default(), TimesByKey::default());
    match guest {
        Some(trace) => each(trace, |r, e| match r.guest(e, facts) {
            Event { at, what: GuestEvent::Issue { offset, .. }, .. } => issues.add(offset, at),
            Event { at, what: GuestEvent::Complete { offset }, .. } => completes.add(offset, at),
            _ => {}
        })?,
        None => {
            for o in &series.operations {
                issues.add(o.key, o.begin);
                completes.add(o.key, o.end);
            }
        }
    }
    // A push names the request that was popped, and not its place on the disk.
    let mut popped: HashMap<u64, u64> = HashMap::new();
    let mut of_host = |event: &Event<HostEvent>| match event.what {
        HostEvent::Passes(Checkpoint::QemuPop, Mark { offset: Some(offset), address, .. }) => {
            popped.extend(address.map(|address| (address, offset)));
            pops.add(offset, event.at);
        }
        HostEvent::Passes(Checkpoint::QemuPush, Mark { offset, address, .. }) => {
            let offset = offset.or_else(|| address.and_then(|address| popped.remove(&address)));
            offset.into_iter().for_each(|offset| pushes.add(offset, event.at));
        }
        _ => {}
    };
    if let Some(trace) = host {
        each(trace, |r, e| of_host(&r.host(e, facts)))?;
    }
    log.iter().for_each(of_host);
    issues.pairs(&pops).for_each(|(guest, host)| evidence.guest_first(GuestTicks(guest), HostTicks(host)));
    completes.pairs(&pushes).for_each(|(guest, host)| evidence.host_first(HostTicks(host), GuestTicks(guest)));
    // Events that were lost pair what does not belong together; then what was recorded stands alone.
    Ok(evidence.map().or(recorded)?)
}

/// One exchange for all, where one offset fits them. Both sides read the same counter, and what is added to it does not
/// change while a guest runs; an exchange that was disturbed must not make a good one worse. Where none fits, all remain,
/// and the clock drifts.
fn steady(pings: &[Ping]) -> Vec<Ping> {
    let Some(low) = pings.iter().map(|p| p.low).max() else { return Vec::new() };
    let high = pings.iter().map(|p| p.high).min().unwrap_or(low);
    let best = pings.iter().min_by_key(|p| p.high.saturating_sub(p.low)).filter(|_| low <= high);
    best.map_or_else(|| pings.to_vec(), |best| vec![Ping { low, high, ..*best }])
}

/// When something happened to each place of the disk.
#[derive(Default)]
struct TimesByKey(HashMap<u64, Vec<u64>>);

impl TimesByKey {
    fn add(&mut self, offset: u64, at: u64) {
        self.0.entry(offset).or_default().push(at);
    }

    /// What happened in both, first with first; only where both were seen as often.
    fn pairs<'a>(&'a self, other: &'a TimesByKey) -> impl Iterator<Item = (u64, u64)> + 'a {
        let both = self.0.iter().filter_map(|(offset, times)| Some((times, other.0.get(offset)?)));
        both.filter(|(a, b)| a.len() == b.len()).flat_map(|(a, b)| a.iter().copied().zip(b.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{EventKind, Stamped};

    #[test]
    fn operations_and_qemus_log_align_the_clocks_of_an_untraced_guest() {
        const AHEAD: u64 = 1000;
        let operation = |number: u64| Stamped { begin: number * 100, end: number * 100 + 50, key: number * 4096 };
        let series = Series { mhz: 1000.0, operations: (1..4).map(operation).collect() };
        let passes = |at, checkpoint, mark| Event {
            at: at + AHEAD,
            cpu: 0,
            tid: 1,
            interrupt: false,
            kind: EventKind::Tracepoint,
            what: HostEvent::Passes(checkpoint, mark),
        };
        // QEMU uses a request's memory again, and names what it pushes by it alone.
        let address = Some(0x7f00);
        let log = series.operations.iter().flat_map(|operation| {
            let popped = Mark { address, offset: Some(operation.key), ..Mark::default() };
            let pushed = Mark { address, ..Mark::default() };
            let (pop, push) = (operation.begin + 10, operation.end - 20);
            [passes(pop, Checkpoint::QemuPop, popped), passes(push, Checkpoint::QemuPush, pushed)]
        });
        let map = clock(&crate::synthetic::facts(), &series, None, None, &log.collect::<Vec<_>>()).unwrap();
        // From 20 before the end to 10 after the beginning.
        assert_eq!((map.host(GuestTicks(0)).0.abs_diff(AHEAD) <= 15, map.bound()), (true, 15));
    }

    #[test]
    fn a_disturbed_exchange_makes_a_good_one_no_worse() {
        let ping = |at, low, high| Ping { at, low, high, exchanges: 9 };
        let (good, bad, other) = (ping(10, 100, 104), ping(90, -5000, 9000), ping(90, 103, 110));
        assert_eq!(steady(&[good, bad]), [good]);
        assert_eq!(steady(&[good, other]), [Ping { low: 103, ..good }]);
        // No one offset fits: the clock drifts, which takes both.
        assert_eq!(steady(&[good, ping(90, 200, 210)]).len(), 2);
        assert_eq!(steady(&[]), []);
    }
}
