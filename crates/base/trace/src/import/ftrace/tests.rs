//! Lines as the tools print them.

use super::{Line, Time, TraceText, event, lost};
use crate::kernel::NAMED_IN_TEXT;
use crate::{
    Entry, ExitReasons, KernelDecoder, KernelEvent, KvmAccess, KvmSpace, Leaves, SVM, Sched, VMX,
};
use proptest::prelude::*;

/// Events of a kernel as ftrace prints them; `REPORT` and `SCRIPT` have some as trace-cmd and perf print them.
const TRACE: &str = "# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
       CPU 0/KVM-22259   (  22250) [001] d..1. 14758.849546: kvm_entry: vcpu 0, rip 0xfff0
       CPU 0/KVM-22259   (-----) [001] d.h1. 14758.849600: kvm_exit: vcpu 0 reason IO_INSTRUCTION rip 0x1 info1 0x0 info2 0x0
       CPU 0/KVM-22259   [001] ..... 14758.849601: kvm_pio: pio_write at 0x3f8 size 1 count 1 val 0x41
CPU:1 [LOST 17 EVENTS]
 odd [name] x-7     [000] 14758.849700: block_rq_issue: 8,16 WS 4096 (a) 1) 2048 + 8 none,0,0 [fio]
          <idle>-0       [000] 14758.849701: foo_bar: anything
";
const REPORT: &str = "cpus=2
imp:        CPU 0/KVM-22259 [001] 14758.849546100: kvm_mmio:             mmio write len 4 gpa 0xfee000b0 val 0x0
          <idle>-0     [001] 14758.849547: sched_switch:         swapper/1:0 [120] R ==> CPU 0/KVM:22259 [120]
CPU:0 [23 EVENTS DROPPED]
";
const SCRIPT: &str = "CPU 0/KVM 22250/22259 [001] 14758.849545: raw_syscalls:sys_enter: NR 16 (e, ae80, 0, 0, 7f0c, ffffffffffffffff)
CPU 0/KVM 22250/22259 [001] 14758.849546:          1 kvm:kvm_msr: msr_write 6e0 = 0x1
sleep  7302 [000] 15556.933053500:  sched:sched_switch: prev_comm=sleep prev_pid=7302 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

fn events(text: &str) -> Vec<(u64, u32, i32, String)> {
    let opened = TraceText::read(text.as_bytes(), "text".as_ref()).unwrap();
    let decoder = KernelDecoder::new(opened.formats());
    assert!(
        decoder.unreadable().is_empty(),
        "{:?}",
        decoder.unreadable()
    );
    let mut events = opened.events_of(text.as_bytes());
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        match entry {
            Entry::Event(event) => {
                got.push((
                    event.ticks,
                    event.cpu,
                    event.pid,
                    format!("{:?}", decoder.decode(&event)),
                ));
            }
            Entry::Lost(lost) => got.push((0, 0, 0, format!("{:?}", lost.events))),
        }
    }
    got
}

fn decoded(event: KernelEvent<'_>) -> String {
    format!("{:?}", Some(event))
}

#[test]
fn each_tools_lines_are_read() {
    let got = events(TRACE);
    let access = |to, address, write| {
        decoded(KernelEvent::KvmAccess(KvmAccess {
            to,
            address,
            write,
            unsatisfied: false,
        }))
    };
    assert_eq!(
        got[0],
        (14_758_849_546_000, 1, 22259, decoded(KernelEvent::KvmEntry))
    );
    assert_eq!(
        got[1].3,
        decoded(KernelEvent::KvmExit {
            isa: VMX,
            reason: 30
        })
    );
    assert_eq!(got[2].3, access(KvmSpace::Port, 0x3f8, true));
    assert_eq!(got[3].3, "Some(17)");
    assert!(
        got[4]
            .3
            .contains("device: 8388624, sector: 2048, sectors: 8, rwbs: [87, 83]"),
        "{}",
        got[4].3
    );
    assert_eq!((got[4].2, got.len()), (7, 5));
    let opened = TraceText::read(TRACE.as_bytes(), "text".as_ref()).unwrap();
    assert_eq!(opened.threads()[&22259].process, Some(22250));
    assert_eq!(opened.threads()[&7].name, "odd [name] x");

    let got = events(REPORT);
    let switch =
        |prev, leaves, next| decoded(KernelEvent::Sched(Sched::Switch { prev, leaves, next }));
    assert_eq!(
        got[0],
        (
            14_758_849_546_100,
            1,
            22259,
            access(KvmSpace::Memory, 0xfee0_00b0, true)
        )
    );
    assert_eq!(got[1].3, switch(0, Leaves::Runnable, 22259));
    assert_eq!(got[2].3, "Some(23)");

    let got = events(SCRIPT);
    assert_eq!(
        got[0].3,
        decoded(KernelEvent::SysEnter {
            nr: 16,
            args: [0xe, 0xae80, 0, 0]
        })
    );
    assert_eq!(
        got[1],
        (
            14_758_849_546_000,
            1,
            22259,
            access(KvmSpace::Msr, 0x6e0, true)
        )
    );
    assert_eq!(got[2].3, switch(7302, Leaves::Sleeping, 0));
}

/// Each reason has the name that its line has, and the number and the instruction set that the name is known for.
#[test]
fn exit_reasons_keep_their_names() {
    let lines = ["HLT", "hlt", "npf", "EXIT_HLT", "0x78", "APIC_ACCESS", "DE"].map(|reason| {
        format!(
            " a-1 [000] 1.000001: kvm_exit: vcpu 0 reason {reason} rip 0x1 info1 0x0 info2 0x0\n"
        )
    });
    let text = lines.concat();
    let opened = TraceText::read(text.as_bytes(), "text".as_ref()).unwrap();
    let format = opened
        .formats()
        .event("kvm", "kvm_exit")
        .and_then(|id| opened.formats().get(id))
        .unwrap();
    let (names, decoder) = (
        ExitReasons::from_tables(&format.names),
        KernelDecoder::new(opened.formats()),
    );
    let mut events = opened.events_of(text.as_bytes());
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else { continue };
        let Some(KernelEvent::KvmExit { isa, reason }) = decoder.decode(&event) else {
            continue;
        };
        got.push((isa, names.name(isa, reason)));
    }
    let named = |isa, name: &str| (isa, name.to_owned());
    assert_eq!(
        got[..3],
        [named(VMX, "HLT"), named(SVM, "hlt"), named(SVM, "npf")]
    );
    assert_eq!(
        got[3],
        named(NAMED_IN_TEXT, "EXIT_HLT"),
        "as libtraceevent's plugin names it"
    );
    assert_eq!(
        got[4..],
        [
            named(0, "unknown (0x78)"),
            named(VMX, "APIC_ACCESS"),
            named(NAMED_IN_TEXT, "DE")
        ]
    );
}

/// As libtraceevent prints an event whose print format it cannot parse, `trace-cmd report -R` any, and tracefs with its option `fields`.
#[test]
fn fields_are_read_by_their_names() {
    let text = " a-1 [000] 1.000001: kvm_exit: [FAILED TO PARSE] exit_reason=12 guest_rip=0xffffffff819000eb isa=1 info1=0\n \
        a-1 [000] 1.000002: kvm_entry: [FAILED TO PARSE] vcpu_id=0\n \
        a-1 [000] 1.000003: kvm_exit: exit_reason=120 guest_rip=0x1 isa=2 vcpu_id=3\n \
        a-1 [000] 1.000004: kvm_exit: exit_reason=0xc (12) guest_rip=0x1 (1)\n \
        a-1 [000] 1.000005: kvm_exit: [FAILED TO PARSE] exit_reason=12 isa=4294967295\n \
        a-1 [000] 1.000006: kvm_exit: [FAILED TO PARSE] guest_rip=0x1 isa=1\n \
        a-1 [000] 1.000007: kvm_msr: [FAILED TO PARSE] write=1 ecx=1760 data=0x1 exception=0\n \
        a-1 [000] 1.000008: block_rq_complete: [FAILED TO PARSE] dev=8388624 sector=2048 nr_sector=8 error=0 rwbs=WS cmd=\n \
        a-1 [000] 1.000009: sys_enter: id=16 args=ARRAY[0e, 00, 00, 00, 00, 00, 00, 00, 80, ae, 00, 00, 00, 00, 00, 00, \
        00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00]\n \
        a-1 [000] 1.000010: sched_switch: prev_comm=x y prev_pid=7 prev_prio=120 prev_state=1 next_comm=z next_pid=0 next_prio=120\n";
    let got: Vec<String> = events(text).into_iter().map(|(.., what)| what).collect();
    let exit = |isa, reason| decoded(KernelEvent::KvmExit { isa, reason });
    assert_eq!(
        got[..5],
        [
            exit(VMX, 12),
            decoded(KernelEvent::KvmEntry),
            exit(SVM, 120),
            exit(0, 12),
            exit(0, 12)
        ],
        "a number without a known instruction set has none"
    );
    assert_eq!(
        got[5],
        decoded(KernelEvent::KvmAccess(KvmAccess {
            to: KvmSpace::Msr,
            address: 0x6e0,
            write: true,
            unsatisfied: false
        })),
        "an exit without its reason is left out"
    );
    assert!(
        got[6].contains("device: 8388624, sector: 2048, sectors: 8, rwbs: [87, 83]"),
        "{}",
        got[6]
    );
    assert_eq!(
        got[7],
        decoded(KernelEvent::SysEnter {
            nr: 16,
            args: [0xe, 0xae80, 0, 0]
        })
    );
    assert_eq!(
        got[8],
        decoded(KernelEvent::Sched(Sched::Switch {
            prev: 7,
            leaves: Leaves::Sleeping,
            next: 0
        }))
    );
    assert_eq!(got.len(), 9);
}

#[test]
fn flags_tell_of_interrupts_and_times_may_be_ticks() {
    let line = event(" a-1 [003] d.h1. 123456789: kvm_eoi: apicid 0 vector 236").unwrap();
    let expected = Line {
        comm: "a",
        tid: 1,
        process: None,
        cpu: 3,
        flags: 8,
        time: Time::Ticks(123_456_789),
        name: "kvm_eoi",
        arguments: "apicid 0 vector 236",
    };
    assert_eq!(line, expected);
    assert_eq!(lost("CPU:3 [LOST 1 EVENTS]"), Some((3, 1)));
    for other in [
        "",
        "# x",
        "a-1 [000] 1.2",
        "a-1 [000] 1.2: x",
        "a-b [000] 1.2: x: y",
        "a-1 [x] 1.2: x: y",
    ] {
        assert_eq!(event(other), None, "{other}");
    }
    assert!(TraceText::read("nothing\n".as_bytes(), "text".as_ref()).is_err());
}

proptest! {
    #[test]
    fn any_line_is_survived(which in 0..3usize, cut in any::<prop::sample::Index>(), with in "[\\PC\n]{0,20}", name in "(kvm_exit|kvm_msr|block_rq_issue|sched_switch|kvm_userspace_exit)", rest in "\\PC{0,40}") {
        let mut text = [TRACE, REPORT, SCRIPT][which].to_owned();
        let mut at = cut.index(text.len());
        while !text.is_char_boundary(at) { at -= 1; }
        text.insert_str(at, &with);
        for text in [text, format!("a-1 [000] 1.000002: {name}: {rest}\n")] {
            if let Ok(opened) = TraceText::read(text.as_bytes(), "text".as_ref()) {
                let mut events = opened.events_of(text.as_bytes());
                while let Some(entry) = events.next().unwrap() {
                    if let Entry::Event(event) = entry {
                        prop_assert!(opened.formats().get(event.id).is_some());
                    }
                }
            }
        }
    }
}
