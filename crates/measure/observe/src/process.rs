//! Processes and their threads, as /proc has them.

use crate::ProbeError;
use procfs::process::{Process, Stat, StatFlags, all_processes};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;

/// Names of a process's threads, by number; empty where there is no such process.
pub fn thread_names(pid: i32) -> Vec<(i32, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let named = |task: fs::DirEntry| {
        // A person may have set a name that is no text.
        let name = fs::read(task.path().join("comm")).ok()?;
        Some((
            task.file_name().to_str()?.parse().ok()?,
            String::from_utf8_lossy(&name).trim_end().to_owned(),
        ))
    };
    let mut threads: Vec<(i32, String)> = tasks.filter_map(named).collect();
    threads.sort_unstable();
    threads
}

/// A process's threads by the numbers that it sees itself: others than the host's where it is in a PID namespace.
pub fn own_tids(pid: i32) -> BTreeMap<i32, i32> {
    let tasks = Process::new(pid)
        .and_then(|process| process.tasks())
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| Some((*task.status().ok()?.nspid?.last()?, task.tid)))
        .collect()
}

/// Checks that a process may be observed.
///
/// # Errors
/// [`ProbeError::NoProcess`], [`ProbeError::NotOurs`].
pub fn may_observe(pid: i32) -> Result<(), ProbeError> {
    match File::open(format!("/proc/{pid}/maps")) {
        Err(e) if e.kind() == ErrorKind::NotFound => Err(ProbeError::NoProcess { pid }),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(ProbeError::NotOurs { pid }),
        _ => Ok(()),
    }
}

/// Returns true if a process has ended; a zombie has.
pub fn has_ended(pid: i32) -> bool {
    stat(pid).is_none_or(|stat| is_dead(&stat))
}

/// Returns true if a process is ending, or has ended. The kernel closes its files one after another while it ends.
pub fn is_ending(pid: i32) -> bool {
    let exiting =
        |stat: &Stat| StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_EXITING);
    stat(pid).is_none_or(|stat| is_dead(&stat) || exiting(&stat))
}

/// The descendants of a process that have not ended, without those in `except` and what only they started.
pub fn descendants(of: i32, except: &[i32]) -> Vec<i32> {
    let mut all: Vec<Stat> = processes().collect();
    all.retain(|stat| !except.contains(&stat.pid));
    let mut below = BTreeSet::from([of]);
    // A child may stand before its parent.
    while all
        .iter()
        .any(|stat| below.contains(&stat.ppid) && below.insert(stat.pid))
    {}
    all.iter()
        .filter(|stat| below.contains(&stat.ppid) && !is_dead(stat))
        .map(|stat| stat.pid)
        .collect()
}

/// Every process of the host.
pub fn processes() -> impl Iterator<Item = Stat> {
    all_processes()
        .into_iter()
        .flatten()
        .filter_map(|process| process.and_then(|process| process.stat()).ok())
}

pub(crate) fn stat(pid: i32) -> Option<Stat> {
    Process::new(pid).and_then(|process| process.stat()).ok()
}

fn is_dead(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_their_names() {
        let (named, wait) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let body = move || {
            named.send(()).unwrap();
            let _ = ended.recv();
        };
        let thread = std::thread::Builder::new()
            .name("a) b/c".into())
            .spawn(body)
            .unwrap();
        wait.recv().unwrap();
        let found = thread_names(std::process::id() as i32);
        drop(end);
        thread.join().unwrap();
        assert!(found.iter().any(|(_, name)| name == "a) b/c"), "{found:?}");
        assert!(thread_names(i32::MAX).is_empty());
    }

    #[test]
    fn children_and_their_children_are_found_until_they_end() {
        let own = std::process::id() as i32;
        assert!(!has_ended(own) && !is_ending(own));
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .spawn()
            .unwrap();
        let pid = shell.id() as i32;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while descendants(pid, &[]).is_empty() {
            assert!(std::time::Instant::now() < until);
        }
        let sleep = descendants(pid, &[])[0];
        let below = descendants(own, &[]);
        assert!(below.contains(&pid) && below.contains(&sleep), "{below:?}");
        assert!(!descendants(own, &[pid]).contains(&sleep));
        shell.kill().unwrap();
        while !has_ended(pid) {
            assert!(std::time::Instant::now() < until);
        }
        assert!(is_ending(pid) && !descendants(own, &[]).contains(&pid));
        shell.wait().unwrap();
        assert!(has_ended(pid));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(sleep).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }
}
