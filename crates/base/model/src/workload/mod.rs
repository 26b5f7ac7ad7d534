//! Workloads as plans and recordings know them.

mod spec;
mod table;

pub use spec::{Places, WorkloadSpec, parse_size};
pub use table::{Metric, Needs, UnknownMetric, UnknownWorkload, WorkloadName};
