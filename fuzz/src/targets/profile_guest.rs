//! Samples that a guest sends of itself: whatever is taken can be brought onto a clock, folded and summed.

use vmtax_model::{ClockReading, InsideFacts, Ping, SCHEMA};
use vmtax_profile::fold::fold;
use vmtax_profile::inside::{GuestClock, by_host_clock, join, parse, summary};

pub fn run(bytes: &[u8]) {
    let Ok(mut guest) = parse(bytes) else { return };
    let facts = InsideFacts {
        schema: SCHEMA,
        threads: Vec::new(),
        pings: vec![Ping {
            at: 1,
            low: -5,
            high: 5,
            exchanges: 1,
        }],
        kvm_offset: None,
        beats: [
            ClockReading {
                ticks: 1,
                monotonic_ns: 1,
            },
            ClockReading {
                ticks: 9,
                monotonic_ns: 5,
            },
        ],
        missing: Vec::new(),
    };
    if let Ok(clock) = GuestClock::new(guest.beats, &facts) {
        by_host_clock(&mut guest, &clock);
    }
    fold(&guest.profile);
    let joined = join(&guest.profile, &guest.profile, guest.hz, &[]);
    assert_eq!(joined.profile.total(), guest.profile.total());
    summary(&guest, Some(&joined));
}
