//! Sequences of events as the two kinds of KVM tell them.

use super::count::{Counts, ExitEvent, Key, Reason, ThreadEvent};
use super::{Names, Waiting};
use proptest::prelude::*;
use vmtax_model::AddressSpace;
use vmtax_model::samples::{Access, TracedExits};
use vmtax_trace::ExitReasons;

const VCPU: i32 = 40;

fn port(address: u64, write: bool) -> ExitEvent {
    ExitEvent::Access {
        access: Access {
            space: AddressSpace::Port,
            address,
            write,
        },
        unanswered: false,
    }
}

fn memory(address: u64, write: bool, unanswered: bool) -> ExitEvent {
    ExitEvent::Access {
        access: Access {
            space: AddressSpace::Memory,
            address,
            write,
        },
        unanswered,
    }
}

/// Events 10 ticks apart, as often as asked.
fn counted(events: &[ExitEvent], times: u64) -> Counts {
    let mut counts = Counts::default();
    let all = (0..times).flat_map(|_| events.iter());
    for (what, n) in all.zip(1..) {
        counts.take(&ThreadEvent {
            at: n * 10,
            cpu: Some(0),
            tid: VCPU,
            what: *what,
        });
    }
    counts.end();
    counts
}

/// Count, handed to QEMU, timed, ticks.
fn numbers(counts: &Counts, reason: Reason, access: Option<(u64, bool)>) -> [u64; 4] {
    let is_wanted = |key: &Key| {
        let same = key.access.map(|a| (a.address, a.write)) == access;
        same && key.reason == reason && key.tid == VCPU
    };
    let found = counts.counts.iter().find(|(key, _)| is_wanted(key));
    found.map_or([0; 4], |(_, c)| [c.count, c.user, c.timed, c.ticks])
}

const USER_IO: ExitEvent = ExitEvent::User(Some(2));

/// A vCPU that exits at 100, of which the trace loses events on a CPU, and that enters at 500 on the same CPU or another.
#[test]
fn an_exit_that_a_loss_may_have_cut_has_no_time() {
    let timed = |lost: Option<u32>, end: u32| {
        let mut counts = Counts::default();
        let mut take = |at, cpu, what| {
            counts.take(&ThreadEvent {
                at,
                cpu,
                tid: VCPU,
                what,
            });
        };
        let exit = |reason| ExitEvent::Exit { isa: 1, reason };
        take(50, lost, ExitEvent::Lost);
        take(100, Some(2), exit(1));
        take(150, lost, ExitEvent::Lost);
        take(160, Some(end), memory(7, true, false));
        take(500, Some(end), ExitEvent::Entry);
        take(600, Some(2), exit(1));
        take(604, Some(2), ExitEvent::Entry);
        counts.end();
        let all: Vec<_> = counts.counts.values().copied().collect();
        let sum = |of: fn(&super::count::Count) -> u64| all.iter().map(of).sum::<u64>();
        (sum(|c| c.count), sum(|c| c.timed), sum(|c| c.ticks))
    };
    assert_eq!(timed(Some(9), 2), (2, 2, 404), "a loss on another CPU");
    for (lost, end) in [(Some(2), 2), (Some(2), 3), (Some(3), 3), (None, 2)] {
        assert_eq!(timed(lost, end), (2, 1, 4), "{lost:?} {end}");
    }
}

/// Two exits of 10 ticks with 10 ticks in the guest behind each, then a vCPU that stays there.
#[test]
fn time_in_the_guest_is_from_each_entry_to_the_next_exit() {
    let in_guest = |events: &[ExitEvent]| -> Vec<u64> {
        let counts = counted(events, 1);
        counts.in_guest().map(|time| time.ticks).collect()
    };
    let exit = ExitEvent::Exit { isa: 2, reason: 1 };
    let whole = [exit, ExitEvent::Entry, exit, ExitEvent::Entry, exit];
    assert_eq!(in_guest(&whole), [20]);
    // Events take their place by number: the loss stands for one.
    let lost = [
        exit,
        ExitEvent::Entry,
        ExitEvent::Lost,
        exit,
        ExitEvent::Entry,
        exit,
    ];
    assert_eq!(in_guest(&lost), [10], "an entry may be missing");
    assert_eq!(
        in_guest(&[USER_IO, ExitEvent::Run]),
        [0; 0],
        "a KVM without them"
    );
}

#[test]
fn a_kvm_that_tells_exits_has_each_in_its_brackets() {
    let io = Reason::Hardware { isa: 1, number: 30 };
    let exit = |number| ExitEvent::Exit {
        isa: 1,
        reason: number,
    };
    // A write that QEMU takes, a read that it answers, an access that the kernel serves, a halt.
    let events = [
        [
            exit(30),
            port(0x3f8, true),
            USER_IO,
            ExitEvent::Run,
            ExitEvent::Entry,
        ]
        .as_slice(),
        &[
            exit(30),
            USER_IO,
            ExitEvent::Run,
            port(0x3fd, false),
            ExitEvent::Entry,
        ],
        &[exit(30), port(0x20, true), ExitEvent::Entry],
        &[exit(12), ExitEvent::Entry],
    ]
    .concat();
    let counts = counted(&events, 5);
    assert_eq!(numbers(&counts, io, Some((0x3f8, true))), [5, 5, 5, 200]);
    assert_eq!(numbers(&counts, io, Some((0x3fd, false))), [5, 5, 5, 200]);
    assert_eq!(numbers(&counts, io, Some((0x20, true))), [5, 0, 5, 100]);
    assert_eq!(
        numbers(&counts, Reason::Hardware { isa: 1, number: 12 }, None),
        [5, 0, 5, 50]
    );
    assert_eq!(counts.counts.len(), 4);
    // The end of an interrupt by the APIC's page has no access of its own.
    let counts = counted(&[exit(44), ExitEvent::Eoi, ExitEvent::Entry], 3);
    assert_eq!(
        numbers(
            &counts,
            Reason::Hardware { isa: 1, number: 44 },
            Some((0xfee0_00b0, true))
        ),
        [3, 0, 3, 60]
    );
}

#[test]
fn a_kvm_that_tells_none_is_followed_by_accesses_and_returns() {
    let [io, mmio] = [
        Reason::Access(AddressSpace::Port),
        Reason::Access(AddressSpace::Memory),
    ];
    let events = [
        [port(0x3f8, true), USER_IO, ExitEvent::Run].as_slice(), // a write that QEMU takes
        &[USER_IO, ExitEvent::Run, port(0x3fd, false)],          // a read that it answers
        &[port(0x20, true)],                                     // a write that the kernel takes
        &[port(0x21, false)],                                    // a read that it answers
        &[
            memory(0xfed0_00f0, false, true),
            ExitEvent::User(Some(6)),
            ExitEvent::Run,
            memory(0xfed0_00f0, false, false),
        ],
        &[memory(0xfee0_00b0, true, false), ExitEvent::Eoi],
        &[ExitEvent::User(None), ExitEvent::Run], // a signal
    ]
    .concat();
    let counts = counted(&events, 5);
    assert_eq!(numbers(&counts, io, Some((0x3f8, true))), [5, 5, 5, 100]);
    assert_eq!(numbers(&counts, io, Some((0x3fd, false))), [5, 5, 5, 50]);
    assert_eq!(
        numbers(&counts, io, Some((0x20, true))),
        [5, 0, 0, 0],
        "what the kernel serves has no time"
    );
    assert_eq!(numbers(&counts, io, Some((0x21, false))), [5, 0, 0, 0]);
    assert_eq!(
        numbers(&counts, mmio, Some((0xfed0_00f0, false))),
        [5, 5, 5, 100],
        "its value is no access more"
    );
    assert_eq!(
        numbers(&counts, mmio, Some((0xfee0_00b0, true))),
        [5, 0, 0, 0]
    );
    assert_eq!(numbers(&counts, Reason::User(None), None), [5, 5, 5, 50]);
    assert_eq!(counts.counts.len(), 7);
    // What the kernel serves, and QEMU is told of something else thereafter.
    let events = [
        memory(0xfee0_00b0, true, false),
        ExitEvent::User(None),
        ExitEvent::Run,
        memory(0xfee0_0300, true, false),
        USER_IO,
        ExitEvent::Run,
        port(0x3fd, false),
    ];
    let counts = counted(&events, 5);
    assert_eq!(
        numbers(&counts, mmio, Some((0xfee0_00b0, true))),
        [5, 0, 0, 0]
    );
    assert_eq!(
        numbers(&counts, mmio, Some((0xfee0_0300, true))),
        [5, 0, 0, 0]
    );
    assert_eq!(numbers(&counts, io, Some((0x3fd, false))), [5, 5, 5, 50]);
}

fn named(counts: &Counts) -> TracedExits {
    let text = "print fmt: (REC->isa == 1) ? __print_symbolic(REC->exit_reason & 0xffff, { 12, \"HLT\" }) : \
        __print_symbolic(REC->exit_reason, { 0x040 + 0, \"DE excp\" }, { 0x078, \"hlt\" })";
    let names = Names {
        reasons: ExitReasons::from_tables(&vmtax_trace::symbols(text)),
        user: vmtax_trace::symbols(
            "print fmt: __print_symbolic(REC->r, { 2, \"KVM_EXIT_\" \"IO\" })",
        ),
    };
    names.rows(counts, Vec::new(), 1000.0, 0)
}

#[test]
fn exits_have_the_kernels_names() {
    let events = [
        ExitEvent::Exit { isa: 1, reason: 12 },
        ExitEvent::Entry,
        ExitEvent::Exit { isa: 1, reason: 99 },
    ];
    let traced = named(&counted(&events, 4));
    let rows: Vec<(&str, u64)> = traced
        .rows
        .iter()
        .map(|row| (row.reason.as_str(), row.count))
        .collect();
    assert_eq!(
        (rows, traced.brackets),
        (vec![("HLT", 4), ("unknown (0x63)", 4)], true)
    );
    // A host of AMD's, and a kernel that does not say of which CPU it is.
    let events = [(2, 0x78), (2, 12), (2, 0x400), (0, 12)]
        .map(|(isa, reason)| ExitEvent::Exit { isa, reason });
    let traced = named(&counted(&events, 1));
    let rows: Vec<&str> = traced.rows.iter().map(|row| row.reason.as_str()).collect();
    assert_eq!(rows, ["unknown (0xc)", "unknown (0xc)", "hlt", "npf"]);
    let polled = [
        USER_IO,
        ExitEvent::Run,
        port(0x3fd, false),
        port(0x3f8, true),
        USER_IO,
        ExitEvent::Run,
    ];
    let traced = named(&counted(&polled, 300));
    let status = traced
        .rows
        .iter()
        .find(|row| row.access.is_some_and(|access| access.address == 0x3fd))
        .unwrap();
    assert_eq!(
        (
            status.reason.as_str(),
            status.count,
            status.user,
            status.ticks
        ),
        ("port I/O", 300, 300, 3000)
    );
    assert!(!traced.brackets);
}

#[test]
fn a_tick_has_its_rate() {
    let mut counts = Counts::default();
    (0..400).for_each(|n| {
        counts.take(&ThreadEvent {
            at: n * 1_000_000,
            cpu: Some(0),
            tid: VCPU,
            what: ExitEvent::Accepted(236),
        })
    });
    let (count, hz) = named(&counts).regular[0];
    assert!(
        count > 390 && (hz - 1000.0).abs() < 1e-6,
        "{count} at {hz} Hz"
    );
    // A device under a regular load has the same rhythm.
    counts.take(&ThreadEvent {
        at: 400_000_000,
        cpu: Some(0),
        tid: VCPU + 1,
        what: ExitEvent::Message(236),
    });
    assert_eq!(named(&counts).regular, []);
}

#[test]
fn processors_traces_that_are_read_one_after_the_other_come_out_in_order() {
    let event = |at| ThreadEvent {
        at,
        cpu: Some(0),
        tid: VCPU,
        what: ExitEvent::Entry,
    };
    let mut waiting = Waiting {
        events: vec![event(5), event(9), event(3)],
        ..Waiting::default()
    };
    let mut counts = Counts::default();
    waiting.hand_out(false, &mut counts);
    assert_eq!(
        waiting.events.len(),
        3,
        "others may come before any of these"
    );
    waiting.events.extend([event(7), event(20)]);
    waiting.hand_out(false, &mut counts);
    assert_eq!(
        waiting.events,
        [event(20)],
        "nothing comes before 9 any more"
    );
    waiting.hand_out(true, &mut counts);
    assert!(waiting.events.is_empty());
}

fn any_event() -> impl Strategy<Value = ExitEvent> {
    prop_oneof![
        (0..3u32, 0..60u64).prop_map(|(isa, reason)| ExitEvent::Exit { isa, reason }),
        Just(ExitEvent::Entry),
        (0x3f8..0x3feu64, any::<bool>()).prop_map(|(address, write)| port(address, write)),
        (0..4u64, any::<bool>(), any::<bool>())
            .prop_map(|(address, write, late)| memory(address, write, late)),
        proptest::option::of(0..8u64).prop_map(ExitEvent::User),
        Just(ExitEvent::Run),
        Just(ExitEvent::Eoi),
    ]
}

proptest! {
    /// Whatever was lost in between: no exit is counted twice, and none takes longer than the trace.
    #[test]
    fn any_sequence_is_survived(events in proptest::collection::vec(any_event(), 0..80)) {
        let counts = counted(&events, 1);
        let all = counts.counts.values();
        prop_assert!(all.clone().all(|c| c.timed <= c.count && c.user <= c.count && c.ticks <= 800));
        let begins = events.iter().filter(|e| matches!(e, ExitEvent::Exit { .. } | ExitEvent::Access { .. } | ExitEvent::User(_))).count();
        prop_assert!(all.map(|c| c.count).sum::<u64>() <= begins as u64);
    }
}
