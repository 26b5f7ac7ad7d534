//! A thread that answers: to wake it and to be woken by it takes two wake-ups and two switches.

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::gettid;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;

/// Runs on the CPU of the thread that started it, if that one is bound to one. It ends when this is dropped.
pub(crate) struct Partner {
    question: OwnedFd,
    answer: OwnedFd,
    tid: i32,
}

impl Partner {
    /// # Errors
    /// When there are too many descriptors or threads.
    pub fn start() -> io::Result<Partner> {
        let (questions, question) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, answers) = pipe_with(PipeFlags::CLOEXEC)?;
        let (send, receive) = channel();
        std::thread::Builder::new().spawn(move || {
            let _ = send.send(gettid().as_raw_nonzero().get());
            while take(&questions) && put(&answers) {}
        })?;
        let tid = receive.recv().map_err(io::Error::other)?;
        Ok(Partner {
            question,
            answer,
            tid,
        })
    }

    /// Returns the thread's ID.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Wakes it, and sleeps until it answers.
    pub fn round_trip(&self) {
        let _ = put(&self.question) && take(&self.answer);
    }
}

fn put(end: &OwnedFd) -> bool {
    rustix::io::write(end, &[1]).is_ok()
}

/// Waits for a byte; returns true if there is one, false if the other end is closed.
fn take(end: &OwnedFd) -> bool {
    rustix::io::read(end, &mut [0]).is_ok_and(|read| read > 0)
}
