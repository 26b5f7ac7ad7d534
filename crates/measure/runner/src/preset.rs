//! The plans that a command line without a plan file means.

use vmtax_model::{WorkloadName, WorkloadSpec};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// Under 3 minutes on 2 cores: enough rounds for an interval, small totals.
    Quick,
    /// Under 12 minutes.
    #[default]
    Default,
    /// The parameters of the published sysbench report that this tool's five tests come from.
    Full,
}

impl Preset {
    /// The rounds it makes.
    pub const fn rounds(self) -> u32 {
        match self {
            Preset::Quick | Preset::Full => 6,
            Preset::Default => 8,
        }
    }

    /// A workload as this preset runs it: the published report's shape (threads, locks, block sizes) everywhere; quick
    /// and default make times and the slowest totals smaller.
    pub fn workload(self, name: WorkloadName) -> WorkloadSpec {
        let reference = name.reference().iter();
        let full = reference.fold(WorkloadSpec::new(name), |spec, (option, value)| spec.with(option, value));
        self.smaller(name).iter().fold(full, |spec, (option, value)| spec.with(option, value))
    }

    /// What differs from the reference, and what the workloads that it does not have are given.
    const fn smaller(self, name: WorkloadName) -> &'static [(&'static str, &'static str)] {
        use WorkloadName::{Cpu, Fileio, Seqread, Syscalls, Threads};
        match (self, name) {
            (Preset::Quick, Threads) => &[("threads", "100"), ("time", "1")],
            (Preset::Quick, Fileio) => &[("total-size", "16M"), ("time", "1")],
            (Preset::Default, Fileio) => &[("total-size", "128M"), ("time", "2")],
            (Preset::Quick, Syscalls) => &[("time", "0.04")],
            (Preset::Default, Syscalls) => &[("time", "0.2")],
            (Preset::Full, Syscalls) => &[("time", "1")],
            (Preset::Quick, Cpu | Seqread) => &[("time", "1")],
            (Preset::Default, Cpu | Threads | Seqread) => &[("time", "2")],
            (Preset::Full, Seqread) => &[("time", "10")],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_is_the_reference_and_every_preset_can_be_run() {
        for &name in WorkloadName::ALL {
            for (option, value) in name.reference() {
                assert_eq!(Preset::Full.workload(name).options[*option], *value, "{name}.{option}");
            }
            for preset in [Preset::Quick, Preset::Default, Preset::Full] {
                vmtax_workload::check(&preset.workload(name)).unwrap();
            }
        }
    }
}
