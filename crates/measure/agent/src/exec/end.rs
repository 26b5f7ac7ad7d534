//! What a command leaves running ends with it: the next trial must not share the machine with it.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Processes die within moments of their kill, but for those in a call that cannot be broken off.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever loses its parent below this process becomes its child, as all do in a guest.
pub(super) fn adopt() {
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Ends every process below this one, but for those that `stay` and what is below these; says how many there were.
pub(super) fn end_all_but(stay: &[i32]) -> u32 {
    let (mut ended, until) = (BTreeSet::new(), Instant::now() + PATIENCE);
    loop {
        let children = running_but(stay);
        if children.is_empty() || Instant::now() > until {
            reap();
            return ended.len() as u32;
        }
        for pid in children {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
            ended.insert(pid);
        }
        reap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Those that ended are taken off the kernel's table.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// The descendants of this process that have not ended.
pub(super) fn running() -> Vec<i32> {
    running_but(&[])
}

fn running_but(stay: &[i32]) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let all: Vec<Process> = pids.filter_map(Process::read).collect();
    let mut below = BTreeSet::from([std::process::id() as i32]);
    // A child may stand before its parent.
    while all.iter().any(|p| below.contains(&p.parent) && !stay.contains(&p.pid) && below.insert(p.pid)) {}
    all.iter().filter(|p| below.contains(&p.parent) && !stay.contains(&p.pid) && !p.dead).map(|p| p.pid).collect()
}

struct Process {
    pid: i32,
    parent: i32,
    dead: bool,
}

impl Process {
    fn read(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X");
        Some(Process { pid, parent: fields.next()?.parse().ok()?, dead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_their_children_are_found_and_those_that_ended_are_not() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 3 & wait"]).spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        let below = |pid| running().into_iter().filter_map(Process::read).any(|p| p.parent == pid);
        while !below(shell.id() as i32) {
            assert!(Instant::now() < until);
        }
        shell.kill().unwrap();
        while running().contains(&(shell.id() as i32)) {
            assert!(Instant::now() < until);
        }
        shell.wait().unwrap();
    }
}
