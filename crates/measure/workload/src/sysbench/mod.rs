//! The five tests of sysbench 1.0, with its definitions, options and defaults, so that figures compare with sysbench's
//! own. An option's name is sysbench's without the test's prefix. Written from its documented and observed behaviour (1.0.20); each module says what its test is.

pub(crate) mod cpu;
mod events;
pub(crate) mod fileio;
mod locks;
pub(crate) mod memory;
pub(crate) mod mutex;
mod random;
pub(crate) mod threads;

use crate::options::{Kind, OptionInfo, Values};
use crate::{WorkloadError, Yield};
use events::{Finished, Limits};

const THREADS: OptionInfo =
    OptionInfo { name: "threads", default: "1", help: "worker threads", kind: Kind::Count { min: 1, max: 1024 } };
const TIME: OptionInfo = OptionInfo {
    name: "time",
    default: "10",
    help: "seconds after which no new event starts; 0: no limit",
    kind: Kind::Seconds { min: 0.0, max: 86_400.0 },
};
const EVENTS: OptionInfo = OptionInfo {
    name: "events",
    default: "0",
    help: "events of all threads together after which none starts; 0: no limit",
    kind: Kind::Count { min: 0, max: u64::MAX },
};

/// The limits of a test that takes `time` and `events`.
fn limits(values: &Values) -> Result<Limits, WorkloadError> {
    Ok(Limits { time_ns: values.nanoseconds("time")?, events: values.number("events")? })
}

/// What every test reports: one `event` operation, fairness, the time.
fn common<W>(done: &mut Finished<W>) -> Yield {
    let mut got = Yield { fairness: Some(done.fairness), total_s: done.total_s, ..Yield::default() };
    got.operation("event", std::mem::take(&mut done.latency));
    got
}
