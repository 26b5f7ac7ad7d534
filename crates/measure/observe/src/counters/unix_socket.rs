//! Who serves a Unix socket.

use procfs::net::{UnixNetEntry, UnixState};
use procfs::process::{FDTarget, Process};
use std::collections::BTreeSet;
use std::path::Path;

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
    Some(
        process
            .unix()
            .ok()?
            .iter()
            .filter(|socket| accepted(socket))
            .map(|socket| socket.inode)
            .collect(),
    )
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
