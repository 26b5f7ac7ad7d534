//! Wall-clock sampling: where a process's threads are, whether they run or wait.
//!
//! Without stops, the stack of a thread that waits is copied while it waits: the kernel gives its stack pointer. Of one that
//! runs nothing is known but that.
//! With stops, a thread that waits where it did at the moment before with the same stack is not stopped again.

use super::StackSampling;
use super::run_queue::RunQueue;
use crate::clock::{monotonic_ns, until_next};
use crate::process::{has_ended, thread_names};
use crate::{ProbeError, ThreadReader};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use vmtax_model::samples::{Sample, StopsEnded, ThreadState, WallClock};
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
    /// Of [`SampledStacks::stacks`]: where it waited.
    number: usize,
}

struct Watch {
    reader: ThreadReader,
    /// The longest stop that is accepted; no thread is stopped where there is none.
    stop_limit: Option<Duration>,
    begin: Instant,
    stops_ended: Option<StopsEnded>,
    space: Space,
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
    let space = Space::of(pid);
    let build = settings
        .symbols
        .as_deref()
        .map(|path| stacks::build(path, &space))
        .transpose()?;
    let mut watch = Watch {
        reader: ThreadReader::new(pid)?,
        stop_limit,
        begin: Instant::now(),
        stops_ended: None,
        space,
        sampled: SampledStacks::default(),
        last: HashMap::new(),
        copied: vec![0; settings.stack as usize],
        reloaded: Instant::now(),
        unstopped: 0,
        futexes: BTreeMap::new(),
    };
    let step = Duration::from_secs(1) / settings.hz.max(1);
    let begin = watch.begin;
    let (mut threads, mut known) = (HashMap::new(), thread_names(pid));
    let mut moments = 0;
    let mut run_queue = RunQueue::of(pid);
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
    let mut pauses: Vec<u64> = watch
        .reader
        .end()
        .iter()
        .map(|pause| pause.as_nanos() as u64)
        .collect();
    pauses.sort_unstable();
    Ok(WallClock {
        profile: Names::of(&watch.space, &Kernel::read(), build)
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
    /// Samples one thread, which was in that state.
    fn moment(&mut self, tid: i32, state: ThreadState) {
        let stack = match self.where_it_was(tid, state) {
            Some(stack) => {
                self.unstopped += 1;
                Some(stack)
            }
            None if self.stop_limit.is_some() => self.stopped(tid, state),
            None => {
                self.unstopped += 1;
                self.copied(tid, state)
            }
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
            let after_ns = ns(self.begin.elapsed());
            self.stops_ended = Some(StopsEnded {
                after_ns,
                limit_ns: ns(limit),
                stop_ns: ns(longest),
            });
            self.stop_limit = None;
        }
    }

    /// The kernel's function that a thread waits in.
    fn reason(&mut self, tid: i32) -> Option<CodeLocation> {
        let name = Some(self.reader.waits_in(tid)).filter(|name| !name.is_empty())?;
        Some(self.sampled.wait(&name))
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
        let known = self.last.get(&tid).and_then(|last| last.call);
        let call = if call == Some(RESTART_SYSCALL) {
            known.or(call)
        } else {
            call
        };
        let call_place = call.map(|number| CodeLocation {
            owner: CodeOwner::Call,
            at: number.unsigned_abs(),
        });
        let places = reason.into_iter().chain(call_place).collect();
        // The kernel does not give the frame pointer: a stack that needs it ends there.
        let number = self.unwound(Registers { ip, sp, bp: 0 }, size, places);
        self.futexes
            .extend((call == Some(FUTEX)).then_some((argument, number)));
        let stack = self.copied[..size].to_vec();
        self.last.insert(
            tid,
            PreviousSample {
                sp,
                ip,
                call,
                stack,
                number,
            },
        );
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
                let known = self.last.get(&tid).and_then(|last| last.call);
                call = if said == Some(RESTART_SYSCALL) {
                    known.or(said)
                } else {
                    said
                };
                futex = (call == Some(FUTEX)).then_some(argument);
                places.extend(reason);
                places.extend(call.map(|number| CodeLocation {
                    owner: CodeOwner::Call,
                    at: number.unsigned_abs(),
                }));
            } else if let Some(number) = self.unseen(tid, said, sp, ip, None) {
                return Some(number);
            }
        }
        let waits = !places.is_empty();
        let number = self.unwound(registers, size, places);
        self.futexes.extend(futex.map(|address| (address, number)));
        if waits {
            let stack = self.copied[..size].to_vec();
            self.last.insert(
                tid,
                PreviousSample {
                    sp: registers.sp,
                    ip: registers.ip,
                    call,
                    stack,
                    number,
                },
            );
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
        let call = CodeLocation {
            owner: CodeOwner::Call,
            at: call?.unsigned_abs(),
        };
        Some(
            self.sampled
                .stack(&reason.into_iter().chain([call]).collect::<Vec<_>>()),
        )
    }

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

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(owners, [CodeOwner::Call, CodeOwner::Module(0)]);
    }
}
