//! Causes of threads' waits, and why the on-CPU and the wall-clock profile differ.

use crate::summary::share;
use std::collections::BTreeMap;
use std::time::Duration;
use vmtax_findings::{Pauses, SampleShare, ThreadWaits, WaitFor, WaitShare, WallFindings};
use vmtax_model::samples::{CodeOrigin, Profile, Thread, WallClock};

/// Functions that take a lock: a thread that waits below one waits for a lock; in the order in which a stack is read,
/// innermost first.
const LOCKS: [&str; 8] = [
    "pthread_mutex_lock",
    "pthread_mutex_cond_lock",
    "lll_lock_wait",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "qemu_mutex_lock_impl",
    "qemu_rec_mutex_lock_impl",
    "pthread_spin_lock",
];
/// Functions that wait for work from another thread.
const WORK: [&str; 7] = [
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "sem_wait",
    "sem_timedwait",
    "pthread_join",
    "futex_abstimed_wait",
    "qemu_event_wait",
];
/// Functions that take the big QEMU lock (BQL): up to 8.1, and after.
const BIG_LOCK: [&str; 3] = [
    "qemu_mutex_lock_iothread_impl",
    "bql_lock_impl",
    "qemu_mutex_lock_iothread",
];

/// Returns the findings from wall-clock samples.
pub fn findings(found: &WallClock) -> WallFindings {
    let pause_at = |share: f64| {
        let last = found.pauses_ns.len().saturating_sub(1);
        let pause = found.pauses_ns.get((last as f64 * share) as usize);
        pause.copied().unwrap_or_default() as f64
    };
    let mut threads = threads(&found.profile);
    for thread in &mut threads {
        let times = found
            .times
            .get(&thread.tid)
            .filter(|times| times.watched_ns > 0);
        let part = |of, all| {
            Duration::from_nanos(of).as_secs_f64() / Duration::from_nanos(all).as_secs_f64()
        };
        thread.on_cpu = times.map(|times| part(times.ran_ns, times.watched_ns));
        thread.ready = times.map(|times| part(times.runnable_ns, times.watched_ns));
        as_counted(thread);
    }
    let sliced = SliceClock::new(&found.profile).map(|clock| clock.last - clock.first);
    WallFindings {
        sliced_s: sliced.map_or(0.0, |ns| Duration::from_nanos(ns).as_secs_f64()),
        moments: found.moments,
        samples: found.profile.total(),
        pauses: Pauses {
            count: found.pauses_ns.len() as u64,
            unstopped: found.unstopped,
            p50_ns: pause_at(0.5),
            p99_ns: pause_at(0.99),
            max_ns: pause_at(1.0),
        },
        stops_ended: found.stops_ended,
        unwound: share(found.unwound.to_root, found.unwound.outside),
        threads,
    }
}

/// Returns the share of its time that a thread ran or was runnable: as the scheduler counted it, or else as sampled.
fn ran(thread: &ThreadWaits) -> f64 {
    let counted = thread.on_cpu.zip(thread.ready);
    counted.map_or(thread.runs.share, |(on_cpu, ready)| {
        (on_cpu + ready).clamp(0.0, 1.0)
    })
}

/// Gives its waits what the scheduler left of the time: samples tell what a thread waits for, but less well for how long. They
/// take a CPU, and where two threads wake each other, a sample is taken when one of both has just left it.
fn as_counted(thread: &mut ThreadWaits) {
    let seen: f64 = thread.waits.iter().map(|wait| wait.share.share).sum();
    if thread.on_cpu.is_none() || seen <= 0.0 {
        return;
    }
    let factor = (1.0 - ran(thread)) / seen;
    for SampleShare {
        share, low, high, ..
    } in thread.waits.iter_mut().map(|wait| &mut wait.share)
    {
        for value in [share, low, high] {
            *value = (*value * factor).min(1.0);
        }
    }
}

/// Each thread's time, by what it waits for.
fn threads(profile: &Profile) -> Vec<ThreadWaits> {
    let mut seen: Vec<Seen> = vec![Seen::default(); profile.threads.len()];
    let stacks = profile.stacks.iter();
    let keys: Vec<Option<Key>> = stacks.map(|stack| wait(profile, stack)).collect();
    let clock = SliceClock::new(profile);
    for sample in &profile.samples {
        let key = keys[sample.stack].as_ref();
        let slice = clock.as_ref().map(|clock| clock.slice(sample.time));
        seen[sample.thread].add(sample.weight, key, slice);
    }
    let waits_of = |(thread, seen): (&Thread, Seen)| {
        let Seen {
            total,
            waits,
            slices,
        } = seen;
        let waited: u64 = waits.values().sum();
        let mut waits: Vec<WaitShare> = (waits.into_iter())
            .map(|((reason, call, below), n)| WaitShare {
                reason,
                call,
                below,
                share: share(n, total),
            })
            .collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.share.samples));
        let slice = |(total, by_key): &(u64, BTreeMap<Key, u64>)| {
            let of_wait = |wait: &WaitShare| {
                let key = (wait.reason, wait.call.clone(), wait.below.clone());
                by_key.get(&key).copied().unwrap_or_default()
            };
            [*total]
                .into_iter()
                .chain(waits.iter().map(of_wait))
                .collect()
        };
        let slices = slices.iter().map(slice).collect();
        ThreadWaits {
            tid: thread.tid,
            name: thread.name.clone(),
            seen: total,
            runs: share(total - waited, total),
            on_cpu: None,
            ready: None,
            waits,
            slices,
        }
    };
    let threads = profile.threads.iter().zip(seen).map(waits_of);
    let mut threads: Vec<ThreadWaits> = threads.filter(|t| t.seen > 0).collect();
    threads.sort_by(|a, b| (b.runs.share.total_cmp(&a.runs.share)).then(a.tid.cmp(&b.tid)));
    threads
}

/// Samples of a thread.
#[derive(Clone, Default)]
struct Seen {
    total: u64,
    waits: BTreeMap<Key, u64>,
    /// All and waits of each part of the time; empty without a clock.
    slices: Vec<(u64, BTreeMap<Key, u64>)>,
}

impl Seen {
    /// Adds samples that wait for this, if they wait, in this part of the time.
    fn add(&mut self, weight: u64, key: Option<&Key>, slice: Option<usize>) {
        self.total += weight;
        if let Some(key) = key {
            *self.waits.entry(key.clone()).or_default() += weight;
        }
        if let Some(slice) = slice {
            self.slices.resize_with(SLICES, Default::default);
            let (total, waits) = &mut self.slices[slice];
            *total += weight;
            if let Some(key) = key {
                *waits.entry(key.clone()).or_default() += weight;
            }
        }
    }
}

/// Parts of the time of wall-clock samples.
const SLICES: usize = 40;

/// Equal parts of the time from the first sample to the last.
struct SliceClock {
    first: u64,
    last: u64,
}

impl SliceClock {
    /// Returns the clock; `None` where samples do not say when they were taken, or too few do.
    fn new(profile: &Profile) -> Option<SliceClock> {
        let times = || profile.samples.iter().map(|sample| sample.time);
        let (first, last) = (times().min()?, times().max()?);
        let mut seen = vec![0; profile.threads.len()];
        profile
            .samples
            .iter()
            .for_each(|sample| seen[sample.thread] += 1);
        let most = seen.into_iter().max()?;
        (first > 0 && most >= 2 * SLICES).then_some(SliceClock { first, last })
    }

    /// Returns the number of the part that a time is in.
    fn slice(&self, time: u64) -> usize {
        let passed = u128::from(time.clamp(self.first, self.last) - self.first);
        let all = u128::from(self.last - self.first) + 1;
        // Below SLICES, since `passed` is below `all`.
        (passed * SLICES as u128 / all) as usize
    }
}

/// Returns the cause of a wait at a futex, from one of the stacks there, and the innermost of the program's functions.
pub(crate) fn at_futex(profile: &Profile, stack: usize) -> Option<(WaitFor, String)> {
    let (reason, _, below) = wait(profile, profile.stacks.get(stack)?)?;
    Some((reason, below))
}

/// Why, in which system call or kernel function, below which function of the program.
type Key = (WaitFor, String, String);

/// Returns the cause of a stack's wait; `None` when it runs.
fn wait(profile: &Profile, stack: &[usize]) -> Option<Key> {
    let functions = || stack.iter().rev().map(|&number| &profile.functions[number]);
    let kernel = functions().take_while(|f| f.origin == CodeOrigin::Kernel);
    let kernel: Vec<&str> = kernel.map(|f| f.name.as_str()).collect();
    // The system call is the outermost kernel frame; outside of calls, the function it waits in identifies the wait.
    let call = (*kernel.last()?).to_owned();
    let below = functions()
        .find(|f| f.origin == CodeOrigin::Program)
        .map_or(String::new(), |f| f.name.clone());
    let user = functions().filter(|f| f.origin != CodeOrigin::Kernel);
    let user: Vec<&str> = user.map(|f| bare(&f.name)).collect();
    let reason = match call.as_str() {
        "futex" if user.iter().any(|name| BIG_LOCK.contains(name)) => WaitFor::BigLock,
        "futex" => futex(&user),
        "ioctl" if kernel.iter().any(|name| name.starts_with("kvm_vcpu")) => WaitFor::Guest,
        call => by_call(call),
    };
    Some((reason, call, below))
}

/// Returns the cause of a wait in a system call, as far as the call's name says.
pub(crate) fn by_call(call: &str) -> WaitFor {
    match call {
        "poll" | "ppoll" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "select"
        | "pselect6" | "accept" | "accept4" | "rt_sigtimedwait" => WaitFor::Events,
        "nanosleep" | "clock_nanosleep" | "pause" => WaitFor::Sleep,
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "write" | "pwrite64" | "writev"
        | "pwritev" | "fsync" | "fdatasync" | "io_getevents" | "io_uring_enter" | "recvmsg"
        | "recvfrom" | "sendmsg" | "openat" | "newfstatat" | "getdents64" => WaitFor::Io,
        _ => WaitFor::Other,
    }
}

/// A name without what a C library adds to its own: `__GI___lll_lock_wait`.
fn bare(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    name.strip_prefix("GI_")
        .unwrap_or(name)
        .trim_start_matches('_')
}

/// A futex is a lock or a condition, as the innermost of its library's functions tells.
fn futex(user: &[&str]) -> WaitFor {
    let reason = user.iter().find_map(|name| {
        let is = |list: &[&str]| list.iter().any(|known| name.starts_with(known));
        if is(&LOCKS) {
            Some(WaitFor::Lock)
        } else {
            is(&WORK).then_some(WaitFor::Work)
        }
    });
    reason.unwrap_or(WaitFor::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::unfold;
    use std::path::Path;
    use vmtax_model::samples::Sample;

    #[test]
    fn reasons_are_distinguished() {
        let text = "a;main;worker;__pthread_cond_wait;futex_[k];futex_wait_queue_[k] 6\n\
                    a;main;worker;__pthread_cond_wait;__pthread_mutex_cond_lock;futex_[k] 2\na;main;worker 2\n\
                    b;main;qemu_mutex_lock_iothread_impl;__pthread_mutex_lock;futex_[k] 10\nd;main;___pthread_mutex_lock;__GI___lll_lock_wait;futex_[k] 10\nc;main;os_host_main_loop_wait;ppoll_[k] 1\n";
        let found = threads(&unfold(text, Path::new("x")).unwrap());
        let thread_named = |name: &str| found.iter().find(|t| t.name == name).unwrap();
        let a = thread_named("a");
        assert_eq!((a.seen, a.runs.samples), (10, 2));
        assert_eq!(
            a.waits
                .iter()
                .map(|w| (w.reason, w.share.samples))
                .collect::<Vec<_>>(),
            [(WaitFor::Work, 6), (WaitFor::Lock, 2)]
        );
        assert_eq!(thread_named("d").waits[0].reason, WaitFor::Lock);
        assert_eq!(thread_named("b").waits[0].reason, WaitFor::BigLock);
        let c = &thread_named("c").waits[0];
        assert_eq!(
            (c.reason, c.call.as_str(), c.below.as_str()),
            (WaitFor::Events, "ppoll", "os_host_main_loop_wait")
        );
        // The scheduler's counters take precedence over the fractions of samples.
        let mut counted = a.clone();
        (counted.on_cpu, counted.ready) = (Some(0.5), Some(0.1));
        as_counted(&mut counted);
        let shares: Vec<f64> = counted
            .waits
            .iter()
            .map(|w| (w.share.share * 1000.0).round())
            .collect();
        assert_eq!(shares, [300.0, 100.0]);
    }
    #[test]
    fn samples_are_cut_in_equal_parts_of_the_time() {
        let text = "a;main;__pthread_cond_wait;futex_[k] 1\na;main;worker 1\n";
        let mut profile = unfold(text, Path::new("x")).unwrap();
        let untimed = threads(&profile);
        assert!(untimed[0].slices.is_empty(), "no sample says when");
        let [waits, runs] = [0, 1].map(|i| profile.samples[i]);
        // 200 ms: it waits in the first half, then runs.
        let sample = |i: u64| Sample {
            time: 1_000_000 * (i + 1),
            ..if i < 100 { waits } else { runs }
        };
        profile.samples = (0..200).map(sample).collect();
        let found = threads(&profile);
        let slices = &found[0].slices;
        assert_eq!(slices.len(), SLICES);
        assert_eq!((&slices[0], &slices[39]), (&vec![5, 5], &vec![5, 0]));
        let waited: u64 = slices.iter().map(|slice| slice[1]).sum();
        assert_eq!(waited, 100);
        profile.samples.truncate(2 * SLICES - 1);
        assert!(threads(&profile)[0].slices.is_empty(), "too few");
    }
}
