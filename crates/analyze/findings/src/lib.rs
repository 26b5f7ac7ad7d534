//! Results of an analysis: the findings of each study with their rows, columns and verdicts. They are data: nothing here
//! computes or prints.

mod compare;
mod exec;
mod exits;
mod fleet;
mod growth;
mod history;
mod layers;
mod overhead;
mod profile;
mod requests;
mod result;
mod running_vm;
mod schedule;
mod tune;

pub use compare::{
    Against, CheckFindings, CheckedRow, CompareFindings, Compared, ThresholdError, Thresholds,
};
pub use exec::{Breakdown, ExecFindings, OutlierRun, Part, PartRow, PrintedRow, Statuses};
pub use exits::{
    CodePlace, DevicesFrom, ExitActivity, ExitAddress, ExitCount, ExitFindings, ExitKind,
    ExitReason, ExitTimes, GuestCode, GuestExits, HANDLED_IN_KVM, HANDLED_IN_QEMU,
    INTERRUPT_CONTROLLER, MachineExits, NO_DEVICE, VcpuExits, VmExits,
};
pub use fleet::{
    FLEET_LEVEL, FactEffect, FactValue, Facts, FleetData, FleetFigure, FleetFindings, FleetRun,
    FleetSeries, HostClass, HostRow, HostVerdict, MetricOutlier,
};
pub use growth::{
    CurvePoint, Growth, GrowthFindings, Law, MissingStep, NoLaw, RoundCost, StepCost,
};
pub use history::{
    Change, ClaimRow, ClaimUnit, ClaimVerdict, FactChange, HistoryEntry, HistoryFindings,
    PastFigure, PastRun, ReproductionFindings, SeriesFindings, SeriesKey,
};
pub use layers::{
    BatchKind, Batching, CalibratedCost, ClockFinding, Corrected, Difference, EventCosts, HeatMap,
    LayerColumn, LayerFindings, Matched, Nested, PacketCounts, Row, Span, State, Step, TailRow,
    ThreadCalls, Waterfall, main_column,
};
pub use overhead::{
    AntipatternFindings, AntipatternForm, AntipatternRow, Findings, MachineAntipatterns,
    MachineColumn, OverheadRow, ShareCell, ShareColumn, ShareFindings, ShareRow, ShareScore,
    Spread,
};
pub use profile::{
    FunctionChange, FunctionShare, GuestCall, GuestFindings, JoinFindings, Pauses, ProfileChanges,
    ProfileFindings, StateFindings, StateSource, StateWait, TcgPart, TcgShare, ThreadShare,
    ThreadStates, ThreadWaits, TimeSlice, UnnamedFile, WaitShare, WallFindings,
};
pub use requests::{
    CommandLayers, CommandPackets, DeviceUse, EmptyQueue, KindUse, RequestCount, RequestKind,
    UsedKinds, VmLayers, VmPackets, VmRequests, VmTraced,
};
pub use result::{Advice, Comparison, Estimate, SampleShare, Summary, Verdict};
pub use running_vm::{
    DaemonRates, DeviceRates, DiskRates, ExitRates, GuestDiskRates, GuestRates, HostRates,
    ImportFindings, IoRates, NicRates, ProcessRate, ThreadRates, TopSample, VmDiagnosis, VmRates,
};
pub use schedule::{
    BlockedOn, CpuContention, FutexWaits, NamedThread, RunQueueCause, ScheduleFindings,
    ThreadSchedule, WaitFor, Waker,
};
pub use tune::{
    BeforeAfter, GuestTuneFindings, SecondScreening, TuneFindings, TuneOutcome, TuneRow,
    TuneVerdict,
};

/// The version of what `--json` prints (docs/json.md). 2 has the field's names: `overhead`, `cpu_seconds`, `antipattern`.
pub const REPORT_SCHEMA: u32 = 2;
