//! Where a process's threads are at moments on the clock, whether they run or wait.
//!
//! A thread that waits, and waits where it did at the moment before with the same stack, is not stopped again: it is where it
//! was.

use crate::kernel::Kernel;
use crate::names::Names;
use crate::on_cpu::{Settings, is_gone, thread_names};
use crate::place::{Home, Place, Registers};
use crate::profile::{Profile, Sample};
use crate::schedule::{Schedule, Times};
use crate::seen::{Seen, Unwound};
use crate::space::Space;
use crate::{ProfileError, names};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use vmtax_observe::{Look, Looker, State};
use vmtax_trace::FUTEX;

/// `restart_syscall`: what a thread that was stopped in a system call goes on with.
const RESTARTED: i64 = 219;
/// New libraries are looked for no more often than this.
const RELOAD: Duration = Duration::from_secs(1);

/// What came of it.
#[derive(Debug)]
pub struct Wall {
    /// Every thread once for every moment.
    pub profile: Profile,
    /// How well stacks unwound.
    pub unwound: Unwound,
    /// Moments that were looked at.
    pub moments: u64,
    /// How long threads were stopped, one for each stop, sorted.
    pub pauses: Vec<Duration>,
    /// Looks at threads that waited on where they were, and were not stopped.
    pub unstopped: u64,
    /// How long each thread ran and was ready.
    pub times: HashMap<i32, Times>,
    /// Of each futex that a thread waited at, by address, a stack: one of [`Profile::stacks`].
    pub futexes: HashMap<u64, usize>,
}

/// What was seen of a thread the last time.
struct Last {
    sp: u64,
    ip: u64,
    call: Option<i64>,
    stack: Vec<u8>,
    /// Of [`Seen::stacks`]: where it waited.
    number: usize,
}

struct Watch {
    looker: Looker,
    space: Space,
    seen: Seen,
    last: HashMap<i32, Last>,
    copied: Vec<u8>,
    reloaded: Instant,
    unstopped: u64,
    futexes: HashMap<u64, usize>,
}

/// Looks at all threads of a process `hz` times a second, until the time is over, the process ends, or `stop` says so. Has
/// to run in a thread of its own, whose end lets go of all that it stopped.
///
/// # Errors
/// [`ProfileError`] when the process may not be looked into.
pub fn wall(settings: &Settings, hz: u32, stop: &dyn Fn() -> bool) -> Result<Wall, ProfileError> {
    let pid = settings.pid;
    let space = Space::of(pid);
    let build = settings.symbols.as_deref().map(|path| names::build(path, &space)).transpose()?;
    let mut watch = Watch {
        looker: Looker::new(pid)?,
        space,
        seen: Seen::default(),
        last: HashMap::new(),
        copied: vec![0; settings.stack as usize],
        reloaded: Instant::now(),
        unstopped: 0,
        futexes: HashMap::new(),
    };
    let step = Duration::from_secs(1) / hz.max(1);
    let begin = Instant::now();
    let (mut threads, mut known) = (HashMap::new(), thread_names(pid));
    let mut moments = 0;
    let mut schedule = Schedule::of(pid);
    while begin.elapsed() < settings.time && !stop() && !is_gone(pid) {
        // At once, and of all before any is stopped: a look takes a processor that somebody may want, and who works for a
        // stopped thread, or waits for it, is about to do something else.
        let states: Vec<_> = known.iter().map(|(tid, _)| (*tid, watch.looker.state(*tid))).collect();
        for (tid, state) in states {
            if let Some(state) = state {
                watch.moment(tid, state);
            }
            schedule.read(tid);
        }
        threads.extend(known);
        known = thread_names(pid);
        moments += 1;
        watch.looker.rest(until_next(begin, step, settings.time));
    }
    let mut pauses = watch.looker.end();
    pauses.sort_unstable();
    Ok(Wall {
        profile: Names::of(&watch.space, &Kernel::read(), build).profile(&watch.seen, |tid| threads.get(&tid).cloned()),
        unwound: watch.seen.unwound,
        moments,
        pauses,
        unstopped: watch.unstopped,
        times: schedule.times(),
        futexes: watch.futexes,
    })
}

/// How long it is to the next of the looks that began then, or to the end of their time. They are not moved by what looking
/// took, and missed ones not made up for.
pub(crate) fn until_next(begin: Instant, step: Duration, time: Duration) -> Duration {
    let gone = begin.elapsed();
    let next = moment(step, (gone.as_nanos() / step.as_nanos() + 1) as u32);
    next.min(time).saturating_sub(gone)
}

/// When a step's look is: somewhere in it, each time elsewhere, so that looks do not beat with what happens regularly, as
/// timers tick. Multiples of the golden ratio fill an interval evenly (Weyl's sequence).
fn moment(step: Duration, number: u32) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    step * number + step.mul_f64((f64::from(number) * GOLDEN).fract())
}

impl Watch {
    /// Looks at one thread, which was in that state.
    fn moment(&mut self, tid: i32, state: State) {
        let stack = match self.where_it_was(tid, state) {
            Some(stack) => {
                self.unstopped += 1;
                Some(stack)
            }
            None => self.stopped(tid, state),
        };
        let Some(stack) = stack else { return };
        let thread = self.seen.thread(tid);
        self.seen.samples.push(Sample { thread, stack, time: now(), weight: 1, cpu: 0 });
    }

    /// The stack of a thread that waits on where it did.
    fn where_it_was(&mut self, tid: i32, state: State) -> Option<usize> {
        let State::Waits { call, sp, ip, .. } = state else { return None };
        let last = self.last.get(&tid)?;
        (last.sp == sp && last.ip == ip && (call == last.call || call == Some(RESTARTED))).then_some(())?;
        let size = self.looker.copy(sp, &mut self.copied);
        (self.copied[..size] == last.stack[..]).then_some(last.number)
    }

    /// Stops a thread to see where it is.
    fn stopped(&mut self, tid: i32, state: State) -> Option<usize> {
        let waits_in = matches!(state, State::Waits { .. }).then(|| self.looker.waits_in(tid));
        let reason = waits_in.filter(|name| !name.is_empty()).map(|name| self.seen.wait(&name));
        let Some((look, size)) = self.looker.look(tid, &mut self.copied) else {
            // It has ended, nothing interrupts its wait, or a debugger has it: then what the kernel says of it has to do.
            let State::Waits { call, sp, ip, .. } = state else { return None };
            return self.unseen(tid, call, (sp, ip), reason);
        };
        let mut places = Vec::new();
        let (mut call, mut futex) = (None, None);
        // What it waits for, innermost first.
        if let State::Waits { call: said, argument, sp, ip } = state {
            if sp == look.sp {
                let known = self.last.get(&tid).and_then(|last| last.call);
                call = if said == Some(RESTARTED) { known.or(said) } else { said };
                futex = (call == Some(FUTEX)).then_some(argument);
                places.extend(reason);
                places.extend(call.map(|number| Place { home: Home::Call, at: number.unsigned_abs() }));
            } else if let Some(number) = self.unseen(tid, said, (sp, ip), None) {
                return Some(number);
            }
        }
        let waits = !places.is_empty();
        let number = self.unwound(look, size, places);
        self.futexes.extend(futex.map(|address| (address, number)));
        if waits {
            let stack = self.copied[..size].to_vec();
            self.last.insert(tid, Last { sp: look.sp, ip: look.ip, call, stack, number });
        } else {
            self.last.remove(&tid);
        }
        Some(number)
    }

    /// The stack of a thread that waited, and went on before it stopped, or cannot stop: where it waited at that place
    /// before, or else only in what call.
    fn unseen(&mut self, tid: i32, call: Option<i64>, (sp, ip): (u64, u64), reason: Option<Place>) -> Option<usize> {
        let before = self.last.get(&tid).filter(|last| (last.sp, last.ip, last.call) == (sp, ip, call));
        if let Some(last) = before {
            return Some(last.number);
        }
        let call = Place { home: Home::Call, at: call?.unsigned_abs() };
        Some(self.seen.stack(&reason.into_iter().chain([call]).collect::<Vec<_>>()))
    }

    fn unwound(&mut self, look: Look, size: usize, mut places: Vec<Place>) -> usize {
        let inside = places.len();
        let registers = Registers { ip: look.ip, sp: look.sp, bp: look.bp };
        let mut end = self.space.unwind(registers, &self.copied[..size], &mut places);
        let unknown = places[inside..].iter().any(|place| place.home == Home::Nowhere);
        if unknown && self.reloaded.elapsed() > RELOAD {
            self.reloaded = Instant::now();
            self.space.reload();
            places.truncate(inside);
            end = self.space.unwind(registers, &self.copied[..size], &mut places);
        }
        self.seen.ended(&places[inside..], end);
        self.seen.stack(&places)
    }
}

/// Now, ns of the monotonic clock.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_fall_into_every_part_of_what_is_regular() {
        let step = Duration::from_millis(50);
        let moments: Vec<Duration> = (0..1000).map(|number| moment(step, number)).collect();
        assert!(moments.iter().zip(0..).all(|(moment, number)| (step * number..step * (number + 1)).contains(moment)));
        for period in [1, 4, 10, 25, 50, 100] {
            let mut parts = [0; 10];
            for at in &moments {
                let within = at.as_secs_f64() * 1e3 / f64::from(period);
                parts[(within.fract() * 10.0) as usize] += 1;
            }
            assert!(parts.iter().all(|part| (60..=140).contains(part)), "{period} ms: {parts:?}");
        }
    }
}
