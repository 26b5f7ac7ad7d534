//! From events to counts: which exit was for what, and how long it took.
//!
//! Where KVM tells of each exit and entry, an exit is what lies between. A KVM that does not (PVM) tells of accesses and
//! of what it hands to QEMU: there an exit to QEMU lasts until QEMU's thread goes back into KVM, and one that the kernel
//! serves has no time.

use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::AddressSpace;
use vmtax_model::samples::{Access, GuestTime, TimerLine};
use vmtax_trace::{
    KernelDecoder, KernelEvent, KvmAccess, KvmSpace, Lost, SystemCall, VMX, system_call,
};

/// The command of `ioctl` by which a thread goes into its guest.
pub(super) const KVM_RUN: u64 = 0xae80;

/// Event of KVM, or of QEMU's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitEvent {
    /// The CPU left the guest. Not every KVM tells.
    Exit { isa: u32, reason: u64 },
    /// It is about to go back.
    Entry,
    /// An access; `unanswered` where its value is to come from QEMU, and the access will be told again with it.
    Access { access: Access, unanswered: bool },
    /// The end of an interrupt.
    Eoi,
    /// KVM hands the exit to QEMU; nothing where it was a signal.
    User(Option<u64>),
    /// QEMU's thread goes back into KVM.
    Run,
    /// The guest's vCPU is given an interrupt, by its vector.
    Accepted(u32),
    /// A timer's line of the interrupt controllers was raised.
    TimerLine(u32),
    /// A device gives the guest's vCPU an interrupt by a message (MSI), by its vector.
    Message(u32),
    /// The trace lost events here, whoever's.
    Lost,
}

/// Something that happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadEvent {
    pub at: u64,
    /// CPU that wrote it; of a loss `None` where the trace does not say.
    pub cpu: Option<u32>,
    pub tid: i32,
    pub what: ExitEvent,
}

impl ThreadEvent {
    /// A record's meaning; `None` for one that does not matter here.
    pub fn read(decoder: &KernelDecoder, record: &vmtax_trace::Event<'_>) -> Option<ThreadEvent> {
        let what = match decoder.decode(record)? {
            KernelEvent::KvmExit { isa, reason } => ExitEvent::Exit { isa, reason },
            KernelEvent::KvmEntry => ExitEvent::Entry,
            KernelEvent::KvmAccess(access) => ExitEvent::Access {
                access: accessed(access),
                unanswered: access.unsatisfied,
            },
            KernelEvent::KvmEoi => ExitEvent::Eoi,
            KernelEvent::KvmUserspaceExit { reason } => ExitEvent::User(reason),
            KernelEvent::SysEnter {
                nr,
                args: [_, KVM_RUN, ..],
            } if system_call(nr) == Some(SystemCall::ioctl) => ExitEvent::Run,
            KernelEvent::KvmAcceptIrq { vector } => {
                ExitEvent::Accepted(u32::try_from(vector).ok()?)
            }
            // PIT or HPET; RTC.
            KernelEvent::KvmSetIrq {
                gsi: gsi @ (0 | 2 | 8),
                level: 1..,
            } => ExitEvent::TimerLine(u32::try_from(gsi).ok()?),
            KernelEvent::KvmMsi { vector } => ExitEvent::Message(vector?.into()),
            _ => return None,
        };
        Some(ThreadEvent {
            at: record.ticks,
            cpu: Some(record.cpu),
            tid: record.pid,
            what,
        })
    }

    /// A place where the trace lost events.
    pub fn lost(lost: &Lost) -> ThreadEvent {
        ThreadEvent {
            at: lost.ticks,
            cpu: lost.cpu,
            tid: 0,
            what: ExitEvent::Lost,
        }
    }
}

fn accessed(
    KvmAccess {
        to, address, write, ..
    }: KvmAccess,
) -> Access {
    let space = match to {
        KvmSpace::Port => AddressSpace::Port,
        KvmSpace::Memory => AddressSpace::Memory,
        KvmSpace::Msr => AddressSpace::Msr,
    };
    Access {
        space,
        address,
        write,
    }
}

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
    /// The reason that the CPU gives, of this instruction set.
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
#[derive(Debug, Clone, Copy, Default)]
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
    /// Where it went into its guest, in which it is.
    entered: Option<Open>,
    /// Time in its guest, ticks.
    in_guest: u64,
    /// A read that was counted before its value came.
    awaited: Option<Access>,
}

impl Vcpu {
    /// Takes the exit that is open, which ends now.
    fn ended(&mut self, at: u64) -> Option<Open> {
        let end = Some(at);
        self.open.take().map(|open| Open { end, ..open })
    }

    /// Leaves the guest; the time in it counts where no event of it may be missing.
    fn left_guest(&mut self, at: u64, cpu: Option<u32>, losses: &Losses) {
        let entered = self.entered.take();
        let whole = entered.filter(|entered| !losses.since(entered.number, [entered.cpu, cpu]));
        let ticks = whole.map_or(0, |entered| at.saturating_sub(entered.begin));
        self.in_guest = self.in_guest.saturating_add(ticks);
    }

    /// Notes what happens in an exit that KVM told.
    fn note(&mut self, what: ExitEvent) {
        let Some(open) = &mut self.open else { return };
        let apic = Reason::Hardware {
            isa: VMX,
            number: APIC_ACCESS,
        };
        match what {
            ExitEvent::Access { access, .. } => _ = open.access.get_or_insert(access),
            ExitEvent::Eoi if open.reason == Some(apic) => {
                open.access.get_or_insert(Access {
                    space: AddressSpace::Memory,
                    address: APIC_EOI,
                    write: true,
                });
            }
            ExitEvent::User(reason) => open.user = Some(reason),
            _ => {}
        }
    }
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
    /// True for a trace that lost events somewhere.
    expected: bool,
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

    /// Returns true if events of these CPUs may be missing behind an event. That a CPU lost some is told when it goes on, which may
    /// be behind what a thread does on another meanwhile: so no exit of a trace with losses spans two CPUs.
    fn since(&self, number: u64, cpus: [Option<u32>; 2]) -> bool {
        if self.expected && cpus[0] != cpus[1] {
            return true;
        }
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

    /// Says that the trace lost events somewhere.
    pub fn expect_losses(&mut self) {
        self.losses.expected = true;
    }

    /// Takes the next event of a thread; events of one thread are in order.
    pub fn take(&mut self, event: &ThreadEvent) {
        let ThreadEvent { at, cpu, tid, what } = *event;
        if what == ExitEvent::Lost {
            return self.losses.add(cpu, self.events);
        }
        self.events += 1;
        match what {
            ExitEvent::Accepted(vector) => self.interrupted(tid, vector, at),
            ExitEvent::TimerLine(line) => {
                self.interrupted(tid, Self::LINES.saturating_add(line), at);
            }
            ExitEvent::Message(vector) => _ = self.messages.insert(vector),
            _ => self.of_vcpu(at, cpu, tid, what),
        }
    }

    /// Takes an event of a vCPU's exits.
    fn of_vcpu(&mut self, at: u64, cpu: Option<u32>, tid: i32, what: ExitEvent) {
        // The end of an exit, and the begin of another, may be among the events that were lost.
        let vcpu = self.vcpus.entry(tid).or_default();
        let losses = &self.losses;
        let cut = vcpu
            .open
            .take_if(|open| losses.since(open.number, [open.cpu, cpu]));
        if cut.is_some() {
            vcpu.awaited = None;
            self.close(tid, cut);
        }
        let begun = Open {
            begin: at,
            cpu,
            number: self.events,
            ..Open::default()
        };
        match what {
            ExitEvent::Exit { isa, reason } => {
                let number = reason;
                let begun = Open {
                    reason: Some(Reason::Hardware { isa, number }),
                    ..begun
                };
                let vcpu = self.vcpus.entry(tid).or_default();
                vcpu.told = true;
                vcpu.left_guest(at, cpu, &self.losses);
                let before = vcpu.open.replace(begun);
                self.close(tid, before);
            }
            ExitEvent::Entry => {
                let vcpu = self.vcpus.entry(tid).or_default();
                vcpu.entered = Some(begun);
                let open = vcpu.ended(at);
                self.close(tid, open);
            }
            _ => match self.vcpus.entry(tid).or_default() {
                vcpu if vcpu.told => vcpu.note(what),
                _ => self.take_untold(tid, what, begun),
            },
        }
    }

    /// Takes the next event of a thread whose exits KVM does not tell.
    fn take_untold(&mut self, tid: i32, what: ExitEvent, begun: Open) {
        let vcpu = self.vcpus.entry(tid).or_default();
        match what {
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
            // A read by a port is named when its value is there: after this.
            ExitEvent::Run => match vcpu.open.as_mut().filter(|open| open.user.is_some()) {
                Some(open) if open.access.is_none() => open.end = Some(begun.begin),
                Some(_) => {
                    let open = vcpu.ended(begun.begin);
                    self.close(tid, open);
                }
                None => {}
            },
            _ => {}
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
        let with_access = |open: Open| {
            let access = Some(access);
            Some(Open { access, ..open })
        };
        match vcpu.open.take() {
            Some(open) if late(&open) => self.close(tid, with_access(open)),
            before => {
                vcpu.open = with_access(begun);
                self.close(tid, before);
            }
        }
    }

    fn close(&mut self, tid: i32, open: Option<Open>) {
        let Some(open) = open else { return };
        let (access, user) = (open.access, open.user);
        let of_access = access.map(|a| Reason::Access(a.space));
        let Some(reason) = open.reason.or(of_access).or(user.map(Reason::User)) else {
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
        if let Some(end) = open.end {
            count.timed += 1;
            count.ticks = count.ticks.saturating_add(end.saturating_sub(open.begin));
        }
    }

    /// Interrupts that come as regularly as a timer's: how often, and at what rate, Hz. Without those of timers that these threads
    /// emulate, which come whether the guest takes them or not.
    pub fn regular(&self, mhz: f64, emulate: &[i32]) -> Vec<(u64, f64)> {
        let timers = self.interrupts.iter().filter(|((tid, number), _)| {
            let is_emulated = *number >= Self::LINES && emulate.contains(tid);
            !self.messages.contains(number) && !is_emulated
        });
        timers.filter_map(|(_, ticks)| ticks.rate(mhz)).collect()
    }

    /// The lines that these threads raise as regularly as a timer.
    pub fn timer_lines(&self, mhz: f64, emulate: &[i32]) -> Vec<TimerLine> {
        let line = |((tid, number), ticks): (&(i32, u32), &Ticks)| {
            let line = number.checked_sub(Self::LINES)?;
            let (count, hz) = ticks.rate(mhz).filter(|_| emulate.contains(tid))?;
            Some(TimerLine {
                line,
                tid: *tid,
                count,
                hz,
            })
        };
        self.interrupts.iter().filter_map(line).collect()
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

    /// Returns the time of each vCPU in its guest, of those whose exits and entries KVM reported.
    pub fn in_guest(&self) -> impl Iterator<Item = GuestTime> {
        let told = self.vcpus.iter().filter(|(_, vcpu)| vcpu.told);
        told.map(|(&tid, vcpu)| GuestTime {
            tid,
            ticks: vcpu.in_guest,
        })
    }

    /// Returns true if KVM reported exits and entries.
    pub fn told(&self) -> bool {
        self.vcpus.values().any(|vcpu| vcpu.told)
    }
}

/// Largest difference between an interval and the one before, as a share, at which it is still regular: a busy host
/// delivers late.
const SLACK: f64 = 0.25;

/// The arrivals of one interrupt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    last: Option<u64>,
    /// The interval before.
    interval: u64,
    /// Intervals like the one before, by about how long they are: how many, and their sum.
    regular: BTreeMap<u32, (u64, u64)>,
}

impl Ticks {
    pub fn take(&mut self, at: u64) {
        if let Some(last) = self.last {
            let interval = at.saturating_sub(last);
            if (interval as f64 - self.interval as f64).abs() <= SLACK * self.interval as f64
                && interval > 0
            {
                let (count, sum) = self.regular.entry(class(interval)).or_default();
                *count += 1;
                *sum = sum.saturating_add(interval);
            }
            self.interval = interval;
        }
        self.last = Some(at);
    }

    /// Returns the number of regular arrivals, and their rate per second: at the rate that the interrupt mostly had.
    pub fn rate(&self, mhz: f64) -> Option<(u64, f64)> {
        let (count, sum) = self
            .regular
            .values()
            .copied()
            .max_by_key(|(count, _)| *count)?;
        Some((count, 1e6 * mhz * count as f64 / sum as f64))
    }
}

/// Intervals of one class differ by less than a half.
fn class(interval: u64) -> u32 {
    (interval as f64).log(1.5) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(intervals: impl IntoIterator<Item = u64>) -> (u64, f64) {
        let mut ticks = Ticks::default();
        let mut at = 1_000;
        ticks.take(at);
        for interval in intervals {
            at += interval;
            ticks.take(at);
        }
        ticks.rate(1.0).unwrap_or_default()
    }

    /// QEMU's main loop raises the HPET's line, a kernel's thread the PIT's, and a vCPU takes what the PIT sends.
    #[test]
    fn lines_that_qemu_raises_are_no_interrupts_that_the_guest_takes() {
        let (main, pit, vcpu) = (7, 8, 9);
        let mut counts = Counts::default();
        for at in 1..500 {
            let mut take = |tid, what| {
                let at = at * 1000;
                let cpu = Some(0);
                counts.take(&ThreadEvent { at, cpu, tid, what });
            };
            take(main, ExitEvent::TimerLine(2));
            take(pit, ExitEvent::TimerLine(0));
            take(vcpu, ExitEvent::Accepted(0x30));
        }
        assert_eq!(counts.regular(1.0, &[main]).len(), 2);
        assert_eq!(counts.regular(1.0, &[]).len(), 3, "its role is not known");
        let lines = counts.timer_lines(1.0, &[main]);
        assert_eq!((lines.len(), lines[0].line, lines[0].tid), (1, 2, main));
        assert!((lines[0].hz - 1000.0).abs() < 1.0, "{lines:?}");
        assert_eq!(counts.timer_lines(1.0, &[]), []);
    }

    #[test]
    fn a_timer_is_told_from_other_interrupts() {
        // At 1 MHz, intervals of 1000 ticks are 1000 Hz; now and then the host is late; later it is 100 Hz.
        let timer = (0..300)
            .map(|i| if i % 20 == 0 { 1_700 } else { 1_000 + i % 7 })
            .chain([10_000; 100]);
        let (count, hz) = rate(timer);
        assert!(
            count > 200 && (hz - 1_000.0).abs() < 20.0,
            "{count} at {hz} Hz"
        );
        let (count, hz) = rate((0..200).map(|i| 100 + i * i * 37 % 5_000));
        assert!(count < 20, "{count} at {hz} Hz");
        assert_eq!(rate([0; 200]).0, 0, "all at once");
    }
}
