//! What a request does between its stations: each moment in exactly one state.

use crate::guest::{GuestPast, Part};
use crate::host::HostPast;
use crate::path::{PathStep, Sleep, critical_path};
use crate::request::{JoinedRequest, Piece, Who};
use crate::way::{By, Way};
use std::collections::BTreeMap;
use vmtax_model::{QemuThread, Role, State, Station, TraceFacts};
use vmtax_trace::{Moment, ThreadState};

/// QEMU's threads, numbered as requests name them.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    pub threads: Vec<QemuThread>,
    numbers: BTreeMap<i32, u16>,
    /// The thread that runs a guest processor.
    vcpus: BTreeMap<u32, i32>,
}

impl Crew {
    pub fn new(facts: &TraceFacts) -> Self {
        let mut crew = Crew::default();
        for thread in &facts.threads {
            crew.add(thread.clone());
            if let Role::Vcpu(number) = thread.role {
                crew.vcpus.insert(number, thread.tid);
            }
        }
        crew
    }

    fn add(&mut self, thread: QemuThread) -> Option<u16> {
        let number = u16::try_from(self.threads.len()).ok()?;
        self.numbers.insert(thread.tid, number);
        self.threads.push(thread);
        Some(number)
    }

    /// A thread as requests name it; the host's kernel, when it is none of QEMU's.
    fn who(&mut self, tid: i32, host: &HostPast) -> Who {
        if let Some(number) = self.numbers.get(&tid) {
            return Who::Thread(*number);
        }
        let new = host.threads.contains(&tid).then(|| self.add(QemuThread { tid, role: Role::Worker }));
        new.flatten().map_or(Who::Host, Who::Thread)
    }

    /// The thread that runs a guest processor; where one runs them all, that one.
    pub fn vcpu(&self, cpu: u32) -> Option<i32> {
        self.vcpus.get(&cpu).or_else(|| self.vcpus.values().next().filter(|_| self.vcpus.len() == 1)).copied()
    }
}

/// Both sides' histories, and QEMU's threads.
pub(crate) struct Sides<'a> {
    pub host: &'a HostPast,
    pub guest: &'a GuestPast,
    pub crew: &'a mut Crew,
}

impl Sides<'_> {
    /// A request from its way. Where two clocks tell of an effect right before its cause, within what they can tell, it
    /// counts as at the same time.
    pub fn request(&mut self, way: &Way, part: &Part, offset: u64) -> JoinedRequest {
        let mut request = JoinedRequest::new(offset, part.kind);
        let mut pieces: Vec<Piece> = Vec::with_capacity(24);
        let end = way.at(Station::End).unwrap_or(u64::MAX);
        let (mut latest, mut previous) = (0, Station::Begin);
        for (station, at, by) in way.marks() {
            let at = at.clamp(latest, end.max(latest));
            let who = match by {
                By::Guest(_) => Who::Guest,
                By::Thread(tid) => self.crew.who(tid, self.host),
                By::Host => Who::Host,
            };
            request.set(station, at, who);
            // The workload's own stamps bound the whole, not a stretch; but what it did before the last of them is known.
            let (to, by) = match way.busy_until {
                Some(moment) if station == Station::End => (moment.at.clamp(latest, at), By::Guest(moment)),
                _ if station == Station::End => (latest, by),
                _ => (at, by),
            };
            let counts = previous != Station::Begin || (way.begins_in_kernel && station != Station::Begin);
            if counts && to > latest {
                let stretch = Stretch { from: latest, at: to, to: station };
                if way.in_ring && previous <= Station::GuestIssue && station > Station::GuestIssue {
                    pieces.push(stretch.piece(State::InRing, who, latest, to));
                } else {
                    let begin = pieces.len();
                    self.stretch(stretch, by, &mut pieces);
                    pieces[begin..].reverse();
                }
            }
            (latest, previous) = (at, station);
        }
        pieces.dedup_by(|later, earlier| {
            let same = (later.to, later.state, later.who) == (earlier.to, earlier.state, earlier.who);
            if same {
                earlier.ticks += later.ticks;
            }
            same
        });
        request.pieces = pieces.into();
        request
    }

    /// The pieces of a stretch, latest first.
    fn stretch(&mut self, stretch: Stretch, by: By, pieces: &mut Vec<Piece>) {
        match by {
            // The disk's own work, or a kernel thread's of which nothing is known.
            By::Host => pieces.push(stretch.piece(State::Running, Who::Host, stretch.from, stretch.at)),
            By::Thread(tid) => {
                for step in critical_path(&self.host.tasks, tid, 0, stretch.from, stretch.at) {
                    let who = self.crew.who(step.tid, self.host);
                    pieces.push(stretch.piece(host_state(step.state), who, step.from, step.to));
                }
            }
            By::Guest(moment) => {
                for step in self.guest_path(stretch, moment) {
                    self.in_guest(stretch, step, pieces);
                }
            }
        }
    }

    /// The critical path among the guest's tasks; of an interrupt handler's work there is no other.
    fn guest_path(&self, stretch: Stretch, end: Moment) -> Vec<PathStep> {
        if end.interrupt || end.tid == 0 {
            return vec![PathStep {
                from: stretch.from,
                to: stretch.at,
                tid: 0,
                cpu: end.cpu,
                state: ThreadState::Running,
            }];
        }
        critical_path(&self.guest.tasks, end.tid, end.cpu, stretch.from, stretch.at)
    }

    /// What the thread did that runs the guest's processor, while the guest's task did a step.
    fn in_guest(&mut self, stretch: Stretch, step: PathStep, pieces: &mut Vec<Piece>) {
        let on = match step.state {
            ThreadState::Runnable { idle: true, .. } => State::IdleWakes,
            ThreadState::Runnable { .. } => State::GuestRunnable,
            _ => State::Running,
        };
        let Some(vcpu) = self.crew.vcpu(step.cpu) else {
            pieces.push(stretch.piece(on, Who::Guest, step.from, step.to));
            return;
        };
        for under in critical_path(&self.host.tasks, vcpu, 0, step.from, step.to) {
            let in_guest = under.tid == vcpu && under.state == ThreadState::Running;
            let (state, who) = if in_guest {
                (on, Who::Guest)
            } else {
                (host_state(under.state), self.crew.who(under.tid, self.host))
            };
            pieces.push(stretch.piece(state, who, under.from, under.to));
        }
    }
}

fn host_state(state: ThreadState<Sleep>) -> State {
    match state {
        ThreadState::Running => State::Running,
        ThreadState::Runnable { idle: true, .. } => State::IdleWakes,
        ThreadState::Runnable { .. } => State::Runnable,
        ThreadState::Sleeping(Sleep::Lock) => State::Lock,
        ThreadState::Sleeping(Sleep::Other) => State::Waiting,
    }
}

/// From one station to the next.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: u64,
    at: u64,
    to: Station,
}

impl Stretch {
    fn piece(&self, state: State, who: Who, from: u64, to: u64) -> Piece {
        Piece { to: self.to, state, who, ticks: to - from }
    }
}
