//! Whoever does not answer is left alone for some time.

use std::time::{Duration, Instant};

/// For so long.
const LENGTH: Duration = Duration::from_secs(30);

/// Until when somebody is not asked again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pause(Option<Instant>);

impl Pause {
    /// Returns true until the pause is over.
    pub fn is_on(self) -> bool {
        self.0.is_some_and(|until| Instant::now() < until)
    }

    /// One that begins now.
    pub fn begin() -> Pause {
        Pause(Some(Instant::now() + LENGTH))
    }
}
