//! Waiting while others observe.

use std::time::{Duration, Instant};

/// Interval at which a stop request is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Tells whether observing is to end.
pub(super) type Stop<'a> = dyn Fn() -> bool + Sync + 'a;

/// Waits, unless it is to stop.
pub(super) fn wait(time: Duration, stop: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop() {
        std::thread::sleep(POLL_INTERVAL.min(time));
    }
}
