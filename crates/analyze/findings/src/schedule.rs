//! Waits of threads: what they are for, findings from the scheduler's events and system calls of a process, and who used the CPUs.

use serde::{Deserialize, Serialize};
use vmtax_model::{CallRow, cpu_list};

/// Event or resource that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFor {
    /// Another thread that has work for it: a condition variable, a semaphore.
    Work,
    /// A lock that another thread holds.
    Lock,
    /// the big QEMU lock (BQL).
    BigLock,
    /// Files, sockets or timers to become ready.
    Events,
    /// A file to be read or written.
    Io,
    /// A timer of its own: `nanosleep`.
    Sleep,
    /// The guest, whose vCPU is halted.
    Guest,
    /// The guest to be resumed: its vCPUs are paused.
    Resume,
    /// An event that neither the call nor a stack tells.
    Other,
}

impl WaitFor {
    /// A noun phrase, for "waiting for …".
    pub fn label(self) -> &'static str {
        match self {
            WaitFor::Work => "work",
            WaitFor::Lock => "a lock",
            WaitFor::BigLock => "the BQL",
            WaitFor::Events => "events",
            WaitFor::Io => "I/O",
            WaitFor::Sleep => "a timer",
            WaitFor::Guest => "an interrupt (guest halted)",
            WaitFor::Resume => "the guest to be resumed (paused)",
            WaitFor::Other => "an unknown event",
        }
    }
}

/// A thread by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedThread {
    /// TID on the host.
    pub tid: i32,
    /// Name of the thread.
    pub name: String,
}

/// Something that a thread was blocked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockedOn {
    /// The system call; empty where it was in none, as in a page fault.
    pub call: String,
    /// The futex, as `0x7f…`; null where it is not one.
    pub futex: Option<String>,
    /// Number of times that it was blocked there.
    pub count: u64,
    /// Of the time, 0 to 1.
    pub share: f64,
}

/// A thread's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadSchedule {
    /// TID on the host.
    pub tid: i32,
    /// Name of the thread.
    pub name: String,
    /// Of the time, 0 to 1, on a CPU.
    pub runs: f64,
    /// Of the time, runnable without a CPU.
    pub ready: f64,
    /// Of the time, blocked.
    pub blocked: f64,
    /// Causes of the blocked time, the longest first.
    pub on: Vec<BlockedOn>,
    /// System calls of the thread and, with `_post` behind their names, the user time after them; the longest in all
    /// first.
    pub calls: Vec<CallRow>,
}

/// A thread that woke others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// Thread that woke others.
    #[serde(flatten)]
    pub thread: NamedThread,
    /// Number of times that it woke others.
    pub count: u64,
}

/// Waits at one futex.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FutexWaits {
    /// Address of the futex, as `0x7f…`.
    pub address: String,
    /// Purpose of the futex, as the stacks of its waiters show; null where none was sampled.
    pub what: Option<WaitFor>,
    /// The innermost of the program's functions there; empty where none was sampled.
    pub below: String,
    /// Number of times that a thread was blocked on the futex.
    pub waits: u64,
    /// Total time that threads waited for it, ns.
    pub waited_ns: f64,
    /// The longest, ns.
    pub longest_ns: f64,
    /// Threads that waited for it.
    pub waiters: Vec<NamedThread>,
    /// Who woke them by a call on this futex: of a lock, who held it. The most first.
    pub wakers: Vec<Waker>,
    /// Who held it at the end, where it is a lock of the C library's.
    pub holder: Option<NamedThread>,
}

/// Findings of a trace of the scheduler's events and system calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFindings {
    /// Duration of the trace, s.
    pub seconds: f64,
    /// Events that there was no room for; what they report ends before the first of them.
    pub lost: u64,
    /// The threads, those that ran most first.
    pub threads: Vec<ThreadSchedule>,
    /// The futexes, those waited at longest first.
    pub futexes: Vec<FutexWaits>,
}

/// Who used the host CPUs on which threads of a process waited to run. CPU time is in CPUs: 1 is one CPU all the time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuContention {
    /// CPUs on which the threads that waited longest may run, as a list: `0-3,8`.
    pub cpus: String,
    /// Number of these threads.
    pub threads: usize,
    /// Their run-queue wait, summed.
    pub waited: f64,
    /// CPU time of one of these threads, mean, each weighted by its wait.
    pub ran: f64,
    /// CPU time of all threads of the process on these CPUs, at least and at most: of a thread that may run elsewhere, too, it is
    /// not known where it ran.
    pub own: [f64; 2],
    /// CPU time of everything else on these CPUs, interrupts included, at least and at most.
    pub other: [f64; 2],
    /// Time throttled by a CPU quota of its control groups, summed over CPUs; null where no group counts it.
    pub throttled: Option<f64>,
}

/// Cause of run-queue wait of threads on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunQueueCause {
    /// Threads of the process compete with each other for too few CPUs.
    OwnThreads,
    /// Other tasks and interrupts use the CPUs.
    OtherLoad,
    /// The CPU quota of a control group is used up.
    Quota,
}

impl CpuContention {
    /// Smallest CPU use, as a part of a thread's wait, that can be the cause of the wait.
    const MIN: f64 = 0.2;
    /// Threads that need less than this part of their CPUs, waits included, would not wait for each other alone.
    const FULL: f64 = 0.9;

    /// Returns the causes of the threads' wait, and true; where they depend on where threads ran, or nothing explains
    /// the wait, the possible causes and `false`.
    pub fn causes(&self) -> (Vec<RunQueueCause>, bool) {
        let ([own_least, own_most], [other_least, other_most]) = (self.own, self.other);
        let mut causes = self.causes_for(own_least, other_most);
        let other = self.causes_for(own_most, other_least);
        let is_certain = causes == other && !causes.is_empty();
        causes.extend(other);
        if causes.is_empty() {
            causes.extend([
                RunQueueCause::OwnThreads,
                RunQueueCause::OtherLoad,
                RunQueueCause::Quota,
            ]);
        }
        causes.sort_unstable();
        causes.dedup();
        (causes, is_certain)
    }

    fn causes_for(&self, own: f64, other: f64) -> Vec<RunQueueCause> {
        let (waited, throttled) = (self.waited, self.throttled.unwrap_or(0.0));
        // Kernels before 6.18 count throttling as run-queue wait.
        if throttled > 0.0 && throttled >= waited / 2.0 {
            return vec![RunQueueCause::Quota];
        }
        // Whoever waits, waits while others run there; many may wait for the same one.
        let wait = waited / self.threads.max(1) as f64;
        let is_enough = |cpu: f64| cpu > 0.0 && cpu >= wait * Self::MIN;
        let cpus = cpu_list::parse(&self.cpus).map_or(1, |cpus| cpus.len());
        let would_fit = own + waited <= cpus as f64 * Self::FULL;
        let other = is_enough(other);
        let are_too_many = self.threads > 1 && own + waited > cpus as f64;
        let own = are_too_many || is_enough(own - self.ran) && !(other && would_fit);
        let causes = [
            (own, RunQueueCause::OwnThreads),
            (other, RunQueueCause::OtherLoad),
            (
                throttled > 0.0 && throttled >= waited * Self::MIN,
                RunQueueCause::Quota,
            ),
        ];
        causes
            .into_iter()
            .filter(|(is_cause, _)| *is_cause)
            .map(|(_, cause)| cause)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::RunQueueCause::{OtherLoad, OwnThreads, Quota};
    use super::*;

    /// Returns the contention of one thread on these CPUs.
    fn on(cpus: &str, waited: f64, ran: f64, own: [f64; 2], other: [f64; 2]) -> CpuContention {
        CpuContention {
            cpus: cpus.to_owned(),
            threads: 1,
            waited,
            ran,
            own,
            other,
            throttled: None,
        }
    }

    #[test]
    fn threads_that_share_one_cpu_compete_with_each_other() {
        let pinned = CpuContention {
            threads: 2,
            ..on("1", 1.0, 0.5, [0.98; 2], [0.02; 2])
        };
        assert_eq!(pinned.causes(), (vec![OwnThreads], true));
        let short_of_full = on("1", 0.1, 0.5, [0.7; 2], [0.01; 2]);
        assert_eq!(
            short_of_full.causes(),
            (vec![OwnThreads], true),
            "nothing else used the CPU"
        );
    }

    #[test]
    fn load_that_leaves_too_little_is_the_cause_where_the_own_threads_would_fit() {
        assert_eq!(
            on("1", 0.5, 0.5, [0.52; 2], [0.48; 2]).causes(),
            (vec![OtherLoad], true),
            "a thread and a hog"
        );
        let four_vcpus_of_eight = CpuContention {
            threads: 4,
            ..on("0-7", 1.0, 0.75, [3.0; 2], [5.0; 2])
        };
        assert_eq!(four_vcpus_of_eight.causes(), (vec![OtherLoad], true));
        let two_vcpus_and_a_hog = CpuContention {
            threads: 2,
            ..on("1", 1.3, 0.33, [0.66; 2], [0.33; 2])
        };
        assert_eq!(
            two_vcpus_and_a_hog.causes(),
            (vec![OwnThreads, OtherLoad], true)
        );
        let four_and_hogs = CpuContention {
            threads: 4,
            ..on("1", 3.55, 0.11, [0.45; 2], [0.54; 2])
        };
        assert_eq!(
            four_and_hogs.causes(),
            (vec![OwnThreads, OtherLoad], true),
            "measured"
        );
        let starved = CpuContention {
            threads: 4,
            ..on("1", 3.8, 0.05, [0.19; 2], [0.81; 2])
        };
        assert_eq!(
            starved.causes(),
            (vec![OwnThreads, OtherLoad], true),
            "measured"
        );
    }

    #[test]
    fn a_quota_that_took_half_of_the_wait_is_the_cause() {
        let throttled = |part| CpuContention {
            throttled: Some(part),
            ..on("1", 0.5, 0.5, [0.52; 2], [0.48; 2])
        };
        assert_eq!(throttled(0.3).causes(), (vec![Quota], true));
        assert_eq!(throttled(0.15).causes(), (vec![OtherLoad, Quota], true));
        assert_eq!(throttled(0.0).causes(), (vec![OtherLoad], true));
    }

    #[test]
    fn what_the_figures_do_not_separate_is_listed() {
        let main_loop_may_run_elsewhere = on("1", 0.5, 0.5, [0.5, 1.0], [0.0, 0.5]);
        assert_eq!(
            main_loop_may_run_elsewhere.causes(),
            (vec![OwnThreads, OtherLoad], false)
        );
        let idle = on("0-1", 0.5, 0.5, [0.5; 2], [0.01; 2]);
        assert_eq!(idle.causes(), (vec![OwnThreads, OtherLoad, Quota], false));
    }
}
