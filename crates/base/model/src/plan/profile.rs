//! What a plan says of profiling.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How a process is profiled: the QEMU of a plan's guest while it works, one that runs already, or what another tool
/// sampled. It is the plan's `[profile]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProfileSettings {
    /// A process that runs already; the plan has no machines then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The file of another tool that samples are read from; the plan has no machines then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// For how long, ms; as long as the workload runs when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Samples per second of each thread that runs.
    pub hz: u32,
    /// Samples per second of every thread by the wall clock, and of the vCPUs of a guest of KVM; 0 for none.
    pub wall_hz: u32,
    /// For how long the scheduler's events and system calls are traced at first, ms; 0 for not at all.
    pub events_ms: u64,
    /// Bytes copied of a stack with each sample.
    pub stack: u32,
    /// The unstripped build of the program, for its functions' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbols: Option<PathBuf>,
}

impl ProfileSettings {
    /// For how long, at most.
    pub fn time(&self) -> Option<Duration> {
        self.time_ms.map(Duration::from_millis)
    }

    /// For how long the scheduler's events are traced.
    pub fn events(&self) -> Duration {
        Duration::from_millis(self.events_ms)
    }

    /// Whether no machine of the plan's is profiled, but something that is there already.
    pub fn is_attached(&self) -> bool {
        self.pid.is_some() || self.file.is_some()
    }
}
