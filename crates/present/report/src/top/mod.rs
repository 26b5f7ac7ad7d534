//! Activity of running VMs, interval by interval: a table, CSV, OpenMetrics; and the counters, which are also columns
//! of the live screen.

mod batch;
mod counters;
mod csv;
mod host_disks;
mod openmetrics;
mod reason;
mod sentence;
mod unit;
mod unknown;

pub(crate) use batch::explained;
pub use batch::top;
pub use counters::{VM_COUNTERS, VmCounter, top_columns};
pub use csv::{csv_head, csv_rows};
pub use host_disks::host_disks;
pub use openmetrics::openmetrics;
pub use sentence::{level_cost, sentence};
pub use unknown::unknown_columns;
