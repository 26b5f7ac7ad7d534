//! How long threads ran, and how long they were ready without a processor, as the kernel's scheduler counts it.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// A thread's time since it was first looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Looked at for so long.
    pub watched: Duration,
    /// On a processor.
    pub ran: Duration,
    /// Ready, and waiting for a processor.
    pub ready: Duration,
}

/// The threads of one process.
#[derive(Debug)]
pub struct Schedule {
    pid: i32,
    first: HashMap<i32, (Instant, [u64; 2])>,
    last: HashMap<i32, Times>,
}

impl Schedule {
    /// Of a process.
    pub fn of(pid: i32) -> Schedule {
        Schedule { pid, first: HashMap::new(), last: HashMap::new() }
    }

    /// Reads a thread's counters; nothing where the kernel keeps none.
    pub fn read(&mut self, tid: i32) {
        let text = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid)).unwrap_or_default();
        let Some([ran, ready]) = counters(&text) else { return };
        let (since, [ran_first, ready_first]) = *self.first.entry(tid).or_insert((Instant::now(), [ran, ready]));
        let times = Times {
            watched: since.elapsed(),
            ran: Duration::from_nanos(ran.saturating_sub(ran_first)),
            ready: Duration::from_nanos(ready.saturating_sub(ready_first)),
        };
        self.last.insert(tid, times);
    }

    /// What came of it, by thread.
    pub fn times(self) -> HashMap<i32, Times> {
        self.last
    }
}

/// ns on a processor and ns ready; `0 0 0` where the kernel was built without.
fn counters(text: &str) -> Option<[u64; 2]> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (ran, ready, turns) = (words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?);
    (turns > 0u64).then_some([ran, ready])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_counters() {
        assert_eq!(counters("120 30 4\n"), Some([120, 30]));
        assert!(["", "1 2", "x 2 3", "0 0 0"].iter().all(|text| counters(text).is_none()));
    }

    #[test]
    fn time_on_a_processor_is_seen() {
        let tid = std::process::id() as i32; // as a thread it does nothing while tests run
        let mut schedule = Schedule::of(tid);
        schedule.read(tid);
        schedule.read(tid);
        let times = schedule.times();
        assert!(times.values().all(|t| t.ran <= t.watched + Duration::from_millis(50)), "{times:?}");
    }
}
