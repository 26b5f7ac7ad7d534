//! Code common to the five tests of sysbench 1.0 (`cpu`, `threads`, `mutex`, `memory`, `fileio`). They have sysbench's
//! definitions, options and defaults, so that figures compare with sysbench's own. An option has sysbench's name
//! without the test's prefix. Written from its documented and observed behaviour (1.0.20); each module says what its
//! test is.

pub(crate) mod events;
pub(crate) mod locks;
pub(crate) mod random;

use crate::options::{self, OptionInfo, nanoseconds};
use crate::outcome::Yield;
use crate::{Clock, WorkloadError};
use events::{Finished, Limits, Worker};

pub(crate) const THREADS: OptionInfo = options::count("threads", "1", 1..=1024, "worker threads");
pub(crate) const TIME: OptionInfo = options::seconds(
    options::TIME,
    "10",
    0.0..=86_400.0,
    "seconds after which no new event starts; 0: no limit",
);
pub(crate) const EVENTS: OptionInfo = options::count(
    "events",
    "0",
    0..=u64::MAX,
    "events of all threads together after which none starts; 0: no limit",
);

/// Runs a test's workers; `events` is 0 where it has no such option. Gives what every test reports as well: one `event`
/// operation, fairness, the time.
pub(crate) fn run<W: Worker>(
    clock: &Clock,
    time: f64,
    events: u64,
    workers: Vec<W>,
) -> Result<(Finished<W>, Yield), WorkloadError> {
    let mut done = events::run(
        clock,
        &Limits {
            time_ns: nanoseconds(time),
            events,
        },
        workers,
    )?;
    let mut got = Yield {
        fairness: Some(done.fairness),
        total_s: done.total_s,
        ..Yield::default()
    };
    got.operation("event", std::mem::take(&mut done.latency));
    Ok((done, got))
}
