//! What a reader of the figures has to know, each with what to do about it.

use crate::{Machine, ShareMethod};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that makes figures weaker or different from what they seem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "warning", rename_all = "kebab-case")]
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
        /// Rounds needed.
        needed: u32,
    },
    /// Some trials have no result.
    TrialsMissing {
        /// Which machine.
        machine: Machine,
        /// How many have none.
        missing: u32,
        /// Out of how many.
        planned: u32,
        /// The first reason given.
        reason: String,
    },
    /// The totals are smaller than the reference's own.
    SmallerThanReference {
        /// What was made smaller, for people.
        what: String,
    },
    /// The TSC would not do.
    NoTsc {
        /// Where.
        machine: Machine,
        /// Why.
        reason: String,
    },
    /// A machine came up, but not all of it.
    HalfUp {
        /// Where.
        machine: Machine,
        /// What did not work, from its agent.
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
        /// How the tree is shared.
        method: ShareMethod,
        /// Its soft limit.
        limit: u64,
        /// Names that the guest holds, each an open file of the server's.
        needed: u64,
    },
    /// Two recordings are held against each other that were not made in the same rounds.
    OtherTimes,
    /// Sides differ in more than was asked for.
    AlsoDiffer {
        /// The side, as the plan calls it.
        side: String,
        /// In what, for people.
        what: String,
    },
    /// The host's own speed changed during a comparison.
    HostDrift {
        /// Its control's time at the slowest over that at the fastest third of the run, in percent above 100.
        percent: u32,
    },
    /// Processors are too few to give each of the guest's its own.
    NotPinned {
        /// Processors that the guest has.
        cpus: u32,
        /// Processors of the host.
        online: u32,
    },
    /// Another load took the processors while measuring.
    StolenTime {
        /// Share of CPU time stolen by the hypervisor underneath, 0 to 1, in percent rounded.
        percent: u32,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::KernelsDiffer { host, machine, guest } => write!(
                f,
                "the host runs Linux {host} and the {machine} guest {guest}: a difference in system calls is not all \
                 virtualisation. Give the host's own kernel with --kernel to compare like with like."
            ),
            Warning::NoMemoryLimit { reason } => write!(
                f,
                "the native trials could use all of the host's memory ({reason}), the guest could not: file figures \
                 flatter native. Run as root, or within a delegated cgroup."
            ),
            Warning::TooFewRounds { rounds, needed } => write!(
                f,
                "{rounds} complete round{} no 95 % interval; it takes {needed}. Use --rounds {needed} or more.",
                if *rounds == 1 { " gives" } else { "s give" }
            ),
            Warning::TrialsMissing { machine, missing, planned, reason } => {
                write!(f, "{missing} of {planned} trials on {machine} have no result. The first: {reason}")
            }
            Warning::SmallerThanReference { what } => {
                write!(
                    f,
                    "smaller than the published sysbench report (the reference): {what}. Use --full for its totals."
                )
            }
            Warning::NoTsc { machine, reason } => write!(
                f,
                "{machine} is timed by clock_gettime, not by the TSC ({reason}): short operations carry more of the \
                 timer. See `vmtax doctor`."
            ),
            Warning::HalfUp { machine, complaint } => {
                write!(f, "{machine} came up without {complaint}. Try another kernel: `vmtax get kernel`.")
            }
            Warning::MsizeCapped { asked, got } => write!(
                f,
                "9p's msize is {got}, not the {asked} that were asked for: the guest's kernel or QEMU allows no more. Ask \
                 for {got} at most, or take a newer kernel."
            ),
            Warning::FewOpenFiles { method, limit, needed } => write!(
                f,
                "the server of {method} may have {limit} files open, for the {needed} names of the guest: QEMU closes and opens them \
                 again, which takes its time, another server refuses the rest. Raise the limit (`ulimit -Sn {needed}`, at \
                 most `ulimit -Hn`), or hold fewer."
            ),
            Warning::OtherTimes => write!(
                f,
                "the recordings were made at different times: what the host did otherwise then is in the difference. Name both sides in one `vmtax compare` to have them measured in the same rounds."
            ),
            Warning::AlsoDiffer { side, what } => {
                write!(
                    f,
                    "side '{side}' differs from the baseline in more than was asked for: {what}. Set it on both sides."
                )
            }
            Warning::HostDrift { percent } => write!(
                f,
                "the host itself was up to {percent} % slower in one third of the run than in another. Sides are only held against each other within a round, which takes slow drift out; repeat on a quieter machine to be sure."
            ),
            Warning::NotPinned { cpus, online } => write!(
                f,
                "the guest's processors were not given processors of their own: it has {cpus}, the host {online}, and two have to be left for everything else. Use fewer --cpus or a larger host."
            ),
            Warning::StolenTime { percent } => write!(
                f,
                "{percent} % of the processors' time went to other guests of the machine underneath while measuring: \
                 repeat on a quieter machine or with more --rounds."
            ),
        }
    }
}
