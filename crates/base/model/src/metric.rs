//! Every metric that vmtax reports, with its unit and which way is better: the one place where a metric has a name.

use crate::WorkloadName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a metric's number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per operation.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Operations (events, reads, …) per second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Mebibytes (2^20 bytes) per second.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Mebibytes.
    #[serde(rename = "MiB")]
    Mebibytes,
    /// How many, or of a unit that is not known.
    #[serde(rename = "")]
    Count,
}

impl Unit {
    /// The unit's symbol, as printed after a number.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Seconds => "s",
            Unit::PerSecond => "/s",
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::Mebibytes => "MiB",
            Unit::Count => "",
        }
    }
}

/// Which direction of a metric is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A rate: more is better; the tax is native over guest.
    Higher,
    /// A cost: less is better; the tax is guest over native.
    Lower,
}

/// The name given is no metric of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric '{0}': this recording may come from a newer vmtax; update vmtax to read it")]
pub struct UnknownMetric(pub String);

macro_rules! metrics {
    ($($variant:ident $id:literal $unit:ident $better:ident $label:literal;)*) => {
        /// A measured quantity. Its identifier (`cpu.events`, `syscalls.getpid`, …) is what files and `--json` hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub enum Metric { $(#[doc = $label] $variant,)* }

        impl Metric {
            /// Every metric, in the order in which reports list them.
            pub const ALL: &'static [Metric] = &[$(Metric::$variant),*];
            /// The identifier, workload first: `cpu.events`.
            pub const fn id(self) -> &'static str { match self { $(Metric::$variant => $id),* } }
            /// The unit of its values.
            pub const fn unit(self) -> Unit { match self { $(Metric::$variant => Unit::$unit),* } }
            /// Which way is better.
            pub const fn better(self) -> Better { match self { $(Metric::$variant => Better::$better),* } }
            /// A short name for tables.
            pub const fn label(self) -> &'static str { match self { $(Metric::$variant => $label),* } }
        }
    };
}

metrics! {
    CpuEvents "cpu.events" PerSecond Higher "CPU events";
    ThreadsEvents "threads.events" PerSecond Higher "thread events";
    MutexTime "mutex.time" Seconds Lower "mutex run";
    MemoryBandwidth "memory.bandwidth" MebibytesPerSecond Higher "memory transfer";
    MemoryOperations "memory.operations" PerSecond Higher "memory operations";
    FileioPrepare "fileio.prepare" MebibytesPerSecond Higher "file prepare";
    FileioReads "fileio.reads" PerSecond Higher "file reads";
    FileioWrites "fileio.writes" PerSecond Higher "file writes";
    FileioFsyncs "fileio.fsyncs" PerSecond Higher "file fsyncs";
    FileioReadBandwidth "fileio.read-bandwidth" MebibytesPerSecond Higher "file read rate";
    FileioWriteBandwidth "fileio.write-bandwidth" MebibytesPerSecond Higher "file write rate";
    SyscallGetpid "syscalls.getpid" Nanoseconds Lower "getpid";
    SyscallReadNull "syscalls.read_null" Nanoseconds Lower "read_null";
    SyscallWriteNull "syscalls.write_null" Nanoseconds Lower "write_null";
    SyscallPipe "syscalls.pipe" Nanoseconds Lower "pipe round trip";
    SyscallStat "syscalls.stat" Nanoseconds Lower "stat";
    SyscallOpenClose "syscalls.open_close" Nanoseconds Lower "open_close";
    SyscallFork "syscalls.fork" Nanoseconds Lower "fork+exit+wait";
    SyscallExec "syscalls.exec" Nanoseconds Lower "fork+exec+wait";
    SyscallClockVdso "syscalls.clock_gettime_vdso" Nanoseconds Lower "clock_gettime (vDSO)";
    SyscallClockRaw "syscalls.clock_gettime_raw" Nanoseconds Lower "clock_gettime (call)";
    SyscallMmap "syscalls.mmap" Nanoseconds Lower "mmap+touch+munmap";
    SyscallContextSwitch "syscalls.context_switch" Nanoseconds Lower "context switch";
    SyscallPageFault "syscalls.page_fault" Nanoseconds Lower "page fault";
    SyscallSignal "syscalls.signal" Nanoseconds Lower "signal";
    SyscallFutex "syscalls.futex" Nanoseconds Lower "futex wake-wait";
    SeqreadMedian "seqread.latency-p50" Nanoseconds Lower "direct request, p50";
    SeqreadTail "seqread.latency-p99" Nanoseconds Lower "direct request, p99";
    SeqreadRate "seqread.reads" PerSecond Higher "direct requests";
    TreeSmallCold "tree.small-cold" PerSecond Higher "small files, cold";
    TreeSmallWarm "tree.small-warm" PerSecond Higher "small files, warm";
    TreeLargeCold "tree.large-cold" MebibytesPerSecond Higher "large files, cold";
    TreeLargeWarm "tree.large-warm" MebibytesPerSecond Higher "large files, warm";
    TreeWalk "tree.walk" PerSecond Higher "names walked";
    TreeMmap "tree.mmap" MebibytesPerSecond Higher "mapped reads";
    BonnieWrite "bonnie.write" MebibytesPerSecond Higher "block write";
    BonnieRewrite "bonnie.rewrite" MebibytesPerSecond Higher "rewrite";
    BonnieRead "bonnie.read" MebibytesPerSecond Higher "block read";
    BonnieSeeks "bonnie.seeks" PerSecond Higher "random seeks";
    BonnieCreateSeq "bonnie.create-seq" PerSecond Higher "creates, in order";
    BonnieStatSeq "bonnie.stat-seq" PerSecond Higher "stats, in order";
    BonnieDeleteSeq "bonnie.delete-seq" PerSecond Higher "deletes, in order";
    BonnieCreateRandom "bonnie.create-random" PerSecond Higher "creates, at random";
    BonnieStatRandom "bonnie.stat-random" PerSecond Higher "stats, at random";
    BonnieDeleteRandom "bonnie.delete-random" PerSecond Higher "deletes, at random";
    FidsStat "fids.stat" Nanoseconds Lower "stat of a known name";
    FidsOpenClose "fids.open_close" Nanoseconds Lower "open+close of a known name";
    NamesStat "names.stat" Nanoseconds Lower "stat of a name";
    NamesOpenClose "names.open_close" Nanoseconds Lower "open_close of a name";
    NamesCreateUnlink "names.create_unlink" Nanoseconds Lower "create and unlink";
    NamesList "names.list" Nanoseconds Lower "listing of the folder";
    NamesGetxattr "names.getxattr" Nanoseconds Lower "getxattr";
    ExecWall "exec.wall" Seconds Lower "wall time";
    ExecUser "exec.user" Seconds Lower "user time";
    ExecSystem "exec.system" Seconds Lower "system time";
    ExecMemory "exec.memory" Mebibytes Lower "peak memory";
    ExecVoluntary "exec.switches-voluntary" Count Lower "switches, voluntary";
    ExecInvoluntary "exec.switches-involuntary" Count Lower "switches, involuntary";
    ExecMinorFaults "exec.faults-minor" Count Lower "faults, minor";
    ExecMajorFaults "exec.faults-major" Count Lower "faults, major";
    ExecReadCalls "exec.read-calls" Count Lower "read calls";
    ExecWriteCalls "exec.write-calls" Count Lower "write calls";
    ExecRead "exec.read" Mebibytes Lower "bytes read";
    ExecWritten "exec.written" Mebibytes Lower "bytes written";
}

impl Metric {
    /// The workload that gives it.
    pub const fn workload(self) -> WorkloadName {
        match self {
            Metric::CpuEvents => WorkloadName::Cpu,
            Metric::ThreadsEvents => WorkloadName::Threads,
            Metric::MutexTime => WorkloadName::Mutex,
            Metric::MemoryBandwidth | Metric::MemoryOperations => WorkloadName::Memory,
            Metric::FileioPrepare
            | Metric::FileioReads
            | Metric::FileioWrites
            | Metric::FileioFsyncs
            | Metric::FileioReadBandwidth
            | Metric::FileioWriteBandwidth => WorkloadName::Fileio,
            Metric::SeqreadMedian | Metric::SeqreadTail | Metric::SeqreadRate => WorkloadName::Seqread,
            Metric::TreeSmallCold
            | Metric::TreeSmallWarm
            | Metric::TreeLargeCold
            | Metric::TreeLargeWarm
            | Metric::TreeWalk
            | Metric::TreeMmap => WorkloadName::Tree,
            Metric::BonnieWrite
            | Metric::BonnieRewrite
            | Metric::BonnieRead
            | Metric::BonnieSeeks
            | Metric::BonnieCreateSeq
            | Metric::BonnieStatSeq
            | Metric::BonnieDeleteSeq
            | Metric::BonnieCreateRandom
            | Metric::BonnieStatRandom
            | Metric::BonnieDeleteRandom => WorkloadName::Bonnie,
            Metric::FidsStat | Metric::FidsOpenClose => WorkloadName::Fids,
            Metric::NamesStat
            | Metric::NamesOpenClose
            | Metric::NamesCreateUnlink
            | Metric::NamesList
            | Metric::NamesGetxattr => WorkloadName::Names,
            Metric::ExecWall
            | Metric::ExecUser
            | Metric::ExecSystem
            | Metric::ExecMemory
            | Metric::ExecVoluntary
            | Metric::ExecInvoluntary
            | Metric::ExecMinorFaults
            | Metric::ExecMajorFaults
            | Metric::ExecReadCalls
            | Metric::ExecWriteCalls
            | Metric::ExecRead
            | Metric::ExecWritten => WorkloadName::Exec,
            Metric::SyscallGetpid
            | Metric::SyscallReadNull
            | Metric::SyscallWriteNull
            | Metric::SyscallPipe
            | Metric::SyscallStat
            | Metric::SyscallOpenClose
            | Metric::SyscallFork
            | Metric::SyscallExec
            | Metric::SyscallClockVdso
            | Metric::SyscallClockRaw
            | Metric::SyscallMmap
            | Metric::SyscallContextSwitch
            | Metric::SyscallPageFault
            | Metric::SyscallSignal
            | Metric::SyscallFutex => WorkloadName::Syscalls,
        }
    }

    /// The operation of its workload whose latencies stand behind it (the `name` of a [`crate::Operation`]); `None`
    /// where single operations are not timed.
    pub fn operation(self) -> Option<&'static str> {
        match self {
            Metric::CpuEvents
            | Metric::ThreadsEvents
            | Metric::MutexTime
            | Metric::MemoryBandwidth
            | Metric::MemoryOperations => Some("event"),
            Metric::FileioPrepare => None,
            _ if matches!(self.workload(), WorkloadName::Exec) => None,
            Metric::FileioReads | Metric::FileioReadBandwidth => Some("read"),
            Metric::FileioWrites | Metric::FileioWriteBandwidth => Some("write"),
            Metric::FileioFsyncs => Some("fsync"),
            Metric::SeqreadMedian | Metric::SeqreadTail | Metric::SeqreadRate => Some("read"),
            Metric::TreeSmallCold => Some("open-cold"),
            Metric::TreeSmallWarm => Some("open-warm"),
            Metric::TreeLargeCold => Some("read-large-cold"),
            Metric::TreeLargeWarm => Some("read-large-warm"),
            Metric::TreeWalk => Some("lstat-walk"),
            Metric::TreeMmap => Some("page-mmap"),
            // A system call's operation, and one of Bonnie++'s, is called like the metric itself.
            _ => self.id().split_once('.').map(|(_, operation)| operation),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl FromStr for Metric {
    type Err = UnknownMetric;
    fn from_str(id: &str) -> Result<Self, UnknownMetric> {
        Metric::ALL.iter().copied().find(|m| m.id() == id).ok_or_else(|| UnknownMetric(id.to_owned()))
    }
}

impl From<Metric> for String {
    fn from(m: Metric) -> String {
        m.id().to_owned()
    }
}

impl TryFrom<String> for Metric {
    type Error = UnknownMetric;
    fn try_from(id: String) -> Result<Self, UnknownMetric> {
        id.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_and_read_back() {
        for m in Metric::ALL {
            assert_eq!(m.id().parse::<Metric>().as_ref(), Ok(m));
            assert_eq!(Metric::ALL.iter().filter(|o| o.id() == m.id()).count(), 1, "{m}");
        }
    }

    #[test]
    fn the_identifier_begins_with_the_workload() {
        for m in Metric::ALL {
            assert_eq!(m.id().split_once('.').unwrap().0, m.workload().as_str());
        }
        assert_eq!(Metric::SyscallOpenClose.operation(), Some("open_close"));
        assert_eq!(Metric::FileioFsyncs.operation(), Some("fsync"));
        assert_eq!(Metric::CpuEvents.operation(), Some("event"));
    }
}
