//! Workloads as plans and recordings know them.

mod name;
mod spec;
mod table;

pub use name::{Metric, Needs, UnknownMetric, UnknownWorkload, WorkloadName};
pub use spec::{BatchEdge, Places, WorkloadSpec, parse_size};
