//! Workloads as plans and recordings know them.

mod name;
mod table;

pub use name::{Metric, Needs, UnknownMetric, UnknownWorkload, WorkloadName};

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;

/// Where the workloads that need files and disks find room for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Folder for `fileio`'s files, the temporary files of `syscalls`, and what `tree` copies. Whatever a workload puts there it removes.
    pub files: Option<PathBuf>,
    /// Block device or written file for the workload `disk`; written to only with `operation=write`.
    pub disk: Option<PathBuf>,
    /// The shared tree: `/share` in a guest, the folder itself natively. Written to only in its folder `scratch`.
    pub share: Option<PathBuf>,
    /// The echo server of `net-rr`, UDP and TCP on the same port.
    pub echo: Option<SocketAddrV4>,
    /// True if standard input is a socket to the agent, which is notified of each [`BatchEdge`].
    pub notified: bool,
}

/// The begin or end of a batch of requests that a machine's VMM serves, so that the controller can count the VMM's CPU time
/// of it: the workload waits at each until the controller has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchEdge {
    /// The next request is the batch's first.
    Begin,
    /// The last one was answered.
    End {
        /// Number of requests in the batch.
        requests: u64,
    },
}

impl BatchEdge {
    /// As the workload sends it to the agent: the number of requests at the end, 0 at the begin.
    pub const fn to_bytes(self) -> [u8; 8] {
        match self {
            BatchEdge::Begin => 0_u64.to_le_bytes(),
            BatchEdge::End { requests } => requests.to_le_bytes(),
        }
    }

    /// Returns the edge of which [`BatchEdge::to_bytes`] returned these bytes.
    pub const fn from_bytes(bytes: [u8; 8]) -> BatchEdge {
        match u64::from_le_bytes(bytes) {
            0 => BatchEdge::Begin,
            requests => BatchEdge::End { requests },
        }
    }
}

/// A workload with the options that differ from its defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Name of the workload.
    pub name: WorkloadName,
    /// Option name to value, as text (`max-prime` → `2000`). A TOML plan may give numbers and booleans unquoted.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "scalars_as_text"
    )]
    pub options: BTreeMap<String, String>,
}

impl WorkloadSpec {
    /// The workload with its defaults.
    pub fn new(name: WorkloadName) -> Self {
        WorkloadSpec {
            name,
            options: BTreeMap::new(),
        }
    }

    /// Returns the workload with one more option set.
    pub fn with(mut self, option: &str, value: impl fmt::Display) -> Self {
        self.options.insert(option.to_owned(), value.to_string());
        self
    }

    /// The option that [`WorkloadSpec::block_size`] reads.
    pub const BLOCK_SIZE: &str = "block-size";

    /// Bytes of one of its requests, where the spec says so; a result's spec does.
    pub fn block_size(&self) -> Option<u64> {
        self.options
            .get(Self::BLOCK_SIZE)
            .and_then(|text| parse_size(text))
            .filter(|bytes| *bytes > 0)
    }
}

/// Bytes, with an optional suffix K, M, G or T (powers of 1024); a plain count as it is. `None` for what is neither.
pub fn parse_size(text: &str) -> Option<u64> {
    let bare = text.strip_suffix("iB").unwrap_or(text);
    let (digits, shift) = match bare.chars().last()?.to_ascii_uppercase() {
        'K' => (&bare[..bare.len() - 1], 10),
        'M' => (&bare[..bare.len() - 1], 20),
        'G' => (&bare[..bare.len() - 1], 30),
        'T' => (&bare[..bare.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn scalars_as_text<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Scalar {
        Text(String),
        Integer(i64),
        Float(f64),
        Boolean(bool),
    }
    let raw = BTreeMap::<String, Scalar>::deserialize(d)?;
    Ok(raw
        .into_iter()
        .map(|(k, v)| {
            let text = match v {
                Scalar::Text(s) => s,
                Scalar::Integer(i) => i.to_string(),
                Scalar::Float(x) => x.to_string(),
                Scalar::Boolean(b) => (if b { "on" } else { "off" }).to_owned(),
            };
            (k, text)
        })
        .collect())
}
