//! A wish to stop, as a file descriptor: waiting for it costs no wake-ups on a machine that is measuring.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Readable once somebody asked to stop; stays so until it was acknowledged.
#[derive(Debug)]
pub struct Interrupt {
    readable: OwnedFd,
    acknowledged: AtomicBool,
}

impl Interrupt {
    /// From the reading end of a pipe or socket that a signal handler writes to.
    pub fn new(readable: OwnedFd) -> Self {
        Interrupt { readable, acknowledged: AtomicBool::new(false) }
    }

    /// Takes note of a wish, so that the next one can be waited for; it stays raised.
    pub fn acknowledge(&self) {
        self.acknowledged.store(true, Ordering::Relaxed);
        let _ = rustix::io::read(&self.readable, &mut [0]);
    }

    /// Whether somebody asked.
    pub fn raised(&self) -> bool {
        if self.acknowledged.load(Ordering::Relaxed) {
            return true;
        }
        let mut fds = [PollFd::new(&self.readable, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
