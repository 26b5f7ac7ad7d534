//! Recordings for other tools: joined requests for Perfetto's viewer and anything that reads Parquet (docs/export.md), and
//! the recordings of many hosts as one dataset (docs/dataset.md). Tables are for any other store of many runs.

mod dataset;
mod joined;
mod parquet;
mod perfetto;
pub mod table;

pub use dataset::{Added, Dataset, has_figures, read_dataset};
pub use joined::{ObservedTrials, Trial, at_quantile};
pub use parquet::{Requests, Segments};
pub use perfetto::Perfetto;

use ::parquet::errors::ParquetError;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use vmtax_layers::LayersError;
use vmtax_profile::ProfileError;
use vmtax_recording::{Recording, RecordingError};

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

/// An export could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file cannot be written.
    #[error("the {what} cannot be written ({source}): name a file on a disk with free space")]
    Write {
        /// Name of the export.
        what: &'static str,
        /// Reason for the failure, as the system gives it.
        source: std::io::Error,
    },
    /// The Parquet library needs random numbers for its hash tables.
    #[error(
        "the {what} cannot be written: /dev/urandom cannot be read ({source}). Mount /dev, or allow more open files: ulimit -n 4096"
    )]
    Random {
        /// Name of the export.
        what: &'static str,
        /// Reason for the failure, as the system gives it.
        source: getrandom::Error,
    },
    /// The Parquet library refuses.
    #[error("the {what} cannot be written ({source}): name a file on a disk with free space")]
    Parquet {
        /// Name of the export.
        what: &'static str,
        /// Reason for the failure, as the library gives it.
        source: ParquetError,
    },
    /// A trace cannot be read.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// The observed data cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The folder of a dataset cannot be made or used.
    #[error(transparent)]
    Folder(#[from] RecordingError),
    /// A file of a dataset cannot be written.
    #[error("cannot write {} ({source}): check its owner, its permissions and the free space on its disk", path.display())]
    File {
        /// The file, or its folder.
        path: PathBuf,
        /// Reason for the failure, as the system gives it.
        source: std::io::Error,
    },
    /// The run has no date.
    #[error("{}/run.json: '{}' is no time in RFC 3339: restore the file from where this recording was copied", folder.display(), started.escape_default())]
    Started {
        /// Directory of the recording.
        folder: PathBuf,
        /// Text in place of the date, at most 40 characters.
        started: String,
    },
    /// The host's name is none.
    #[error("{}/host.json: the host's name has {length} bytes, Linux allows 64: restore the file from where this recording was copied", folder.display())]
    HostName {
        /// Directory of the recording.
        folder: PathBuf,
        /// Bytes of the name.
        length: usize,
    },
    /// A dataset lacks a table.
    #[error("{} has no table {table}: name the directory that `vmtax export RECORDING --dataset DIR` wrote", dataset.display())]
    NoTable {
        /// Directory of the dataset.
        dataset: PathBuf,
        /// Name of the missing table.
        table: String,
    },
    /// No recording of a dataset has figures.
    #[error("the recordings in {} have no figures, as those of running VMs: export one of `vmtax run --quick` into it", dataset.display())]
    NoFigures {
        /// Directory of the dataset.
        dataset: PathBuf,
    },
    /// A folder of a dataset cannot be listed.
    #[error("cannot list {} ({source}): give the user who runs vmtax the right to read it", path.display())]
    ReadFolder {
        /// Directory that cannot be listed.
        path: PathBuf,
        /// Reason for the failure, as the system gives it.
        source: std::io::Error,
    },
}
