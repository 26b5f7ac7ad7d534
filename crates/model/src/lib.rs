//! The words of vmtax, shared by every stage: metrics and their units, workloads, machines, plans, trials, facts of a
//! host, findings, and warnings. Nothing here measures, boots, reads or prints.

mod fact;
mod finding;
mod latency;
mod machine;
mod metric;
mod plan;
mod shell;
mod trial;
mod warning;
mod workload;

pub use fact::{Check, CpuFacts, HostFacts, KernelFacts, KvmClass, KvmFacts, QemuFacts, Readiness, SourceOfKernel};
pub use finding::{Estimate, Findings, Interval, MachineColumn, Spread, Tax, TaxRow, Verdict};
pub use latency::{Latency, LatencyError, LatencySummary};
pub use machine::{MachineName, UnknownMachine};
pub use metric::{Better, Metric, Unit, UnknownMetric};
pub use plan::{Guest, Plan, PlanError, Turn};
pub use shell::shell_line;
pub use trial::{
    Fairness, KernelIdentity, Measure, Operation, Outcome, Timer, TimerSource, TrialRecord, TrialResult, Unsupported,
};
pub use warning::Warning;
pub use workload::{Places, UnknownWorkload, WorkloadName, WorkloadSpec};

/// The version of every file in a recording and of a plan. A reader accepts this one and older ones.
pub const SCHEMA: u32 = 1;
