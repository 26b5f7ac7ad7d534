//! What a command leaves running ends with it: the next trial must not share the machine with it.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use vmtax_observe::descendants;

/// Processes die within moments of their kill, but for those in a call that cannot be broken off.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever loses its parent below this process becomes its child, as all do in a guest.
pub(super) fn adopt() {
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Ends every process below this one, but for those that `stay` and what is below these; says how many there were.
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
