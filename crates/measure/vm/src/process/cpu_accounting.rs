//! What a guest costs the host's processors, by who spends it.

use std::collections::BTreeSet;
use std::fs;
use vmtax_model::ProcessorSeconds;

/// Whose time is taken: a guest's QEMU and its share's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuAccounting {
    /// QEMU's process.
    pub qemu: i32,
    /// Its threads that run the guest's processors.
    pub vcpus: Vec<i32>,
    /// The session of the server and of all that it started; its first process, the watchdog, does not count.
    pub server: Option<i32>,
}

impl CpuAccounting {
    /// What they spent by now. Threads that ended count: the kernel keeps their time with their process.
    pub fn spent(&self) -> ProcessorSeconds {
        let all = seconds(ticks(&format!("/proc/{}/stat", self.qemu)).unwrap_or(0));
        let vcpus = self.vcpus.iter().map(|tid| format!("/proc/{}/task/{tid}", self.qemu));
        let times: Vec<(f64, f64)> = vcpus.filter_map(|thread| ran_and_waited(&thread)).collect();
        let guest = times.iter().map(|(ran, _)| ran).sum();
        ProcessorSeconds {
            guest,
            qemu: (all - guest).max(0.0),
            ready: times.iter().map(|(_, waited)| waited).sum(),
            server: self.server.map(|session| seconds(of_session(session))),
        }
    }

    /// The process that serves the share: the last of the server's session, or QEMU itself.
    pub fn serving(&self) -> Option<i32> {
        match self.server {
            Some(session) => members(session).map(|(pid, _)| pid).max(),
            None => Some(self.qemu),
        }
    }
}

/// What was spent between two readings.
pub fn between(before: &ProcessorSeconds, after: &ProcessorSeconds) -> ProcessorSeconds {
    let difference = |a: f64, b: f64| (b - a).max(0.0);
    ProcessorSeconds {
        guest: difference(before.guest, after.guest),
        qemu: difference(before.qemu, after.qemu),
        ready: difference(before.ready, after.ready),
        server: before.server.zip(after.server).map(|(a, b)| difference(a, b)),
    }
}

/// Of all of a session but its first process.
fn of_session(session: i32) -> u64 {
    members(session).map(|(_, stat)| stat.ticks).sum()
}

fn members(session: i32) -> impl Iterator<Item = (i32, Stat)> {
    all().filter(move |(pid, stat)| *pid != session && stat.session == session)
}

/// The processes below one that have not ended.
pub fn descendants(of: i32) -> Vec<i32> {
    let all: Vec<(i32, Stat)> = all().collect();
    let mut below = BTreeSet::from([of]);
    // A child may stand before its parent.
    while all.iter().any(|(pid, stat)| below.contains(&stat.parent) && below.insert(*pid)) {}
    all.iter().filter(|(_, stat)| below.contains(&stat.parent) && !stat.dead).map(|(pid, _)| *pid).collect()
}

/// Whether a process is on its way out or gone. Its files are closed one after another on that way.
pub(crate) fn is_ending(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    stat.and_then(|line| Stat::parse(&line)).is_none_or(|stat| stat.dead || stat.ending)
}

fn all() -> impl Iterator<Item = (i32, Stat)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// How long a thread ran, and was ready to run while it did not: to the nanosecond, where the kernel says so.
fn ran_and_waited(thread: &str) -> Option<(f64, f64)> {
    let text = fs::read_to_string(format!("{thread}/schedstat")).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(ran), Some(waited)) if ran > 0 => Some((ran as f64 / 1e9, waited as f64 / 1e9)),
        _ => Some((seconds(ticks(&format!("{thread}/stat"))?), 0.0)),
    }
}

fn ticks(path: &str) -> Option<u64> {
    Stat::parse(&fs::read_to_string(path).ok()?).map(|stat| stat.ticks)
}

/// A line of `/proc/PID/stat`.
struct Stat {
    dead: bool,
    ending: bool,
    parent: i32,
    session: i32,
    /// User and system time.
    ticks: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Stat> {
        // The name, in brackets, may hold anything.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let time = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
        let dead = matches!(*fields.first()?, "Z" | "X");
        // PF_EXITING of include/linux/sched.h, which no header for programs has.
        let ending = fields.get(6)?.parse::<u64>().ok()? & 4 != 0;
        Some(Stat { dead, ending, parent: number(1)?, session: number(3)?, ticks: time(11)? + time(12)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let line = "7 (a) b) S 1 5 9 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0 5 6 7";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.session, stat.ticks, stat.ending), (9, 42, false));
        assert!(Stat::parse(&line.replace("4194304", "4194308")).unwrap().ending);
        assert!(Stat::parse("7 (a").is_none() && Stat::parse("7 (a) S 1").is_none());
    }

    #[test]
    fn who_is_gone_is_ending_and_who_runs_is_not() {
        assert!(!is_ending(std::process::id() as i32));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        assert!(is_ending(pid));
    }

    #[test]
    fn work_is_seen_and_the_session_leader_left_out() {
        let own = std::process::id() as i32;
        let accounting = CpuAccounting { qemu: own, vcpus: vec![own], server: None };
        let before = accounting.spent();
        // On a busy machine it has a processor now and then only.
        let thread_time_ns = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let begun = thread_time_ns();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while thread_time_ns() < begun + 60_000_000 && std::time::Instant::now() < until {
            std::hint::black_box(0);
        }
        let spent = between(&before, &accounting.spent());
        assert!(spent.guest + spent.qemu >= 0.02 && spent.server.is_none(), "{spent:?}");
    }
}
