//! Names, needs and metrics of workloads, as plans, recordings and reports know them, from their [table](crate::workloads).

use crate::metric::{Better, Unit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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

/// The name given is no workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload '{0}': choose from {known}", known = WorkloadName::ALL.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(", "))]
pub struct UnknownWorkload(pub String);

impl FromStr for WorkloadName {
    type Err = UnknownWorkload;
    fn from_str(s: &str) -> Result<Self, UnknownWorkload> {
        WorkloadName::ALL
            .iter()
            .copied()
            .find(|workload| workload.as_str() == s)
            .ok_or_else(|| UnknownWorkload(s.to_owned()))
    }
}

/// The name given is no metric of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown metric '{0}': `vmtax history` lists those that were measured; one of a newer vmtax takes that version"
)]
pub struct UnknownMetric(pub String);

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl FromStr for Metric {
    type Err = UnknownMetric;
    fn from_str(id: &str) -> Result<Self, UnknownMetric> {
        Metric::ALL
            .iter()
            .copied()
            .find(|metric| metric.id() == id)
            .ok_or_else(|| UnknownMetric(id.to_owned()))
    }
}

impl From<Metric> for String {
    fn from(m: Metric) -> String {
        m.id().to_owned()
    }
}

impl TryFrom<String> for Metric {
    type Error = UnknownMetric;
    fn try_from(id: String) -> Result<Self, UnknownMetric> {
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
