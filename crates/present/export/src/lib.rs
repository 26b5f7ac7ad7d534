//! Recordings for other tools: joined requests for Perfetto's viewer and anything that reads Parquet (docs/export.md), and
//! the recordings of many hosts as one dataset (docs/dataset.md).

mod dataset;
mod error;
mod parquet;
mod perfetto;
mod proto;
mod record;
#[cfg(test)]
mod specimen;
mod table;

pub use dataset::{Added, Dataset};
pub use error::ExportError;
pub use parquet::{Requests, Segments};
pub use perfetto::Perfetto;

use vmtax_layers::{JoinedRequest, JoinedTrial};
use vmtax_model::Machine;

/// A trial's joined requests, with what tells the trial from others.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// Its number in the recording.
    pub number: u32,
    /// Where it ran.
    pub machine: Machine,
    /// In which of the plan's variants; empty for the only one.
    pub variant: &'a str,
    /// In which round, from 0.
    pub round: u32,
    /// Its requests.
    pub joined: &'a JoinedTrial,
}

/// The request that a share of a trial's requests, 0 to 1, does not outlast; `None` of a trial without requests.
pub fn at_quantile(trial: &JoinedTrial, share: f64) -> Option<&JoinedRequest> {
    let mut order: Vec<&JoinedRequest> = trial.requests.iter().collect();
    order.sort_by_key(|r| r.total());
    let rank = (share.clamp(0.0, 1.0) * order.len() as f64).ceil() as usize;
    order.get(rank.saturating_sub(1)).copied()
}
