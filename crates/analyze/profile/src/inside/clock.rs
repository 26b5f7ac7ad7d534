//! From the guest's monotonic clock to the host's.

use vmtax_clock::{ClockError, ClockMap, Evidence, GuestTicks};
use vmtax_model::{ClockReading, InsideFacts};

/// The way of a stamp: the guest's clock, its ticks, the host's ticks, the host's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestClock {
    guest: [ClockReading; 2],
    map: ClockMap,
    host: [ClockReading; 2],
}

impl GuestClock {
    /// By what both sides noted.
    ///
    /// # Errors
    /// [`ClockError`] when nothing says how their ticks compare.
    pub fn new(guest: [ClockReading; 2], facts: &InsideFacts) -> Result<GuestClock, ClockError> {
        let map = Evidence::new(&facts.pings, facts.kvm_offset).map()?;
        Ok(GuestClock {
            guest,
            map,
            host: facts.beats,
        })
    }

    /// The host's time of the guest's, ns.
    pub fn host(&self, guest_ns: u64) -> u64 {
        let [from, to] = self.guest.map(|beat| Point {
            x: beat.monotonic_ns,
            y: beat.ticks,
        });
        let ticks = self.map.host(GuestTicks(along(from, to, guest_ns))).0;
        let [from, to] = self.host.map(|beat| Point {
            x: beat.ticks,
            y: beat.monotonic_ns,
        });
        along(from, to, ticks)
    }
}

struct Point {
    x: u64,
    y: u64,
}

/// Where `x` is on the line through two points.
fn along(from: Point, to: Point, x: u64) -> u64 {
    let [(x0, y0), (x1, y1)] = [from, to].map(|point| (i128::from(point.x), i128::from(point.y)));
    let (x, run) = (i128::from(x), x1 - x0);
    let rise = if run == 0 {
        0
    } else {
        (x - x0).saturating_mul(y1 - y0).saturating_div(run)
    };
    u64::try_from(y0.saturating_add(rise).max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Ping, SCHEMA};

    #[test]
    fn a_stamp_goes_through_both_counters() {
        // Both count 2 ticks a nanosecond; the host's counter is 1000 ahead, its clock began 7 µs earlier.
        let beat = |ticks, monotonic_ns| ClockReading {
            ticks,
            monotonic_ns,
        };
        let guest = [beat(2_000, 1_000), beat(202_000, 101_000)];
        let facts = InsideFacts {
            schema: SCHEMA,
            threads: Vec::new(),
            pings: vec![Ping {
                at: 3_000,
                low: 990,
                high: 1_010,
                exchanges: 9,
            }],
            kvm_offset: None,
            beats: [beat(3_000, 8_500), beat(203_000, 108_500)],
            missing: Vec::new(),
        };
        let clock = GuestClock::new(guest, &facts).unwrap();
        assert_eq!(clock.host(1_000), 8_500);
        assert_eq!(clock.host(51_000), 58_500);
        assert_eq!(clock.host(0), 7_500);
        // Clocks that stood still say when, not how fast.
        let point = |x, y| Point { x, y };
        assert_eq!(along(point(5, 9), point(5, 9), u64::MAX), 9);
        // What a guest sends may be anything.
        along(point(1, u64::MAX), point(0, 0), u64::MAX);
    }
}
