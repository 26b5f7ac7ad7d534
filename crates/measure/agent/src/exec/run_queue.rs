//! Time that the threads of a command were runnable without a CPU. The kernel counts it for each thread as long as that is there,
//! and adds it up for nobody.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(20);
/// A reading takes at most one part of so many of the time.
const PARTS: u32 = 100;

/// Run-queue waits of the threads of a process and of its descendants, as far as they are read before they end: threads that live
/// shorter than 20 ms are missed, except the command's first.
#[derive(Debug)]
pub(super) struct RunQueueWaits {
    /// Run-queue wait of each thread when it was read last, ns, by its number.
    by_thread: BTreeMap<i32, u64>,
    due: Instant,
}

impl RunQueueWaits {
    pub fn new() -> RunQueueWaits {
        RunQueueWaits {
            by_thread: BTreeMap::new(),
            due: Instant::now() + INTERVAL,
        }
    }

    /// Returns the time until the next reading.
    pub fn time_left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Reads the threads of the command with this PID, if it is time.
    pub fn read_when_due(&mut self, pid: i32) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let mut processes = vec![pid];
        while let Some(process) = processes.pop() {
            for thread in threads(process) {
                let directory = format!("/proc/{process}/task/{thread}");
                self.note(thread, &directory);
                let children = fs::read_to_string(format!("{directory}/children"));
                let children = children.unwrap_or_default();
                processes.extend(
                    children
                        .split(' ')
                        .filter_map(|pid| pid.parse::<i32>().ok()),
                );
            }
        }
        self.due = Instant::now() + INTERVAL.max(now.elapsed() * PARTS);
    }

    /// Returns the seconds of all threads, for a command with this PID that has ended and was not waited for yet.
    pub fn at_end(mut self, pid: i32) -> f64 {
        self.note(pid, &format!("/proc/{pid}"));
        self.by_thread.values().sum::<u64>() as f64 / 1e9
    }

    fn note(&mut self, thread: i32, directory: &str) {
        let text = fs::read_to_string(format!("{directory}/schedstat")).unwrap_or_default();
        if let Some(wait) = run_delay(&text) {
            self.by_thread.insert(thread, wait);
        }
    }
}

/// Returns the threads of a process; none where it has ended.
fn threads(process: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let entries = entries.into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

/// The second number of a thread's `schedstat`: run-queue wait, ns (Documentation/scheduler/sched-stats.rst).
fn run_delay(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(run_delay("812 4711 3\n"), Some(4711));
        assert_eq!([run_delay(""), run_delay("1 x 2")], [None, None]);
    }

    /// Two loops on one CPU: each waits while the other runs. One of them is a grandchild.
    #[test]
    fn loops_that_share_a_cpu_wait_for_it() {
        let cpus = "$(taskset -pc $$ | sed 's/.*[ ,-]//')";
        let script = format!(
            "taskset -pc {cpus} $$ >/dev/null; (while :; do :; done) & while :; do :; done"
        );
        let mut child: Child = Command::new("timeout")
            .args(["3", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let (mut waits, start) = (RunQueueWaits::new(), Instant::now());
        while start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(waits.time_left());
            waits.read_when_due(pid);
        }
        // The group of the loops is that of timeout, which passes the signal on.
        let _ = Command::new("kill").arg(pid.to_string()).status();
        let waited = waits.at_end(pid);
        child.wait().unwrap();
        assert!(
            (0.3..30.0).contains(&waited),
            "{waited} s of 1 s on one CPU"
        );
    }
}
