//! Warnings that a reader of the figures has to know. The rules express them in words, with what to do about them.

use crate::{Machine, ShareMethod};
use serde::{Deserialize, Serialize};

/// Something that makes figures weaker or different from what they seem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "warning", rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Warning {
    /// Host and guest run different kernels.
    KernelsDiffer {
        /// `uname -r` of the host.
        host: String,
        /// The machine meant.
        machine: Machine,
        /// `uname -r` of the guest.
        guest: String,
    },
    /// The native side has more memory than the guest.
    NoMemoryLimit {
        /// Why the limit could not be set.
        reason: String,
    },
    /// Fewer rounds than an interval needs.
    TooFewRounds {
        /// Complete rounds there are.
        rounds: u32,
        /// Number of rounds needed.
        needed: u32,
    },
    /// Some trials have no result.
    TrialsMissing {
        /// Machine of these trials.
        machine: Machine,
        /// Number of trials without a result.
        missing: u32,
        /// Out of how many.
        planned: u32,
        /// The first reason given.
        reason: String,
    },
    /// The totals are smaller than the reference's own.
    SmallerThanReference {
        /// Description of the part that was made smaller, for people.
        what: String,
    },
    /// The TSC would not do.
    NoTsc {
        /// Machine without a usable TSC.
        machine: Machine,
        /// Reason that the TSC was not used.
        reason: String,
    },
    /// A machine booted, but not all of it.
    PartialBoot {
        /// Machine that booted in part.
        machine: Machine,
        /// Description of what did not work, from the machine's agent.
        complaint: String,
    },
    /// 9p's messages are smaller than asked for.
    MsizeCapped {
        /// Bytes asked for.
        asked: u64,
        /// Bytes agreed on.
        got: u64,
    },
    /// Who serves a share may not have as many files open as a guest holds.
    FewOpenFiles {
        /// Method by which the tree is shared.
        method: ShareMethod,
        /// Soft limit of open files of the server.
        limit: u64,
        /// Names that the guest holds, each an open file of the server's.
        needed: u64,
    },
    /// Two recordings are compared that were not made in the same rounds.
    OtherTimes,
    /// Variants differ in more than was asked for.
    AlsoDiffer {
        /// Name of the variant.
        variant: String,
        /// In what, for people.
        what: String,
    },
    /// The host's own speed changed during a comparison.
    HostDrift {
        /// Time of the host's control in the slowest third of the run divided by that in the fastest third, in percent
        /// above 100.
        percent: u32,
    },
    /// CPUs are too few to give each of the guest's its own.
    NotPinned {
        /// CPUs that the guest has.
        cpus: u32,
        /// CPUs of the host.
        online: u32,
    },
    /// The guest stood still for a part of a trial, whose figures do not count.
    StoodStill {
        /// Machine that stood still.
        machine: Machine,
        /// For how long, seconds.
        seconds: u32,
    },
    /// The network is not one of the machine's own: its server is on the host's loopback device.
    OnHostLoopback {
        /// Reason for using the loopback device.
        reason: String,
    },
    /// Another load on the host kept a guest's vCPUs waiting.
    BusyHost {
        /// Machine whose vCPUs waited.
        machine: Machine,
        /// Part of the time in which they could run that they waited for a host CPU, in percent rounded.
        percent: u32,
    },
    /// Another load took the CPUs while measuring.
    StolenTime {
        /// Share of CPU time stolen by the hypervisor underneath, 0 to 1, in percent rounded.
        percent: u32,
    },
}

impl Warning {
    /// The identifier of each warning, and of the rule that says what it means and what to do.
    pub const IDS: &[&str] = <Warning as strum::VariantNames>::VARIANTS;

    /// Returns the warning's identifier.
    pub fn id(&self) -> &'static str {
        self.into()
    }
}
