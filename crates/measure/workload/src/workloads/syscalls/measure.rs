//! Measurement of one kind of call.

use crate::Clock;
use std::io;
use std::path::PathBuf;
use std::ptr;
use vmtax_model::Latency;

/// Why a kind of call has no figure here, for people: `ENOSYS: getpid`.
#[derive(Debug)]
pub(super) struct Lack(pub String);

pub(super) type Attempt<T = ()> = Result<T, Lack>;

impl Lack {
    /// From the error that the last failing call on this thread left.
    pub fn last(call: &str) -> Lack {
        Lack::from_error(call, &io::Error::last_os_error())
    }

    pub fn from_error(call: &str, error: &io::Error) -> Lack {
        Lack::from_errno(call, error.raw_os_error().unwrap_or(0))
    }

    pub fn from_errno(call: &str, errno: i32) -> Lack {
        let name = match errno {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::EINTR => return Lack(format!("no answer in time: {call}")),
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EINVAL => "EINVAL",
            libc::EMFILE => "EMFILE",
            libc::ENXIO => "ENXIO",
            libc::ENODEV => "ENODEV",
            libc::EROFS => "EROFS",
            libc::ENOSYS => "ENOSYS",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            other => return Lack(format!("error {other}: {call}")),
        };
        Lack(format!("{name}: {call}"))
    }
}

/// The result of a call by number, or why it failed.
#[inline(always)]
pub(super) fn checked(call: &str, result: libc::c_long) -> Attempt<libc::c_long> {
    if result < 0 {
        Err(Lack::last(call))
    } else {
        Ok(result)
    }
}

/// As [`checked`], of a call whose result says nothing more.
#[inline(always)]
pub(super) fn succeeded(call: &str, result: libc::c_long) -> Attempt {
    checked(call, result).map(drop)
}

/// One operation, done again and again.
pub(super) trait Call {
    /// Does it once.
    fn call(&mut self) -> Attempt;
    /// Makes room for [`Self::room`] more, untimed.
    fn reset(&mut self) -> Attempt {
        Ok(())
    }
    /// Returns the number of operations that may follow each other without a reset.
    fn room(&self) -> u64 {
        u64::MAX
    }
}

impl<F: FnMut() -> Attempt> Call for F {
    #[inline(always)]
    fn call(&mut self) -> Attempt {
        self()
    }
}

/// Result of measuring a call.
pub(super) struct Sample {
    /// Each operation by itself.
    pub latency: Latency,
    /// Time per operation, ns: median over untimed batches.
    pub ns: f64,
}

/// Settings that the measurements share.
pub(super) struct Bench<'a> {
    pub clock: &'a Clock,
    pub budget_ns: u64,
    /// Where a temporary file may go, first choice first.
    pub directories: &'a [PathBuf],
}

/// Batches take at least this long where the budget allows: far more than two readings of the clock.
const BATCH_NS: u64 = 200_000;
/// A median needs a few values, whatever the budget.
const BATCHES: usize = 5;

impl Bench<'_> {
    /// Warms up for a tenth of the budget, then times single operations and batches for half of the rest each.
    pub fn measure(&self, call: impl Call) -> Attempt<Sample> {
        self.measure_parts(1, call)
    }

    /// Measures as [`Self::measure`] does, where each call is `parts` operations.
    pub fn measure_parts(&self, parts: u64, mut call: impl Call) -> Attempt<Sample> {
        let clock = self.clock;
        let room = call.room();
        let mut done = 0;
        let mut elapsed = 0;
        let start = clock.start();
        while done == 0 || elapsed < self.budget_ns / 10 {
            if done % room == 0 {
                call.reset()?;
            }
            call.call()?;
            done += 1;
            elapsed = clock.ns(start, clock.stop());
        }
        let batch = (BATCH_NS * done / elapsed.max(1)).clamp(1, room.min(1 << 20));

        let half = self.budget_ns * 45 / 100;
        let mut latency = Latency::new();
        let start = clock.start();
        while latency.count() == 0 || clock.ns(start, clock.stop()) < half {
            if latency.count() % room == 0 {
                call.reset()?;
            }
            let began = clock.start();
            call.call()?;
            latency.record(clock.ns(began, clock.stop()) / parts);
        }

        let mut per_operation = Vec::new();
        let start = clock.start();
        while per_operation.len() < BATCHES || clock.ns(start, clock.stop()) < half {
            call.reset()?;
            let began = clock.start();
            for _ in 0..batch {
                call.call()?;
            }
            per_operation.push(clock.ns(began, clock.stop()) as f64 / (batch * parts) as f64);
        }
        Ok(Sample {
            latency,
            ns: median(per_operation),
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

/// Time that a measurement may take in addition to four times its budget, in ns: slow guests need more than the
/// budget.
const OVERRUN_NS: u64 = 20_000_000_000;

/// A watch against hanging: while it lives, blocking calls of this thread return EINTR once the time is up, again and again.
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

    struct Napping {
        room: u64,
        left: u64,
        resets: u64,
    }

    impl Call for Napping {
        fn call(&mut self) -> Attempt {
            assert!(self.left > 0, "called beyond its room");
            self.left -= 1;
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        }
        fn reset(&mut self) -> Attempt {
            (self.left, self.resets) = (self.room, self.resets + 1);
            Ok(())
        }
        fn room(&self) -> u64 {
            self.room
        }
    }

    #[test]
    fn a_known_duration_is_measured_within_the_budget() {
        let clock = Clock::calibrate();
        let bench = Bench {
            clock: &clock,
            budget_ns: 300_000_000,
            directories: &[],
        };
        let began = Instant::now();
        let sample = bench
            .measure_parts(
                2,
                Napping {
                    room: 3,
                    left: 0,
                    resets: 0,
                },
            )
            .unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        // A nap of 1 ms is two parts of 0.5 ms; sleeping never ends early, and the shortest not much too late.
        assert!(
            (500_000.0..20_000_000.0).contains(&sample.ns),
            "{}",
            sample.ns
        );
        let shortest = sample.latency.quantile(0.0);
        assert!((490_000..950_000).contains(&shortest), "{shortest}");
    }

    #[test]
    fn a_lack_ends_it() {
        let clock = Clock::calibrate();
        let bench = Bench {
            clock: &clock,
            budget_ns: 1_000_000,
            directories: &[],
        };
        let lack = bench
            .measure(|| Err(Lack::from_errno("nothing", libc::ENOSYS)))
            .err()
            .unwrap();
        assert_eq!(lack.0, "ENOSYS: nothing");
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

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
