//! Processes and their threads, as /proc has them, and which of them serve a Unix socket.

use crate::{ProbeError, entries};
use procfs::FromRead;
use procfs::net::{UnixNetEntry, UnixState};
use procfs::process::{FDTarget, Process, Stat, StatFlags, all_processes};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::ErrorKind;
use std::path::Path;

/// The folders of a process's threads; none where there is no such process.
pub(crate) fn tasks(pid: i32) -> impl Iterator<Item = DirEntry> {
    entries(format!("/proc/{pid}/task"))
}

/// Time of a thread on a CPU and runnable without one, ns, and how often it got one, of its `schedstat`.
pub(crate) fn schedstat(text: &str) -> Option<(u64, u64, u64)> {
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let mut next = || fields.next()?.ok();
    Some((next()?, next()?, next()?))
}

/// A file of /proc as text. A name in it may be other bytes: a person set it, or the kernel cut it within a letter.
pub fn proc_text(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Names of a process's threads, by number; empty where there is no such process.
pub fn thread_names(pid: i32) -> Vec<(i32, String)> {
    let named = |task: DirEntry| {
        let name = proc_text(task.path().join("comm"))?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        Some((tid, name.trim_end().to_owned()))
    };
    let mut threads: Vec<(i32, String)> = tasks(pid).filter_map(named).collect();
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
    Stat::from_file(format!("/proc/{pid}/stat")).ok()
}

pub(crate) fn is_dead(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

/// References to a connected Unix socket in the kernel: those of its file and of its peer. One fewer once the peer is closed, which
/// its owner may not have noticed.
const CONNECTED_REFERENCES: u32 = 3;

/// The process that serves the connections of a socket, as a process sees its path: the one that holds the server's end, and is not
/// that process. `None` where there is none, or without the permission to see its files. Processes of users other than root and the
/// client's do not count: they can bind the same path in a mount namespace of their own.
pub fn socket_server(client: i32, path: &Path) -> Option<i32> {
    let client_process = Process::new(client).ok()?;
    let trusted = [0, client_process.status().ok()?.euid];
    let sockets = client_process.unix().ok()?;
    // The client's ends have no path of their own.
    let connected = sockets
        .into_iter()
        .filter(|socket| socket.state == UnixState::CONNECTED);
    let ends: BTreeSet<u64> = connected
        .filter(|socket| socket.path.as_deref() == Some(path))
        .map(|socket| socket.inode)
        .collect();
    if ends.is_empty() {
        return None;
    }
    let holds = |process: &Process| {
        let files = process.fd().into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| matches!(file.target, FDTarget::Socket(inode) if ends.contains(&inode)))
    };
    let all = procfs::process::all_processes().ok()?.flatten();
    let servers =
        all.filter(|process| process.pid != client && holds(process) && is_of(process, trusted));
    // virtiofsd's first process waits for one in a sandbox, which serves.
    let stats = servers.filter_map(|process| process.stat().ok());
    stats
        .max_by_key(|stat| (stat.num_threads, stat.utime + stat.stime))
        .map(|stat| stat.pid)
}

/// Inodes of the connections that a process has accepted at its socket at this path, as this process sees the path, of clients that
/// are still there. `None` without the permission to see its files. A connection that it has not accepted yet has no inode.
pub fn clients(server: i32, path: &Path) -> Option<BTreeSet<u64>> {
    let process = Process::new(server).ok()?;
    let files = process.fd().ok()?.flatten();
    let held: BTreeSet<u64> = files
        .filter_map(|file| match file.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    // It bound the end of the path that is seen here, which leads through its root or its working directory.
    let is_its_path = |bound: &Path| path.ends_with(bound.strip_prefix("/").unwrap_or(bound));
    let accepted = |socket: &UnixNetEntry| {
        socket.state == UnixState::CONNECTED
            && socket.ref_count >= CONNECTED_REFERENCES
            && held.contains(&socket.inode)
            && socket.path.as_deref().is_some_and(is_its_path)
    };
    let sockets = process.unix().ok()?;
    let accepted = sockets.iter().filter(|socket| accepted(socket));
    Some(accepted.map(|socket| socket.inode).collect())
}

/// Returns true if a process runs as these users alone. The owner of its folder in `/proc` does not say: it is root
/// for a process that is not dumpable, which each may be.
fn is_of(process: &Process, users: [u32; 2]) -> bool {
    let Ok(status) = process.status() else {
        return false;
    };
    [status.ruid, status.euid, status.suid]
        .iter()
        .all(|user| users.contains(user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use vmtax_model::testing::Ends;

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

    #[test]
    fn the_server_is_who_accepted_the_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listens = UnixListener::bind(&path).unwrap();
        let own = std::process::id() as i32;
        let parent = std::os::unix::process::parent_id() as i32;
        assert_eq!(socket_server(parent, &path), None, "nobody is connected");
        let client = UnixStream::connect(&path).unwrap();
        let count = |path| clients(own, path).map(|clients| clients.len());
        assert_eq!(count(&path), Some(0), "nobody has accepted it");
        let _server = listens.accept().unwrap();
        let seen = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
        assert_eq!((count(&path), count(&seen)), (Some(1), Some(1)));
        assert_eq!(count(Path::new("/other")), Some(0));
        assert_eq!(socket_server(parent, &path), Some(own));
        assert_eq!(
            socket_server(own, &path),
            None,
            "the client itself is no server"
        );
        assert_eq!(socket_server(i32::MAX, &path), None);
        drop(client);
        assert_eq!(count(&path), Some(0), "it has gone");
    }

    /// Another user's process with this path is not the daemon, whatever it is connected to.
    #[test]
    #[ignore = "needs root"]
    fn another_users_process_is_no_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listens = UnixListener::bind(&path).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let held_by = |user| {
            let server: OwnedFd = listens.accept().unwrap().0.into();
            Ends(
                Command::new("sleep")
                    .arg("60")
                    .uid(user)
                    .stdin(server)
                    .spawn()
                    .unwrap(),
            )
        };
        let parent = std::os::unix::process::parent_id() as i32;
        let other = held_by(65534);
        assert_eq!(socket_server(parent, &path), None);
        drop(other);
        let _second = UnixStream::connect(&path).unwrap();
        let own = held_by(0);
        assert_eq!(socket_server(parent, &path), Some(own.0.id() as i32));
    }
}
