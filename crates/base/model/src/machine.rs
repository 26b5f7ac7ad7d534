//! Where a workload runs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The machines of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineName {
    /// The host itself, in a process with the guest's CPUs and memory limit.
    Native,
    /// A QEMU guest run by the processor.
    Kvm,
    /// A QEMU guest run by translation.
    Tcg,
    /// The micro-guest, a ROM of ours without an operating system, under KVM: the floor under a guest's figures.
    MicroKvm,
    /// The micro-guest under TCG.
    MicroTcg,
}

impl MachineName {
    /// Every machine, native first.
    pub const ALL: &'static [MachineName] =
        &[MachineName::Native, MachineName::Kvm, MachineName::Tcg, MachineName::MicroKvm, MachineName::MicroTcg];

    /// The name as typed and stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            MachineName::Native => "native",
            MachineName::Kvm => "kvm",
            MachineName::Tcg => "tcg",
            MachineName::MicroKvm => "micro-kvm",
            MachineName::MicroTcg => "micro-tcg",
        }
    }

    /// Whether QEMU runs it.
    pub const fn is_guest(self) -> bool {
        !matches!(self, MachineName::Native)
    }

    /// Whether it is the micro-guest: no kernel, no workloads but block requests.
    pub const fn is_micro(self) -> bool {
        matches!(self, MachineName::MicroKvm | MachineName::MicroTcg)
    }

    /// QEMU's name for what runs the guest's instructions; `None` natively.
    pub const fn accelerator(self) -> Option<&'static str> {
        match self {
            MachineName::Native => None,
            MachineName::Kvm | MachineName::MicroKvm => Some("kvm"),
            MachineName::Tcg | MachineName::MicroTcg => Some("tcg"),
        }
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The name given is no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown machine '{0}': choose from native, kvm, tcg, micro-kvm, micro-tcg")]
pub struct UnknownMachine(pub String);

impl FromStr for MachineName {
    type Err = UnknownMachine;
    fn from_str(s: &str) -> Result<Self, UnknownMachine> {
        MachineName::ALL.iter().copied().find(|m| m.as_str() == s).ok_or_else(|| UnknownMachine(s.to_owned()))
    }
}
