//! The table of workloads: for each its name, its module in `vmtax-workload` with its options and how it runs, what it
//! needs, and its metrics.

/// Gives the table to a macro.
///
/// A metric: its name, unit, direction, label in tables, the operation whose latencies stand behind it, if one does, and
/// its name in earlier versions, if it had another.
/// `published`: how the published sysbench report that the five tests come from runs this workload, option by option;
/// where it leaves a time out, sysbench 1.0's default.
#[macro_export]
macro_rules! workloads {
    ($then:ident) => { $then! {
        /// sysbench's prime numbers.
        Cpu "cpu", in cpu, needs System, published [("max-prime", "2000"), ("time", "10")] {
            CpuEvents "events" PerSecond Higher "cpu event rate" of "event";
        }
        /// sysbench's yields and locks.
        Threads "threads", in threads, needs System, published [("threads", "500"), ("yields", "100"), ("locks", "4"), ("time", "10")] {
            ThreadsEvents "events" PerSecond Higher "threads event rate" of "event";
        }
        /// sysbench's mutexes.
        Mutex "mutex", in mutex, needs System, published [("threads", "4"), ("num", "2000"), ("locks", "10000"), ("loops", "5000")] {
            MutexTime "time" Seconds Lower "mutex time" of "event";
        }
        /// sysbench's memory transfer.
        Memory "memory", in memory, needs System, published [("block-size", "8K"), ("total-size", "1G"), ("time", "10")] {
            MemoryBandwidth "bandwidth" MebibytesPerSecond Higher "memory transfer" of "event";
            MemoryOperations "operations" PerSecond Higher "memory operations" of "event";
        }
        /// sysbench's files.
        Fileio "fileio", in fileio, needs System, published [("threads", "20"), ("total-size", "2G"), ("test-mode", "rndrw"), ("time", "10")] {
            FileioPrepare "prepare" MebibytesPerSecond Higher "file prepare";
            FileioReads "reads" PerSecond Higher "file reads" of "read";
            FileioWrites "writes" PerSecond Higher "file writes" of "write";
            FileioFsyncs "fsyncs" PerSecond Higher "file fsyncs" of "fsync";
            FileioReadBandwidth "read-bandwidth" MebibytesPerSecond Higher "file read rate" of "read";
            FileioWriteBandwidth "write-bandwidth" MebibytesPerSecond Higher "file write rate" of "write";
        }
        /// One system call at a time.
        Syscalls "syscalls", in syscalls, needs System, published [] {
            SyscallGetpid "getpid" Nanoseconds Lower "getpid" of "getpid";
            SyscallReadNull "read_null" Nanoseconds Lower "read_null" of "read_null";
            SyscallWriteNull "write_null" Nanoseconds Lower "write_null" of "write_null";
            SyscallPipe "pipe" Nanoseconds Lower "pipe round trip" of "pipe";
            SyscallStat "stat" Nanoseconds Lower "stat" of "stat";
            SyscallOpenClose "open_close" Nanoseconds Lower "open_close" of "open_close";
            SyscallFork "fork" Nanoseconds Lower "fork+exit+wait" of "fork";
            SyscallExec "exec" Nanoseconds Lower "fork+exec+wait" of "exec";
            SyscallClockVdso "clock_gettime_vdso" Nanoseconds Lower "clock_gettime (vDSO)" of "clock_gettime_vdso";
            SyscallClockRaw "clock_gettime_raw" Nanoseconds Lower "clock_gettime (syscall)" of "clock_gettime_raw";
            SyscallMmap "mmap" Nanoseconds Lower "mmap+touch+munmap" of "mmap";
            SyscallContextSwitch "context_switch" Nanoseconds Lower "context switch" of "context_switch";
            SyscallPageFault "page_fault" Nanoseconds Lower "page fault" of "page_fault";
            SyscallSignal "signal" Nanoseconds Lower "signal" of "signal";
            SyscallFutex "futex" Nanoseconds Lower "futex wake-wait" of "futex";
        }
        /// Direct block requests: sequential reads, one at a time, unless its options say otherwise.
        Disk "disk", in disk, needs Disk, published [] {
            DiskMedian "latency-p50" Nanoseconds Lower "disk latency, p50" of "read";
            DiskTail "latency-p99" Nanoseconds Lower "disk latency, p99" of "read";
            DiskRate "iops" PerSecond Higher "disk IOPS" of "read";
        }
        /// Jobs of fio, run by the fio that the host has, on the measured disk.
        Fio "fio", in fio, needs HostProgram, published [] {
            FioRate "iops" PerSecond Higher "fio IOPS";
            FioBandwidth "bandwidth" MebibytesPerSecond Higher "fio bandwidth";
            FioMean "clat-mean" Nanoseconds Lower "fio completion latency, mean";
            FioMedian "clat-p50" Nanoseconds Lower "fio completion latency, p50";
            FioTail "clat-p99" Nanoseconds Lower "fio completion latency, p99";
        }
        /// Requests over the network, each answered by an echo server, one at a time on each connection.
        NetRr "net-rr", in net_rr, needs Network, published [] {
            NetRrMedian "latency-p50" Nanoseconds Lower "network round trip, p50" of "round-trip";
            NetRrTail "latency-p99" Nanoseconds Lower "network round trip, p99" of "round-trip";
            NetRrRate "transactions" PerSecond Higher "network transactions" of "round-trip";
        }
        /// Bulk data over a TCP connection to a server that takes or gives it.
        NetStream "net-stream", in net_stream, needs Network, published [] {
            NetStreamThroughput "throughput" MebibytesPerSecond Higher "TCP throughput";
        }
        /// Small packets, as many as go through.
        NetPps "net-pps", in net_pps, needs Network, published [] {
            NetPpsSent "sent" PerSecond Higher "packets sent";
            NetPpsReceived "received" PerSecond Higher "packets received";
        }
        /// A tree copied out of the share, walked, and mapped.
        Tree "tree", in tree, needs Share, published [] {
            TreeSmallCold "small-cold" PerSecond Higher "small files, cold" of "open-cold";
            TreeSmallWarm "small-warm" PerSecond Higher "small files, warm" of "open-warm";
            TreeLargeCold "large-cold" MebibytesPerSecond Higher "large files, cold" of "read-large-cold";
            TreeLargeWarm "large-warm" MebibytesPerSecond Higher "large files, warm" of "read-large-warm";
            TreeWalk "walk" PerSecond Higher "directory walk" of "lstat-walk";
            TreeMmap "mmap" MebibytesPerSecond Higher "mapped reads" of "page-mmap";
        }
        /// Bonnie++'s operations on the share.
        Bonnie "bonnie", in bonnie, needs Share, published [] {
            BonnieWrite "write" MebibytesPerSecond Higher "block write" of "write";
            BonnieRewrite "rewrite" MebibytesPerSecond Higher "rewrite" of "rewrite";
            BonnieRead "read" MebibytesPerSecond Higher "block read" of "read";
            BonnieSeeks "seeks" PerSecond Higher "random seeks" of "seeks";
            BonnieCreateSeq "create-seq" PerSecond Higher "creates, in order" of "create-seq";
            BonnieStatSeq "stat-seq" PerSecond Higher "stats, in order" of "stat-seq";
            BonnieDeleteSeq "delete-seq" PerSecond Higher "deletes, in order" of "delete-seq";
            BonnieCreateRandom "create-random" PerSecond Higher "creates, at random" of "create-random";
            BonnieStatRandom "stat-random" PerSecond Higher "stats, at random" of "stat-random";
            BonnieDeleteRandom "delete-random" PerSecond Higher "deletes, at random" of "delete-random";
        }
        /// Cost of one more name known to the share's server.
        OpenFids "open-fids", in open_fids, needs Share, published [] {
            OpenFidsStat "stat" Nanoseconds Lower "stat of a known name" of "stat";
            OpenFidsStatCpu "stat_cpu" Nanoseconds Lower "QEMU's CPU time of a request on a known name";
            OpenFidsOpenClose "open_close" Nanoseconds Lower "open+close of a known name" of "open_close";
        }
        /// Calls on names among many, in deep folders, or with attributes.
        Names "names", in names, needs Share, published [] {
            NamesStat "stat" Nanoseconds Lower "stat of a name" of "stat";
            NamesOpenClose "open_close" Nanoseconds Lower "open_close of a name" of "open_close";
            NamesCreateUnlink "create_unlink" Nanoseconds Lower "create and unlink" of "create_unlink";
            NamesList "list" Nanoseconds Lower "listing of the directory" of "list";
            NamesGetxattr "getxattr" Nanoseconds Lower "getxattr" of "getxattr";
        }
        /// Properties of files that the share keeps.
        FsSemantics "fs-semantics", in fs_semantics, needs Share, published [] {
        }
        /// A command of the user's: [`crate::CommandSpec`].
        Exec "exec", in exec, needs Command, published [] {
            ExecWall "wall" Seconds Lower "wall time";
            ExecUser "user" Seconds Lower "user time";
            ExecSystem "system" Seconds Lower "system time";
            ExecMemory "memory" Mebibytes Lower "peak memory";
            ExecVoluntary "switches-voluntary" Count Lower "voluntary context switches";
            ExecInvoluntary "switches-involuntary" Count Lower "involuntary context switches";
            ExecMinorFaults "faults-minor" Count Lower "minor page faults";
            ExecMajorFaults "faults-major" Count Lower "major page faults";
            ExecReadCalls "read-calls" Count Lower "read calls";
            ExecWriteCalls "write-calls" Count Lower "write calls";
            ExecRead "read" Mebibytes Lower "bytes read";
            ExecWritten "written" Mebibytes Lower "bytes written";
        }
        /// VM exits of each kind, one after the other.
        Exits "exits", in exits, needs MicroGuest, published [] {
        }
        /// Antipatterns of guest kernels, and their fixes.
        GuestAntipatterns "guest-antipatterns", in guest_antipatterns, needs MicroGuest, published [] {
        }
    } };
}
