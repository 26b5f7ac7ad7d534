//! The process at the other end of a Unix socket.

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Pid, getsid};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

/// The process that connected, or that listens, there, and its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// PID of the process.
    pub pid: i32,
    /// Number of its user.
    pub uid: u32,
}

impl Peer {
    /// `None` where it is in a PID namespace that is not visible here: the kernel gives it the number 0.
    pub fn of(stream: &UnixStream) -> Option<Peer> {
        let peer = getsockopt(stream, PeerCredentials).ok()?;
        (peer.pid() > 0).then(|| Peer {
            pid: peer.pid(),
            uid: peer.uid(),
        })
    }

    /// Returns true if it belongs to this session. Its user is compared, too: one that ended may have left its number to another.
    pub fn is_in_session(self, session: i32) -> bool {
        let is_in_session =
            getsid(Some(Pid::from_raw(self.pid))).is_ok_and(|of| of.as_raw() == session);
        let folder = fs::metadata(format!("/proc/{}", self.pid));
        is_in_session && folder.is_ok_and(|folder| folder.uid() == self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use vmtax_model::testing::{again_in_pid_namespace, handed_over};

    /// In a PID namespace the listener's process has no number, nor has its own session.
    #[test]
    fn who_is_not_visible_has_no_number_and_no_session() {
        if let Some(path) = handed_over() {
            assert_eq!(Peer::of(&UnixStream::connect(path).unwrap()), None);
            let own = Peer::of(&UnixStream::pair().unwrap().0).unwrap();
            assert_eq!(own.pid, std::process::id() as i32);
            assert!(!own.is_in_session(own.pid));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listens = UnixListener::bind(&path).unwrap();
        assert_eq!(
            Peer::of(&UnixStream::connect(&path).unwrap()).unwrap().pid,
            std::process::id() as i32
        );
        again_in_pid_namespace(&path).unwrap();
    }
}
