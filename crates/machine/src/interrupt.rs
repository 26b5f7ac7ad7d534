//! A wish to stop, as a file descriptor: waiting for it costs no wake-ups on a machine that is measuring.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable once somebody asked to stop; stays so.
#[derive(Debug)]
pub struct Interrupt(OwnedFd);

impl Interrupt {
    /// From the reading end of a pipe or socket that a signal handler writes to.
    pub fn new(readable: OwnedFd) -> Self {
        Interrupt(readable)
    }

    /// Whether somebody asked.
    pub fn raised(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
