//! Processes under a watchdog, what they leave, and the CPU time that they use.

pub(crate) mod child;
pub(crate) mod log;
pub(crate) mod remove;
pub(crate) mod watchdog;

use crate::MachineError;
use crate::sandbox::overlay::Discard;
use crate::sandbox::rights::Rights;
use procfs::process::{Process, Stat, Task};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use vmtax_model::{BatchEdge, CpuSeconds};
use vmtax_observe::processes;

/// The exit status of vmtax where it fails itself.
const FAILED: i32 = 2;

/// Starts a program.
pub(crate) fn spawn(program: &str, arguments: &[String]) -> Result<Child, MachineError> {
    spawn_command(Command::new(program), arguments, None, None)
}

/// Starts a program with its streams, where given with these rights only, or among files whose changes are discarded.
pub(crate) fn spawn_command(
    mut command: Command,
    arguments: &[String],
    rights: Option<&Rights>,
    discard: Option<&Discard>,
) -> Result<Child, MachineError> {
    command.args(arguments).process_group(0);
    let (rights, discard, parent) = (rights.cloned(), discard.cloned(), getpid());
    // SAFETY: watchdog and jail have one thread, so no lock is held that the closure could wait for.
    unsafe {
        command.pre_exec(move || {
            let entered = discard.as_ref().map_or(Ok(()), Discard::enter);
            // Of an error that is returned from here, a number is left.
            if let Err(error) = entered.and_then(|()| rights.as_ref().map_or(Ok(()), Rights::apply))
            {
                eprintln!("Error: {error}");
                libc::_exit(FAILED);
            }
            // Should the watchdog itself be killed. Its one thread lives as long as it does. Last, as the kernel forgets it
            // when a process changes its user; a program that does so by itself, as QEMU's `-runas`, would live on.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have been killed before.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(Errno::SRCH.into())
            }
        });
    }
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .map_err(|e| MachineError::system(format!("starting {program}"), e))
}

/// As a shell tells it: 128 + n for signal n.
pub(crate) fn status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Whose time is counted: a guest's VMM and its share's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuAccounting {
    /// The VMM's process.
    pub vmm: i32,
    /// Threads of the VMM that run the guest's vCPUs.
    pub vcpus: Vec<i32>,
    /// The session of the server and of all that it started; its first process, the watchdog, does not count.
    pub server: Option<i32>,
    /// Session of passt, which serves the guest's network; its first process, the watchdog, does not count.
    pub passt: Option<i32>,
}

impl CpuAccounting {
    /// Returns the CPU seconds that they spent so far. Threads that ended count: the kernel keeps their time with
    /// their process.
    pub fn spent(&self) -> CpuSeconds {
        let process = Process::new(self.vmm);
        let all = process
            .as_ref()
            .ok()
            .and_then(|process| process.stat().ok())
            .map_or(0.0, |stat| seconds(&stat));
        let task = |tid: &i32| process.as_ref().ok()?.task_from_tid(*tid).ok();
        let times: Vec<(f64, f64)> = self
            .vcpus
            .iter()
            .filter_map(|tid| ran_and_waited(&task(tid)?))
            .collect();
        let guest = times.iter().map(|(ran, _)| ran).sum();
        CpuSeconds {
            guest,
            qemu: (all - guest).max(0.0),
            ready: times.iter().map(|(_, waited)| waited).sum(),
            server: self.server.or(self.passt).map(|_| {
                let sessions = self.server.into_iter().chain(self.passt);
                sessions.flat_map(members).map(|stat| seconds(&stat)).sum()
            }),
        }
    }

    /// The process that serves the share: the last of the server's session, or the VMM itself.
    pub fn serving(&self) -> Option<i32> {
        match self.server {
            Some(session) => members(session).map(|stat| stat.pid).max(),
            None => Some(self.vmm),
        }
    }
}

/// All of a session but its first process.
fn members(session: i32) -> impl Iterator<Item = Stat> {
    processes().filter(move |stat| stat.pid != session && stat.session == session)
}

/// User and system time.
fn seconds(stat: &Stat) -> f64 {
    (stat.utime + stat.stime) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the seconds that a thread ran, and the seconds that it was runnable and did not run: to the nanosecond,
/// where the kernel says so; else the latter is 0.
fn ran_and_waited(thread: &Task) -> Option<(f64, f64)> {
    match thread.schedstat() {
        Ok(times) if times.sum_exec_runtime > 0 => Some((
            times.sum_exec_runtime as f64 / 1e9,
            times.run_delay as f64 / 1e9,
        )),
        _ => Some((seconds(&thread.stat().ok()?), 0.0)),
    }
}

/// Counts it between the edges of batches. The main thread looks up a 9p server's fids; vCPUs, which under TCG run the
/// guest's code, are other threads.
#[derive(Debug, Default)]
pub(crate) struct BatchCpu {
    began_ns: Option<u64>,
    /// CPU time and number of requests of the last whole batch.
    batch: Option<(u64, u64)>,
}

impl BatchCpu {
    /// An edge was reached when the main thread had run for `clock_ns`, where the kernel says so.
    pub fn add(&mut self, edge: BatchEdge, clock_ns: Option<u64>) {
        match edge {
            BatchEdge::Begin => (self.began_ns, self.batch) = (clock_ns, None),
            BatchEdge::End { requests } => {
                let spent = self
                    .began_ns
                    .take()
                    .zip(clock_ns)
                    .and_then(|(began, ended)| ended.checked_sub(began));
                self.batch = spent.map(|spent| (spent, requests));
            }
        }
    }

    /// Nanoseconds per request. None rather than 0: requests without any CPU time were not counted.
    pub fn per_request(&self) -> Option<f64> {
        let (spent, requests) = self
            .batch
            .filter(|(spent, requests)| *spent > 0 && *requests > 0)?;
        Some(spent as f64 / requests as f64)
    }
}

/// Returns the time that the main thread of a process ran, ns; `None` where the kernel keeps no such sum.
pub(crate) fn main_thread_ns(pid: i32) -> Option<u64> {
    let main = Process::new(pid).ok()?.task_from_tid(pid).ok()?;
    main.schedstat()
        .ok()
        .map(|times| times.sum_exec_runtime)
        .filter(|ns| *ns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_and_the_session_leader_left_out() {
        let own = std::process::id() as i32;
        let accounting = CpuAccounting {
            vmm: own,
            vcpus: vec![own],
            server: None,
            passt: None,
        };
        let before = accounting.spent();
        // On a busy machine it has a CPU now and then only.
        let thread_time_ns = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let begun = thread_time_ns();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while thread_time_ns() < begun + 60_000_000 && std::time::Instant::now() < until {
            std::hint::black_box(0);
        }
        let spent = accounting.spent().since(&before);
        assert!(
            spent.guest + spent.qemu >= 0.02 && spent.server.is_none(),
            "{spent:?}"
        );
    }

    fn per_request(edges: &[(BatchEdge, Option<u64>)]) -> Option<f64> {
        let mut counted = BatchCpu::default();
        edges
            .iter()
            .for_each(|(edge, clock)| counted.add(*edge, *clock));
        counted.per_request()
    }

    #[test]
    fn whole_batches_alone_have_a_time() {
        let begin = |ns| (BatchEdge::Begin, Some(ns));
        let end = |ns, requests| (BatchEdge::End { requests }, Some(ns));
        assert_eq!(per_request(&[begin(1000), end(9000, 4)]), Some(2000.0));
        assert_eq!(
            per_request(&[begin(0), end(9, 1), begin(1000), end(9000, 2)]),
            Some(4000.0),
            "the last one"
        );
        for bad in [
            &[][..],
            &[begin(5)],
            &[end(5, 1)],
            &[begin(5), end(5, 1)],
            &[begin(5), end(9, 0)],
            &[begin(9), end(5, 1)],
            &[begin(5), (BatchEdge::End { requests: 1 }, None)],
            &[(BatchEdge::Begin, None), end(5, 1)],
            &[begin(5), end(9, 1), begin(10)],
            &[begin(5), end(9, 1), end(10, 1)],
        ] {
            assert_eq!(per_request(bad), None, "{bad:?}");
        }
    }
}
