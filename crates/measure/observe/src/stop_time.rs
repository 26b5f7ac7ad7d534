//! Duration of a stop for a sample on this host now, measured on a process of vmtax's own.

use crate::{ProbeError, ThreadReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Stops that are measured.
const STOPS: usize = 50;
/// Between two of them, so that the process waits again.
const INTERVAL: Duration = Duration::from_millis(4);
/// As much stack as a sample copies.
const STACK: usize = 12 << 10;

/// The expected duration of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopTime {
    /// Median of the stops.
    pub median: Duration,
    /// Longest of 50.
    pub max: Duration,
}

/// Measures stops of a thread that waits, and so needs a CPU to stop: `waiting` starts a process that reads its standard input.
/// Has to run in a thread of its own, like every [`ThreadReader`].
///
/// # Errors
/// [`ProbeError`] when the process cannot be started or stopped.
pub fn stop_time(waiting: &mut Command) -> Result<StopTime, ProbeError> {
    let failed = |what: &str, source| ProbeError::System {
        what: what.to_owned(),
        source,
    };
    let child = waiting
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let waiting = Waiting(child.map_err(|e| failed("starting a process to measure a stop", e))?);
    let pid = i32::try_from(waiting.0.id()).unwrap_or(i32::MAX);
    let (mut reader, mut stack) = (ThreadReader::new(pid)?, vec![0; STACK]);
    for _ in 0..STOPS {
        reader.rest(INTERVAL);
        reader.stop(pid, &mut stack);
    }
    let mut pauses = reader.end();
    pauses.sort_unstable();
    match (pauses.get(pauses.len() / 2), pauses.last()) {
        (Some(&median), Some(&max)) => Ok(StopTime { median, max }),
        _ => Err(failed(
            "stopping a process to measure it",
            std::io::Error::other("it did not stop"),
        )),
    }
}

/// Ends with its measurement.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_measured_and_leave_no_process() {
        let StopTime { median, max } = stop_time(&mut Command::new("cat")).unwrap();
        assert!(
            median > Duration::ZERO && median <= max && max < Duration::from_secs(2),
            "{median:?} {max:?}"
        );
        // On a busy host one that is about to end may be stopped first.
        let fails = |_| stop_time(&mut Command::new("true")).is_err();
        assert!((0..50).any(fails), "a process that ended cannot be stopped");
    }
}
