//! A command of the user's, run as it is on every machine: how it ended, what it says.

use crate::{Findings, MachineColumn};
use serde::{Deserialize, Serialize};
use vmtax_model::{Accelerator, Better, Machine, ShareFacts, Unit};

/// Part of a machine's CPU seconds while a command ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The command's own code.
    User,
    /// The kernel on the command's behalf.
    Kernel,
    /// The guest's other work: its kernel's threads, interrupts, handing on what the command prints.
    OtherGuest,
    /// vCPU threads at work while the guest had nothing to do: VM exits, and waking up.
    Beyond,
    /// Runnable, while the host's CPUs were busy otherwise.
    Steal,
    /// The guest waited while QEMU's other threads worked.
    QemuThreads,
    /// The guest waited while the share's server worked.
    ShareServer,
    /// Nothing to run: waiting for something else, or a CPU too many.
    Waiting,
}

impl Part {
    /// Returns the part's label on a machine, for people. TCG has no VM exits.
    pub fn label(self, machine: Machine) -> &'static str {
        match self {
            Part::User => "user (without steal)",
            Part::Kernel => "kernel (without steal)",
            Part::OtherGuest => "other guest tasks, interrupts",
            Part::Beyond if machine.accelerator() == Some(Accelerator::Tcg) => {
                "emulator and wake-up overhead"
            }
            Part::Beyond => "VM-exit and wake-up overhead",
            Part::Steal => "run-queue wait (vCPU steal)",
            Part::QemuThreads => "waiting for QEMU's threads",
            Part::ShareServer => "waiting for the file server",
            Part::Waiting => "off CPU: idle or waiting",
        }
    }
}

/// One part on both sides, means over the rounds, CPU seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PartRow {
    /// Part that the row is about.
    pub part: Part,
    /// Natively; `None` for what only a guest has.
    pub native_s: Option<f64>,
    /// On the machine.
    pub machine_s: f64,
}

/// Where a command's time goes on a machine, and natively: means over the rounds that have both, since these add up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Rounds behind it.
    pub rounds: u32,
    /// Wall time natively times CPUs, seconds; `None` where it was not run natively.
    pub native_s: Option<f64>,
    /// Wall time on the machine times CPUs, seconds.
    pub machine_s: f64,
    /// Rows of the parts.
    pub rows: Vec<PartRow>,
    /// CPU seconds that no part accounts for: with the parts they add up to `machine_s`.
    pub unexplained_s: f64,
}

/// Exit statuses of the command on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statuses {
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Each status there was, once, in the order in which they came.
    pub statuses: Vec<i32>,
}

/// A printed figure over all machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrintedRow {
    /// Tool and test, as in [`vmtax_model::Printed::of`].
    pub of: String,
    /// Name of the figure, as in [`vmtax_model::Printed::name`].
    pub name: String,
    /// Unit of the figure, as in [`vmtax_model::Printed::unit`].
    pub unit: Unit,
    /// As [`vmtax_model::Printed::better`]; where it is not known, an overhead is the machine's figure over native's.
    pub better: Option<Better>,
    /// In the plan's order of machines.
    pub machines: Vec<MachineColumn>,
}

/// A run whose wall time is far from that of the machine's others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OutlierRun {
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Round of the run, from 0.
    pub round: u32,
    /// Wall time of the run, s.
    pub wall_s: f64,
    /// Median of the machine's runs, s.
    pub median_s: f64,
}

/// Findings of `exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecFindings {
    /// Overheads of the command's metrics, as any workload's.
    #[serde(flatten)]
    pub overheads: Findings,
    /// Figures that the command printed, with overheads like its metrics'.
    pub printed: Vec<PrintedRow>,
    /// Exit statuses, machine by machine.
    pub statuses: Vec<Statuses>,
    /// Where the time went, guest by guest.
    pub breakdowns: Vec<Breakdown>,
    /// Runs that are far from the others of their machine; none in older documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<OutlierRun>,
    /// Share by which the guests had the host's files.
    pub root: Option<ShareFacts>,
    /// Notes of the trials with their machines, each once.
    pub notes: Vec<String>,
}

impl ExecFindings {
    /// The command's status: what it ended with everywhere, else the first one that is not 0. `None` when it ended
    /// nowhere.
    pub fn status(&self) -> Option<i32> {
        let mut all = self
            .statuses
            .iter()
            .flat_map(|s| s.statuses.iter().copied());
        let first = all.next()?;
        Some(if first != 0 {
            first
        } else {
            all.find(|status| *status != 0).unwrap_or(0)
        })
    }

    /// Returns true if the command ended with different statuses.
    pub fn differs(&self) -> bool {
        let mut all = self.statuses.iter().flat_map(|s| s.statuses.iter());
        let first = all.next();
        all.any(|status| Some(status) != first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(statuses: &[&[i32]]) -> ExecFindings {
        let statuses = statuses
            .iter()
            .map(|s| Statuses {
                machine: Machine::NATIVE,
                statuses: s.to_vec(),
            })
            .collect();
        let overheads = Findings {
            schema: crate::REPORT_SCHEMA,
            rounds_planned: 1,
            rounds_complete: 1,
            method: String::new(),
            kernels: vec![],
            rows: vec![],
            warnings: vec![],
            advice: vec![],
        };
        ExecFindings {
            overheads,
            printed: vec![],
            statuses,
            breakdowns: vec![],
            outliers: vec![],
            root: None,
            notes: vec![],
        }
    }

    #[test]
    fn a_status_that_is_not_0_anywhere_is_the_status() {
        let status_of =
            |statuses: &[&[i32]]| (findings(statuses).status(), findings(statuses).differs());
        assert_eq!(status_of(&[&[3], &[3]]), (Some(3), false));
        assert_eq!(status_of(&[&[0], &[0]]), (Some(0), false));
        assert_eq!(status_of(&[&[0], &[0, 137]]), (Some(137), true));
        assert_eq!(status_of(&[&[1], &[0]]), (Some(1), true));
        assert_eq!(status_of(&[]), (None, false));
    }
}
