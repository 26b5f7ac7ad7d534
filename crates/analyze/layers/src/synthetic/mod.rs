//! Requests made up, with every moment of theirs known, and the events that both kernels would have traced.

pub mod deep;

use crate::JoinedRequest;
use crate::events::{Event, GuestEvent, HostEvent, Mark};
use crate::join::joiner::Join;
use crate::join::{Joined, View};
use std::collections::BTreeMap;
use vmtax_findings::{RequestKind, State};
use vmtax_model::{
    Checkpoint, EventCost, EventKind, Extent, HostDisk, QemuThread, Role, Stamped, TraceFacts,
};
use vmtax_trace::{Leaves, Sched};

pub const MAIN: i32 = 100;
pub const VCPU: i32 = 101;
pub const OTHER: i32 = 900;
pub const READER: i32 = 10;
pub const KWORKER: i32 = 11;
pub const QUEUE: u64 = 0xabc;
pub const BLOCK: u64 = 4096;
pub const PPOLL: u32 = 271;
pub const IO_SUBMIT: u32 = 209;
const FUTEX: u32 = 202;
/// The reader's system call.
pub const CALL: GuestEvent = GuestEvent::Enter {
    nr: 17,
    args: [0; 4],
};
/// Where the disk's file begins on the host's device.
const ON_DEVICE: u64 = 1 << 30;

/// True times of a request, to compare with the analysis's result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    pub offset: u64,
    pub checkpoints: BTreeMap<Checkpoint, u64>,
    /// By the checkpoint at the interval's end.
    pub states: BTreeMap<(Checkpoint, State), u64>,
}

/// Both sides' events.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub guest: Vec<Event<GuestEvent>>,
    pub host: Vec<Event<HostEvent>>,
    pub operations: Vec<Stamped>,
    pub truth: Vec<Truth>,
    /// Costs of recording an event, on both sides.
    pub costs: Vec<EventCost>,
}

/// Durations in a request that is alone, in ticks; 0 for a step that does not happen.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From each checkpoint to the next, by the next; without the waits below. At least 10 each.
    pub interval: [u64; Checkpoint::ALL.len()],
    /// A kernel thread issues the request; this long it waits for the guest's vCPU.
    pub kworker_waits: Option<u64>,
    /// The vCPU's thread is preempted while the guest's kernel prepares the request.
    pub vcpu_preempted: u64,
    /// QEMU's main loop waits for a CPU when it is woken by the kick.
    pub wake_runnable: u64,
    /// It waits for a lock before it pops, then for a CPU.
    pub lock: u64,
    pub lock_runnable: u64,
    /// It waits for a CPU when the disk is done, after an interrupt that took this long to wake it.
    pub reap_waiting: u64,
    pub reap_runnable: u64,
    /// It is preempted before it pushes.
    pub push_preempted: u64,
    /// The vCPU's thread waits for a CPU when it is woken for the interrupt.
    pub interrupt_runnable: u64,
    /// The guest's vCPU, idle till then, wakes for the reader when its request is done.
    pub return_runnable: u64,
    /// KVM tells of the kick.
    pub kick: bool,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            interval: [100; Checkpoint::ALL.len()],
            kworker_waits: None,
            vcpu_preempted: 0,
            wake_runnable: 0,
            lock: 0,
            lock_runnable: 0,
            reap_waiting: 0,
            reap_runnable: 0,
            push_preempted: 0,
            interrupt_runnable: 0,
            return_runnable: 0,
            kick: true,
        }
    }
}

pub fn facts() -> TraceFacts {
    TraceFacts {
        schema: 1,
        tsc_mhz: 1000.0,
        qemu: MAIN,
        threads: vec![
            QemuThread {
                tid: MAIN,
                role: Role::Main,
            },
            QemuThread {
                tid: VCPU,
                role: Role::Vcpu(0),
            },
        ],
        pings: Vec::new(),
        moments: Vec::new(),
        kvm_offset: None,
        host_disk: HostDisk {
            device: Some(1),
            is_bio_based: false,
            // In two halves that lie the other way round.
            extents: vec![
                Extent {
                    file: 0,
                    device: ON_DEVICE + (1 << 20),
                    length: 1 << 20,
                },
                Extent {
                    file: 1 << 20,
                    device: ON_DEVICE,
                    length: 1 << 20,
                },
            ],
            descriptors: vec![9],
        },
        guest_disk: Some(vmtax_model::GuestDisk {
            device: 2,
            interrupts: vec![5],
        }),
        guest_nic: None,
        notify: Vec::new(),
        tap: Vec::new(),
        host_costs: Vec::new(),
        guest_costs: Vec::new(),
        missing: Vec::new(),
    }
}

/// Returns the mechanism by which the host's kernel records an event.
pub fn on_host(what: &HostEvent) -> EventKind {
    match what {
        HostEvent::Sched(_) => EventKind::Schedule,
        HostEvent::Enter { .. } | HostEvent::Exit | HostEvent::Woke => EventKind::Call,
        HostEvent::Passes(Checkpoint::KvmNotify, _)
        | HostEvent::InterruptQueued(_)
        | HostEvent::InterruptBegun(_)
        | HostEvent::OnDevice(..)
        | HostEvent::Packet(..)
        | HostEvent::Other => EventKind::Tracepoint,
        HostEvent::Passes(..) => EventKind::Uprobe,
    }
}

/// Returns the mechanism by which the guest's kernel records an event.
pub fn in_guest(what: &GuestEvent) -> EventKind {
    match what {
        GuestEvent::Sched(_) => EventKind::Schedule,
        GuestEvent::Enter { .. } | GuestEvent::Exit => EventKind::Call,
        GuestEvent::Passes(Checkpoint::GuestNotify) => EventKind::Kprobe,
        _ => EventKind::Tracepoint,
    }
}

fn leaves(preempted: bool) -> Leaves {
    if preempted {
        Leaves::Runnable
    } else {
        Leaves::Sleeping
    }
}

/// Where on the host's device a byte of the disk is.
pub fn on_device(offset: u64) -> u64 {
    ON_DEVICE + (offset ^ (1 << 20))
}

/// Returns what QEMU's probes tell of the request at a place of the disk.
fn element(offset: u64) -> Mark {
    Mark {
        address: Some(0x1000 + offset),
        offset: Some(offset),
        queue: Some(QUEUE),
        kind: Some(RequestKind::Read),
        ..Mark::default()
    }
}

/// A request's way through the layers: the time it has come to, and the truth so far.
struct Way<'a> {
    times: &'a Times,
    at: u64,
    truth: Truth,
}

impl<'a> Way<'a> {
    /// Returns the way at its begin.
    fn new(begin: u64, offset: u64, times: &'a Times) -> Self {
        let truth = Truth {
            offset,
            ..Truth::default()
        };
        let mut way = Way {
            times,
            at: begin,
            truth,
        };
        way.reach(Checkpoint::Begin);
        way
    }

    /// Returns the task of the guest that issues the request.
    fn issuer(&self) -> i32 {
        if self.times.kworker_waits.is_some() {
            KWORKER
        } else {
            READER
        }
    }

    /// Returns the ticks from the checkpoint before to this one, without waits.
    fn interval(&self, to: Checkpoint) -> u64 {
        self.times.interval[to as usize]
    }

    /// Notes that the request is at a checkpoint.
    fn reach(&mut self, checkpoint: Checkpoint) {
        self.truth.checkpoints.insert(checkpoint, self.at);
    }

    /// Spends time in a state, on the way to a checkpoint.
    fn spend(&mut self, to: Checkpoint, state: State, ticks: u64) {
        if ticks > 0 {
            *self.truth.states.entry((to, state)).or_default() += ticks;
        }
        self.at += ticks;
    }

    /// Reaches a checkpoint by an interval whose state nobody sees.
    fn pass_to(&mut self, to: Checkpoint) {
        self.at += self.interval(to);
        self.reach(to);
    }

    /// Reaches a checkpoint by an interval at work.
    fn run_to(&mut self, to: Checkpoint) {
        self.spend(to, State::Running, self.interval(to));
        self.reach(to);
    }

    /// Works for the first half of the interval to a checkpoint.
    fn run_half(&mut self, to: Checkpoint) {
        self.spend(to, State::Running, self.interval(to) / 2);
    }

    /// Works for the rest of the interval after its first half, and reaches the checkpoint.
    fn run_rest(&mut self, to: Checkpoint) {
        let ticks = self.interval(to) - self.interval(to) / 2;
        self.spend(to, State::Running, ticks);
        self.reach(to);
    }
}

/// Numbers that make any event of either side.
struct Drawn {
    kind: u8,
    tid: i32,
    place: u64,
    interrupt: bool,
}

impl Drawn {
    /// Returns where on the disk the event is.
    fn offset(&self) -> u64 {
        self.place * BLOCK
    }

    /// Returns how many bytes the event is about.
    fn bytes(&self) -> u64 {
        BLOCK * (1 + self.place % 2)
    }

    /// Returns what QEMU's probes tell of the request.
    fn element(&self) -> Mark {
        let asks = Some(if self.place % 3 == 0 {
            RequestKind::Flush
        } else {
            RequestKind::Write
        });
        Mark {
            address: Some(self.place),
            offset: Some(self.offset()),
            queue: Some(self.place % 2),
            kind: asks,
            ..Mark::default()
        }
    }

    /// Returns the range on the host's device.
    fn on_device(&self) -> Mark {
        Mark::range(on_device(self.offset()), self.bytes())
    }

    /// Returns a switch between threads, which are numbered from `first` on.
    fn switch(&self, first: i32) -> Sched {
        Sched::Switch {
            prev: self.tid + first,
            leaves: leaves(self.interrupt),
            next: (self.tid + 1) % 4 + first,
        }
    }

    /// Returns the waking of a thread, of those that are numbered from `first` on.
    fn waking(&self, first: i32) -> Sched {
        Sched::Waking {
            tid: self.place as i32 % 4 + first,
        }
    }

    /// Returns the host's event; `None` if the kind is one of the guest's.
    fn of_host(&self) -> Option<HostEvent> {
        let place = self.place;
        Some(match self.kind {
            0 => HostEvent::Sched(self.switch(MAIN)),
            1 => HostEvent::Sched(self.waking(MAIN)),
            2 | 3 => HostEvent::Enter {
                nr: [PPOLL, IO_SUBMIT, FUTEX, 16, 17, 426][place as usize % 6],
                args: [0, u64::from(self.interrupt), place, self.offset()],
            },
            4 | 5 => HostEvent::Exit,
            6 | 7 => HostEvent::Passes(Checkpoint::QemuPop, self.element()),
            8 | 9 => HostEvent::Passes(
                Checkpoint::QemuSubmit,
                Mark::range(self.offset(), self.bytes()),
            ),
            10 | 11 => HostEvent::Passes(Checkpoint::QemuPush, self.element()),
            12 => HostEvent::Passes(
                Checkpoint::QemuNotify,
                Mark {
                    queue: Some(place % 2),
                    ..Mark::default()
                },
            ),
            13 => HostEvent::Passes(Checkpoint::Inject, Mark::default()),
            14 => HostEvent::Passes(Checkpoint::KvmNotify, Mark::default()),
            15 => HostEvent::OnDevice(Checkpoint::HostIssue, self.on_device()),
            16 => HostEvent::OnDevice(Checkpoint::HostComplete, self.on_device()),
            25 => HostEvent::InterruptQueued(place % 3),
            26 => HostEvent::InterruptBegun(place % 3),
            _ => return None,
        })
    }

    /// Returns the guest's event.
    fn of_guest(&self) -> GuestEvent {
        let offset = self.offset();
        match self.kind {
            17 if self.interrupt => GuestEvent::Sched(self.waking(0)),
            17 => GuestEvent::Sched(self.switch(0)),
            18 => GuestEvent::Enter {
                nr: [17, IO_SUBMIT, 208, 426][self.place as usize % 4],
                args: [3, self.place % 3, self.place % 2, 0],
            },
            19 => GuestEvent::Exit,
            20 => GuestEvent::Issue {
                offset,
                bytes: self.bytes(),
                kind: RequestKind::Read,
            },
            21 => GuestEvent::Complete { offset },
            22 => GuestEvent::Passes(Checkpoint::GuestNotify),
            23 => GuestEvent::Insert { offset },
            _ => GuestEvent::Passes(Checkpoint::GuestInterrupt),
        }
    }
}

impl World {
    /// Before the first request: QEMU's main loop waits.
    pub fn new(at: u64) -> Self {
        let mut world = World::default();
        world.enter(at, MAIN, PPOLL, [0; 4]);
        world.off(at + 1, MAIN, false);
        world
    }

    pub fn on_host(&mut self, at: u64, tid: i32, what: HostEvent) {
        self.host.push(Event {
            at,
            cpu: u32::from(tid == VCPU),
            tid,
            interrupt: false,
            kind: on_host(&what),
            what,
        });
    }

    pub fn in_guest(&mut self, at: u64, tid: i32, what: GuestEvent) {
        self.guest.push(Event {
            at,
            cpu: 0,
            tid,
            interrupt: false,
            kind: in_guest(&what),
            what,
        });
    }

    /// An event in an interrupt, whatever ran.
    pub fn interrupt_on_host(&mut self, at: u64, what: HostEvent) {
        self.host.push(Event {
            at,
            cpu: 0,
            tid: OTHER,
            interrupt: true,
            kind: on_host(&what),
            what,
        });
    }

    pub fn interrupt_in_guest(&mut self, at: u64, what: GuestEvent) {
        self.guest.push(Event {
            at,
            cpu: 0,
            tid: READER,
            interrupt: true,
            kind: in_guest(&what),
            what,
        });
    }

    fn off(&mut self, at: u64, tid: i32, preempted: bool) {
        self.on_host(
            at,
            tid,
            HostEvent::Sched(Sched::Switch {
                prev: tid,
                leaves: leaves(preempted),
                next: OTHER,
            }),
        );
    }

    fn on(&mut self, at: u64, tid: i32) {
        // The task that leaves is current.
        let what = HostEvent::Sched(Sched::Switch {
            prev: OTHER,
            leaves: Leaves::Runnable,
            next: tid,
        });
        self.host.push(Event {
            at,
            cpu: u32::from(tid == VCPU),
            tid: OTHER,
            interrupt: false,
            kind: on_host(&what),
            what,
        });
    }

    fn wakes(&mut self, at: u64, by: i32, tid: i32) {
        self.on_host(at, by, HostEvent::Sched(Sched::Waking { tid }));
    }

    pub fn enter(&mut self, at: u64, tid: i32, nr: u32, args: [u64; 4]) {
        self.on_host(at, tid, HostEvent::Enter { nr, args });
    }

    fn switch(&mut self, at: u64, prev: i32, next: i32) {
        self.in_guest(
            at,
            prev,
            GuestEvent::Sched(Sched::Switch {
                prev,
                leaves: leaves(prev == 0),
                next,
            }),
        );
    }

    /// A request that is alone, from `begin` on. Both threads of QEMU sleep before it, and the reader runs.
    pub fn request(&mut self, begin: u64, offset: u64, times: &Times) {
        let mut way = Way::new(begin, offset, times);
        self.guest_issues(&mut way);
        self.guest_kicks(&mut way);
        self.main_loop_wakes(&mut way);
        self.main_loop_pops(&mut way);
        self.main_loop_submits(&mut way);
        self.device_completes(&mut way);
        self.main_loop_pushes(&mut way);
        self.guest_is_interrupted(&mut way);
        self.guest_returns(&mut way);
        self.operations.push(Stamped {
            begin,
            end: way.at,
            key: offset,
        });
        self.truth.push(way.truth);
    }

    /// Adds the reader's call and the request's way through the guest's kernel, up to its issue.
    fn guest_issues(&mut self, way: &mut Way<'_>) {
        let (times, offset) = (way.times, way.truth.offset);
        way.pass_to(Checkpoint::GuestCall);
        self.in_guest(way.at, READER, CALL);

        // In the guest's kernel: half of it the reader, half of it a kernel thread, if there is one.
        way.run_half(Checkpoint::GuestIssue);
        if times.vcpu_preempted > 0 {
            self.off(way.at, VCPU, true);
            way.spend(
                Checkpoint::GuestIssue,
                State::Runnable,
                times.vcpu_preempted,
            );
            self.on(way.at, VCPU);
        }
        if let Some(waits) = times.kworker_waits {
            self.in_guest(
                way.at,
                READER,
                GuestEvent::Sched(Sched::Waking { tid: KWORKER }),
            );
            way.spend(Checkpoint::GuestIssue, State::GuestRunnable, waits);
            self.switch(way.at, READER, KWORKER);
        }
        way.run_rest(Checkpoint::GuestIssue);
        self.in_guest(
            way.at,
            way.issuer(),
            GuestEvent::Issue {
                offset,
                bytes: BLOCK,
                kind: RequestKind::Read,
            },
        );
    }

    /// Adds the guest's notification, and KVM's event of it.
    fn guest_kicks(&mut self, way: &mut Way<'_>) {
        way.run_to(Checkpoint::GuestNotify);
        self.in_guest(
            way.at,
            way.issuer(),
            GuestEvent::Passes(Checkpoint::GuestNotify),
        );

        if way.times.kick {
            way.run_to(Checkpoint::KvmNotify);
            self.on_host(
                way.at,
                VCPU,
                HostEvent::Passes(Checkpoint::KvmNotify, Mark::default()),
            );
        }
    }

    /// The vCPU's thread wakes the main loop, which comes back from its wait.
    fn main_loop_wakes(&mut self, way: &mut Way<'_>) {
        way.run_half(Checkpoint::QemuWake);
        self.wakes(way.at, VCPU, MAIN);
        // The guest has nothing more to do, and its CPU sleeps.
        self.switch(way.at + 1, way.issuer(), 0);
        self.off(way.at + 2, VCPU, false);
        let runnable = way.times.wake_runnable.max(3);
        way.spend(Checkpoint::QemuWake, State::Runnable, runnable);
        self.on(way.at, MAIN);
        way.run_rest(Checkpoint::QemuWake);
        self.on_host(way.at, MAIN, HostEvent::Exit);
    }

    /// The main loop pops the request, after a wait for a lock if there is one.
    fn main_loop_pops(&mut self, way: &mut Way<'_>) {
        let times = way.times;
        way.run_half(Checkpoint::QemuPop);
        if times.lock > 0 {
            self.enter(way.at - 1, MAIN, FUTEX, [0, 0x80, 2, 0]);
            self.off(way.at, MAIN, false);
            way.spend(Checkpoint::QemuPop, State::Lock, times.lock);
            self.wakes(way.at, VCPU, MAIN);
            let runnable = times.lock_runnable.max(1);
            way.spend(Checkpoint::QemuPop, State::Runnable, runnable);
            self.on(way.at, MAIN);
            self.on_host(way.at + 1, MAIN, HostEvent::Exit);
        }
        way.run_rest(Checkpoint::QemuPop);
        self.on_host(
            way.at,
            MAIN,
            HostEvent::Passes(Checkpoint::QemuPop, element(way.truth.offset)),
        );
    }

    /// The main loop submits the request to the host's kernel, which issues it, and goes to wait.
    fn main_loop_submits(&mut self, way: &mut Way<'_>) {
        let offset = way.truth.offset;
        way.run_to(Checkpoint::QemuSubmit);
        self.on_host(
            way.at,
            MAIN,
            HostEvent::Passes(Checkpoint::QemuSubmit, Mark::range(offset, BLOCK)),
        );
        way.run_to(Checkpoint::HostCall);
        self.enter(way.at, MAIN, IO_SUBMIT, [0, 1, 0, 0]);
        way.run_to(Checkpoint::HostIssue);
        self.on_host(
            way.at,
            MAIN,
            HostEvent::OnDevice(Checkpoint::HostIssue, Mark::range(on_device(offset), BLOCK)),
        );
        self.on_host(way.at + 2, MAIN, HostEvent::Exit);
        self.enter(way.at + 4, MAIN, PPOLL, [0; 4]);
        self.off(way.at + 6, MAIN, false);
    }

    /// The device completes the request, and its interrupt wakes the main loop, which reaps it.
    fn device_completes(&mut self, way: &mut Way<'_>) {
        let (times, offset) = (way.times, way.truth.offset);
        way.run_to(Checkpoint::HostComplete);
        self.interrupt_on_host(
            way.at,
            HostEvent::OnDevice(
                Checkpoint::HostComplete,
                Mark::range(on_device(offset), BLOCK),
            ),
        );
        let waiting = times.reap_waiting.max(1);
        way.spend(Checkpoint::QemuReap, State::Waiting, waiting);
        self.interrupt_on_host(way.at, HostEvent::Sched(Sched::Waking { tid: MAIN }));
        let runnable = times.reap_runnable.max(1);
        way.spend(Checkpoint::QemuReap, State::Runnable, runnable);
        self.on(way.at, MAIN);
        way.run_to(Checkpoint::QemuReap);
        self.on_host(way.at, MAIN, HostEvent::Exit);
    }

    /// The main loop pushes the request, and notifies the guest through KVM.
    fn main_loop_pushes(&mut self, way: &mut Way<'_>) {
        let preempted = way.times.push_preempted;
        way.run_half(Checkpoint::QemuPush);
        if preempted > 0 {
            self.off(way.at, MAIN, true);
            way.spend(Checkpoint::QemuPush, State::Runnable, preempted);
            self.on(way.at, MAIN);
        }
        way.run_rest(Checkpoint::QemuPush);
        self.on_host(
            way.at,
            MAIN,
            HostEvent::Passes(Checkpoint::QemuPush, element(way.truth.offset)),
        );
        way.run_to(Checkpoint::QemuNotify);
        self.qemu_notifies(way.at);
        way.run_to(Checkpoint::Inject);
        self.on_host(
            way.at,
            MAIN,
            HostEvent::Passes(Checkpoint::Inject, Mark::default()),
        );
    }

    /// Adds QEMU's notification of the guest.
    fn qemu_notifies(&mut self, at: u64) {
        self.on_host(
            at,
            MAIN,
            HostEvent::Passes(
                Checkpoint::QemuNotify,
                Mark {
                    queue: Some(QUEUE),
                    ..Mark::default()
                },
            ),
        );
    }

    /// The main loop wakes the vCPU's thread, and goes to wait; the guest handles the interrupt.
    fn guest_is_interrupted(&mut self, way: &mut Way<'_>) {
        way.run_half(Checkpoint::GuestInterrupt);
        self.wakes(way.at, MAIN, VCPU);
        let runnable = way.times.interrupt_runnable.max(1);
        way.spend(Checkpoint::GuestInterrupt, State::Runnable, runnable);
        self.on(way.at, VCPU);
        way.run_rest(Checkpoint::GuestInterrupt);
        self.enter(way.at, MAIN, PPOLL, [0; 4]);
        self.off(way.at, MAIN, false);
        self.interrupt_in_guest(way.at, GuestEvent::Passes(Checkpoint::GuestInterrupt));
    }

    /// The guest completes the request, and the reader returns from its call.
    fn guest_returns(&mut self, way: &mut Way<'_>) {
        let offset = way.truth.offset;
        way.run_to(Checkpoint::GuestComplete);
        self.interrupt_in_guest(way.at, GuestEvent::Complete { offset });
        way.run_half(Checkpoint::GuestReturn);
        self.interrupt_in_guest(way.at, GuestEvent::Sched(Sched::Waking { tid: READER }));
        let runnable = way.times.return_runnable.max(1);
        way.spend(Checkpoint::GuestReturn, State::GuestCpuWakeUp, runnable);
        self.switch(way.at, 0, READER);
        way.run_rest(Checkpoint::GuestReturn);
        self.in_guest(way.at, READER, GuestEvent::Exit);
        way.pass_to(Checkpoint::End);
    }

    /// When the last request ended.
    pub fn end(&self) -> u64 {
        self.operations.iter().map(|o| o.end).max().unwrap_or(0)
    }

    /// Any event at all.
    pub fn any(&mut self, at: u64, kind: u8, tid: i32, place: u64, interrupt: bool) {
        let drawn = Drawn {
            kind,
            tid,
            place,
            interrupt,
        };
        if let Some(what) = drawn.of_host() {
            self.host.push(Event {
                at,
                cpu: place as u32 % 2,
                tid: tid + MAIN,
                interrupt,
                kind: on_host(&what),
                what,
            });
        } else {
            let what = drawn.of_guest();
            self.guest.push(Event {
                at,
                cpu: 0,
                tid,
                interrupt,
                kind: in_guest(&what),
                what,
            });
        }
    }

    /// Returns the analysis's result, when guest stamps become host ticks by `map`.
    pub fn join(&self, view: View, bound: u64, map: impl Fn(u64) -> u64) -> Joined {
        self.join_with(view, bound, map, |_| {})
    }

    /// Returns the analysis's result as `join` does, and calls `look` with the join after each event.
    pub fn join_with(
        &self,
        view: View,
        bound: u64,
        map: impl Fn(u64) -> u64,
        look: impl FnMut(&Join),
    ) -> Joined {
        let in_host_ticks = |o: &Stamped| Stamped {
            begin: map(o.begin),
            end: map(o.end),
            key: o.key,
        };
        let operations = self.operations.iter().map(in_host_ticks).collect();
        let facts = TraceFacts {
            host_costs: self.costs.clone(),
            guest_costs: self.costs.clone(),
            ..facts()
        };
        let mut join = Join::new(&facts, operations, BLOCK, view, bound);
        self.feed(&mut join, map, look);
        join.finish()
    }

    /// Returns the analysis's result when nobody stamped the operations.
    pub fn join_unstamped(&self) -> Joined {
        let mut join = Join::unstamped(&facts(), 0);
        self.feed(&mut join, |t| t, |_| {});
        join.finish()
    }

    /// Gives a join all events, in the order of time.
    pub fn feed(&self, join: &mut Join, map: impl Fn(u64) -> u64, mut look: impl FnMut(&Join)) {
        let mut guest: Vec<Event<GuestEvent>> = self
            .guest
            .iter()
            .map(|e| Event {
                at: map(e.at),
                ..*e
            })
            .collect();
        let mut host = self.host.clone();
        guest.sort_by_key(|e| e.at);
        host.sort_by_key(|e| e.at);
        let (mut guest, mut host) = (guest.iter().peekable(), host.iter().peekable());
        loop {
            match (guest.peek(), host.peek()) {
                (Some(g), h) if h.is_none_or(|h| g.at <= h.at) => join.guest(guest.next().unwrap()),
                (_, Some(_)) => join.host(host.next().unwrap()),
                _ => return,
            }
            look(join);
        }
    }
}

/// A request as the truth has it.
pub fn found(request: &JoinedRequest) -> Truth {
    let mut truth = Truth {
        offset: request.key,
        ..Truth::default()
    };
    truth.checkpoints.extend(request.checkpoints());
    for segment in &request.segments {
        *truth.states.entry((segment.to, segment.state)).or_default() += segment.ticks;
    }
    truth
}
