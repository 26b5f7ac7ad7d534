//! Settings of a plan's profile.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Settings with which a process is profiled: the QEMU of a plan's guest while it works, one that runs already, or
/// samples of another tool. They are the plan's `[profile]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProfileSettings {
    /// A process that runs already; the plan has no machines then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// When that process started, clock ticks after the host's boot: a PID is used again. `None` in plans of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// The name of its VM, else of its program, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The file of another tool that samples are read from; the plan has no machines then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Duration, ms; as long as the workload runs when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Samples per second of each thread that runs.
    pub hz: u32,
    /// Samples per second of every thread by the wall clock; 0 for none. Where threads are stopped, of the vCPUs of a guest of
    /// KVM, too.
    pub wall_hz: u32,
    /// The longest stop of a thread for a wall-clock sample, ms: after a longer one no thread is stopped any more. Absent: no
    /// thread is stopped at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_limit_ms: Option<u64>,
    /// Duration for which scheduler events and system calls are traced at first, ms; 0 for none.
    pub events_ms: u64,
    /// Bytes copied of a stack with each sample.
    pub stack: u32,
    /// The unstripped build of the program, for its functions' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbols: Option<PathBuf>,
}

impl Default for ProfileSettings {
    fn default() -> ProfileSettings {
        ProfileSettings {
            pid: None,
            started: None,
            name: None,
            file: None,
            time_ms: None,
            hz: Self::HZ,
            wall_hz: Self::WALL_HZ,
            stop_limit_ms: None,
            events_ms: Self::EVENTS_MS,
            stack: Self::STACK,
            symbols: None,
        }
    }
}

impl ProfileSettings {
    /// Samples a second of each thread that runs.
    pub const HZ: u32 = 99;
    /// Wall-clock samples a second of every thread.
    pub const WALL_HZ: u32 = 19;
    /// Bytes copied of a stack.
    pub const STACK: u32 = 12_288;
    /// Duration for which scheduler events and system calls are traced at first, ms.
    pub const EVENTS_MS: u64 = 1000;

    /// Duration, at most.
    pub fn time(&self) -> Option<Duration> {
        self.time_ms.map(Duration::from_millis)
    }

    /// The longest stop of a thread; `None` where none is stopped.
    pub fn stop_limit(&self) -> Option<Duration> {
        self.stop_limit_ms
            .filter(|_| self.wall_hz > 0)
            .map(Duration::from_millis)
    }

    /// Duration for which scheduler events and system calls are traced.
    pub fn events(&self) -> Duration {
        Duration::from_millis(self.events_ms)
    }

    /// Returns true if a process that runs already, or a file, is profiled instead of a guest of the plan.
    pub fn is_attached(&self) -> bool {
        self.pid.is_some() || self.file.is_some()
    }
}
