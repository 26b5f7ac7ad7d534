//! SQLite on a damaged file: its pages can lead in a circle, or to the same pages over and over.

use rusqlite::Connection;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// From the end of its time on, every statement of a connection fails, as long as this lives.
pub(super) struct TimeLimit {
    _ended: Sender<()>,
}

impl TimeLimit {
    pub fn start(connection: &Connection, time: Duration) -> TimeLimit {
        let (ended, end) = channel::<()>();
        let handle = connection.get_interrupt_handle();
        // Only statements that run are interrupted, so again and again: each can be followed by another.
        let interrupt = move || {
            let mut wait = time;
            while end
                .recv_timeout(wait)
                .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                handle.interrupt();
                wait = Duration::from_millis(10);
            }
        };
        // Where the host starts no more threads, there is no limit.
        drop(thread::Builder::new().spawn(interrupt));
        TimeLimit { _ended: ended }
    }
}
