//! Code common to the five tests of sysbench 1.0 (`cpu`, `threads`, `mutex`, `memory`, `fileio`). They have sysbench's
//! definitions, options and defaults, so that figures compare with sysbench's own. An option has sysbench's name
//! without the test's prefix. Written from its documented and observed behaviour (1.0.20); each module says what its
//! test is.

use crate::clock::monotonic_ns;
use crate::descriptor::Yield;
use crate::options::{self, OptionInfo, nanoseconds};
use crate::{Clock, WorkloadError};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use vmtax_model::{Fairness, Latency};

pub(crate) const THREADS: OptionInfo = options::count("threads", "1", 1..=1024, "worker threads");
pub(crate) const TIME: OptionInfo = options::seconds(
    options::TIME,
    "10",
    0.0..=86_400.0,
    "seconds after which no new event starts; 0: no limit",
);
pub(crate) const EVENTS: OptionInfo = options::count(
    "events",
    "0",
    0..=u64::MAX,
    "events of all threads together after which none starts; 0: no limit",
);

/// Runs a test's workers; `events` is 0 where it has no such option. Gives what every test reports as well: one `event`
/// operation, fairness, the time.
pub(crate) fn run<W: Worker>(
    clock: &Clock,
    time: f64,
    events: u64,
    workers: Vec<W>,
) -> Result<(Finished<W>, Yield), WorkloadError> {
    let mut done = run_workers(
        clock,
        &Limits {
            time_ns: nanoseconds(time),
            events,
        },
        workers,
    )?;
    let mut got = Yield {
        fairness: Some(done.fairness),
        total_s: done.total_s,
        ..Yield::default()
    };
    got.operation("event", std::mem::take(&mut done.latency));
    Ok((done, got))
}

/// sysbench's own default is 64 KiB; ours leaves room for unoptimised builds. Untouched stack costs no memory.
const STACK: usize = 128 << 10;

/// When to stop; 0 means without limit.
pub(crate) struct Limits {
    pub time_ns: u64,
    pub events: u64,
}

/// Work of one thread.
pub(crate) trait Worker: Send {
    /// Parameters of an event.
    type Request;
    /// Chooses the next event, outside the timed part; `None` ends the thread.
    fn next(&mut self) -> Option<Self::Request>;
    /// The event: what is timed.
    fn execute(&mut self, request: Self::Request) -> Result<(), WorkloadError>;
    /// After the last event, within the total time but in no event.
    fn finish(&mut self) -> Result<(), WorkloadError> {
        Ok(())
    }
}

/// The outcome of all threads together.
pub(crate) struct Finished<W> {
    pub workers: Vec<W>,
    pub latency: Latency,
    pub fairness: Fairness,
    pub events: u64,
    pub total_s: f64,
}

/// Where threads wait for each other and for the start.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    /// Opened: the start stamp, or `None` to go home.
    open: Option<Option<u64>>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Option<u64> {
        let mut state = self.lock();
        state.ready += 1;
        self.changed.notify_all();
        let opened = self.changed.wait_while(state, |state| state.open.is_none());
        opened
            .unwrap_or_else(PoisonError::into_inner)
            .open
            .flatten()
    }

    /// Opens when `threads` are waiting, or at once to send them home.
    fn open(&self, threads: usize, go: bool) -> u64 {
        let ready = self
            .changed
            .wait_while(self.lock(), |state| go && state.ready < threads);
        let mut state = ready.unwrap_or_else(PoisonError::into_inner);
        let start = go.then(monotonic_ns);
        state.open = Some(start);
        self.changed.notify_all();
        start.unwrap_or(0)
    }
}

/// State that the threads share.
struct Shared<'a> {
    clock: &'a Clock,
    limits: &'a Limits,
    gate: Gate,
    taken: AtomicU64,
    failed: AtomicBool,
}

/// One thread's own account.
struct Account<W> {
    worker: W,
    latency: Latency,
    events: u64,
    busy_ns: u64,
    error: Option<WorkloadError>,
}

/// Runs each worker in a thread of its own until the limits, its own end, or an error. All begin at a gate, when each is there; the
/// clock is read three times for each event, as sysbench does.
pub(crate) fn run_workers<W: Worker>(
    clock: &Clock,
    limits: &Limits,
    workers: Vec<W>,
) -> Result<Finished<W>, WorkloadError> {
    let threads = workers.len();
    let shared = Shared {
        clock,
        limits,
        gate: Gate::default(),
        taken: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    let mut accounts: Vec<Account<W>> = workers
        .into_iter()
        .map(|worker| Account {
            worker,
            latency: Latency::new(),
            events: 0,
            busy_ns: 0,
            error: None,
        })
        .collect();
    let total_ns = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        for (index, account) in accounts.iter_mut().enumerate() {
            let shared = &shared;
            let started = Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || account.work(shared));
            match started {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    shared.gate.open(threads, false);
                    return Err(WorkloadError::thread(index, threads)(source));
                }
            }
        }
        let start = shared.gate.open(threads, true);
        for handle in handles {
            // A panic is a bug of ours; the scope passes it on.
            let _ = handle.join();
        }
        Ok(monotonic_ns() - start)
    })?;
    settle(accounts, total_ns)
}

impl<W: Worker> Account<W> {
    fn work(&mut self, shared: &Shared) {
        let Some(start) = shared.gate.wait() else {
            return;
        };
        self.error = self
            .events(shared, start)
            .and_then(|()| self.worker.finish())
            .err();
        if self.error.is_some() {
            shared.failed.store(true, Relaxed);
        }
    }

    fn events(&mut self, shared: &Shared, start: u64) -> Result<(), WorkloadError> {
        let (clock, limits) = (shared.clock, shared.limits);
        while !shared.failed.load(Relaxed) {
            if limits.time_ns > 0 && monotonic_ns() - start >= limits.time_ns {
                break;
            }
            if limits.events > 0 && shared.taken.fetch_add(1, Relaxed) >= limits.events {
                break;
            }
            let Some(request) = self.worker.next() else {
                break;
            };
            let entered = monotonic_ns();
            let began = clock.start();
            self.worker.execute(request)?;
            self.latency.record(clock.ns(began, clock.stop()));
            let busy_ns = monotonic_ns() - entered;
            black_box((busy_ns as f64).ln());
            self.busy_ns += busy_ns;
            self.events += 1;
        }
        Ok(())
    }
}

fn settle<W>(accounts: Vec<Account<W>>, total_ns: u64) -> Result<Finished<W>, WorkloadError> {
    let (events_mean, events_stddev) = spread(accounts.iter().map(|a| a.events as f64));
    let (time_mean_s, time_stddev_s) = spread(accounts.iter().map(|a| a.busy_ns as f64 / 1e9));
    let threads = accounts.len() as u32;
    let fairness = Fairness {
        threads,
        events_mean,
        events_stddev,
        time_mean_s,
        time_stddev_s,
    };
    let events = accounts.iter().map(|a| a.events).sum();
    let mut latency = Latency::new();
    let mut workers = Vec::with_capacity(accounts.len());
    for account in accounts {
        if let Some(error) = account.error {
            return Err(error);
        }
        latency.add(&account.latency);
        workers.push(account.worker);
    }
    Ok(Finished {
        workers,
        latency,
        fairness,
        events,
        total_s: total_ns as f64 / 1e9,
    })
}

/// Mean and population standard deviation.
fn spread(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.clone().sum::<f64>() / n;
    (
        mean,
        (values.map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt(),
    )
}

/// A mutex as sysbench's tests `threads` and `mutex` lock it: what they measure is pthread's, so nothing else will do.
#[repr(C)]
struct Padded<const PAD: usize> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    pad: [u8; PAD],
}

/// An array of mutexes with `PAD` bytes between them: which of them share a cache line is part of the test.
pub(crate) struct Locks<const PAD: usize>(Box<[Padded<PAD>]>);

// SAFETY: a pthread mutex is made to be used from several threads; its memory stays where it is, in the box.
unsafe impl<const PAD: usize> Sync for Locks<PAD> {}
// SAFETY: no mutex is held while the array is moved: locking borrows the array.
unsafe impl<const PAD: usize> Send for Locks<PAD> {}

impl<const PAD: usize> Locks<PAD> {
    /// `count` mutexes of the default kind.
    pub fn new(count: usize) -> Self {
        let fresh = || Padded {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            pad: [0; PAD],
        };
        Locks((0..count).map(|_| fresh()).collect())
    }

    /// Runs `inside` while holding mutex `index`.
    #[inline(always)]
    pub fn hold(&self, index: usize, inside: impl FnOnce()) {
        let mutex = self.0[index].mutex.get();
        // SAFETY: an initialised mutex at its final address; it is unlocked below by the thread that locked it.
        unsafe { libc::pthread_mutex_lock(mutex) };
        inside();
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}

/// A seeded generator: xoroshiro128+ (Blackman and Vigna, public domain) turned into a double. Drawing a number is part of what some
/// tests time, so the generator has to cost the same.
pub(crate) struct Random(u64, u64);

impl Random {
    /// The sequence of a thread: the same in every run and on every machine.
    pub fn of_thread(thread: u32) -> Random {
        let mut seeds = fastrand::Rng::with_seed(u64::from(thread) + 1);
        Random(seeds.u64(1..), seeds.u64(..))
    }

    /// Uniform in [0, 1).
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        let sum = self.0.wrapping_add(self.1);
        let mix = self.0 ^ self.1;
        self.0 = self.0.rotate_left(55) ^ mix ^ (mix << 14);
        self.1 = mix.rotate_left(36);
        // The upper 52 bits as the fraction of a double in [1, 2).
        f64::from_bits(0x3ff << 52 | sum >> 12) - 1.0
    }

    /// Uniform in 0..n.
    #[inline(always)]
    pub fn below(&mut self, n: u64) -> u64 {
        (self.unit() * n as i64 as f64) as i64 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_sequence_is_that_of_xoroshiro128plus() {
        let mut random = Random(1, 2);
        let fraction = |sum: u64| (sum >> 12) as f64 / (1u64 << 52) as f64;
        assert_eq!(random.unit(), fraction(1 + 2));
        // By hand: 1 turned left by 55, with 1 ^ 2 and that shifted by 14; 1 ^ 2 turned left by 36.
        assert_eq!((random.0, random.1), ((1 << 55) ^ 3 ^ (3 << 14), 3 << 36));
        assert_eq!(
            random.unit(),
            fraction(((1 << 55) ^ 3 ^ (3 << 14)) + (3 << 36))
        );
    }

    #[test]
    fn draws_are_uniform_and_in_range() {
        let mut random = Random::of_thread(0);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[random.below(10) as usize] += 1;
        }
        // Each bin expects 10 000 with a standard deviation of 95.
        assert!(seen.iter().all(|n| n.abs_diff(10_000) < 600), "{seen:?}");
    }

    #[test]
    fn threads_draw_differently_and_the_same_again() {
        let three = |thread| {
            let mut random = Random::of_thread(thread);
            [
                random.below(1 << 30),
                random.below(1 << 30),
                random.below(1 << 30),
            ]
        };
        assert_eq!(three(1), three(1));
        assert_ne!(three(1), three(2));
    }
}
