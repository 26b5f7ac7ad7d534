//! Where a workload runs: on the host itself, or in a guest given by its VMM, its accelerator and what it boots.

use crate::PlanError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
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
}

/// Method by which a guest's instructions are executed: QEMU's accelerator.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "kebab-case")]
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
            (Some((Accelerator::Kvm, Vmm::Qemu)), System::Linux) => "kvm",
            (Some((Accelerator::Tcg, Vmm::Qemu)), System::Linux) => "tcg",
            (Some((Accelerator::Kvm, Vmm::Qemu)), System::MicroGuest) => "micro-kvm",
            (Some((Accelerator::Tcg, Vmm::Qemu)), System::MicroGuest) => "micro-tcg",
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
}
