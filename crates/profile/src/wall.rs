//! Where a process's threads are at moments on the clock, whether they run or wait.
//!
//! A thread that waits, and waits where it did at the moment before with the same stack, is not stopped again: it is where it
//! was.

use crate::calls::FUTEX;
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
use vmtax_probe::{Look, Looker, State};

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
    pauses: Vec<Duration>,
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
        pauses: Vec::new(),
        unstopped: 0,
        futexes: HashMap::new(),
    };
    let step = Duration::from_secs(1) / hz.max(1);
    let begin = Instant::now();
    let mut threads = HashMap::new();
    let mut moments = 0;
    let mut schedule = Schedule::of(pid);
    while begin.elapsed() < settings.time && !stop() && !is_gone(pid) {
        for (tid, name) in thread_names(pid) {
            watch.moment(tid);
            schedule.read(tid);
            threads.insert(tid, name);
        }
        moments += 1;
        // Moments are not moved by what looking took, and missed ones not made up for.
        let next = step * (begin.elapsed().as_nanos() / step.as_nanos() + 1) as u32;
        let left = settings.time.saturating_sub(begin.elapsed());
        std::thread::sleep(next.saturating_sub(begin.elapsed()).min(left));
    }
    watch.pauses.sort_unstable();
    Ok(Wall {
        profile: Names::of(&watch.space, &Kernel::read(), build).profile(&watch.seen, |tid| threads.get(&tid).cloned()),
        unwound: watch.seen.unwound,
        moments,
        pauses: watch.pauses,
        unstopped: watch.unstopped,
        times: schedule.times(),
        futexes: watch.futexes,
    })
}

impl Watch {
    /// Looks at one thread.
    fn moment(&mut self, tid: i32) {
        let Some(state) = self.looker.state(tid) else { return };
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
        let (look, size) = self.looker.look(tid, &mut self.copied)?;
        self.pauses.push(look.pause);
        let mut places = Vec::new();
        let (mut call, mut futex) = (None, None);
        // What it waits for, innermost first; not where it went on meanwhile.
        if let State::Waits { call: said, argument, sp, .. } = state
            && sp == look.sp
        {
            call = if said == Some(RESTARTED) { self.last.get(&tid).and_then(|last| last.call).or(said) } else { said };
            futex = (call == Some(FUTEX)).then_some(argument);
            if let Some(name) = waits_in.filter(|name| !name.is_empty()) {
                places.push(self.seen.wait(&name));
            }
            places.extend(call.map(|number| Place { home: Home::Call, at: number.unsigned_abs() }));
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
