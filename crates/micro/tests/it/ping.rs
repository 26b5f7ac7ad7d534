//! The exchange of stamps that the clock is made from.

use crate::guest::{Guest, accelerators};
use crate::ticks;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vmtax_micro::Order;

#[test]
fn stamps_are_answered_in_order_and_bound_the_offset() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &[]);
        for round in 0..3 {
            guest.mailbox().order(&Order::Ping).unwrap();
            let (mut low, mut high, mut last, mut exchanges) = (i64::MIN, i64::MAX, 0, 0);
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(200) {
                let (host_cell, guest_cell) = guest.mailbox().stamps();
                let sent = ticks::now();
                host_cell.store(sent, Ordering::Release);
                let answer = loop {
                    let answer = guest_cell.load(Ordering::Acquire);
                    if answer != last {
                        break answer;
                    }
                    assert!(begin.elapsed() < Duration::from_secs(10), "no answer");
                    std::hint::spin_loop();
                };
                let heard = ticks::now();
                assert!(answer > last, "the guest's clock runs backwards");
                // Sent before the guest looked, heard after.
                low = low.max(sent.wrapping_sub(answer) as i64);
                high = high.min(heard.wrapping_sub(answer) as i64);
                (last, exchanges) = (answer, exchanges + 1);
            }
            guest.mailbox().stamps().0.store(u64::MAX, Ordering::Release);
            guest.wait();
            let width = (high - low) as f64 / ticks::per_us() * 1000.0;
            println!("{accelerator} {round}: {exchanges} exchanges, offset {low} to {high} ticks: {width:.0} ns wide");
            assert!(low <= high, "no offset fits all exchanges: {low} to {high}");
        }
    }
}
