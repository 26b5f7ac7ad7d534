//! The event loop that sysbench's tests share.
//!
//! All threads start together, at a gate that the main thread opens once every one of them is ready; the total time
//! runs from there until the last thread has ended. Before each event a thread checks the limits: an event under way
//! when the time is up completes and counts.
//!
//! sysbench reads `CLOCK_MONOTONIC` three times for each event (the limit, the event's start and end) and keeps a
//! histogram whose buckets it finds by a logarithm. For short events that is most of its figure, so the same is done
//! here: limits and the threads' times come from `CLOCK_MONOTONIC`, latencies from our own clock inside.

use crate::clock::monotonic_ns;
use crate::{Clock, WorkloadError};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use vmtax_model::{Fairness, Latency};

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
        loop {
            if let Some(start) = state.open {
                return start;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens when `threads` are waiting, or at once to send them home.
    fn open(&self, threads: usize, go: bool) -> u64 {
        let mut state = self.lock();
        while go && state.ready < threads {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
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

/// Runs each worker in a thread of its own until the limits, its own end, or an error.
pub(crate) fn run<W: Worker>(
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
                    return Err(WorkloadError::Threads {
                        number: index as u32 + 1,
                        threads: threads as u32,
                        source,
                    });
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
