//! The words of vmtax, shared by every stage: metrics and their units, workloads, machines, plans, trials, facts of a
//! host, and warnings. Nothing here measures, boots, reads or prints.

mod antipattern;
mod checkpoint;
mod configuration;
mod counter;
pub mod cpu_list;
mod fact;
mod latency;
mod live_setting;
mod machine;
pub mod number;
mod plan;
pub mod samples;
mod secret;
mod setting;
mod share;
mod shell;
#[doc(hidden)]
pub mod testing;
mod trace;
mod trial;
mod tune;
mod vm;
mod vm_counters;
mod vm_settings;
mod vm_trace;
mod warning;
mod workload;

pub use antipattern::Antipattern;
pub use checkpoint::{
    Checkpoint, CheckpointInfo, DISK, DeviceClass, EventSource, Layer, NETWORK, PROBE_GROUP, Scope,
    Side,
};
pub use configuration::{
    ConfiguredDisk, ConfiguredNic, ExitReportRow, FioJob, FioOutput, VmConfiguration,
};
pub use counter::{Counter, CounterMap, CounterSource, CounterUnit};
pub use fact::{
    Check, CpuFacts, HostFacts, HostIdentity, HostProblem, KernelFacts, KvmClass, KvmFacts,
    LOCKDOWN_FILE, QemuFacts, Readiness, SourceOfKernel, host_setting_files,
    is_tracing_locked_down,
};
pub use latency::{CallRow, DamagedError, Latency, LatencySummary};
pub use live_setting::{ChangeCost, LiveChange, LiveMetric, LiveSetting, SettingValue, in_effect};
pub use machine::{Accelerator, Machine, NetBackend, Vmm};
pub use number::{Better, FEWEST_ROUNDS, Interval, Unit};
pub use plan::{
    Column, CommandSpec, Compare, Execution, Forward, Grows, Guest, MetricPattern, NOT_EXECUTABLE,
    NOT_FOUND, Net, OWN, ObservedVm, PinnedCpus, Pinning, Plan, PlanError, Printed,
    ProfileSettings, SharedBoot, SizeRange, Slot, Study, TIMED_OUT, Variant, VmStudy, WithCommand,
};
pub use samples::AddressSpace;
pub(crate) use secret::remove_secrets_of_values;
pub use secret::{SECRET_REMOVED, without_secrets, words_without_secrets};
pub use setting::{
    Libvirt, NO_FIGURE, Remedy, ScsiDevice, SetBy, Setting, SettingPart, SettingPlace,
    SpecialValue, Unset,
};
pub use share::{CpuSeconds, ImageFacts, Share, ShareFacts, ShareMethod, Tree};
pub use shell::{limit_remedy, shell_line, shell_path, shell_words};
pub use trace::{
    CallCount, CallCounts, ClockReading, CountBy, CountMethod, EventCost, EventKind, Extent,
    GuestDisk, GuestNic, HostDisk, Inside, InsideFacts, Missing, Moment, Ping, Probes, QemuThread,
    Role, TraceFacts, files,
};
pub use trial::{
    Fairness, KERNEL_MODE, Keeping, Kept, KernelIdentity, Measure, ON_THE_HOST, Operation,
    OperationExits, Outcome, Series, Stamped, Timer, TimerSource, TrialRecord, TrialResult,
    Unanswered, Unsupported, round_trip_key, thread_of_round_trip,
};
pub use tune::{
    Candidate, GuestCandidate, GuestTunePart, GuestTunePhase, GuestTuneSpec, GuestTuneStep,
    NotTried, PairPlan, Tried, TuneBlock, TuneMetric, TunePhase, TuneRecord, TuneSpec, TuneStep,
    TwinOf,
};
pub use vm::{
    Ability, AbilityName, BlockedThread, FailureKind, KernelFailure, Managed, Manager, ProcessStop,
    RoleSource, RunState, ThreadGroup, VmDisk, VmFacts, VmIdentity, VmNic, device_id,
    libvirt_target,
};
pub use vm_counters::{
    BlockDevice, DaemonCounters, DeviceUser, DiskCounters, GuestCounters, GuestDiskCounters,
    HostActivity, HostCounters, LatencyHistogram, NicCounters, NotObserved, NumaBalancing,
    ProcessCpu, RequestCounters, StalledQueue, ThreadCounters, VmCounters, VmSamples,
};
pub use vm_settings::{
    CLOCK_SOURCE_FILE, CpuQuota, CpuWeight, DiskSettings, FAST_CLOCK_SOURCES, GuestDiskSettings,
    GuestSettings, HostCore, HostQueue, IoLimits, IothreadSettings, MemoryLimit, PinnedThread,
    Qcow2Settings, ShareDevice, ShareServer, VmSettings, is_disk_name,
};
pub use vm_trace::{
    DiskBus, GuestTrace, IMPORTED_CLOCK, ImportFacts, ImportedFile, ImportedFiles, JoinedClock,
    ObservedDisk, ObservedGuest, TraceSide, TracedDisk, TracedNic, VmTrace,
};
pub use warning::Warning;
pub use workload::{BatchEdge, Metric, Needs, Places, WorkloadName, WorkloadSpec, parse_size};

/// The version of every file in a recording and of a plan. A reader accepts this one and older ones.
pub const SCHEMA: u32 = 1;
