//! A thread that answers: to wake it and to be woken by it takes two wake-ups and two switches.

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::gettid;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// A question that asks it to end.
const END: u64 = 2;

/// Runs on the CPU of the thread that started it, if that one is bound to one. Dropped, it ends.
pub(crate) struct Partner {
    thread: Option<JoinHandle<()>>,
    ends: Arc<[OwnedFd; 2]>,
    tid: i32,
}

impl Partner {
    /// # Errors
    /// When there are too many descriptors or threads.
    pub fn start() -> io::Result<Partner> {
        let end = || eventfd(0, EventfdFlags::CLOEXEC);
        let ends = Arc::new([end()?, end()?]);
        let (send, receive) = channel();
        let theirs = Arc::clone(&ends);
        let thread = std::thread::Builder::new().spawn(move || {
            let _ = send.send(gettid().as_raw_nonzero().get());
            let [question, answer] = &*theirs;
            while take(question).is_ok_and(|number| number < END) && put(answer, 1).is_ok() {}
        })?;
        let tid = receive.recv().map_err(io::Error::other)?;
        Ok(Partner { thread: Some(thread), ends, tid })
    }

    /// Its number.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Wakes it, and sleeps until it answers.
    pub fn round_trip(&self) {
        let [question, answer] = &*self.ends;
        if put(question, 1).is_ok() {
            let _ = take(answer);
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let [question, _] = &*self.ends;
        if put(question, END).is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

fn put(end: &OwnedFd, number: u64) -> io::Result<usize> {
    Ok(rustix::io::write(end, &number.to_ne_bytes())?)
}

fn take(end: &OwnedFd) -> io::Result<u64> {
    let mut number = [0; 8];
    rustix::io::read(end, &mut number)?;
    Ok(u64::from_ne_bytes(number))
}
