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

    /// Seconds that a trial bounded by time lasts.
    const fn seconds(self) -> f64 {
        match self {
            Preset::Quick => 1.0,
            Preset::Default => 2.0,
            Preset::Full => 10.0,
        }
    }

    /// A workload as this preset runs it. The shape (threads, locks, block sizes) is the published report's
    /// everywhere; quick and default make totals and times smaller.
    pub fn workload(self, name: WorkloadName) -> WorkloadSpec {
        let spec = WorkloadSpec::new(name);
        let pick = |quick: &'static str, usual: &'static str, full: &'static str| match self {
            Preset::Quick => quick,
            Preset::Default => usual,
            Preset::Full => full,
        };
        let time = self.seconds();
        match name {
            WorkloadName::Cpu => spec.with("max-prime", 2000).with("time", time),
            WorkloadName::Threads => spec
                .with("threads", pick("100", "500", "500"))
                .with("yields", 100)
                .with("locks", 4)
                .with("time", time),
            WorkloadName::Mutex => {
                spec.with("threads", 4).with("num", 2000).with("locks", 10_000).with("loops", 5000)
            }
            WorkloadName::Memory => spec.with("block-size", "8K").with("total-size", "1G").with("time", time),
            WorkloadName::Fileio => spec
                .with("threads", 20)
                .with("total-size", pick("16M", "128M", "2G"))
                .with("test-mode", "rndrw")
                .with("time", time),
            WorkloadName::Syscalls => spec.with("time", pick("0.04", "0.2", "1")),
            WorkloadName::Seqread => spec.with("time", time),
        }
    }
}
