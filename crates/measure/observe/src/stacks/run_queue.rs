//! Time on a CPU and run-queue wait of threads, as the kernel's scheduler counts them (`schedstat`).

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::Instant;
use vmtax_model::samples::RunTimes;

/// The threads of one process.
#[derive(Debug)]
pub struct RunQueue {
    pid: i32,
    first: HashMap<i32, (Instant, [u64; 2])>,
    last: BTreeMap<i32, RunTimes>,
}

impl RunQueue {
    /// Of a process.
    pub fn of(pid: i32) -> RunQueue {
        RunQueue {
            pid,
            first: HashMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// Reads a thread's counters; `None` where the kernel has none.
    pub fn read(&mut self, tid: i32) {
        let text = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid))
            .unwrap_or_default();
        let Some([ran, ready]) = counters(&text) else {
            return;
        };
        let (since, [ran_first, ready_first]) = *self
            .first
            .entry(tid)
            .or_insert((Instant::now(), [ran, ready]));
        let times = RunTimes {
            watched_ns: since.elapsed().as_nanos() as u64,
            ran_ns: ran.saturating_sub(ran_first),
            runnable_ns: ready.saturating_sub(ready_first),
        };
        self.last.insert(tid, times);
    }

    /// The times, by TID.
    pub fn times(self) -> BTreeMap<i32, RunTimes> {
        self.last
    }
}

/// ns on a CPU and ns runnable; `0 0 0` where the kernel was built without.
fn counters(text: &str) -> Option<[u64; 2]> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (ran, ready, turns) = (
        words.next()?.ok()?,
        words.next()?.ok()?,
        words.next()?.ok()?,
    );
    (turns > 0u64).then_some([ran, ready])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_counters() {
        assert_eq!(counters("120 30 4\n"), Some([120, 30]));
        assert!(
            ["", "1 2", "x 2 3", "0 0 0"]
                .iter()
                .all(|text| counters(text).is_none())
        );
    }

    #[test]
    fn time_on_a_cpu_is_seen() {
        let tid = std::process::id() as i32; // as a thread it does nothing while tests run
        let mut run_queue = RunQueue::of(tid);
        run_queue.read(tid);
        run_queue.read(tid);
        let times = run_queue.times();
        assert!(
            times
                .values()
                .all(|t| t.ran_ns <= t.watched_ns + 50_000_000),
            "{times:?}"
        );
    }
}
