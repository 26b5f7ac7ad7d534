//! Wall-clock sampling: where a process's threads are, whether they run or wait.
//!
//! Without stops, the stack of a thread that waits is copied while it waits: the kernel gives its stack pointer. Of one that
//! runs nothing is known but that.
//! With stops, a thread that waits where it did at the moment before with the same stack is not stopped again.

use super::{StackSampling, space_and_build};
use crate::clock::{monotonic_ns, until_next};
use crate::process::{has_ended, schedstat, thread_names};
use crate::{ProbeError, ThreadReader};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant};
use vmtax_model::samples::{RunTimes, Sample, StopsEnded, ThreadState, WallClock};
use vmtax_trace::FUTEX;
use vmtax_trace::stacks::{
    self, CodeLocation, CodeOwner, Kernel, Names, Registers, SampledStacks, Space,
};

/// `restart_syscall`: what a thread that was stopped in a system call goes on with.
const RESTART_SYSCALL: i64 = 219;
/// New libraries are looked for no more often than this.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The previous sample of a thread.
struct PreviousSample {
    sp: u64,
    ip: u64,
    call: Option<i64>,
    stack: Vec<u8>,
    /// Index of [`SampledStacks::stacks`]: where it waited.
    number: usize,
}

/// A process under samples by the wall clock.
struct Watch {
    reader: ThreadReader,
    /// The longest stop that is accepted; no thread is stopped where there is none.
    stop_limit: Option<Duration>,
    begin: Instant,
    stops_ended: Option<StopsEnded>,
    space: Space,
    build: Option<stacks::Elf>,
    sampled: SampledStacks,
    last: HashMap<i32, PreviousSample>,
    copied: Vec<u8>,
    reloaded: Instant,
    unstopped: u64,
    futexes: BTreeMap<u64, usize>,
}

/// Samples all threads of a process, until the timeout, the process ends, or `stop` says so. Has
/// to run in a thread of its own, whose end lets go of all that it stopped.
///
/// `stop_limit`: threads are stopped for their stacks, until one stop lasts longer than this; without it, none is stopped.
///
/// # Errors
/// [`ProbeError`] when the process may not be read.
pub fn wall_clock(
    settings: &StackSampling,
    stop_limit: Option<Duration>,
    stop: &dyn Fn() -> bool,
) -> Result<WallClock, ProbeError> {
    let pid = settings.pid;
    let mut watch = Watch::start(settings, stop_limit)?;
    let step = Duration::from_secs(1) / settings.hz.max(1);
    let begin = watch.begin;
    let (mut threads, mut known) = (HashMap::new(), thread_names(pid));
    let mut moments = 0;
    let mut run_queue = RunQueue::new(pid);
    while begin.elapsed() < settings.time && !stop() && !has_ended(pid) {
        // At once, and of all before any is stopped: a reading takes a CPU that somebody may want, and who works for a
        // stopped thread, or waits for it, is about to do something else.
        let states: Vec<_> = known
            .iter()
            .map(|(tid, _)| (*tid, watch.reader.state(*tid)))
            .collect();
        for (tid, state) in states {
            if let Some(state) = state {
                watch.moment(tid, state);
            }
            run_queue.read(tid);
        }
        threads.extend(known);
        known = thread_names(pid);
        moments += 1;
        watch.reader.rest(until_next(begin, step, settings.time));
        watch.give_up_long_stops();
    }
    let pauses = watch.reader.end();
    let mut pauses: Vec<u64> = pauses.iter().map(|pause| pause.as_nanos() as u64).collect();
    pauses.sort_unstable();
    Ok(WallClock {
        profile: Names::find(&watch.space, &Kernel::read(), watch.build)
            .profile(&watch.sampled, |tid| threads.get(&tid).cloned()),
        unwound: watch.sampled.unwound,
        moments,
        pauses_ns: pauses,
        unstopped: watch.unstopped,
        stops_ended: watch.stops_ended,
        times: run_queue.times(),
        futexes: watch.futexes,
    })
}

impl Watch {
    fn start(settings: &StackSampling, stop_limit: Option<Duration>) -> Result<Watch, ProbeError> {
        let (space, build) = space_and_build(settings)?;
        Ok(Watch {
            reader: ThreadReader::new(settings.pid)?,
            stop_limit,
            begin: Instant::now(),
            stops_ended: None,
            space,
            build,
            sampled: SampledStacks::default(),
            last: HashMap::new(),
            copied: vec![0; settings.stack as usize],
            reloaded: Instant::now(),
            unstopped: 0,
            futexes: BTreeMap::new(),
        })
    }

    /// Samples one thread, which was in that state.
    fn moment(&mut self, tid: i32, state: ThreadState) {
        let known = self.where_it_was(tid, state);
        let stack = if known.is_none() && self.stop_limit.is_some() {
            self.stopped(tid, state)
        } else {
            self.unstopped += 1;
            known.or_else(|| self.copied(tid, state))
        };
        let Some(stack) = stack else { return };
        let thread = self.sampled.thread(tid);
        self.sampled.samples.push(Sample {
            thread,
            stack,
            time: monotonic_ns(),
            weight: 1,
            cpu: 0,
        });
    }

    /// The stack of a thread that waits on where it did.
    fn where_it_was(&mut self, tid: i32, state: ThreadState) -> Option<usize> {
        let ThreadState::Waits { call, sp, ip, .. } = state else {
            return None;
        };
        let last = self.last.get(&tid)?;
        (last.sp == sp && last.ip == ip && (call == last.call || call == Some(RESTART_SYSCALL)))
            .then_some(())?;
        let size = self.reader.copy(sp, &mut self.copied);
        (self.copied[..size] == last.stack[..]).then_some(last.number)
    }

    /// Stops no thread any more once one stop took longer than accepted.
    fn give_up_long_stops(&mut self) {
        let Some((limit, longest)) = self.stop_limit.zip(self.reader.longest_pause()) else {
            return;
        };
        if longest > limit {
            let ns = |time: Duration| time.as_nanos() as u64;
            self.stops_ended = Some(StopsEnded {
                after_ns: ns(self.begin.elapsed()),
                limit_ns: ns(limit),
                stop_ns: ns(longest),
            });
            self.stop_limit = None;
        }
    }

    /// The kernel's function that a thread waits in.
    fn reason(&mut self, tid: i32) -> Option<CodeLocation> {
        Some(self.sampled.wait(&self.reader.waits_in(tid)?))
    }

    /// The call that a thread is in, by what the kernel says: one that was stopped in it goes on with another.
    fn call_begun(&self, tid: i32, said: Option<i64>) -> Option<i64> {
        let before = self.last.get(&tid).and_then(|last| last.call);
        before.filter(|_| said == Some(RESTART_SYSCALL)).or(said)
    }

    /// Remembers where a thread waits: its registers, the copied part of its stack, and the number of the unwound one.
    fn remember(
        &mut self,
        tid: i32,
        registers: Registers,
        call: Option<i64>,
        size: usize,
        number: usize,
    ) {
        let last = PreviousSample {
            sp: registers.sp,
            ip: registers.ip,
            call,
            stack: self.copied[..size].to_vec(),
            number,
        };
        self.last.insert(tid, last);
    }

    /// The stack of a thread that waits, copied while it does. One that goes on meanwhile has what the kernel said of it;
    /// one that runs has no stack.
    fn copied(&mut self, tid: i32, state: ThreadState) -> Option<usize> {
        let ThreadState::Waits {
            call,
            argument,
            sp,
            ip,
        } = state
        else {
            self.last.remove(&tid);
            return Some(self.sampled.stack(&[]));
        };
        let reason = self.reason(tid);
        let turns = self.reader.turns(tid);
        let size = self.reader.copy(sp, &mut self.copied);
        if self.reader.state(tid) != Some(state) || self.reader.turns(tid) != turns {
            return self.unseen(tid, call, sp, ip, reason);
        }
        let call = self.call_begun(tid, call);
        let places = reason.into_iter().chain(call.map(called)).collect();
        // The kernel does not give the frame pointer: a stack that needs it ends there.
        let registers = Registers { ip, sp, bp: 0 };
        let number = self.unwound(registers, size, places);
        self.futexes
            .extend((call == Some(FUTEX)).then_some((argument, number)));
        self.remember(tid, registers, call, size, number);
        Some(number)
    }

    /// Stops a thread to see where it is.
    fn stopped(&mut self, tid: i32, state: ThreadState) -> Option<usize> {
        let reason = matches!(state, ThreadState::Waits { .. })
            .then(|| self.reason(tid))
            .flatten();
        let Some((registers, size)) = self.reader.stop(tid, &mut self.copied) else {
            // It has ended, nothing interrupts its wait, or a debugger has it: then what the kernel says of it has to do.
            let ThreadState::Waits { call, sp, ip, .. } = state else {
                return None;
            };
            return self.unseen(tid, call, sp, ip, reason);
        };
        let mut places = Vec::new();
        let (mut call, mut futex) = (None, None);
        // What it waits for, innermost first.
        if let ThreadState::Waits {
            call: said,
            argument,
            sp,
            ip,
        } = state
        {
            if sp == registers.sp {
                call = self.call_begun(tid, said);
                futex = (call == Some(FUTEX)).then_some(argument);
                places.extend(reason.into_iter().chain(call.map(called)));
            } else if let Some(number) = self.unseen(tid, said, sp, ip, None) {
                return Some(number);
            }
        }
        let waits = !places.is_empty();
        let number = self.unwound(registers, size, places);
        self.futexes.extend(futex.map(|address| (address, number)));
        if waits {
            self.remember(tid, registers, call, size, number);
        } else {
            self.last.remove(&tid);
        }
        Some(number)
    }

    /// The stack of a thread that waited, and went on before it stopped, or cannot stop: where it waited at that place
    /// before, or else only in what call.
    fn unseen(
        &mut self,
        tid: i32,
        call: Option<i64>,
        sp: u64,
        ip: u64,
        reason: Option<CodeLocation>,
    ) -> Option<usize> {
        let before = self
            .last
            .get(&tid)
            .filter(|last| (last.sp, last.ip, last.call) == (sp, ip, call));
        if let Some(last) = before {
            return Some(last.number);
        }
        let places: Vec<_> = reason.into_iter().chain([called(call?)]).collect();
        Some(self.sampled.stack(&places))
    }

    /// The number of a copied stack, unwound, below the places that it is inside of.
    fn unwound(
        &mut self,
        registers: Registers,
        size: usize,
        mut places: Vec<CodeLocation>,
    ) -> usize {
        let inside = places.len();
        let mut end = self
            .space
            .unwind(registers, &self.copied[..size], &mut places);
        let unknown = places[inside..]
            .iter()
            .any(|place| place.owner == CodeOwner::Nowhere);
        if unknown && self.reloaded.elapsed() > RELOAD_INTERVAL {
            self.reloaded = Instant::now();
            self.space.reload();
            places.truncate(inside);
            end = self
                .space
                .unwind(registers, &self.copied[..size], &mut places);
        }
        self.sampled.ended(&places[inside..], end);
        self.sampled.stack(&places)
    }
}

/// A system call, as the innermost place of a stack.
fn called(number: i64) -> CodeLocation {
    CodeLocation {
        owner: CodeOwner::Call,
        at: number.unsigned_abs(),
    }
}

/// The threads of one process: their time on a CPU and their run-queue wait, as the kernel's scheduler counts them.
#[derive(Debug)]
struct RunQueue {
    pid: i32,
    first: HashMap<i32, (Instant, [u64; 2])>,
    last: BTreeMap<i32, RunTimes>,
}

impl RunQueue {
    /// Watches the threads of a process.
    fn new(pid: i32) -> RunQueue {
        RunQueue {
            pid,
            first: HashMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// Reads a thread's counters, where the kernel has some.
    fn read(&mut self, tid: i32) {
        let text = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid))
            .unwrap_or_default();
        let Some([ran, ready]) = counters(&text) else {
            return;
        };
        let (since, [ran_first, ready_first]) = *self
            .first
            .entry(tid)
            .or_insert((Instant::now(), [ran, ready]));
        let times = RunTimes {
            watched_ns: since.elapsed().as_nanos() as u64,
            ran_ns: ran.saturating_sub(ran_first),
            runnable_ns: ready.saturating_sub(ready_first),
        };
        self.last.insert(tid, times);
    }

    /// The times, by TID.
    fn times(self) -> BTreeMap<i32, RunTimes> {
        self.last
    }
}

/// ns on a CPU and ns runnable; `0 0 0` where the kernel was built without.
fn counters(text: &str) -> Option<[u64; 2]> {
    let (ran, ready, turns) = schedstat(text)?;
    (turns > 0).then_some([ran, ready])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use vmtax_trace::stacks::FileSource;

    #[test]
    fn a_stack_that_is_unwound_again_after_a_reload_has_its_places_once() {
        let pid = std::process::id() as i32;
        let mut watch = Watch {
            reader: ThreadReader::new(pid).unwrap(),
            stop_limit: None,
            begin: Instant::now(),
            stops_ended: None,
            space: Space::empty(FileSource::Process(pid)),
            build: None,
            sampled: SampledStacks::default(),
            last: HashMap::new(),
            copied: Vec::new(),
            reloaded: Instant::now() - 2 * RELOAD_INTERVAL,
            unstopped: 0,
            futexes: BTreeMap::new(),
        };
        let ip = has_ended as *const () as u64;
        let call = CodeLocation {
            owner: CodeOwner::Call,
            at: 0,
        };
        let number = watch.unwound(Registers { ip, sp: 0, bp: 0 }, 0, vec![call]);
        let owners: Vec<CodeOwner> = watch.sampled.stacks[number]
            .iter()
            .map(|place| place.owner)
            .collect();
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let mut modules = watch.space.modules.iter();
        // The vDSO may lie before a program that is linked statically.
        let own = modules.position(|module| Path::new(&module.path) == exe);
        assert_eq!(
            owners,
            [CodeOwner::Call, CodeOwner::Module(own.unwrap() as u32)]
        );
    }

    #[test]
    fn a_line_of_counters() {
        assert_eq!(counters("120 30 4\n"), Some([120, 30]));
        assert!(
            ["", "1 2", "x 2 3", "0 0 0"]
                .iter()
                .all(|text| counters(text).is_none())
        );
    }

    #[test]
    fn time_on_a_cpu_is_seen() {
        let tid = std::process::id() as i32; // as a thread it does nothing while tests run
        let mut run_queue = RunQueue::new(tid);
        run_queue.read(tid);
        run_queue.read(tid);
        let times = run_queue.times();
        assert!(
            times
                .values()
                .all(|t| t.ran_ns <= t.watched_ns + 50_000_000),
            "{times:?}"
        );
    }
}
