//! Whatever the true offset, its drift and the delays of stamps: the map's interval contains the truth.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use vmtax_clock::{ClockError, ClockMap, Evidence, GuestTicks, HostTicks, OffsetSource};
use vmtax_model::Ping;

/// Two clocks: at host tick `h` the guest's shows `h - (offset + drift * (h - start))`.
#[derive(Debug, Clone, Copy)]
struct Truth {
    start: u64,
    offset: i64,
    /// Ticks per tick.
    drift: f64,
}

impl Truth {
    fn offset(&self, host: u64) -> i64 {
        self.offset + ((host - self.start) as f64 * self.drift).round() as i64
    }

    fn guest(&self, host: u64) -> GuestTicks {
        GuestTicks(host.wrapping_sub(self.offset(host) as u64))
    }

    /// An exchange: the guest stamps `there` ticks after the host and `back` ticks before it does again.
    fn ping(&self, at: u64, there: u64, back: u64) -> Ping {
        let offset = self.offset(at);
        Ping {
            at,
            low: offset - there as i64,
            high: offset + back as i64,
            exchanges: 1,
        }
    }

    /// Checks that the map gives the host's time, and the true offset, for the guest's stamp at `host`. A tick is lost
    /// in rounding.
    fn is_known(&self, map: &ClockMap, host: u64) -> Result<(), TestCaseError> {
        let guest = self.guest(host);
        let (offset, true_offset) = (map.offset(guest), i128::from(self.offset(host)));
        prop_assert!(
            offset.low - 1 <= true_offset && true_offset <= offset.high + 1,
            "{offset:?}, true {true_offset}"
        );
        let off = map.host(guest).0.abs_diff(host);
        prop_assert!(off <= offset.bound() + 1, "{off} ticks off, {offset:?}");
        Ok(())
    }
}

fn truth(most_ppm: i32) -> impl Strategy<Value = Truth> {
    (1u64 << 50..1 << 60, -(1i64 << 49)..1 << 49, -1000i32..=1000).prop_map(
        move |(start, offset, share)| Truth {
            start,
            offset,
            drift: f64::from(share * most_ppm) / 1e9,
        },
    )
}

const RUN: u64 = 30_000_000_000;

proptest! {
    #[test]
    fn exchanges_bound_a_clock_that_drifts(
        truth in truth(400),
        pings in prop::collection::vec((0..RUN, (0u64..5_000, 0u64..5_000)), 1..6),
        looks in prop::collection::vec(0..RUN, 20),
    ) {
        let stamps: Vec<Ping> = pings.iter().map(|&(at, (there, back))| truth.ping(truth.start + at, there, back)).collect();
        let map = Evidence::new(&stamps, None).map().unwrap();
        prop_assert_eq!(map.source(), OffsetSource::Exchanges);
        let (first, last) = (pings.iter().map(|p| p.0).min().unwrap(), pings.iter().map(|p| p.0).max().unwrap());
        // One exchange alone says nothing of drift.
        if last > first + 100_000 {
            for at in looks {
                truth.is_known(&map, truth.start + at)?;
                // Where in the guest's time the ends lie is known to half a width.
                if (first + 10_000..last.saturating_sub(10_000)).contains(&at) {
                    prop_assert!(map.offset(truth.guest(truth.start + at)).bound() <= map.bound());
                }
            }
        }
        let moved = truth.offset(truth.start + last).abs_diff(truth.offset(truth.start + first));
        prop_assert!(map.moved() <= moved);
        prop_assert!(map.moved() + 20_000 >= moved, "{} of {moved}", map.moved());
    }

    #[test]
    fn any_evidence_bounds_a_steady_clock(
        truth in truth(0),
        pings in prop::collection::vec((0..RUN, (0u64..5_000, 0u64..5_000)), 0..4),
        forth in prop::collection::vec((0..RUN, 0u64..40_000), 1..50),
        back in prop::collection::vec((0..RUN, 0u64..40_000), 1..50),
        kvm in any::<bool>(),
        looks in prop::collection::vec(0..RUN, 20),
    ) {
        let stamps: Vec<Ping> = pings.iter().map(|&(at, (there, back))| truth.ping(truth.start + at, there, back)).collect();
        let mut evidence = Evidence::new(&stamps, kvm.then_some(truth.offset));
        for &(at, delay) in &forth {
            evidence.guest_first(truth.guest(truth.start + at), HostTicks(truth.start + at + delay));
        }
        for &(at, delay) in &back {
            evidence.host_first(HostTicks(truth.start + at), truth.guest(truth.start + at + delay));
        }
        let map = evidence.map().unwrap();
        for at in looks {
            truth.is_known(&map, truth.start + at)?;
        }
        let closest = forth.iter().map(|p| p.1).min().unwrap() + back.iter().map(|p| p.1).min().unwrap();
        prop_assert!(map.bound() <= closest.div_ceil(2));
        prop_assert_eq!(map.source() == OffsetSource::Kvm, kvm);
        prop_assert_eq!(map.refuted(), None);
        prop_assert_eq!(map.moved(), 0);
    }

    #[test]
    fn any_numbers_are_survived(
        pings in prop::collection::vec((any::<u64>(), any::<i64>(), any::<i64>()), 0..5),
        near in prop::collection::vec((0u64..10_000, -5i64..5, 0i64..20_000), 0..5),
        kvm in prop::option::of(any::<i64>()),
        pairs in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..5),
        look in any::<u64>(),
    ) {
        let wild = pings.into_iter().map(|(at, low, high)| Ping { at, low, high, exchanges: 0 });
        let close = near.into_iter().map(|(at, low, width)| Ping { at, low, high: low + width, exchanges: 0 });
        let mut evidence = Evidence::new(&wild.chain(close).collect::<Vec<_>>(), kvm);
        for (guest, host, first) in pairs {
            if first {
                evidence.guest_first(GuestTicks(guest), HostTicks(host));
            } else {
                evidence.host_first(HostTicks(host), GuestTicks(guest));
            }
        }
        if let Ok(map) = evidence.map() {
            let _ = (map.host(GuestTicks(look)), map.bound(), map.moved());
            prop_assert!(map.offset(GuestTicks(look)).low <= map.offset(GuestTicks(look)).high);
        }
    }
}

fn ping(at: u64, low: i64, high: i64) -> Ping {
    Ping {
        at,
        low,
        high,
        exchanges: 1,
    }
}

#[test]
fn without_evidence_there_is_no_map() {
    assert!(matches!(
        Evidence::default().map(),
        Err(ClockError::NoEvidence)
    ));
    let mut one_sided = Evidence::default();
    one_sided.guest_first(GuestTicks(5), HostTicks(10));
    assert!(matches!(one_sided.map(), Err(ClockError::NoEvidence)));
    // Wide enough to say nothing.
    assert!(matches!(
        Evidence::new(&[ping(5, i64::MIN, i64::MAX)], None).map(),
        Err(ClockError::NoEvidence)
    ));
}

#[test]
fn contradictions_are_told() {
    let same_time = Evidence::new(&[ping(1000, 0, 10), ping(1000, 20, 30)], None).map();
    assert!(
        matches!(
            same_time,
            Err(ClockError::Contradiction {
                at: 1000,
                low: 20,
                high: 10
            })
        ),
        "{same_time:?}"
    );
    let inverted = Evidence::new(&[ping(1000, 10, 0)], None).map();
    assert!(
        matches!(inverted, Err(ClockError::Contradiction { .. })),
        "{inverted:?}"
    );
    let mut causes = Evidence::default();
    causes.guest_first(GuestTicks(100), HostTicks(110));
    causes.host_first(HostTicks(220), GuestTicks(200));
    assert!(matches!(
        causes.map(),
        Err(ClockError::Contradiction {
            at: 110,
            low: 20,
            high: 10
        })
    ));
    let mut beside = Evidence::new(&[ping(1000, 30, 40)], None);
    beside.guest_first(GuestTicks(100), HostTicks(110));
    beside.host_first(HostTicks(205), GuestTicks(200));
    assert!(matches!(
        beside.map(),
        Err(ClockError::Contradiction {
            low: 30,
            high: 10,
            ..
        })
    ));
}

#[test]
fn a_clock_that_was_set_is_told_and_one_that_drifts_is_followed() {
    let jumped = Evidence::new(&[ping(1_000_000, 0, 10), ping(2_000_000, 511, 520)], None).map();
    assert!(
        matches!(
            jumped,
            Err(ClockError::Jumped {
                from: 1_000_000,
                to: 2_000_000,
                moved: 501
            })
        ),
        "{jumped:?}"
    );
    let map = Evidence::new(&[ping(1_000_000, 0, 10), ping(2_000_000, 400, 410)], None)
        .map()
        .unwrap();
    assert_eq!(map.moved(), 390);
    let middle = map.offset(GuestTicks(1_500_000 - 205));
    assert!(
        (200..=206).contains(&middle.middle()) && middle.bound() <= 7,
        "{middle:?}"
    );
    // Outside of what was seen the bound grows.
    assert!(map.offset(GuestTicks(3_000_000)).bound() > map.bound());
}

#[test]
fn an_offset_of_kvm_that_does_not_apply_is_put_aside() {
    let pings = [ping(1_000_000, -300, 400), ping(9_000_000, -350, 300)];
    let map = Evidence::new(&pings, Some(-7_000_000)).map().unwrap();
    assert_eq!(
        (map.source(), map.refuted()),
        (OffsetSource::Exchanges, Some(-7_000_000))
    );
    let map = Evidence::new(&pings, Some(20)).map().unwrap();
    assert_eq!(
        (map.source(), map.bound(), map.refuted()),
        (OffsetSource::Kvm, 0, None)
    );
    assert_eq!(map.host(GuestTicks(1000)), HostTicks(1020));
}

#[test]
fn the_middle_is_never_farther_off_than_the_bound() {
    for (low, high) in [(0, 1), (-1, 0), (-3, 4), (5, 5)] {
        let map = Evidence::new(&[ping(1000, low, high)], None).map().unwrap();
        let (middle, bound) = (
            map.offset(GuestTicks(1000)).middle(),
            i128::from(map.bound()),
        );
        assert!(
            middle - bound <= i128::from(low) && i128::from(high) <= middle + bound,
            "{low} {high}"
        );
    }
}

#[test]
fn where_the_guests_clock_stood_at_an_exchange_is_known_to_half_its_width() {
    // All delay on one side, so that the middle is as wrong as it can be.
    let truth = Truth {
        start: 1 << 50,
        offset: -12_345,
        drift: 400e-6,
    };
    let pings = [0, 10_000_000].map(|at| truth.ping(truth.start + at, 0, 1_000_000));
    let map = Evidence::new(&pings, None).map().unwrap();
    for at in (0..10_000_000).step_by(100_000) {
        truth.is_known(&map, truth.start + at).unwrap();
    }
}

#[test]
fn of_exchanges_at_one_moment_the_closest_counts() {
    for pings in [
        [ping(1_000_000, 0, 4), ping(1_000_100, -400, 400)],
        [ping(1_000_000, -400, 400), ping(1_000_100, 0, 4)],
    ] {
        assert_eq!(
            Evidence::new(&pings, None).map().unwrap().bound(),
            2,
            "{pings:?}"
        );
    }
}

#[test]
fn causes_do_not_stop_a_clock_that_moves() {
    let mut evidence = Evidence::new(&[ping(1_000_000, 0, 10), ping(9_000_000, 400, 410)], None);
    evidence.guest_first(GuestTicks(1_000_000), HostTicks(1_000_012));
    evidence.host_first(HostTicks(1_000_003), GuestTicks(1_000_005));
    let map = evidence.map().unwrap();
    assert_eq!((map.source(), map.moved()), (OffsetSource::Exchanges, 390));
}
