//! Which workload, with which options. What an option means and its default is the workload's own business.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The workloads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadName {
    /// sysbench's prime numbers.
    Cpu,
    /// sysbench's yields and locks.
    Threads,
    /// sysbench's mutexes.
    Mutex,
    /// sysbench's memory transfer.
    Memory,
    /// sysbench's files.
    Fileio,
    /// One system call at a time.
    Syscalls,
    /// Sequential direct reads, one at a time.
    Seqread,
    /// A tree copied out of the share, walked, and mapped.
    Tree,
    /// Bonnie++'s operations on the share.
    Bonnie,
    /// What one more name known to the share's server costs.
    Fids,
    /// Calls on names among many, far down, or with attributes.
    Names,
    /// What the share keeps of what files are.
    Meaning,
    /// A command of the user's, as it is: [`crate::CommandSpec`].
    Exec,
    /// Exits of each kind, one after the other: on the micro-guest alone.
    Exits,
    /// Costly habits of guest kernels, and their cures: likewise.
    Habits,
}

impl WorkloadName {
    /// Every workload, in the order in which `run` makes and reports list them.
    pub const ALL: &'static [WorkloadName] = &[
        WorkloadName::Cpu,
        WorkloadName::Threads,
        WorkloadName::Mutex,
        WorkloadName::Memory,
        WorkloadName::Fileio,
        WorkloadName::Syscalls,
        WorkloadName::Seqread,
        WorkloadName::Tree,
        WorkloadName::Bonnie,
        WorkloadName::Fids,
        WorkloadName::Names,
        WorkloadName::Meaning,
        WorkloadName::Exec,
        WorkloadName::Exits,
        WorkloadName::Habits,
    ];

    /// Whether it needs an operating system; what does not runs on the micro-guest alone.
    pub const fn needs_kernel(self) -> bool {
        !matches!(self, WorkloadName::Exits | WorkloadName::Habits)
    }

    /// Whether it needs the shared tree ([`Places::share`]).
    pub const fn needs_share(self) -> bool {
        matches!(
            self,
            WorkloadName::Tree
                | WorkloadName::Bonnie
                | WorkloadName::Fids
                | WorkloadName::Names
                | WorkloadName::Meaning
        )
    }

    /// Those that `run` makes when none is named: what a system alone suffices for.
    pub fn usual() -> impl Iterator<Item = WorkloadName> {
        Self::ALL.iter().copied().filter(|w| w.needs_kernel() && !w.needs_share() && *w != WorkloadName::Exec)
    }

    /// The name as typed and stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkloadName::Cpu => "cpu",
            WorkloadName::Threads => "threads",
            WorkloadName::Mutex => "mutex",
            WorkloadName::Memory => "memory",
            WorkloadName::Fileio => "fileio",
            WorkloadName::Syscalls => "syscalls",
            WorkloadName::Seqread => "seqread",
            WorkloadName::Tree => "tree",
            WorkloadName::Bonnie => "bonnie",
            WorkloadName::Fids => "fids",
            WorkloadName::Names => "names",
            WorkloadName::Meaning => "meaning",
            WorkloadName::Exec => "exec",
            WorkloadName::Exits => "exits",
            WorkloadName::Habits => "habits",
        }
    }
}

impl WorkloadName {
    /// How the published sysbench report that the five tests come from (seed 004) runs this workload, option by
    /// option; where it leaves a time out, sysbench 1.0's default. Empty for the others.
    pub const fn reference(self) -> &'static [(&'static str, &'static str)] {
        match self {
            WorkloadName::Cpu => &[("max-prime", "2000"), ("time", "10")],
            WorkloadName::Threads => &[("threads", "500"), ("yields", "100"), ("locks", "4"), ("time", "10")],
            WorkloadName::Mutex => &[("threads", "4"), ("num", "2000"), ("locks", "10000"), ("loops", "5000")],
            WorkloadName::Memory => &[("block-size", "8K"), ("total-size", "1G"), ("time", "10")],
            WorkloadName::Fileio => &[("threads", "20"), ("total-size", "2G"), ("test-mode", "rndrw"), ("time", "10")],
            _ => &[],
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The name given is no workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload '{0}': choose from {known}", known = WorkloadName::ALL.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(", "))]
pub struct UnknownWorkload(pub String);

impl FromStr for WorkloadName {
    type Err = UnknownWorkload;
    fn from_str(s: &str) -> Result<Self, UnknownWorkload> {
        WorkloadName::ALL.iter().copied().find(|w| w.as_str() == s).ok_or_else(|| UnknownWorkload(s.to_owned()))
    }
}

/// Where the workloads that need files and disks find room for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Folder for `fileio`'s files, the temporary files of `syscalls`, and what `tree` copies. Whatever a workload puts there it removes.
    pub files: Option<PathBuf>,
    /// Block device or written file for `seqread`; written to only with `operation=write`.
    pub disk: Option<PathBuf>,
    /// The shared tree: `/share` in a guest, the folder itself natively. Written to only in its folder `scratch`.
    pub share: Option<PathBuf>,
}

/// A workload with the options that differ from its defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Which one.
    pub name: WorkloadName,
    /// Option name to value, as text (`max-prime` → `2000`). A TOML plan may give numbers and booleans unquoted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "scalars_as_text")]
    pub options: BTreeMap<String, String>,
}

impl WorkloadSpec {
    /// The workload with its defaults.
    pub fn new(name: WorkloadName) -> Self {
        WorkloadSpec { name, options: BTreeMap::new() }
    }

    /// The same with one option set.
    pub fn with(mut self, option: &str, value: impl fmt::Display) -> Self {
        self.options.insert(option.to_owned(), value.to_string());
        self
    }
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
