//! Work beside other work, also where no more threads may be started (`ulimit -u`, a cgroup's pids.max).

use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Work that was begun.
pub(crate) enum Begun<'scope, T> {
    /// It goes on in a thread.
    Running(ScopedJoinHandle<'scope, T>),
    /// There was no thread for it: it was done at once.
    Done(T),
}

impl<T> Begun<'_, T> {
    /// Returns the work's result; `None` if it panicked.
    pub fn result(self) -> Option<T> {
        match self {
            Begun::Running(thread) => thread.join().ok(),
            Begun::Done(result) => Some(result),
        }
    }
}

/// Begins work in a thread of its own if one can be started.
pub(crate) fn begin<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl Fn() -> T + Copy + Send + 'scope,
) -> Begun<'scope, T> {
    match Builder::new().spawn_scoped(scope, work) {
        Ok(thread) => Begun::Running(thread),
        Err(_) => Begun::Done(work()),
    }
}
