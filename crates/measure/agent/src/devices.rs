//! Devices appear a moment after their drivers.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);

/// What `look` finds, as soon as it finds it; `None` after some seconds.
pub(crate) fn appears<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
