//! The words of vmtax, shared by every stage: metrics and their units, workloads, machines, plans, trials, facts of a
//! host, findings, and warnings. Nothing here measures, boots, reads or prints.

mod advice;
mod antipattern;
mod antipattern_finding;
mod check;
mod checkpoint;
mod command_layers;
mod compare;
mod configuration;
mod cpu_contention;
pub mod cpu_list;
mod disk_target;
mod event_cost;
mod exec;
mod execution;
mod exit_activity;
mod exits;
mod fact;
mod finding;
mod fleet;
mod growth;
mod guest_code;
mod guest_exits;
mod guest_settings;
mod guest_tune;
mod history;
mod host_problem;
mod import;
mod latency;
mod layers;
mod limit;
mod live_setting;
mod machine;
mod metric;
mod moments;
mod net_backend;
pub mod number;
mod packets;
mod plan;
mod profile;
mod reproduction;
mod result;
mod sample_share;
pub mod samples;
mod schedule;
mod series;
mod setting;
mod share;
mod share_finding;
mod shell;
#[doc(hidden)]
pub mod testing;
mod trace;
mod trial;
mod tune;
mod vm;
mod vm_counters;
mod vm_diagnosis;
mod vm_hang;
mod vm_layers;
mod vm_rates;
mod vm_settings;
mod warning;
mod workload;

pub use advice::{Advice, Remedy};
pub use antipattern::Antipattern;
pub use antipattern_finding::{
    AntipatternFindings, AntipatternForm, AntipatternRow, MachineAntipatterns,
};
pub use check::{Check, Readiness};
pub use checkpoint::{
    Checkpoint, CheckpointInfo, DISK, EventSource, Layer, NETWORK, PROBE_GROUP, Scope, Side, State,
};
pub use command_layers::{
    CommandLayers, CommandPackets, DeviceUse, KindUse, RequestCount, RequestKind, UsedKinds,
};
pub use compare::{
    Against, CheckFindings, CheckedRow, CompareFindings, Compared, ThresholdError, Thresholds,
};
pub use configuration::{
    ConfiguredDisk, ConfiguredNic, ExitReport, ExitReportRow, FioJob, VmConfiguration,
};
pub use cpu_contention::{CpuContention, RunQueueCause};
pub use disk_target::{device_id, libvirt_target};
pub use event_cost::{EventCost, EventCosts, EventKind};
pub use exec::{
    Breakdown, ExecFindings, NOT_EXECUTABLE, NOT_FOUND, Part, PartRow, PrintedRow, Statuses,
    TIMED_OUT,
};
pub use execution::{Execution, MetricPattern, Printed};
pub use exit_activity::{ExitActivity, ExitTimes};
pub use exits::{
    ExitFindings, ExitKind, HANDLED_IN_KVM, HANDLED_IN_QEMU, INTERRUPT_CONTROLLER, KERNEL_MODE,
    MachineExits, NO_DEVICE,
};
pub use fact::{
    CpuFacts, HostFacts, HostIdentity, KernelFacts, KvmClass, KvmFacts, LOCKDOWN_FILE, QemuFacts,
    SourceOfKernel, host_setting_files, is_tracing_locked_down,
};
pub use finding::{Findings, MachineColumn, OverheadRow, Spread};
pub use fleet::{
    FLEET_LEVEL, FactEffect, FactValue, Facts, FleetData, FleetFigure, FleetFindings, FleetRun,
    FleetSeries, HostClass, HostRow, HostVerdict, MetricOutlier,
};
pub use growth::{CurvePoint, Growth, GrowthFindings, MissingStep, NoLaw, RoundCost, StepCost};
pub use guest_code::{CodePlace, GuestCode};
pub use guest_exits::{
    AddressSpace, DevicesFrom, ExitAddress, ExitCount, ExitReason, GuestExits, VcpuExits, VmExits,
};
pub use guest_settings::{
    CLOCK_SOURCE_FILE, FAST_CLOCK_SOURCES, GuestDiskSettings, GuestSettings, is_disk_name,
};
pub use guest_tune::{
    GuestCandidate, GuestTuneFindings, GuestTunePart, GuestTunePhase, GuestTuneRow, GuestTuneSpec,
    GuestTuneStep, SecondScreening, TwinOf,
};
pub use history::{
    Change, FactChange, HistoryEntry, HistoryFindings, PastFigure, PastRun, SeriesFindings,
    SeriesKey,
};
pub use host_problem::HostProblem;
pub use import::{
    ImportFacts, ImportFindings, ImportedFile, ImportedFiles, JoinedClock, TraceSide,
};
pub use latency::{Latency, LatencyError, LatencySummary};
pub use layers::{
    CalibratedCost, CallRow, ClockFinding, Corrected, Difference, HeatMap, LayerColumn,
    LayerFindings, Matched, Nested, Row, Span, Step, TailRow, ThreadCalls, Waterfall, main_column,
};
pub use limit::limit_remedy;
pub use live_setting::{ChangeCost, LiveChange, LiveMetric, LiveSetting, SettingValue};
pub use machine::{Accelerator, Machine, UnknownMachine, Vmm};
pub use metric::{Better, Unit};
pub use moments::Moments;
pub use net_backend::NetBackend;
pub use packets::{BatchKind, Batching, PacketCounts, Unanswered};
pub use plan::{
    Column, CommandSpec, Compare, CompareSpec, DeviceClass, Forward, Grows, Guest, GuestSize,
    GuestTune, Net, OWN, ObservedVm, PinnedCpus, Pinning, Plan, PlanError, ProfileSettings,
    ProfileSpec, SharedBoot, SizeRange, Slot, Study, Variant, VmIdentity,
};
pub use profile::{
    FunctionChange, FunctionShare, GuestCall, GuestFindings, JoinFindings, Pauses, ProfileChanges,
    ProfileFindings, StateFindings, StateSource, StateWait, TcgPart, TcgShare, ThreadShare,
    ThreadStates, ThreadWaits, UnnamedFile, WaitShare, WallFindings,
};
pub use reproduction::{ClaimRow, ClaimUnit, ClaimVerdict, ReproductionFindings};
pub use result::{Comparison, Estimate, FEWEST_ROUNDS, Interval, Law, Summary, Verdict};
pub use sample_share::{SampleShare, WaitFor};
pub use schedule::{BlockedOn, FutexWaits, NamedThread, ScheduleFindings, ThreadSchedule, Waker};
pub use series::{Series, SeriesError, Stamped, round_trip_key, thread_of_round_trip};
pub use setting::{
    FileValues, Libvirt, NO_FIGURE, Restored, ScsiDevice, SetBy, Setting, SettingPart,
    SettingPlace, SpecialValue, Unset,
};
pub use share::{CpuSeconds, ImageFacts, Share, ShareFacts, ShareMethod, Tree};
pub use share_finding::{ShareCell, ShareColumn, ShareFindings, ShareRow, ShareScore};
pub use shell::{shell_line, shell_path};
pub use trace::{
    CallCount, CallCounts, ClockReading, CountBy, CountMethod, Extent, GuestDisk, GuestNic,
    HostDisk, Inside, InsideFacts, Missing, Moment, Ping, Probes, QemuThread, Role, TraceFacts,
    files,
};
pub use trial::{
    Fairness, Keeping, Kept, KernelIdentity, Measure, ON_THE_HOST, Operation, OperationExits,
    Outcome, Timer, TimerSource, TrialRecord, TrialResult, Unsupported,
};
pub use tune::{
    BeforeAfter, Candidate, NotTried, PairPlan, TuneBlock, TuneFindings, TuneMetric, TunePhase,
    TuneRecord, TuneRow, TuneSpec, TuneStep, TuneVerdict,
};
pub use vm::{Ability, AbilityName, Managed, Manager, RoleSource, VmDisk, VmFacts, VmNic};
pub use vm_counters::{
    BlockDevice, CgroupCounters, DaemonCounters, DiskCounters, GuestCounters, GuestDiskCounters,
    KvmCounters, LatencyHistogram, MemoryCounters, NicCounters, NotObserved, ProcessIo,
    RequestCounters, ThreadCounters, VmCounters, VmSamples,
};
pub use vm_diagnosis::VmDiagnosis;
pub use vm_hang::{BlockedThread, FailureKind, KernelFailure, ProcessStop, RunState};
pub use vm_layers::{
    DiskBus, GuestTrace, IMPORTED_CLOCK, ObservedDisk, ObservedGuest, TracedDisk, TracedNic,
    VmLayers, VmPackets, VmRequests, VmTrace, VmTraced,
};
pub use vm_rates::{
    DaemonRates, DeviceRates, DiskRates, ExitRates, GuestDiskRates, GuestRates, IoRates,
    MemoryRates, NicRates, ThreadRates, TopSample, VmRates,
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

/// The version of what `--json` prints (docs/json.md). 2 has the field's names: `overhead`, `cpu_seconds`, `antipattern`.
pub const REPORT_SCHEMA: u32 = 2;
