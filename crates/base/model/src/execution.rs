//! Outcome of a command: its exit status, its times, the figures that it printed.

use crate::Printed;
use serde::{Deserialize, Serialize};

/// Outcome of a command, and what only the machine itself knows of its run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// Exit status of the command; 128 + n where signal n ended it, 124 on timeout, 126 or 127 where it could not be
    /// started.
    pub status: i32,
    /// Processes that it left running: they were ended with it.
    #[serde(default)]
    pub left: u32,
    /// From its begin to its end by the controller's clock, seconds; natively `None`. What it cost the host's CPUs
    /// is of the same while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// Seconds that the guest's vCPUs were busy meanwhile, all work counted, by the guest's own account; natively
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_s: Option<f64>,
    /// Seconds that the guest knows were taken from its CPUs; 0 under a hypervisor that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_s: Option<f64>,
    /// Figures that the command printed, as far as its output is understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<Printed>,
}
