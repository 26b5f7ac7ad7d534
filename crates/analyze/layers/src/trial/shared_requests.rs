//! The requests that a guest's trace and its host's have in common: by how much both clocks differ, and which of the guest's
//! disks is which of QEMU's.

use std::collections::HashMap;
use std::ops::Range;
use vmtax_clock::{ClockError, ClockMap, Evidence, GuestTicks, HostTicks};

/// Pairs of requests that may be the same, at most: requests to the same place make the product of both counts.
const MAX_PAIRS: usize = 1 << 20;
/// An offset that fewer pairs of requests agree on may be chance.
const MIN_PAIRS: usize = 8;
/// The fraction of the guest's requests, made while the host traced, that the host has to show: others may be of disks that
/// are not virtio-blk's to QEMU, or lost.
const MIN_SHOWN: f64 = 0.5;

/// A read or write as one side has it, its own ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first byte on the disk.
    pub offset: u64,
    /// Of the guest: its issue; of the host: QEMU's pop.
    pub begin: u64,
    /// Of the guest: its completion; of the host: QEMU's push.
    pub end: u64,
    /// The number of the side's disk.
    pub disk: usize,
}

/// Map between the clocks of both traces, with its source.
#[derive(Debug)]
pub(crate) struct SharedClock {
    pub map: ClockMap,
    /// Source of the map, as text for people.
    pub source: String,
}

/// Reason why the traces give no common clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotShared {
    /// The guest's trace has no request.
    NoRequest,
    /// No offset between both clocks lets the host show the guest's requests.
    NothingInCommon,
    /// Several do equally well.
    Ambiguous,
}

/// Requests of both sides.
pub(crate) struct SharedRequests<'a> {
    guest: &'a [Span],
    host: HashMap<u64, Vec<Span>>,
    /// When the host traced, host ticks.
    window: Range<u64>,
}

impl<'a> SharedRequests<'a> {
    pub fn new(guest: &'a [Span], host: &[Span], window: Range<u64>) -> Self {
        let mut by_offset: HashMap<u64, Vec<Span>> = HashMap::new();
        host.iter()
            .for_each(|span| by_offset.entry(span.offset).or_default().push(*span));
        by_offset
            .values_mut()
            .for_each(|spans| spans.sort_by_key(|span| span.begin));
        SharedRequests {
            guest,
            host: by_offset,
            window,
        }
    }

    /// Both clocks on one: by KVM's own offset or the host's counter as it is, where cause and effect of the requests agree;
    /// else by these alone.
    pub fn clock(&self, kvm_offset: Option<i64>) -> Result<SharedClock, NotShared> {
        if self.guest.is_empty() {
            return Err(NotShared::NoRequest);
        }
        for (offset, source) in [
            (kvm_offset, "KVM's offset"),
            // Some guests read it so, whatever offset KVM keeps.
            (
                Some(0),
                "the host's time stamp counter, which the guest reads as it is",
            ),
        ] {
            let exact = offset.filter(|offset| self.is_shown(i128::from(*offset), 0));
            if let Some(map) = exact.and_then(|offset| Evidence::new(&[], Some(offset)).map().ok())
            {
                return Ok(SharedClock {
                    map,
                    source: source.to_owned(),
                });
            }
        }
        let map = self.by_causality()?;
        Ok(SharedClock {
            source: map.source().to_string(),
            map,
        })
    }

    /// Returns, for each of the host's disks, the number of requests of one of the guest's disks that it shows.
    pub fn shown_by_disk(&self, guest_disk: usize, clock: &ClockMap) -> HashMap<usize, u64> {
        let mut counts = HashMap::new();
        for span in self.guest.iter().filter(|span| span.disk == guest_disk) {
            let (begin, end) = (
                clock.host(GuestTicks(span.begin)).0,
                clock.host(GuestTicks(span.end)).0,
            );
            let mut disks: Vec<usize> = self
                .within(span.offset, begin.into(), end.into(), clock.bound())
                .map(|host| host.disk)
                .collect();
            disks.sort_unstable();
            disks.dedup();
            disks
                .into_iter()
                .for_each(|disk| *counts.entry(disk).or_default() += 1);
        }
        counts
    }

    /// Returns true if, with this offset, the host shows enough of the guest's requests.
    fn is_shown(&self, offset: i128, bound: u64) -> bool {
        let (mut all, mut shown) = (0_u64, 0_u64);
        for span in self.guest {
            let (begin, end) = (
                i128::from(span.begin) + offset,
                i128::from(span.end) + offset,
            );
            if begin >= i128::from(self.window.start) && end <= i128::from(self.window.end) {
                all += 1;
                shown += u64::from(self.within(span.offset, begin, end, bound).next().is_some());
            }
        }
        shown > 0 && shown as f64 >= MIN_SHOWN * all as f64
    }

    /// The host's requests to a place that lie within these host ticks.
    fn within(
        &self,
        offset: u64,
        begin: i128,
        end: i128,
        bound: u64,
    ) -> impl Iterator<Item = &Span> {
        let (begin, end) = (begin - i128::from(bound), end + i128::from(bound));
        let spans = self.host.get(&offset).map_or(&[][..], Vec::as_slice);
        let first = spans.partition_point(|span| i128::from(span.begin) < begin);
        let inside = spans[first..]
            .iter()
            .take_while(move |span| i128::from(span.begin) <= end);
        inside.filter(move |span| i128::from(span.end) <= end)
    }

    /// By the offset that most pairs of requests allow: QEMU pops a request after the guest issues it, and pushes it before it
    /// completes there.
    fn by_causality(&self) -> Result<ClockMap, NotShared> {
        let pairs = self.pairs();
        let allowed: Vec<(i128, i128)> = pairs
            .iter()
            .map(|(guest, host)| offsets(guest, host))
            .collect();
        let Best { low, high, count } =
            best(&allowed, |_| true).ok_or(NotShared::NothingInCommon)?;
        let middle = low + (high - low) / 2;
        if count < MIN_PAIRS
            || !self.is_shown(middle, u64::try_from(high - low).unwrap_or(u64::MAX))
        {
            return Err(NotShared::NothingInCommon);
        }
        // Farther off, no request is within itself.
        let longest = pairs
            .iter()
            .map(|(guest, _)| i128::from(guest.end - guest.begin))
            .max()
            .unwrap_or(0);
        let is_far = |offset: i128| offset < low - longest || offset > high + longest;
        if best(&allowed, is_far).is_some_and(|other| other.count * 2 > count) {
            return Err(NotShared::Ambiguous);
        }
        let mut evidence = Evidence::new(&[], None);
        for (guest, host) in pairs.iter().filter(|(guest, host)| {
            let (low, high) = offsets(guest, host);
            (low..=high).contains(&middle)
        }) {
            evidence.guest_first(GuestTicks(guest.begin), HostTicks(host.begin));
            evidence.host_first(HostTicks(host.end), GuestTicks(guest.end));
        }
        evidence
            .map()
            .map_err(|_: ClockError| NotShared::NothingInCommon)
    }

    /// Requests of both sides that may be the same, those to rarely used places first.
    fn pairs(&self) -> Vec<(Span, Span)> {
        let mut guest: HashMap<u64, Vec<Span>> = HashMap::new();
        self.guest
            .iter()
            .for_each(|span| guest.entry(span.offset).or_default().push(*span));
        let both = guest
            .iter()
            .filter_map(|(offset, spans)| Some((spans, self.host.get(offset)?)));
        let mut both: Vec<(&Vec<Span>, &Vec<Span>)> = both.collect();
        both.sort_by_key(|(a, b)| (a.len().saturating_mul(b.len()), a[0].offset));
        let all = both
            .into_iter()
            .flat_map(|(a, b)| a.iter().flat_map(|a| b.iter().map(|b| (*a, *b))));
        let may_be_one = |(guest, host): &(Span, Span)| {
            let (low, high) = offsets(guest, host);
            low <= high
        };
        all.take(MAX_PAIRS).filter(may_be_one).collect()
    }
}

/// The offsets from guest to host ticks with which the host's request lies within the guest's.
fn offsets(guest: &Span, host: &Span) -> (i128, i128) {
    (
        i128::from(host.end) - i128::from(guest.end),
        i128::from(host.begin) - i128::from(guest.begin),
    )
}

/// The offsets that most pairs allow.
struct Best {
    low: i128,
    high: i128,
    count: usize,
}

/// Of those that begin where `is_wanted`.
fn best(allowed: &[(i128, i128)], is_wanted: impl Fn(i128) -> bool) -> Option<Best> {
    let mut begins: Vec<i128> = allowed.iter().map(|(low, _)| *low).collect();
    let mut ends: Vec<i128> = allowed.iter().map(|(_, high)| *high).collect();
    begins.sort_unstable();
    ends.sort_unstable();
    let mut best: Option<Best> = None;
    let mut ended = 0;
    for (begun, low) in (1..).zip(&begins) {
        while ends[ended] < *low {
            ended += 1;
        }
        let count = begun - ended;
        if is_wanted(*low) && best.as_ref().is_none_or(|best| count > best.count) {
            best = Some(Best {
                low: *low,
                high: ends[ended],
                count,
            });
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guest ticks are these fewer.
    const OFFSET: u64 = 7_000_000;
    const WINDOW: Range<u64> = OFFSET..OFFSET + 1_000_000;

    fn requests(count: u64, places: u64) -> (Vec<Span>, Vec<Span>) {
        let begin = |number: u64| number * 1000 + number * number % 97;
        let guest = |number: u64| Span {
            // In no order that comes again.
            offset: (number.pow(3) * 31 + number * 7) % 1009 % places * 4096,
            begin: begin(number),
            end: begin(number) + 500 + number % 13,
            disk: 0,
        };
        let host = |span: &Span| Span {
            begin: span.begin + OFFSET + 40 + span.begin % 7,
            end: span.end + OFFSET - 60 - span.begin % 5,
            disk: 3,
            ..*span
        };
        let guest: Vec<Span> = (0..count).map(guest).collect();
        let host = guest.iter().map(host).collect();
        (guest, host)
    }

    #[test]
    fn kvms_offset_is_exact_where_cause_and_effect_agree() {
        let (guest, host) = requests(100, 1000);
        let shared = SharedRequests::new(&guest, &host, WINDOW);
        let clock = shared.clock(Some(OFFSET as i64)).unwrap();
        assert_eq!(
            (clock.map.bound(), clock.source.as_str()),
            (0, "KVM's offset")
        );
        assert_eq!(
            shared.shown_by_disk(0, &clock.map),
            HashMap::from([(3, 100)])
        );
        assert_eq!(shared.shown_by_disk(1, &clock.map), HashMap::new());
        // Of another VM.
        let clock = shared.clock(Some(5)).unwrap();
        assert!(clock.map.bound() <= 55, "{}", clock.map.bound());
        assert_eq!(clock.map.host(GuestTicks(0)).0.abs_diff(OFFSET) / 100, 0);
    }

    #[test]
    fn a_guest_that_reads_the_hosts_counter_is_known() {
        let (guest, mut host) = requests(100, 1000);
        host.iter_mut()
            .for_each(|span| (span.begin, span.end) = (span.begin - OFFSET, span.end - OFFSET));
        let clock = SharedRequests::new(&guest, &host, 0..1_000_000)
            .clock(Some(OFFSET as i64))
            .unwrap();
        assert_eq!(clock.map.bound(), 0);
        assert!(clock.source.contains("as it is"), "{}", clock.source);
    }

    #[test]
    fn places_that_are_used_again_and_half_an_overlap_do_no_harm() {
        let (guest, host) = requests(300, 20);
        let shared = SharedRequests::new(
            &guest[..200],
            &host[100..],
            OFFSET + 100_000..OFFSET + 400_000,
        );
        let clock = shared.clock(None).unwrap();
        assert!(clock.map.bound() <= 55, "{}", clock.map.bound());
        assert_eq!(clock.map.host(GuestTicks(0)).0.abs_diff(OFFSET) / 100, 0);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let (guest, mut host) = requests(200, 1000);
        assert!(matches!(
            SharedRequests::new(&[], &host, WINDOW).clock(None),
            Err(NotShared::NoRequest)
        ));
        let other = |host: &[Span]| {
            SharedRequests::new(&guest, host, WINDOW)
                .clock(Some(OFFSET as i64))
                .err()
        };
        assert_eq!(other(&[]), Some(NotShared::NothingInCommon));
        // The same places at other times, as of another VM.
        for (span, number) in host.iter_mut().zip(0_u64..) {
            let moved = number * number % 211 * 5000;
            (span.begin, span.end) = (span.begin + moved, span.end + moved);
        }
        assert_eq!(other(&host), Some(NotShared::NothingInCommon));
        // One place, again and again: which is which does not show.
        let span = |begin| Span {
            offset: 0,
            begin,
            end: begin + 100,
            disk: 0,
        };
        let guest: Vec<Span> = (0..50).map(|number| span(number * 1000)).collect();
        let host: Vec<Span> = guest
            .iter()
            .map(|s| Span {
                begin: s.begin + OFFSET + 9,
                end: s.end + OFFSET - 9,
                ..*s
            })
            .collect();
        let clock = SharedRequests::new(&guest, &host[5..45], WINDOW).clock(None);
        assert_eq!(clock.err(), Some(NotShared::Ambiguous));
    }
}
