//! On which of the host's CPUs a guest's threads run.

use serde::{Deserialize, Serialize};

/// Placement of a guest's threads on the host's CPUs; a native trial then has the CPUs of the vCPUs.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::VariantArray,
    strum::VariantNames,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Pinning {
    /// Where the host's scheduler puts them.
    None,
    /// Each vCPU has a dedicated host CPU, each iothread too while two are left; QEMU's other threads share the rest.
    Split,
    /// All of QEMU's threads share one host CPU.
    OneCpu,
}

impl Pinning {
    /// Every way, as it is written in plans and options.
    pub const NAMES: &[&str] = <Pinning as strum::VariantNames>::VARIANTS;
}

impl std::str::FromStr for Pinning {
    type Err = String;
    fn from_str(name: &str) -> Result<Pinning, String> {
        let mut all = <Pinning as strum::VariantArray>::VARIANTS.iter().copied();
        all.find(|pinning| <&str>::from(pinning) == name)
            .ok_or_else(|| {
                format!(
                    "pinning is '{}': give {}",
                    name.escape_default(),
                    Pinning::NAMES.join(", ")
                )
            })
    }
}

/// The host CPUs that a trial's threads were pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedCpus {
    /// One of each vCPU; natively of the workload.
    pub vcpus: Vec<u32>,
    /// Host CPUs of QEMU's other threads; the CPUs of the vCPUs where they share one.
    pub others: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_plans() {
        for (name, pinning) in Pinning::NAMES
            .iter()
            .copied()
            .zip(<Pinning as strum::VariantArray>::VARIANTS)
        {
            assert_eq!(
                (name.parse(), serde_json::to_value(pinning).unwrap()),
                (Ok(*pinning), name.into())
            );
        }
        assert!("apart".parse::<Pinning>().unwrap_err().contains("one-cpu"));
    }
}
