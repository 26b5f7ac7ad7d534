use serde::{Deserialize, Serialize};

/// Problem of a part of a host: the identifier of a rule, which describes it and has the remedies.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum HostProblem {
    VirtualizationOff,
    NoNestedVirtualization,
    OneCpu,
    SmtOn,
    CpuGovernor,
    StolenCpuTime,
    SlowClockSource,
    TscNotTrusted,
    TscNotExposed,
    KvmEmulatesKernels,
    KvmBroken,
    KvmNotPermitted,
    KvmGroupMissing,
    KvmIntelNotLoaded,
    KvmAmdNotLoaded,
    LittleMemory,
    TransparentHugePagesOff,
    NoHugePages,
    QemuIncomplete,
    NoGuestKernel,
    KernelFeatureMissing,
    TracefsNotMounted,
    TracingNeedsRoot,
    KernelLockedDown,
    PerfEventParanoid,
    NoVirtualPmu,
    NoCgroup,
    NoMemoryController,
    NoCgroupRights,
    NoMkfs,
    NoVirtiofsd,
    NoNfsServer,
}

impl HostProblem {
    /// All of them.
    pub const ALL: &[HostProblem] = <HostProblem as strum::VariantArray>::VARIANTS;
}
