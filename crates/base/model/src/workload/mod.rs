//! Workloads as plans and recordings know them: names, needs and metrics, from their [table](crate::workloads), and a workload with
//! its options.

use crate::PlanError;
use crate::number::{Better, Unit};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::str::FromStr;

mod table;

/// Where the workloads that need files and disks find room for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Folder for `fileio`'s files, the temporary files of `syscalls`, and what `tree` copies. Whatever a workload puts
    /// there it removes.
    pub files: Option<PathBuf>,
    /// Block device or written file for the workload `disk`; written to only where `destroy` names it, too.
    pub disk: Option<PathBuf>,
    /// The disk or file that a workload may overwrite: vmtax's own, or the one that the user named as such.
    pub destroy: Option<PathBuf>,
    /// The shared tree: `/share` in a guest, the folder itself natively. Written to only in its folder `scratch`. For a program of
    /// the host it is the host's root, natively `None`.
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

/// Surroundings that a workload needs to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// An operating system, with a folder for files at the most ([`crate::Places::files`]).
    System,
    /// Besides, a disk of its own ([`crate::Places::disk`]).
    Disk,
    /// Besides, the shared tree ([`crate::Places::share`]).
    Share,
    /// Besides, an echo server that it reaches over the network ([`crate::Places::echo`]).
    Network,
    /// A disk of its own ([`crate::Places::disk`]), and a program of the host, whose files a guest shares ([`crate::Places::share`]).
    HostProgram,
    /// A command of the user's ([`crate::CommandSpec`]).
    Command,
    /// No operating system: it runs on the bare-metal micro-guest alone.
    MicroGuest,
}

/// Values of an option as text, by the option's name.
type Options = &'static [(&'static str, &'static str)];

macro_rules! names {
    ($(
        #[doc = $doc:literal]
        $workload:ident $name:literal, in $module:ident, needs $needs:ident, published $published:tt {
            $($metric:ident $suffix:literal $unit:ident $better:ident $label:literal $(of $operation:literal)?;)*
        }
    )*) => {
        /// The workloads there are.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum WorkloadName { $(#[doc = $doc] #[serde(rename = $name)] $workload,)* }

        impl WorkloadName {
            /// Every workload, in the order in which `run` makes and reports list them.
            pub const ALL: &'static [WorkloadName] = &[$(WorkloadName::$workload),*];
            /// The name as typed and stored.
            pub const fn as_str(self) -> &'static str { match self { $(WorkloadName::$workload => $name),* } }
            /// Returns the surroundings that it needs to run.
            pub const fn needs(self) -> Needs { match self { $(WorkloadName::$workload => Needs::$needs),* } }
            /// Options with which the published sysbench report that the five tests come from runs this workload;
            /// where it leaves a time out, sysbench 1.0's default. Empty for the others.
            pub const fn reference(self) -> Options { match self { $(WorkloadName::$workload => &$published),* } }
        }

        /// A measured quantity. Its identifier (`cpu.events`, `syscalls.getpid`, …) is what files and `--json` hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub enum Metric { $($(#[doc = $label] $metric,)*)* }

        impl Metric {
            /// Every metric, in the order in which reports list them.
            pub const ALL: &'static [Metric] = &[$($(Metric::$metric,)*)*];
            /// The identifier, workload first: `cpu.events`.
            pub const fn id(self) -> &'static str {
                match self { $($(Metric::$metric => concat!($name, ".", $suffix),)*)* }
            }
            /// The workload that gives it.
            pub const fn workload(self) -> WorkloadName {
                match self { $($(Metric::$metric => WorkloadName::$workload,)*)* }
            }
            /// The unit of its values.
            pub const fn unit(self) -> Unit { match self { $($(Metric::$metric => Unit::$unit,)*)* } }
            /// Direction that is better: more or less of it.
            pub const fn better(self) -> Better { match self { $($(Metric::$metric => Better::$better,)*)* } }
            /// A short name for tables.
            pub const fn label(self) -> &'static str { match self { $($(Metric::$metric => $label,)*)* } }
            /// The operation of its workload whose latencies stand behind it (the `name` of a [`crate::Operation`]);
            /// `None` where single operations are not timed.
            pub const fn operation(self) -> Option<&'static str> {
                let all: &[Option<&str>] = match self { $($(Metric::$metric => &[$(Some($operation),)? None],)*)* };
                all[0]
            }
        }
    };
}

crate::workloads!(names);

impl WorkloadName {
    /// Returns true if it needs an operating system; what does not runs on the micro-guest alone.
    pub const fn needs_kernel(self) -> bool {
        !matches!(self.needs(), Needs::MicroGuest)
    }

    /// Returns true if it needs the shared tree ([`crate::Places::share`]).
    pub const fn needs_share(self) -> bool {
        matches!(self.needs(), Needs::Share)
    }

    /// Returns true if it runs on the measured disk ([`crate::Places::disk`]).
    pub const fn needs_disk(self) -> bool {
        matches!(self.needs(), Needs::Disk | Needs::HostProgram)
    }

    /// Returns true if it starts a program of the host, whose root a guest then shares.
    pub const fn needs_host_program(self) -> bool {
        matches!(self.needs(), Needs::HostProgram)
    }

    /// Returns true if it needs a network with an echo server ([`crate::Places::echo`]).
    pub const fn needs_network(self) -> bool {
        matches!(self.needs(), Needs::Network)
    }

    /// Those that `run` makes when none is named: what a system alone suffices for.
    pub fn usual() -> impl Iterator<Item = WorkloadName> {
        Self::ALL
            .iter()
            .copied()
            .filter(|w| matches!(w.needs(), Needs::System | Needs::Disk))
    }

    /// Metrics of the workload, in the order in which reports list them.
    pub fn metrics(self) -> impl Iterator<Item = Metric> + Clone {
        Metric::ALL
            .iter()
            .copied()
            .filter(move |m| m.workload() == self)
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for WorkloadName {
    type Err = PlanError;
    fn from_str(s: &str) -> Result<Self, PlanError> {
        let mut all = WorkloadName::ALL.iter().copied();
        all.find(|workload| workload.as_str() == s).ok_or_else(|| {
            let known: Vec<&str> = WorkloadName::ALL.iter().map(|w| w.as_str()).collect();
            let known = known.join(", ");
            PlanError::Invalid(format!("unknown workload '{s}': choose from {known}"))
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl FromStr for Metric {
    type Err = String;
    fn from_str(id: &str) -> Result<Self, String> {
        let mut all = Metric::ALL.iter().copied();
        all.find(|metric| metric.id() == id).ok_or_else(|| {
            format!(
                "unknown metric '{id}': `vmtax history` lists the measured metrics; a metric of a newer vmtax needs that version"
            )
        })
    }
}

impl From<Metric> for String {
    fn from(m: Metric) -> String {
        m.id().to_owned()
    }
}

impl TryFrom<String> for Metric {
    type Error = String;
    fn try_from(id: String) -> Result<Self, String> {
        id.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_and_read_back() {
        for m in Metric::ALL {
            assert_eq!(m.id().parse::<Metric>().as_ref(), Ok(m));
            assert_eq!(
                Metric::ALL.iter().filter(|o| o.id() == m.id()).count(),
                1,
                "{m}"
            );
        }
    }

    #[test]
    fn metrics_know_their_workload_and_operation() {
        assert_eq!(
            WorkloadName::Memory
                .metrics()
                .map(Metric::id)
                .collect::<Vec<_>>(),
            ["memory.bandwidth", "memory.operations"]
        );
        assert_eq!(
            (
                Metric::FileioPrepare.operation(),
                Metric::ExecWall.operation()
            ),
            (None, None)
        );
        assert_eq!(Metric::SyscallOpenClose.operation(), Some("open_close"));
        assert_eq!(Metric::FileioFsyncs.operation(), Some("fsync"));
        assert_eq!(Metric::CpuEvents.operation(), Some("event"));
    }
}
