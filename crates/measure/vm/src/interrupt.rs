//! A stop request as a file descriptor: waiting for it needs no periodic wake-ups, which would disturb a measurement.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Readable after a stop request, until that is acknowledged.
#[derive(Debug)]
pub struct Interrupt {
    readable: OwnedFd,
    acknowledged: AtomicBool,
}

impl Interrupt {
    /// From the reading end of a pipe or socket that a signal handler writes to.
    pub fn new(readable: OwnedFd) -> Self {
        Interrupt {
            readable,
            acknowledged: AtomicBool::new(false),
        }
    }

    /// Acknowledges a request, so that the next one can be waited for; [`Interrupt::raised`] stays true.
    pub fn acknowledge(&self) {
        self.acknowledged.store(true, Ordering::Relaxed);
        let _ = rustix::io::read(&self.readable, &mut [0]);
    }

    /// Returns true if a stop was requested.
    pub fn raised(&self) -> bool {
        if self.acknowledged.load(Ordering::Relaxed) {
            return true;
        }
        let mut fds = [PollFd::new(&self.readable, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
