//! Guest and host ticks brought onto one clock, with the error of that.
//!
//! Both sides stamp with the time stamp counter, which in a guest is the host's plus something. How much is bounded by
//! [`Evidence`]: stamps exchanged through memory that both sides see ([`exchange`] and [`answer`] over [`Shared`]),
//! KVM's own record, and cause and effect. It gives a [`ClockMap`], the only way from [`GuestTicks`] to [`HostTicks`].

mod exchange;

pub use exchange::{GUEST_CELL, HOST_CELL, Shared, answer, exchange};

use rustix::time::{ClockId, clock_gettime};
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::fmt;
use std::io;
use std::time::Duration;
use vmtax_model::{ClockReading, Moment, Ping, limit_remedy};

/// No clock drifts faster, ticks per million: what NTP takes for the most (RFC 5905, `MAXFREQ`).
const MAX_DRIFT_PPM: i128 = 500;

/// The widest interval that says anything, ticks: minutes.
const MAX_WIDTH: i128 = 1 << 40;

/// The source of a map's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSource {
    /// The offset that KVM itself keeps.
    Kvm,
    /// Exchanges of stamps.
    Exchanges,
    /// That causes precede their effects.
    Causality,
}

impl fmt::Display for OffsetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OffsetSource::Kvm => "KVM's offset",
            OffsetSource::Exchanges => "timestamps exchanged through shared memory",
            OffsetSource::Causality => "estimated from the order of events of a request",
        })
    }
}

/// Host ticks minus guest ticks at one moment: somewhere from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// Lower bound, ticks.
    pub low: i128,
    /// Upper bound, ticks.
    pub high: i128,
}

impl Offset {
    /// The middle, rounded down.
    pub fn middle(self) -> i128 {
        (self.low + self.high).div_euclid(2)
    }

    /// Returns the largest distance of the true offset from the middle, in ticks: half the width, rounded up.
    pub fn bound(self) -> u64 {
        u64::try_from((self.width() + 1) / 2).unwrap_or(u64::MAX)
    }

    fn width(self) -> i128 {
        self.high - self.low
    }

    /// Returns the offsets that both allow; `low` is above `high` where they exclude each other.
    fn and(self, other: Offset) -> Offset {
        Offset {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }

    fn is_possible(self) -> bool {
        self.low <= self.high
    }
}

impl From<Ping> for Offset {
    fn from(ping: Ping) -> Offset {
        Offset {
            low: ping.low.into(),
            high: ping.high.into(),
        }
    }
}

/// Bounds of the offset at one moment of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OffsetAt {
    at: i128,
    offset: Offset,
}

/// From guest ticks to host ticks, with the error of that. Between two moments at which the offset is known it moves
/// steadily: that is all that is assumed, so the truth lies within the bound also when a clock drifts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockMap {
    /// In order; at least one.
    offsets: Vec<OffsetAt>,
    source: OffsetSource,
    /// KVM's offset, where stamps excluded it.
    refuted: Option<i64>,
}

impl ClockMap {
    /// Returns a map with one offset for all times.
    fn constant(offset: Offset, source: OffsetSource, refuted: Option<i64>) -> ClockMap {
        ClockMap {
            offsets: vec![OffsetAt { at: 0, offset }],
            source,
            refuted,
        }
    }

    /// From exchanges of timestamps, each at its time.
    fn from_pings(pings: &[Ping], refuted: Option<i64>) -> Result<ClockMap, ClockError> {
        let offset = |&ping: &Ping| (ping.at, Offset::from(ping));
        let mut pings: Vec<(u64, Offset)> = pings.iter().map(offset).collect();
        pings.sort_by_key(|&(at, _)| at);
        let mut moments: Vec<(u64, Offset)> = Vec::new();
        for (at, offset) in pings {
            if let Some((before, earlier)) = moments.last_mut() {
                check(*before, *earlier, at, offset)?;
                // Nearer to each other than they are wide they are about one moment, and the closer one says more.
                if i128::from(at - *before) <= earlier.width() + offset.width() {
                    if offset.width() < earlier.width() {
                        (*before, *earlier) = (at, offset);
                    }
                    continue;
                }
            }
            moments.push((at, offset));
        }
        let knot = |&(at, offset): &(u64, Offset)| OffsetAt {
            at: i128::from(at) - offset.middle(),
            offset,
        };
        if moments.is_empty() {
            return Err(ClockError::NoEvidence);
        }
        Ok(ClockMap {
            offsets: moments.iter().map(knot).collect(),
            source: OffsetSource::Exchanges,
            refuted,
        })
    }

    /// The host's time of a guest's stamp; the truth is at most [`ClockMap::offset`]'s bound away.
    pub fn host(&self, guest: GuestTicks) -> HostTicks {
        let host = i128::from(guest.0) + self.offset(guest).middle();
        HostTicks(u64::try_from(host.clamp(0, u64::MAX.into())).unwrap_or(u64::MAX))
    }

    /// Returns by how many ticks the host was ahead of the guest when the guest stamped, as bounds.
    pub fn offset(&self, guest: GuestTicks) -> Offset {
        let at = i128::from(guest.0);
        let next = self
            .offsets
            .partition_point(|knot| knot.at <= at)
            .clamp(1, self.offsets.len().max(2) - 1);
        match (self.offsets.get(next - 1), self.offsets.get(next)) {
            (Some(a), Some(b)) => between(a, b, at),
            _ => self.offsets[0].offset,
        }
    }

    /// The largest error between the first and the last moment at which the offset is known, ticks.
    pub fn bound(&self) -> u64 {
        // Between the ends, where it is a mean of theirs, rounding outwards may add one.
        let ends = |pair: &[OffsetAt]| {
            [pair[0].at, pair[1].at].map(|at| between(&pair[0], &pair[1], at).bound() + 1)
        };
        self.offsets
            .windows(2)
            .flat_map(ends)
            .max()
            .unwrap_or_else(|| self.offsets[0].offset.bound())
    }

    /// Returns the ticks by which the offset moved, beyond the width of its bounds, from the first to the last moment
    /// at which it is known; 0 where it may have stood still.
    pub fn moved(&self) -> u64 {
        let both = self.offsets[0]
            .offset
            .and(self.offsets[self.offsets.len() - 1].offset);
        u64::try_from(both.low - both.high).unwrap_or(0)
    }

    /// The source of the bound.
    pub fn source(&self) -> OffsetSource {
        self.source
    }

    /// The offset that KVM keeps, if it was given and stamps exclude it: some KVM do not apply it to all of a guest.
    pub fn refuted(&self) -> Option<i64> {
        self.refuted
    }
}

/// Checks that the offset moved from one exchange to the next no faster than clocks drift.
fn check(before: u64, a: Offset, after: u64, b: Offset) -> Result<(), ClockError> {
    let both = a.and(b);
    let moved = both.low - both.high;
    if moved > 0 && before == after {
        return Err(ClockError::Contradiction {
            at: after,
            low: both.low,
            high: both.high,
        });
    }
    let farthest = i128::from(after - before) * MAX_DRIFT_PPM / 1_000_000;
    if moved > farthest {
        Err(ClockError::Jumped {
            from: before,
            to: after,
            moved,
        })
    } else {
        Ok(())
    }
}

/// The offset on all straight lines through two intervals, at a moment between them, before or after.
fn between(a: &OffsetAt, b: &OffsetAt, at: i128) -> Offset {
    let (whole, from_a, to_b) = (b.at - a.at, at - a.at, b.at - at);
    // A line's value at `at` is (its value in `a` * to_b + its value in `b` * from_a) / whole.
    let (in_a, in_b) = ([a.offset.low, a.offset.high], [b.offset.low, b.offset.high]);
    // Beyond one end the weight of the other is negative: there the line falls as that one rises.
    let (a_low, b_low) = (in_a[usize::from(to_b < 0)], in_b[usize::from(from_a < 0)]);
    let (a_high, b_high) = (in_a[usize::from(to_b >= 0)], in_b[usize::from(from_a >= 0)]);
    let base = a.offset.low;
    let low = base + ((a_low - base) * to_b + (b_low - base) * from_a).div_euclid(whole);
    let high = base - (-((a_high - base) * to_b + (b_high - base) * from_a)).div_euclid(whole);
    // Stamps were exchanged at known host times; where the guest's clock stood then is known to half a width.
    let width = a.offset.width().max(b.offset.width());
    let steepest = (b.offset.high - a.offset.low)
        .abs()
        .max((a.offset.high - b.offset.low).abs());
    let slack = (width + 1) * steepest / whole + 1;
    Offset {
        low: low - slack,
        high: high + slack,
    }
}

/// All that is known of the offset, to make a [`ClockMap`] of. Any of it may be missing, and what gives least is only
/// compared with what gives most.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pings: Vec<Ping>,
    kvm_offset: Option<i64>,
    /// The most that causes in the guest with effects on the host leave, and the pair that does.
    most: Option<(i128, HostTicks)>,
    /// The least that causes on the host with effects in the guest leave.
    least: Option<(i128, HostTicks)>,
}

impl Evidence {
    /// Begins with exchanges of stamps, in any order, and host ticks minus guest ticks as KVM itself keeps them.
    pub fn new(pings: &[Ping], kvm_offset: Option<i64>) -> Evidence {
        Evidence {
            pings: pings.to_vec(),
            kvm_offset,
            ..Evidence::default()
        }
    }

    /// Adds a pair in which the guest's stamp came before the host's: a notify before the pop it causes.
    pub fn guest_first(&mut self, guest: GuestTicks, host: HostTicks) {
        let offset = i128::from(host.0) - i128::from(guest.0);
        if self.most.is_none_or(|(most, _)| offset < most) {
            self.most = Some((offset, host));
        }
    }

    /// Adds a pair in which the host's stamp came before the guest's: an injection before its handler.
    pub fn host_first(&mut self, host: HostTicks, guest: GuestTicks) {
        let offset = i128::from(host.0) - i128::from(guest.0);
        if self.least.is_none_or(|(least, _)| offset > least) {
            self.least = Some((offset, host));
        }
    }

    /// The map that this gives: by KVM's offset unless stamps exclude it, else by exchanges or by causality, whichever
    /// bounds it closer. Causality takes the offset as constant.
    ///
    /// # Errors
    /// [`ClockError::NoEvidence`], [`ClockError::Contradiction`], [`ClockError::Jumped`].
    pub fn map(&self) -> Result<ClockMap, ClockError> {
        let pings = self.pings.iter().copied();
        let pings: Vec<Ping> = pings.filter(|p| sensible(Offset::from(*p))).collect();
        self.pings
            .iter()
            .copied()
            .try_for_each(|ping| checked(ping).map(drop))?;
        let causes = self.causes()?;
        if let Some(kvm) = self.kvm_offset {
            let exact = Offset {
                low: kvm.into(),
                high: kvm.into(),
            };
            let by_pings = pings.iter().map(|p| Offset::from(*p));
            let mut all = by_pings.chain(causes.map(|(offset, _)| offset));
            if all.all(|bounds| bounds.and(exact).is_possible()) {
                return Ok(ClockMap::constant(exact, OffsetSource::Kvm, None));
            }
        }
        let map = || ClockMap::from_pings(&pings, self.kvm_offset);
        let by_exchanges = (!pings.is_empty()).then(map).transpose()?;
        let Some((offset, at)) = causes else {
            return by_exchanges.ok_or(ClockError::NoEvidence);
        };
        let by_causes = ClockMap::constant(offset, OffsetSource::Causality, self.kvm_offset);
        match by_exchanges {
            None => Ok(by_causes),
            // A clock that moves has no one offset for causes to bound.
            Some(map) if map.moved() > 0 => Ok(map),
            Some(map) => {
                let mut both = pings.iter().map(|p| Offset::from(*p).and(offset));
                if let Some(Offset { low, high }) = both.find(|both| !both.is_possible()) {
                    return Err(ClockError::Contradiction {
                        at: at.0,
                        low,
                        high,
                    });
                }
                let is_closer = by_causes.bound() < map.bound();
                Ok(if is_closer { by_causes } else { map })
            }
        }
    }

    /// The offset that causes and effects leave, where they bound it on both sides, with the host's time of one.
    fn causes(&self) -> Result<Option<(Offset, HostTicks)>, ClockError> {
        let (Some((low, _)), Some((high, at))) = (self.least, self.most) else {
            return Ok(None);
        };
        if low > high {
            return Err(ClockError::Contradiction {
                at: at.0,
                low,
                high,
            });
        }
        let offset = Offset { low, high };
        Ok(sensible(offset).then_some((offset, at)))
    }
}

/// Refuses exchanges that no offset fits.
pub(crate) fn checked(ping: Ping) -> Result<Ping, ClockError> {
    match ping.low > ping.high {
        false => Ok(ping),
        true => Err(ClockError::Contradiction {
            at: ping.at,
            low: ping.low.into(),
            high: ping.high.into(),
        }),
    }
}

/// Returns true if an interval is possible and narrow enough to be useful.
fn sensible(offset: Offset) -> bool {
    offset.is_possible() && offset.width() <= MAX_WIDTH
}

/// Errors of relating guest ticks to host ticks.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// No evidence bounds the offset on both sides.
    #[error(
        "the offset between guest and host clock is unknown: run vmtax as root, or boot a guest kernel that is not locked down"
    )]
    NoEvidence,
    /// No offset fits the timestamps of one moment.
    #[error(
        "timestamps around host tick {at} are contradictory (the host is at least {low} and at most {high} ticks ahead of the guest): a TSC is unstable or differs between CPUs; see `vmtax doctor`"
    )]
    Contradiction {
        /// Moment of the timestamps, in host ticks.
        at: u64,
        /// Lower bound, ticks.
        low: i128,
        /// Upper bound, ticks, below `low`.
        high: i128,
    },
    /// The offset moved faster than any clock drifts.
    #[error(
        "the offset of the guest's clock jumped by {moved} ticks between host ticks {from} and {to}: the clock was set, or \
         the guest was stopped; run the trial again"
    )]
    Jumped {
        /// Host ticks of the last timestamps before.
        from: u64,
        /// Host ticks of the first timestamps after.
        to: u64,
        /// At least so many ticks.
        moved: i128,
    },
    /// The guest answered no timestamp.
    #[error("the guest answered no timestamp within {} s: see its console", timeout.as_secs_f64())]
    Silent { timeout: Duration },
    /// The host did not begin or end the exchange.
    #[error("the host did not end the exchange of timestamps within {} s", timeout.as_secs_f64())]
    NoHost { timeout: Duration },
    /// Invalid offset in the shared memory.
    #[error(
        "offset {offset} is outside the {bytes} bytes of shared memory, or not a multiple of 8"
    )]
    NoCell {
        offset: usize,
        /// Size of the memory, bytes.
        bytes: usize,
    },
    /// The guest has no ivshmem device.
    #[error(
        "no PCI device 1af4:1110: start QEMU with `-device ivshmem-plain` and a guest kernel with PCI and sysfs"
    )]
    NoDevice,
    /// The file to map is too small.
    #[error("{what} has {bytes} bytes, fewer than the {wanted} to map")]
    Small {
        what: String,
        bytes: u64,
        /// Bytes to map.
        wanted: u64,
    },
    /// A system call failed.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// The operation and its object.
        what: String,
        source: io::Error,
    },
}

impl ClockError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        ClockError::System {
            what: what.into(),
            source: source.into(),
        }
    }
}

/// A moment on the host's time stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostTicks(pub u64);

/// A moment on the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestTicks(pub u64);

/// The counter, read after everything before it in the program is done.
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: LFENCE and RDTSC are part of x86-64. A process may be forbidden RDTSC, by a flag that nothing of ours sets.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Time for which the counter is watched. A reading of both clocks is off by some 50 ns: less than 2 in a million.
const WINDOW: Duration = Duration::from_millis(50);

/// Ticks of this machine's time stamp counter per microsecond, against `CLOCK_MONOTONIC_RAW`. Takes 50 ms.
pub fn host_mhz() -> f64 {
    let (ticks, ns) = moment(ClockId::MonotonicRaw);
    std::thread::sleep(WINDOW);
    let (later, later_ns) = moment(ClockId::MonotonicRaw);
    later.saturating_sub(ticks) as f64 * 1000.0 / (later_ns - ns) as f64
}

/// Now, on this machine's counter and by the time of day.
pub fn time_of_day() -> Moment {
    let (ticks, ns) = moment(ClockId::Realtime);
    Moment {
        ticks,
        realtime_ns: u64::try_from(ns).unwrap_or(0),
    }
}

/// Now, on this machine's counter and stamped by the clock that samples are stamped with.
pub fn beat() -> ClockReading {
    let (ticks, ns) = moment(ClockId::Monotonic);
    ClockReading {
        ticks,
        monotonic_ns: u64::try_from(ns).unwrap_or(0),
    }
}

/// One moment on the counter and on a clock: of several readings the one that was disturbed least.
fn moment(clock: ClockId) -> (u64, i64) {
    let mut best = (u64::MAX, (0, 0));
    for _ in 0..24 {
        let before = now();
        let time = clock_gettime(clock);
        let took = now().saturating_sub(before);
        if took < best.0 {
            best = (
                took,
                (
                    before + took / 2,
                    time.tv_sec * 1_000_000_000 + time.tv_nsec,
                ),
            );
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_that_of_the_counter() {
        // A busy machine may stop the test between two checks clocks, but not three times.
        let agrees = (0..3).any(|_| {
            let (began, ticks) = (std::time::Instant::now(), now());
            std::thread::sleep(Duration::from_millis(100));
            let mhz = (now() - ticks) as f64 / began.elapsed().as_nanos() as f64 * 1000.0;
            (host_mhz() / mhz - 1.0).abs() < 1e-3
        });
        assert!(agrees);
    }
}
