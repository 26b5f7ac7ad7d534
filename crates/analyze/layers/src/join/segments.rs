//! States of a request between its checkpoints: each moment is in exactly one state.

use super::sides::GuestWindow;
use super::sides::HostWindow;
use super::window::{PathStep, Sleep, critical_path};
use super::{PassedBy, RequestPath};
use crate::disk::GuestRequest;
use crate::{JoinedRequest, RecordedEvents, Segment, Who};
use std::collections::BTreeMap;
use vmtax_findings::State;
use vmtax_model::{Checkpoint, QemuThread, Role, TraceFacts};
use vmtax_trace::{Moment, ThreadState};

/// QEMU's threads, numbered as requests name them.
#[derive(Debug, Default)]
pub(crate) struct ThreadTable {
    pub threads: Vec<QemuThread>,
    numbers: BTreeMap<i32, u16>,
    /// The thread that runs a guest vCPU.
    vcpus: BTreeMap<u32, i32>,
}

impl ThreadTable {
    pub fn new(facts: &TraceFacts) -> Self {
        let mut thread_table = ThreadTable::default();
        for thread in &facts.threads {
            thread_table.add(thread.clone());
            if let Role::Vcpu(number) = thread.role {
                thread_table.vcpus.insert(number, thread.tid);
            }
        }
        thread_table
    }

    fn add(&mut self, thread: QemuThread) -> Option<u16> {
        let number = u16::try_from(self.threads.len()).ok()?;
        self.numbers.insert(thread.tid, number);
        self.threads.push(thread);
        Some(number)
    }

    /// A thread as requests name it; the host's kernel, when it is none of QEMU's.
    fn who(&mut self, tid: i32, host: &HostWindow) -> Who {
        if let Some(number) = self.numbers.get(&tid) {
            return Who::Thread(*number);
        }
        let new = host.threads.contains(&tid).then(|| {
            self.add(QemuThread {
                tid,
                role: Role::Worker,
            })
        });
        new.flatten().map_or(Who::Host, Who::Thread)
    }

    /// The thread that runs a guest vCPU; where one runs them all, that one.
    pub fn vcpu(&self, cpu: u32) -> Option<i32> {
        self.vcpus
            .get(&cpu)
            .or_else(|| self.vcpus.values().next().filter(|_| self.vcpus.len() == 1))
            .copied()
    }
}

/// Both sides' histories, and QEMU's threads.
pub(crate) struct Sides<'a> {
    pub host: &'a HostWindow,
    pub guest: &'a GuestWindow,
    pub thread_table: &'a mut ThreadTable,
}

impl Sides<'_> {
    /// A request from its path. Where two clocks tell of an effect right before its cause, within what they can tell, it
    /// counts as at the same time.
    pub fn request(&mut self, path: &RequestPath, part: &GuestRequest, key: u64) -> JoinedRequest {
        let mut request = JoinedRequest::new(key, part.kind);
        let mut segments: Vec<Segment> = Vec::with_capacity(24);
        let limits = limits(path);
        let (mut latest, mut previous) = (0, Checkpoint::Begin);
        for (checkpoint, at, by) in path.marks() {
            let at = at.clamp(latest, limits[checkpoint as usize].max(latest));
            let who = match by {
                PassedBy::Guest(_) => Who::Guest,
                PassedBy::Thread(tid) => self.thread_table.who(tid, self.host),
                PassedBy::Host | PassedBy::Queue => Who::Host,
            };
            request.set(checkpoint, at, who);
            // The workload's own stamps bound the whole, not an interval; but what it did before the last of them is known.
            let (to, by) = match path.busy_until {
                Some(moment) if checkpoint == Checkpoint::End => {
                    (moment.at.clamp(latest, at), PassedBy::Guest(moment))
                }
                _ if checkpoint == Checkpoint::End => (latest, by),
                _ => (at, by),
            };
            let is_traced = previous != Checkpoint::Begin
                || (path.begins_in_kernel && checkpoint != Checkpoint::Begin);
            let was_in_ring = path
                .in_ring
                .is_some_and(|since| previous <= since && checkpoint > since);
            let interval = Interval {
                from: latest,
                at: to,
                to: checkpoint,
            };
            if is_traced && to > latest && was_in_ring {
                segments.push(interval.whole(State::InRing, who, RecordedEvents::default()));
            } else if is_traced && to > latest {
                let begin = segments.len();
                self.interval(interval, by, &mut segments);
                segments[begin..].reverse();
            }
            (latest, previous) = (at, checkpoint);
        }
        merge_alike(&mut segments);
        request.segments = segments.into();
        request.recorded_outside = self.outside(path, &request);
        request
    }

    /// The guest's events between the workload's stamps and the segments.
    fn outside(&self, path: &RequestPath, request: &JoinedRequest) -> RecordedEvents {
        let by_guest = || {
            path.marks().filter_map(|(checkpoint, _, by)| match by {
                PassedBy::Guest(moment)
                    if !matches!(checkpoint, Checkpoint::Begin | Checkpoint::End) =>
                {
                    Some(moment)
                }
                _ => None,
            })
        };
        let on_path = |moment: Option<Moment>, from, to| {
            let Moment { tid, cpu, .. } = moment.filter(|_| from < to)?;
            Some(self.guest.recorded.on_path(Some(tid), cpu, from, to))
        };
        let before = on_path(by_guest().next(), request.begin(), request.first());
        let after = on_path(by_guest().next_back(), request.last(), request.end());
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        before.and(after)
    }

    /// The segments of an interval, latest first.
    fn interval(&mut self, interval: Interval, by: PassedBy, segments: &mut Vec<Segment>) {
        match by {
            // The disk's own work, a kernel thread's of which nothing is known, or none at all.
            PassedBy::Host | PassedBy::Queue => {
                let state = if by == PassedBy::Queue {
                    State::Queued
                } else {
                    State::Running
                };
                let recorded = &self.host.recorded;
                let recorded = recorded.on_path(None, 0, interval.from, interval.at);
                segments.push(interval.whole(state, Who::Host, recorded));
            }
            PassedBy::Thread(tid) => {
                for step in critical_path(&self.host.tasks, tid, 0, interval.from, interval.at) {
                    let who = self.thread_table.who(step.tid, self.host);
                    let recorded = self.host.recorded.in_step(step);
                    segments.push(interval.segment(host_state(step.state), who, step, recorded));
                }
            }
            PassedBy::Guest(moment) => {
                for step in self.guest_path(interval, moment) {
                    self.in_guest(interval, step, segments);
                }
            }
        }
    }

    /// The critical path among the guest's tasks; of an interrupt handler's work there is no other.
    fn guest_path(&self, interval: Interval, end: Moment) -> Vec<PathStep> {
        if end.interrupt || end.tid == 0 {
            return vec![PathStep {
                from: interval.from,
                to: interval.at,
                tid: 0,
                cpu: end.cpu,
                state: ThreadState::Running,
            }];
        }
        let (from, to) = (interval.from, interval.at);
        critical_path(&self.guest.tasks, end.tid, end.cpu, from, to)
    }

    /// Adds the segments of a step of the guest's task, by the states of the thread that runs its vCPU.
    fn in_guest(&mut self, interval: Interval, step: PathStep, segments: &mut Vec<Segment>) {
        let on = match step.state {
            ThreadState::Runnable { idle: true, .. } => State::GuestCpuWakeUp,
            ThreadState::Runnable { .. } => State::GuestRunnable,
            _ => State::Running,
        };
        let Some(vcpu) = self.thread_table.vcpu(step.cpu) else {
            let recorded = self.guest.recorded.in_step(step);
            segments.push(interval.segment(on, Who::Guest, step, recorded));
            return;
        };
        for under in critical_path(&self.host.tasks, vcpu, 0, step.from, step.to) {
            let in_guest = under.tid == vcpu && under.state == ThreadState::Running;
            let (state, who) = if in_guest {
                (on, Who::Guest)
            } else {
                let who = self.thread_table.who(under.tid, self.host);
                (host_state(under.state), who)
            };
            let of_guest = PathStep {
                from: under.from,
                to: under.to,
                ..step
            };
            let recorded = self
                .guest
                .recorded
                .in_step(of_guest)
                .and(self.host.recorded.in_step(under))
                .within(under.to - under.from);
            segments.push(interval.segment(state, who, under, recorded));
        }
    }
}

/// Makes one of segments in a row that differ by nothing but their time.
fn merge_alike(segments: &mut Vec<Segment>) {
    segments.dedup_by(|later, earlier| {
        let same = (later.to, later.state, later.who) == (earlier.to, earlier.state, earlier.who);
        if same {
            earlier.ticks += later.ticks;
            earlier.recorded = earlier.recorded.and(later.recorded);
        }
        same
    });
}

/// The latest moment of each checkpoint, by its number: the end, and of one of the host the guest's next. The guest's checkpoints
/// are of one clock, so what the host did between two of them lies there, also where its clock tells otherwise.
fn limits(path: &RequestPath) -> [u64; Checkpoint::COUNT] {
    let end = path.at(Checkpoint::End).unwrap_or(u64::MAX);
    let (mut limits, mut next) = ([end; Checkpoint::COUNT], end);
    for (checkpoint, at, by) in path.marks().rev() {
        match by {
            PassedBy::Guest(_) => next = next.min(at),
            PassedBy::Thread(_) | PassedBy::Host | PassedBy::Queue => {
                limits[checkpoint as usize] = next
            }
        }
    }
    limits
}

fn host_state(state: ThreadState<Sleep>) -> State {
    match state {
        ThreadState::Running => State::Running,
        ThreadState::Runnable { idle: true, .. } => State::CpuWakeUp,
        ThreadState::Runnable { .. } => State::Runnable,
        ThreadState::Sleeping(Sleep::Lock) => State::Lock,
        ThreadState::Sleeping(Sleep::Other) => State::Waiting,
    }
}

/// From one checkpoint to the next.
#[derive(Debug, Clone, Copy)]
struct Interval {
    from: u64,
    at: u64,
    to: Checkpoint,
}

impl Interval {
    /// A part of the interval in one state, as long as a step of a critical path.
    fn segment(&self, state: State, who: Who, step: PathStep, recorded: RecordedEvents) -> Segment {
        let ticks = step.to - step.from;
        Segment {
            ticks,
            ..self.whole(state, who, recorded)
        }
    }

    /// The interval as one segment.
    fn whole(&self, state: State, who: Who, recorded: RecordedEvents) -> Segment {
        Segment {
            to: self.to,
            state,
            who,
            ticks: self.at - self.from,
            recorded,
        }
    }
}
