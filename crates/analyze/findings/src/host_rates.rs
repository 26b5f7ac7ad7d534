//! The host in one interval: all its processes, with the VMs among them.

use crate::Advice;
use serde::Serialize;

/// The host in one interval. What is not known is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HostRates {
    /// CPUs that are online.
    pub cpus: usize,
    /// CPUs that ran tasks or interrupts, as a number of CPUs.
    pub used: f64,
    /// CPUs that the threads of the sampled VMs used, with the kernel's threads and the programs that serve them.
    pub used_by_vms: f64,
    /// CPUs that all else of the host used.
    pub used_by_others: f64,
    /// The process that used most CPU time of these; null where none used a tenth of a CPU, or processes were not read.
    pub largest_other: Option<ProcessRate>,
    /// Tasks that ran or waited for a CPU at the interval's end.
    pub runnable: Option<u64>,
    /// Load average of one minute at the interval's end.
    pub load: Option<f64>,
    /// Memory of the host, bytes.
    pub memory: Option<u64>,
    /// Memory of it that new programs can have without swapping, bytes.
    pub available: Option<u64>,
    /// Bytes read from swap, per second.
    pub swapped_in_per_s: Option<f64>,
    /// Bytes written to swap, per second.
    pub swapped_out_per_s: Option<f64>,
    /// Findings about the host that concern all of the sampled VMs: problems first, then settings worth checking.
    pub findings: Vec<Advice>,
}

impl HostRates {
    /// Returns true if the host's CPUs are in use for nine tenths of their time and more: then a runnable thread waits for one.
    pub fn is_busy(&self) -> bool {
        self.cpus > 0 && self.used >= 0.9 * self.cpus as f64
    }
}

/// A process in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessRate {
    /// PID of the process.
    pub pid: i32,
    /// Name of the process, as the kernel keeps it.
    pub name: String,
    /// CPUs that it used, as a number of CPUs.
    pub used: f64,
}
