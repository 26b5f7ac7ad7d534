//! Where a workload runs: on the host itself, or in a guest given by its VMM, its accelerator and what it boots; and the path
//! between its network card and the host's network.

use crate::PlanError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A virtual machine monitor.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Vmm {
    /// QEMU, the only VMM that vmtax boots guests with.
    #[default]
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// The library libkrun, in whatever program uses it: `krunvm`, `msb`, `muvm`, `crun`.
    Libkrun,
    /// crosvm.
    Crosvm,
    /// kvmtool (`lkvm`).
    Kvmtool,
    /// A program that runs a guest of KVM, of which nothing tells which VMM it is.
    Unknown,
}

impl Vmm {
    /// Name for people, as the project writes it.
    pub fn name(self) -> &'static str {
        match self {
            Vmm::Qemu => "QEMU",
            Vmm::Firecracker => "Firecracker",
            Vmm::CloudHypervisor => "Cloud Hypervisor",
            Vmm::Libkrun => "libkrun",
            Vmm::Crosvm => "crosvm",
            Vmm::Kvmtool => "kvmtool",
            Vmm::Unknown => "unknown VMM",
        }
    }

    /// Name for the middle of a sentence: "the VMM" where it is not known.
    pub fn subject(self) -> &'static str {
        match self {
            Vmm::Unknown => "the VMM",
            known => known.name(),
        }
    }

    /// Returns true for QEMU, whose monitor, guest agent, arguments and functions vmtax knows.
    pub fn is_qemu(&self) -> bool {
        *self == Vmm::Qemu
    }
}

/// Method by which a guest's instructions are executed: QEMU's accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Accelerator {
    /// Execution by the CPU itself, under KVM.
    Kvm,
    /// Execution by QEMU's translator, TCG.
    Tcg,
}

impl Accelerator {
    /// QEMU's name for it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// System that a machine boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum System {
    /// A Linux kernel, with the agent as its first process; natively the host's own.
    Linux,
    /// The bare-metal micro-guest: a ROM without an operating system.
    MicroGuest,
}

/// A machine of a plan. Written as its name; ordered as in [`Machine::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine {
    system: System,
    /// Accelerator and VMM that run the machine; `None` natively.
    by: Option<(Accelerator, Vmm)>,
}

impl Machine {
    /// The host itself, in a process with the guest's CPUs and memory limit.
    pub const NATIVE: Machine = Machine {
        system: System::Linux,
        by: None,
    };
    /// A Linux guest of QEMU under KVM.
    pub const KVM: Machine = Machine::qemu(Accelerator::Kvm, System::Linux);
    /// A Linux guest of QEMU under TCG.
    pub const TCG: Machine = Machine::qemu(Accelerator::Tcg, System::Linux);
    /// The micro-guest under KVM: the lower bound of a guest's figures.
    pub const MICRO_KVM: Machine = Machine::qemu(Accelerator::Kvm, System::MicroGuest);
    /// The micro-guest under TCG.
    pub const MICRO_TCG: Machine = Machine::qemu(Accelerator::Tcg, System::MicroGuest);

    /// Every machine, native first.
    pub const ALL: &'static [Machine] = &[
        Machine::NATIVE,
        Machine::KVM,
        Machine::TCG,
        Machine::MICRO_KVM,
        Machine::MICRO_TCG,
    ];

    const fn qemu(accelerator: Accelerator, system: System) -> Machine {
        Machine {
            system,
            by: Some((accelerator, Vmm::Qemu)),
        }
    }

    /// The name as typed and stored.
    pub const fn as_str(self) -> &'static str {
        match (self.by, self.system) {
            (None, _) => "native",
            (Some((Accelerator::Kvm, _)), System::Linux) => "kvm",
            (Some((Accelerator::Tcg, _)), System::Linux) => "tcg",
            (Some((Accelerator::Kvm, _)), System::MicroGuest) => "micro-kvm",
            (Some((Accelerator::Tcg, _)), System::MicroGuest) => "micro-tcg",
        }
    }

    /// The VMM that runs it; `None` natively.
    pub fn vmm(self) -> Option<Vmm> {
        self.by.map(|(_, vmm)| vmm)
    }

    /// Returns the accelerator that executes the machine's instructions; `None` natively.
    pub fn accelerator(self) -> Option<Accelerator> {
        self.by.map(|(accelerator, _)| accelerator)
    }

    /// Returns true if a VMM runs the machine.
    pub const fn is_guest(self) -> bool {
        self.by.is_some()
    }

    /// Returns true if KVM runs the machine.
    pub const fn is_kvm(self) -> bool {
        matches!(self.by, Some((Accelerator::Kvm, _)))
    }

    /// Returns true if a Linux kernel runs on the machine, and with it the agent, shared trees, commands and all
    /// workloads but the micro-guest's own.
    pub const fn has_kernel(self) -> bool {
        matches!(self.system, System::Linux)
    }

    /// Returns true if the machine is a guest that boots a Linux kernel of its own.
    pub const fn is_linux_guest(self) -> bool {
        self.is_guest() && self.has_kernel()
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Machine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Machine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Machine, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl FromStr for Machine {
    type Err = PlanError;
    fn from_str(name: &str) -> Result<Self, PlanError> {
        let mut all = Machine::ALL.iter().copied();
        all.find(|machine| machine.as_str() == name).ok_or_else(|| {
            PlanError::Invalid(format!(
                "unknown machine '{name}': choose from native, kvm, tcg, micro-kvm, micro-tcg"
            ))
        })
    }
}

/// Queues of a tap.
const QUEUES: RangeInclusive<usize> = 1..=16;

/// A backend of QEMU's for a network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::VariantArray, strum::VariantNames, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum NetBackend {
    /// A tap: packets go to the host's stack as they are.
    Tap,
    /// QEMU's user-mode network (slirp): QEMU ends the guest's connections and makes its own by sockets.
    User,
    /// passt: a process that does the same outside of QEMU, which passes it packets by a stream.
    Passt,
    /// passt as a vhost-user back end: it has the guest's memory, takes packets from the virtqueues and puts them there, past QEMU.
    VhostUser,
}

impl NetBackend {
    /// A variant's setting that chooses it.
    pub const KEY: &str = "backend";
    /// Beginning of a variant's setting that is a property of it: `netdev.vhost=on`.
    pub const PROPERTY: &str = "netdev.";
    /// A variant's setting with the number of a tap's queues.
    pub const QUEUES: &str = "netdev.queues";
    /// A variant's setting by which the host's kernel moves a tap's packets.
    pub const VHOST: &str = "netdev.vhost";
    /// Every backend, as it is written in plans and options.
    pub const NAMES: &[&str] = <NetBackend as strum::VariantNames>::VARIANTS;
}

impl NetBackend {
    /// The queues that these settings of a variant ask a tap for.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] for anything but 1 to 16.
    pub fn queues(set: &BTreeMap<String, String>) -> Result<usize, PlanError> {
        let Some(asked) = set.get(NetBackend::QUEUES) else {
            return Ok(1);
        };
        let queues = asked.parse().ok().filter(|queues| QUEUES.contains(queues));
        let fault = || {
            PlanError::Invalid(format!(
                "netdev.queues={}: choose 1 to 16",
                asked.escape_default()
            ))
        };
        queues.ok_or_else(fault)
    }
}

impl FromStr for NetBackend {
    type Err = PlanError;
    fn from_str(name: &str) -> Result<NetBackend, PlanError> {
        let mut all = <NetBackend as strum::VariantArray>::VARIANTS
            .iter()
            .copied();
        all.find(|backend| <&str>::from(backend) == name)
            .ok_or_else(|| {
                let all = NetBackend::NAMES.join(", ");
                PlanError::Invalid(format!(
                    "unknown backend '{}': choose from {all}",
                    name.escape_default()
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_written_as_their_names_and_ordered_as_listed() {
        let names = r#"["native","kvm","tcg","micro-kvm","micro-tcg"]"#;
        assert_eq!(serde_json::to_string(Machine::ALL).unwrap(), names);
        assert_eq!(
            serde_json::from_str::<Vec<Machine>>(names).unwrap(),
            Machine::ALL
        );
        assert!(Machine::ALL.is_sorted());
        assert!(
            serde_json::from_str::<Machine>("\"xen\"")
                .unwrap_err()
                .to_string()
                .contains("unknown machine 'xen'")
        );
    }

    #[test]
    fn backends_have_the_names_that_qemu_and_the_docs_use() {
        assert_eq!(NetBackend::NAMES, ["tap", "user", "passt", "vhost-user"]);
        assert_eq!(
            ("passt".parse(), "tap".parse()),
            (Ok(NetBackend::Passt), Ok(NetBackend::Tap))
        );
        let queues = |text: &str| {
            NetBackend::queues(&[(NetBackend::QUEUES.to_owned(), text.to_owned())].into())
        };
        assert_eq!(
            (queues("2"), NetBackend::queues(&BTreeMap::new())),
            (Ok(2), Ok(1))
        );
        assert!(
            ["0", "17", "-1", "two"]
                .iter()
                .all(|text| queues(text).unwrap_err().to_string().contains("1 to 16"))
        );
        let error = "slirp".parse::<NetBackend>().unwrap_err().to_string();
        assert!(error.contains("tap, user, passt, vhost-user"), "{error}");
    }
}
