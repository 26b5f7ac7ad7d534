//! Findings of `exits` that look like real ones.

use vmtax_model::*;

fn kind(label: &str, p50_ns: f64, emulated: bool, note: &str) -> ExitKind {
    ExitKind {
        label: label.into(),
        time: Summary {
            n: 20_000,
            min_ns: p50_ns * 0.9264,
            p50_ns,
            p90_ns: p50_ns * 1.05,
            p99_ns: p50_ns * 1.589,
            max_ns: p50_ns * 120.0,
            mean_ns: p50_ns * 1.0233,
        },
        emulated,
        without_exit: false,
        note: note.into(),
    }
}

pub fn exits() -> ExitFindings {
    let machine = |machine, factor: f64, missing| MachineExits {
        machine,
        qemu: "QEMU 7.2.22".into(),
        stamp: kind("a pair of stamps", 24.0, false, ""),
        kinds: vec![
            kind("port write, handled in QEMU", 25_800.0 * factor, false, ""),
            kind("port read, handled in QEMU", 26_700.0 * factor, false, ""),
            kind("MMIO write, handled in QEMU", 26_800.0 * factor, false, ""),
            kind("MMIO read, handled in KVM", 2_700.0 * factor, false, ""),
            kind("cpuid", 4_000.0 * factor, false, ""),
            kind(
                "MSR read",
                3_400.0 * factor,
                true,
                "real APIC: no hardware here",
            ),
            kind("HLT until an interrupt", 8_000.0 * factor, true, ""),
        ],
        missing,
    };
    let hlt = Missing {
        what: "HLT and wake-up".into(),
        why: "TCG has no such exit".into(),
        fix: String::new(),
    };
    ExitFindings {
        schema: SCHEMA,
        vmtax: "0.1.0".into(),
        command: vec!["vmtax".into(), "exits".into()],
        started: "2026-11-20T14:02:11Z".into(),
        cpu: "AMD EPYC 7763 64-Core Processor".into(),
        kernel: "6.18.0".into(),
        kvm: "a KVM that emulates kernels".into(),
        machines: vec![machine(Machine::MICRO_KVM, 1.0, vec![]), machine(Machine::MICRO_TCG, 0.25, vec![hlt])],
        method: "Each exit is stamped by the guest's time stamp counter before and after; the figures are raw.".into(),
        warnings: vec![Warning::StolenTime { percent: 2 }],
        advice: vec![Advice {
            finding: "Use ioeventfd: a notification costs 2.70 µs in the kernel, 25.8 µs through user space.".into(),
            ..Advice::default()
        }],
    }
}
