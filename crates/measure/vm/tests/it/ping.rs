//! The exchange of stamps, with its host's side.

use crate::guest::{Guest, accelerators};
use crate::ticks;
use std::time::Duration;
use vmtax_clock::exchange;
use vmtax_model::Ping;
use vmtax_vm::micro_guest::layout::{MAILBOX, words};
use vmtax_vm::micro_guest::{Order, State};

#[test]
fn stamps_are_exchanged_and_bound_the_offset() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &[]);
        // QEMU moves a translated guest's counter by the little that the host's CPUs' counters may differ.
        let held = (0..3).any(|_| {
            let pings = [0, 1, 2].map(|_| ping(&mut guest, accelerator));
            let low = pings.iter().map(|ping| ping.low).max().unwrap();
            let high = pings.iter().map(|ping| ping.high).min().unwrap();
            low <= high
        });
        assert!(held, "{accelerator}: three times the offset moved");
    }
}

fn ping(guest: &mut Guest, accelerator: &str) -> Ping {
    guest.mailbox().order(&Order::Ping).unwrap();
    let (host, guests) = (MAILBOX + words::HOST_STAMP, MAILBOX + words::GUEST_STAMP);
    let ping = exchange(&guest.memory, host, guests, Duration::from_millis(200)).unwrap();
    assert_eq!(guest.wait(), State::Done);
    let width = (ping.high - ping.low) as f64 / ticks::per_us() * 1000.0;
    println!(
        "{accelerator}: {} exchanges, offset known to {width:.0} ns",
        ping.exchanges
    );
    assert!(ping.exchanges > 0 && ping.low <= ping.high);
    ping
}
