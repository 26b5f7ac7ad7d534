//! Nothing may hang: a timer that interrupts this thread's blocking calls when a measurement overruns.

use std::ptr;

/// Time that a measurement may take in addition to four times its budget, in ns: slow guests need more than the
/// budget.
const OVERRUN_NS: u64 = 20_000_000_000;

/// While it lives, blocking calls of this thread return EINTR once the time is up, again and again.
pub(super) struct Watch {
    timer: libc::timer_t,
    before: libc::sigaction,
}

extern "C" fn nothing(_: libc::c_int) {}

impl Watch {
    /// `None` where the kernel has no such timers; then nothing watches.
    pub fn set(budget_ns: u64) -> Option<Watch> {
        Watch::after(budget_ns.saturating_mul(4).saturating_add(OVERRUN_NS))
    }

    fn after(ns: u64) -> Option<Watch> {
        // SAFETY: all structures are plain data for which zeros are valid, alive during the calls; the handler does
        // nothing, so it is safe in any signal context. SIGALRM is used for nothing else by this program.
        unsafe {
            let mut timer: libc::timer_t = ptr::null_mut();
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as i32;
            if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) != 0 {
                return None;
            }
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut action: libc::sigaction = std::mem::zeroed();
            // No SA_RESTART: blocking calls have to return.
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGALRM, &action, &mut before);
            let time = libc::itimerspec {
                it_value: libc::timespec {
                    tv_sec: (ns / 1_000_000_000) as i64,
                    tv_nsec: (ns % 1_000_000_000) as i64,
                },
                // Repeated, since the first may come between two blocking calls.
                it_interval: libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 100_000_000,
                },
            };
            libc::timer_settime(timer, 0, &time, ptr::null_mut());
            Some(Watch { timer, before })
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the timer and the action come from `after`.
        unsafe {
            libc::timer_delete(self.timer);
            libc::sigaction(libc::SIGALRM, &self.before, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_read_that_nobody_answers_returns() {
        let (from, _to) = rustix::pipe::pipe().unwrap();
        let began = Instant::now();
        let _watch = Watch::after(50_000_000).unwrap();
        let answer = rustix::io::read(&from, &mut [0u8; 1]);
        assert_eq!(answer, Err(rustix::io::Errno::INTR));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
