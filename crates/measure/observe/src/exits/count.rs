//! From events to counts: which exit was for what, and how long it took.
//!
//! Where KVM tells of each exit and entry, an exit is what lies between. A KVM that does not (PVM) tells of accesses and
//! of what it hands to QEMU: there an exit to QEMU lasts until QEMU's thread goes back into KVM, and one that the kernel
//! serves has no time.

use super::event::{ExitEvent, ThreadEvent};
use super::ticks::Ticks;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::AddressSpace;
use vmtax_model::samples::Access;
use vmtax_trace::VMX;

/// A guest may touch any number of addresses; those beyond so many are counted by reason alone.
const MAX_KEYS: usize = 1 << 16;
/// VMX's reason for an access to the local APIC's page, and where that page and its end-of-interrupt register are.
const APIC_ACCESS: u64 = 44;
const APIC_EOI: u64 = 0xfee0_00b0;

/// Exit reasons that KVM gives QEMU for accesses.
const KVM_EXIT_IO: u64 = 2;
const KVM_EXIT_MMIO: u64 = 6;

/// Why the guest was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// As the CPU says, of this instruction set.
    Hardware { isa: u32, number: u64 },
    /// An access, of a KVM that tells no more.
    Access(AddressSpace),
    /// Exit reason that KVM gives QEMU, for a KVM that reports no other; `None` for a signal.
    User(Option<u64>),
}

/// Exits that are counted together: those of a thread with one reason and one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub tid: i32,
    pub reason: Reason,
    pub access: Option<Access>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub count: u64,
    pub user: u64,
    pub timed: u64,
    pub ticks: u64,
}

/// An exit that is not over, or has no name yet.
#[derive(Debug, Clone, Copy)]
struct Open {
    begin: u64,
    /// CPU that it began on, and number of its event.
    cpu: Option<u32>,
    number: u64,
    end: Option<u64>,
    reason: Option<Reason>,
    access: Option<Access>,
    user: Option<Option<u64>>,
}

#[derive(Debug, Default)]
struct Vcpu {
    /// True if KVM reports the vCPU's exits and entries.
    told: bool,
    open: Option<Open>,
    /// A read that was counted before its value came.
    awaited: Option<Access>,
}

/// Returns true if KVM hands such an access to QEMU: if the kernel served it, the exit has another reason.
fn asks(access: Access, told: Option<u64>) -> bool {
    match access.space {
        AddressSpace::Port => told == Some(KVM_EXIT_IO),
        AddressSpace::Memory => told == Some(KVM_EXIT_MMIO),
        AddressSpace::Msr => false,
    }
}

/// The last loss of events of each CPU, by number of the event before it.
#[derive(Debug, Default)]
struct Losses {
    by_cpu: BTreeMap<u32, u64>,
    /// The last loss of which the CPU is not known.
    anywhere: u64,
}

impl Losses {
    /// Adds a loss behind an event.
    fn add(&mut self, cpu: Option<u32>, number: u64) {
        let is_kept = |cpu: &u32| self.by_cpu.len() < MAX_KEYS || self.by_cpu.contains_key(cpu);
        match cpu.filter(is_kept) {
            Some(cpu) => _ = self.by_cpu.insert(cpu, number),
            None => self.anywhere = number,
        }
    }

    /// Returns true if events of these CPUs may be missing behind an event.
    fn since(&self, number: u64, cpus: [Option<u32>; 2]) -> bool {
        let of_cpu = |cpu: Option<u32>| self.by_cpu.get(&cpu?).copied();
        let last = cpus.into_iter().filter_map(of_cpu).max().unwrap_or(0);
        last.max(self.anywhere) >= number
    }
}

/// Counts of all threads.
#[derive(Debug, Default)]
pub(super) struct Counts {
    vcpus: BTreeMap<i32, Vcpu>,
    pub counts: BTreeMap<Key, Count>,
    /// Interrupts by thread and vector, or by thread and line from [`Counts::LINES`] on.
    interrupts: BTreeMap<(i32, u32), Ticks>,
    /// Number of events so far.
    events: u64,
    /// Losses of events.
    losses: Losses,
    /// Vectors that devices use: their interrupts are no timer's, however regular the load is.
    messages: BTreeSet<u32>,
}

impl Counts {
    /// Lines are numbered from here, beyond all vectors.
    pub const LINES: u32 = 1 << 16;

    /// Takes the next event of a thread; events of one thread are in order.
    pub fn take(&mut self, event: &ThreadEvent) {
        let ThreadEvent { at, cpu, tid, what } = *event;
        if what == ExitEvent::Lost {
            return self.losses.add(cpu, self.events);
        }
        self.events += 1;
        match what {
            ExitEvent::Accepted(vector) => return self.interrupted(tid, vector, at),
            ExitEvent::TimerLine(line) => {
                return self.interrupted(tid, Self::LINES.saturating_add(line), at);
            }
            ExitEvent::Message(vector) => {
                self.messages.insert(vector);
                return;
            }
            _ => {}
        }
        // The end of an exit, and the begin of another, may be among the events that were lost.
        let vcpu = self.vcpus.entry(tid).or_default();
        if let Some(open) = vcpu
            .open
            .take_if(|open| self.losses.since(open.number, [open.cpu, cpu]))
        {
            vcpu.awaited = None;
            self.close(tid, Some(open));
        }
        let vcpu = self.vcpus.entry(tid).or_default();
        let begun = Open {
            begin: at,
            cpu,
            number: self.events,
            end: None,
            reason: None,
            access: None,
            user: None,
        };
        match what {
            ExitEvent::Exit { isa, reason } => {
                vcpu.told = true;
                let reason = Some(Reason::Hardware {
                    isa,
                    number: reason,
                });
                let before = vcpu.open.replace(Open { reason, ..begun });
                self.close(tid, before);
            }
            ExitEvent::Entry => {
                let open = vcpu.open.take().map(|open| Open {
                    end: Some(at),
                    ..open
                });
                self.close(tid, open);
            }
            ExitEvent::Access { access, .. } if vcpu.told => {
                if let Some(open) = &mut vcpu.open {
                    open.access.get_or_insert(access);
                }
            }
            ExitEvent::Eoi if vcpu.told => {
                let apic = Reason::Hardware {
                    isa: VMX,
                    number: APIC_ACCESS,
                };
                if let Some(open) = vcpu.open.as_mut().filter(|open| open.reason == Some(apic)) {
                    let eoi = Access {
                        space: AddressSpace::Memory,
                        address: APIC_EOI,
                        write: true,
                    };
                    open.access.get_or_insert(eoi);
                }
            }
            ExitEvent::User(reason) if vcpu.told => {
                if let Some(open) = &mut vcpu.open {
                    open.user = Some(reason);
                }
            }
            ExitEvent::Access { access, unanswered } => {
                self.accessed(tid, access, unanswered, begun)
            }
            ExitEvent::User(reason) => {
                let named = vcpu.open.filter(|open| {
                    open.user.is_none() && open.access.is_some_and(|a| asks(a, reason))
                });
                let before = if named.is_some() { None } else { vcpu.open };
                vcpu.open = Some(Open {
                    user: Some(reason),
                    ..named.unwrap_or(begun)
                });
                self.close(tid, before);
            }
            ExitEvent::Run if !vcpu.told => {
                // A read by a port is named when its value is there: after this.
                match vcpu.open.as_mut().filter(|open| open.user.is_some()) {
                    Some(open) if open.access.is_none() => open.end = Some(at),
                    Some(_) => {
                        let open = vcpu.open.take().map(|open| Open {
                            end: Some(at),
                            ..open
                        });
                        self.close(tid, open);
                    }
                    None => {}
                }
            }
            ExitEvent::Run
            | ExitEvent::Eoi
            | ExitEvent::Accepted(_)
            | ExitEvent::TimerLine(_)
            | ExitEvent::Message(_)
            | ExitEvent::Lost => {}
        }
    }

    /// An access of a KVM that tells no exits.
    fn accessed(&mut self, tid: i32, access: Access, unanswered: bool, begun: Open) {
        let vcpu = self.vcpus.entry(tid).or_default();
        if !unanswered && vcpu.awaited.take() == Some(access) {
            return; // the value of one that was counted
        }
        vcpu.awaited = unanswered.then_some(access);
        let late = |open: &Open| {
            open.end.is_some() && !access.write && open.user.is_some_and(|told| asks(access, told))
        };
        match vcpu.open.take() {
            Some(open) if late(&open) => self.close(
                tid,
                Some(Open {
                    access: Some(access),
                    ..open
                }),
            ),
            before => {
                vcpu.open = Some(Open {
                    access: Some(access),
                    ..begun
                });
                self.close(tid, before);
            }
        }
    }

    fn close(&mut self, tid: i32, open: Option<Open>) {
        let Some(Open {
            begin,
            end,
            reason,
            access,
            user,
            ..
        }) = open
        else {
            return;
        };
        let reason = reason.or(access.map(|a| Reason::Access(a.space)));
        let Some(reason) = reason.or(user.map(Reason::User)) else {
            return;
        };
        let mut key = Key {
            tid,
            reason,
            access,
        };
        if self.counts.len() >= MAX_KEYS && !self.counts.contains_key(&key) {
            key.access = None;
        }
        let count = self.counts.entry(key).or_default();
        count.count += 1;
        count.user += u64::from(user.is_some());
        if let Some(end) = end {
            count.timed += 1;
            count.ticks = count.ticks.saturating_add(end.saturating_sub(begin));
        }
    }

    /// Interrupts that come as regularly as a timer's: how often, and at what rate, Hz.
    pub fn regular(&self, mhz: f64) -> Vec<(u64, f64)> {
        let timers = self
            .interrupts
            .iter()
            .filter(|((_, number), _)| !self.messages.contains(number));
        timers.filter_map(|(_, ticks)| ticks.rate(mhz)).collect()
    }

    fn interrupted(&mut self, tid: i32, number: u32, at: u64) {
        if self.interrupts.len() < MAX_KEYS || self.interrupts.contains_key(&(tid, number)) {
            self.interrupts.entry((tid, number)).or_default().take(at);
        }
    }

    /// Counts what was under way. Of an exit that is not over the time is not known.
    pub fn end(&mut self) {
        for tid in self.vcpus.keys().copied().collect::<Vec<_>>() {
            let open = self.vcpus.get_mut(&tid).and_then(|vcpu| vcpu.open.take());
            self.close(tid, open);
        }
    }

    /// Returns true if KVM reported exits and entries.
    pub fn told(&self) -> bool {
        self.vcpus.values().any(|vcpu| vcpu.told)
    }
}
