//! What running VMs do, interval by interval: a table, CSV, OpenMetrics; and the columns that the live screen has, too.

mod batch;
mod columns;
mod csv;
mod host_disks;
mod openmetrics;
mod reason;
mod sentence;
mod unknown;

pub(crate) use batch::explained;
pub use batch::top;
pub use columns::{TOP_COLUMNS, TopColumn};
pub use csv::{csv_head, csv_rows};
pub use host_disks::host_disks;
pub use openmetrics::openmetrics;
pub use sentence::{level_cost, sentence};
pub use unknown::unknown_columns;
