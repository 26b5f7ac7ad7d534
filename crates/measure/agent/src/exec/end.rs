//! Kills what a command leaves running: it must not disturb the next trial.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use vmtax_observe::descendants;

/// Killed processes end at once, except those in an uninterruptible system call.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever loses its parent below this process becomes its child, as all do in a guest.
pub(super) fn adopt() {
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills all descendants of this process except `stay` and their descendants; returns how many.
pub(super) fn kill_all_but(stay: &[i32]) -> u32 {
    let (mut ended, until) = (BTreeSet::new(), Instant::now() + KILL_TIMEOUT);
    loop {
        let children = descendants(std::process::id() as i32, stay);
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
