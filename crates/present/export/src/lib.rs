//! Recordings for other tools: joined requests for Perfetto's viewer and anything that reads Parquet (docs/export.md), and
//! the recordings of many hosts as one dataset (docs/dataset.md). Tables are for any other store of many runs.

mod dataset;
mod error;
mod joined;
mod parquet;
mod perfetto;
pub mod table;

pub use dataset::{Added, Dataset, read_dataset};
pub use error::ExportError;
pub use joined::{ObservedTrials, Trial, at_quantile};
pub use parquet::{Requests, Segments};
pub use perfetto::Perfetto;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use vmtax_recording::Recording;

/// Linux allows no more (HOST_NAME_MAX).
const LONGEST_HOST: usize = 64;

/// A run as tables name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Of this run alone, wherever its recording lies: `20261125T091310Z-quick-3f2a91bc0d1e`.
    pub id: String,
    /// The day on which it began, UTC: `2026-11-25`.
    pub date: String,
    /// The host's name, or its ID where names are not to be given; `None` where the recording does not have it.
    pub host: Option<String>,
    /// True if the host's name is withheld.
    pub is_hashed: bool,
}

impl Run {
    /// Returns the identity of a recording's run; with `hash_host` its host is known by a hash alone.
    ///
    /// # Errors
    /// [`ExportError::Started`], [`ExportError::HostName`] if the recording has no time or host that can be.
    pub fn identify(recording: &Recording, hash_host: bool) -> Result<Run, ExportError> {
        let started = &recording.manifest.started;
        let began: Timestamp = started.parse().map_err(|_| ExportError::Started {
            folder: recording.folder.clone(),
            started: started.chars().take(40).collect(),
        })?;
        let identity = &recording.host.identity;
        let name = if hash_host {
            &identity.id
        } else {
            &identity.name
        };
        let name = name.clone().filter(|name| !name.is_empty());
        if let Some(long) = name.as_ref().filter(|name| name.len() > LONGEST_HOST) {
            return Err(ExportError::HostName {
                folder: recording.folder.clone(),
                length: long.len(),
            });
        }
        let time = began.strftime("%Y%m%dT%H%M%SZ");
        Ok(Run {
            id: format!("{time}-{}-{}", recording.plan.name, digest(recording)),
            date: began.strftime("%Y-%m-%d").to_string(),
            host: name,
            is_hashed: hash_host,
        })
    }
}

/// A hash of what tells a run from others. The host's name is left out: a short hash of a name can be guessed.
fn digest(recording: &Recording) -> String {
    let Recording {
        manifest,
        plan,
        host,
        ..
    } = recording;
    let seed = plan.seed.to_string();
    let parts = [
        &manifest.started,
        &plan.name,
        &seed,
        &host.kernel,
        &host.cpu.model,
    ];
    let mut hash = Sha256::new();
    for part in parts
        .into_iter()
        .chain(&host.identity.id)
        .chain(&manifest.command)
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let bytes = hash.finalize();
    bytes.iter().take(6).map(|b| format!("{b:02x}")).collect()
}
