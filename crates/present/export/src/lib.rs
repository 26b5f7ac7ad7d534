//! Recordings for other tools: joined requests for Perfetto's viewer and anything that reads Parquet (docs/export.md), and
//! the recordings of many hosts as one dataset (docs/dataset.md). Tables are for any other store of many runs.

mod dataset;
mod error;
mod joined;
mod parquet;
mod perfetto;
mod proto;
mod record;
mod run;
#[cfg(test)]
mod specimen;
pub mod table;

pub use dataset::{Added, Dataset, read_dataset};
pub use error::ExportError;
pub use joined::{ObservedTrials, Trial, at_quantile};
pub use parquet::{Requests, Segments};
pub use perfetto::Perfetto;
pub use run::Run;
