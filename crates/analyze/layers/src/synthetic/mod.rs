//! Requests made up, with every moment of theirs known, and the events that both kernels would have traced.

pub mod deep;

use crate::events::event::{Event, GuestEvent, HostEvent, Mark};
use crate::join::joined::Joined;
use crate::join::joiner::Join;
use crate::join::match_params::View;
use crate::request::JoinedRequest;
use std::collections::BTreeMap;
use vmtax_model::{
    Checkpoint, EventCost, EventKind, Extent, HostDisk, QemuThread, RequestKind, Role, Stamped,
    State, TraceFacts,
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
        GuestEvent::Enter | GuestEvent::Exit => EventKind::Call,
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
        use Checkpoint as S;
        let mut truth = Truth {
            offset,
            ..Truth::default()
        };
        let mut at = begin;
        let d = |s: Checkpoint| times.interval[s as usize];
        let bytes = BLOCK;
        let element = Mark {
            address: Some(0x1000 + offset),
            offset: Some(offset),
            queue: Some(QUEUE),
            kind: Some(RequestKind::Read),
            ..Mark::default()
        };
        truth.checkpoints.insert(S::Begin, at);
        let mut spend = |to: Checkpoint, state: State, ticks: u64| {
            if ticks > 0 {
                *truth.states.entry((to, state)).or_default() += ticks;
            }
            ticks
        };

        at += d(S::GuestCall);
        let call = at;
        self.in_guest(at, READER, GuestEvent::Enter);

        // In the guest's kernel: half of it the reader, half of it a kernel thread, if there is one.
        let issuer = if times.kworker_waits.is_some() {
            KWORKER
        } else {
            READER
        };
        at += spend(S::GuestIssue, State::Running, d(S::GuestIssue) / 2);
        if times.vcpu_preempted > 0 {
            self.off(at, VCPU, true);
            at += spend(S::GuestIssue, State::Runnable, times.vcpu_preempted);
            self.on(at, VCPU);
        }
        if let Some(waits) = times.kworker_waits {
            self.in_guest(
                at,
                READER,
                GuestEvent::Sched(Sched::Waking { tid: KWORKER }),
            );
            at += spend(S::GuestIssue, State::GuestRunnable, waits);
            self.switch(at, READER, KWORKER);
        }
        at += spend(
            S::GuestIssue,
            State::Running,
            d(S::GuestIssue) - d(S::GuestIssue) / 2,
        );
        let issue = at;
        self.in_guest(
            at,
            issuer,
            GuestEvent::Issue {
                offset,
                bytes,
                kind: RequestKind::Read,
            },
        );

        at += spend(S::GuestNotify, State::Running, d(S::GuestNotify));
        let notify = at;
        self.in_guest(at, issuer, GuestEvent::Passes(Checkpoint::GuestNotify));

        if times.kick {
            at += spend(S::KvmNotify, State::Running, d(S::KvmNotify));
            self.on_host(
                at,
                VCPU,
                HostEvent::Passes(Checkpoint::KvmNotify, Mark::default()),
            );
        }
        let kick = at;

        // The vCPU's thread wakes the main loop, which comes back from its wait.
        at += spend(S::QemuWake, State::Running, d(S::QemuWake) / 2);
        self.wakes(at, VCPU, MAIN);
        // The guest has nothing more to do, and its CPU sleeps.
        self.switch(at + 1, issuer, 0);
        self.off(at + 2, VCPU, false);
        at += spend(S::QemuWake, State::Runnable, times.wake_runnable.max(3));
        self.on(at, MAIN);
        at += spend(
            S::QemuWake,
            State::Running,
            d(S::QemuWake) - d(S::QemuWake) / 2,
        );
        let wake = at;
        self.on_host(at, MAIN, HostEvent::Exit);

        at += spend(S::QemuPop, State::Running, d(S::QemuPop) / 2);
        if times.lock > 0 {
            self.enter(at - 1, MAIN, FUTEX, [0, 0x80, 2, 0]);
            self.off(at, MAIN, false);
            at += spend(S::QemuPop, State::Lock, times.lock);
            self.wakes(at, VCPU, MAIN);
            at += spend(S::QemuPop, State::Runnable, times.lock_runnable.max(1));
            self.on(at, MAIN);
            self.on_host(at + 1, MAIN, HostEvent::Exit);
        }
        at += spend(
            S::QemuPop,
            State::Running,
            d(S::QemuPop) - d(S::QemuPop) / 2,
        );
        let pop = at;
        self.on_host(at, MAIN, HostEvent::Passes(Checkpoint::QemuPop, element));

        at += spend(S::QemuSubmit, State::Running, d(S::QemuSubmit));
        let submit = at;
        self.on_host(
            at,
            MAIN,
            HostEvent::Passes(Checkpoint::QemuSubmit, Mark::range(offset, bytes)),
        );
        at += spend(S::HostCall, State::Running, d(S::HostCall));
        let host_call = at;
        self.enter(at, MAIN, IO_SUBMIT, [0, 1, 0, 0]);
        at += spend(S::HostIssue, State::Running, d(S::HostIssue));
        let host_issue = at;
        self.on_host(
            at,
            MAIN,
            HostEvent::OnDevice(Checkpoint::HostIssue, Mark::range(on_device(offset), bytes)),
        );
        self.on_host(at + 2, MAIN, HostEvent::Exit);
        self.enter(at + 4, MAIN, PPOLL, [0; 4]);
        self.off(at + 6, MAIN, false);

        at += spend(S::HostComplete, State::Running, d(S::HostComplete));
        let host_complete = at;
        self.interrupt_on_host(
            at,
            HostEvent::OnDevice(
                Checkpoint::HostComplete,
                Mark::range(on_device(offset), bytes),
            ),
        );
        at += spend(S::QemuReap, State::Waiting, times.reap_waiting.max(1));
        self.interrupt_on_host(at, HostEvent::Sched(Sched::Waking { tid: MAIN }));
        at += spend(S::QemuReap, State::Runnable, times.reap_runnable.max(1));
        self.on(at, MAIN);
        at += spend(S::QemuReap, State::Running, d(S::QemuReap));
        let reap = at;
        self.on_host(at, MAIN, HostEvent::Exit);

        at += spend(S::QemuPush, State::Running, d(S::QemuPush) / 2);
        if times.push_preempted > 0 {
            self.off(at, MAIN, true);
            at += spend(S::QemuPush, State::Runnable, times.push_preempted);
            self.on(at, MAIN);
        }
        at += spend(
            S::QemuPush,
            State::Running,
            d(S::QemuPush) - d(S::QemuPush) / 2,
        );
        let push = at;
        self.on_host(at, MAIN, HostEvent::Passes(Checkpoint::QemuPush, element));
        at += spend(S::QemuNotify, State::Running, d(S::QemuNotify));
        let qemu_notify = at;
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
        at += spend(S::Inject, State::Running, d(S::Inject));
        let inject = at;
        self.on_host(
            at,
            MAIN,
            HostEvent::Passes(Checkpoint::Inject, Mark::default()),
        );

        // The main loop wakes the vCPU's thread, and goes to wait.
        at += spend(S::GuestInterrupt, State::Running, d(S::GuestInterrupt) / 2);
        self.wakes(at, MAIN, VCPU);
        at += spend(
            S::GuestInterrupt,
            State::Runnable,
            times.interrupt_runnable.max(1),
        );
        self.on(at, VCPU);
        at += spend(
            S::GuestInterrupt,
            State::Running,
            d(S::GuestInterrupt) - d(S::GuestInterrupt) / 2,
        );
        self.enter(at, MAIN, PPOLL, [0; 4]);
        self.off(at, MAIN, false);
        let interrupt = at;
        self.interrupt_in_guest(at, GuestEvent::Passes(Checkpoint::GuestInterrupt));
        at += spend(S::GuestComplete, State::Running, d(S::GuestComplete));
        let complete = at;
        self.interrupt_in_guest(at, GuestEvent::Complete { offset });
        at += spend(S::GuestReturn, State::Running, d(S::GuestReturn) / 2);
        self.interrupt_in_guest(at, GuestEvent::Sched(Sched::Waking { tid: READER }));
        at += spend(
            S::GuestReturn,
            State::GuestCpuWakeUp,
            times.return_runnable.max(1),
        );
        self.switch(at, 0, READER);
        at += spend(
            S::GuestReturn,
            State::Running,
            d(S::GuestReturn) - d(S::GuestReturn) / 2,
        );
        let back = at;
        self.in_guest(at, READER, GuestEvent::Exit);
        at += d(S::End);
        let checkpoints = [
            (S::GuestCall, call),
            (S::GuestIssue, issue),
            (S::GuestNotify, notify),
            (S::QemuWake, wake),
            (S::QemuPop, pop),
            (S::QemuSubmit, submit),
            (S::HostCall, host_call),
            (S::HostIssue, host_issue),
            (S::HostComplete, host_complete),
            (S::QemuReap, reap),
            (S::QemuPush, push),
            (S::QemuNotify, qemu_notify),
            (S::Inject, inject),
            (S::GuestInterrupt, interrupt),
            (S::GuestComplete, complete),
            (S::GuestReturn, back),
            (S::End, at),
        ];
        truth.checkpoints.extend(checkpoints);
        if times.kick {
            truth.checkpoints.insert(S::KvmNotify, kick);
        }
        self.operations.push(Stamped {
            begin,
            end: at,
            key: offset,
        });
        self.truth.push(truth);
    }

    /// When the last request ended.
    pub fn end(&self) -> u64 {
        self.operations.iter().map(|o| o.end).max().unwrap_or(0)
    }

    /// Any event at all.
    pub fn any(&mut self, at: u64, kind: u8, tid: i32, place: u64, interrupt: bool) {
        let (offset, bytes) = (place * BLOCK, BLOCK * (1 + place % 2));
        let asks = Some(if place % 3 == 0 {
            RequestKind::Flush
        } else {
            RequestKind::Write
        });
        let element = Mark {
            address: Some(place),
            offset: Some(offset),
            queue: Some(place % 2),
            kind: asks,
            ..Mark::default()
        };
        let nr = [PPOLL, IO_SUBMIT, FUTEX, 16, 17, 426][place as usize % 6];
        let switch = Sched::Switch {
            prev: tid,
            leaves: leaves(interrupt),
            next: (tid + 1) % 4,
        };
        let waking = Sched::Waking {
            tid: place as i32 % 4,
        };
        let host = |what| Event {
            at,
            cpu: place as u32 % 2,
            tid: tid + MAIN,
            interrupt,
            kind: on_host(&what),
            what,
        };
        let of_qemu = |s: Sched| match s {
            Sched::Switch { prev, leaves, next } => Sched::Switch {
                prev: prev + MAIN,
                leaves,
                next: next + MAIN,
            },
            Sched::Waking { tid } => Sched::Waking { tid: tid + MAIN },
        };
        let what = match kind {
            0 => HostEvent::Sched(of_qemu(switch)),
            1 => HostEvent::Sched(of_qemu(waking)),
            2 | 3 => HostEvent::Enter {
                nr,
                args: [0, u64::from(interrupt), place, offset],
            },
            4 | 5 => HostEvent::Exit,
            6 | 7 => HostEvent::Passes(Checkpoint::QemuPop, element),
            8 | 9 => HostEvent::Passes(Checkpoint::QemuSubmit, Mark::range(offset, bytes)),
            10 | 11 => HostEvent::Passes(Checkpoint::QemuPush, element),
            12 => HostEvent::Passes(
                Checkpoint::QemuNotify,
                Mark {
                    queue: Some(place % 2),
                    ..Mark::default()
                },
            ),
            13 => HostEvent::Passes(Checkpoint::Inject, Mark::default()),
            14 => HostEvent::Passes(Checkpoint::KvmNotify, Mark::default()),
            15 => HostEvent::OnDevice(Checkpoint::HostIssue, Mark::range(on_device(offset), bytes)),
            16 => HostEvent::OnDevice(
                Checkpoint::HostComplete,
                Mark::range(on_device(offset), bytes),
            ),
            _ => {
                let what = match kind {
                    17 => GuestEvent::Sched(if interrupt { waking } else { switch }),
                    18 => GuestEvent::Enter,
                    19 => GuestEvent::Exit,
                    20 => GuestEvent::Issue {
                        offset,
                        bytes,
                        kind: RequestKind::Read,
                    },
                    21 => GuestEvent::Complete { offset },
                    22 => GuestEvent::Passes(Checkpoint::GuestNotify),
                    23 => GuestEvent::Insert { offset },
                    _ => GuestEvent::Passes(Checkpoint::GuestInterrupt),
                };
                self.guest.push(Event {
                    at,
                    cpu: 0,
                    tid,
                    interrupt,
                    kind: in_guest(&what),
                    what,
                });
                return;
            }
        };
        self.host.push(host(what));
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
