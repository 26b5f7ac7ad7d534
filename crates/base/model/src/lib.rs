//! The words of vmtax, shared by every stage: metrics and their units, workloads, machines, plans, trials, facts of a
//! host, and warnings. Nothing here measures, boots, reads or prints.

mod advice;
mod antipattern;
mod check;
mod checkpoint;
pub mod cpu_list;
mod disk_target;
mod event_cost;
mod execution;
mod fact;
mod guest_settings;
mod guest_tune;
mod host_problem;
mod import;
mod latency;
mod limit;
mod live_setting;
mod machine;
mod metric;
mod moments;
mod net_backend;
pub mod number;
mod plan;
pub mod samples;
mod series;
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
mod vm_hang;
mod vm_layers;
mod vm_settings;
mod warning;
mod workload;

pub use advice::Remedy;
pub use antipattern::Antipattern;
pub use check::{Check, Readiness};
pub use checkpoint::{
    Checkpoint, CheckpointInfo, DISK, EventSource, Layer, NETWORK, PROBE_GROUP, Scope, Side,
};
pub use disk_target::{device_id, libvirt_target};
pub use event_cost::{EventCost, EventKind};
pub use execution::{Execution, MetricPattern, NOT_EXECUTABLE, NOT_FOUND, Printed, TIMED_OUT};
pub use fact::{
    CpuFacts, HostFacts, HostIdentity, KernelFacts, KvmClass, KvmFacts, LOCKDOWN_FILE, QemuFacts,
    SourceOfKernel, host_setting_files, is_tracing_locked_down,
};
pub use guest_settings::{
    CLOCK_SOURCE_FILE, FAST_CLOCK_SOURCES, GuestDiskSettings, GuestSettings, is_disk_name,
};
pub use guest_tune::{
    GuestCandidate, GuestTunePart, GuestTunePhase, GuestTuneSpec, GuestTuneStep, TwinOf,
};
pub use host_problem::HostProblem;
pub use import::{ImportFacts, ImportedFile, ImportedFiles, JoinedClock, TraceSide};
pub use latency::{Latency, LatencyError, LatencySummary};
pub use limit::limit_remedy;
pub use live_setting::{ChangeCost, LiveChange, LiveMetric, LiveSetting, SettingValue};
pub use machine::{Accelerator, Machine, UnknownMachine, Vmm};
pub use metric::{Better, Unit};
pub use moments::{CallRow, Moments};
pub use net_backend::NetBackend;
pub use number::{FEWEST_ROUNDS, Interval};
pub use plan::{
    Column, CommandSpec, Compare, CompareSpec, DeviceClass, Forward, Grows, Guest, GuestSize,
    GuestTune, Net, OWN, ObservedVm, PinnedCpus, Pinning, Plan, PlanError, ProfileSettings,
    ProfileSpec, SharedBoot, SizeRange, Slot, Study, Variant, VmIdentity,
};
pub use samples::AddressSpace;
pub use series::{Series, SeriesError, Stamped, round_trip_key, thread_of_round_trip};
pub use setting::{
    FileValues, Libvirt, NO_FIGURE, Restored, ScsiDevice, SetBy, Setting, SettingPart,
    SettingPlace, SpecialValue, Unset,
};
pub use share::{CpuSeconds, ImageFacts, Share, ShareFacts, ShareMethod, Tree};
pub use shell::{shell_line, shell_path};
pub use trace::{
    CallCount, CallCounts, ClockReading, CountBy, CountMethod, Extent, GuestDisk, GuestNic,
    HostDisk, Inside, InsideFacts, Missing, Moment, Ping, Probes, QemuThread, Role, TraceFacts,
    files,
};
pub use trial::{
    Fairness, KERNEL_MODE, Keeping, Kept, KernelIdentity, Measure, ON_THE_HOST, Operation,
    OperationExits, Outcome, Timer, TimerSource, TrialRecord, TrialResult, Unanswered, Unsupported,
};
pub use tune::{
    Candidate, NotTried, PairPlan, TuneBlock, TuneMetric, TunePhase, TuneRecord, TuneSpec, TuneStep,
};
pub use vm::{Ability, AbilityName, Managed, Manager, RoleSource, VmDisk, VmFacts, VmNic};
pub use vm_counters::{
    BlockDevice, CgroupCounters, DaemonCounters, DiskCounters, GuestCounters, GuestDiskCounters,
    KvmCounters, LatencyHistogram, MemoryCounters, NicCounters, NotObserved, ProcessIo,
    RequestCounters, ThreadCounters, VmCounters, VmSamples,
};
pub use vm_hang::{BlockedThread, FailureKind, KernelFailure, ProcessStop, RunState};
pub use vm_layers::{
    DiskBus, GuestTrace, IMPORTED_CLOCK, ObservedDisk, ObservedGuest, TracedDisk, TracedNic,
    VmTrace,
};
pub use vm_settings::{
    CpuQuota, CpuWeight, DiskSettings, HostQueue, IoLimits, IothreadSettings, MemoryLimit,
    PinnedThread, Qcow2Settings, ShareDevice, ShareServer, ThreadGroup, VmSettings,
};
pub use warning::Warning;
pub use workload::{
    BatchEdge, Metric, Needs, Places, UnknownMetric, UnknownWorkload, WorkloadName, WorkloadSpec,
    parse_size,
};

/// The version of every file in a recording and of a plan. A reader accepts this one and older ones.
pub const SCHEMA: u32 = 1;
