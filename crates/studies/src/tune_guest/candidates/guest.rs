//! Changes of the guest as a whole: its CPU, its kernel's arguments, its memory, what runs it, the host beneath it.

use super::known_change::{KnownChange, Settings, TuneTarget, is};
use vmtax_model::WorkloadName;

/// Returns true if the workload's vCPUs wait, so that the cost of wake-ups matters.
fn waits(target: &TuneTarget<'_>) -> bool {
    let one_at_a_time = target.requests.is_some_and(|work| work.depth == 1);
    one_at_a_time
        || matches!(
            target.workload,
            WorkloadName::NetRr | WorkloadName::Syscalls | WorkloadName::Threads
        )
}

/// Returns true if the workload's vCPUs run all the time.
fn computes(target: &TuneTarget<'_>) -> bool {
    use WorkloadName::{Cpu, Exec, Memory, Mutex, Syscalls, Threads};
    matches!(
        target.workload,
        Cpu | Memory | Mutex | Threads | Syscalls | Exec
    )
}

/// Returns true if the workload touches memory for the first time (page faults).
fn faults(target: &TuneTarget<'_>) -> bool {
    matches!(
        target.workload,
        WorkloadName::Memory | WorkloadName::Syscalls | WorkloadName::Exec
    )
}

fn needs_kvm(target: &TuneTarget<'_>, _: &Settings) -> Option<&'static str> {
    (!target.machine.is_kvm()).then_some("it is of KVM")
}

fn has_kernel(target: &TuneTarget<'_>) -> bool {
    target.machine.has_kernel()
}

fn needs_trust(target: &TuneTarget<'_>) -> Option<&'static str> {
    (!target.risks_data).then_some(
        "it disables a mitigation (L1TF) on the host: --unsafe tries it, for trusted guests",
    )
}

/// Returns true if a KVM guest with a kernel has a CPU model other than `host`, which does not have by itself the
/// features that only a KVM with hardware virtualization provides.
fn lacks_of_kvm(target: &TuneTarget<'_>) -> bool {
    let is_hosts = target
        .cpu_model
        .is_none_or(|model| model == "host" || model.starts_with("host,"));
    has_kernel(target) && target.machine.is_kvm() && !is_hosts
}

fn needs_hardware(target: &TuneTarget<'_>, _: &Settings) -> Option<&'static str> {
    (!target.has_hardware_kvm).then_some("it needs VT-x or AMD-V, which this host does not have")
}

fn is_shared(target: &TuneTarget<'_>) -> Option<&'static str> {
    (!target.has_spare_cpu()).then_some("each vCPU needs a host CPU for itself")
}

fn has_arguments(baseline: &Settings) -> Option<&'static str> {
    let is_used = baseline.contains_key("qemu-args");
    is_used.then_some("qemu-args is in use")
}

pub(super) const GUEST: &[KnownChange] = &[
    KnownChange {
        set: &[("kernel-arg.idle", "poll")],
        moves: |target, _| has_kernel(target) && waits(target),
        not_for: |target, _| {
            (!target.has_spare_cpu())
                .then_some("a guest that never sleeps needs a host CPU for each vCPU")
        },
        trap: "Each vCPU takes all of a host CPU, and slows its SMT sibling: for CPUs that the guest has for itself.",
        source: "lkml 2017, x86/idle: add halt poll support: a context switch from 2,493 to 1,159 ns",
    },
    KnownChange {
        set: &[("kernel-arg.tsc", "reliable")],
        moves: |target, _| {
            has_kernel(target)
                && matches!(target.workload, WorkloadName::Syscalls | WorkloadName::Exec)
        },
        not_for: |target, _| {
            target.machine.is_kvm().then_some(
                "KVM's own clock, or the TSC that KVM vouches for, is read without an exit",
            )
        },
        trap: "Wrong times where the TSC is not constant: check the guest's clock against another first.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("kernel-arg.mitigations", "off")],
        moves: |target, _| has_kernel(target) && computes(target) && target.machine.is_kvm(),
        not_for: |target, _| {
            let risks = "the guest's programs can then read its kernel's memory: --unsafe tries it, for disposable guests";
            (!target.risks_data).then_some(risks)
        },
        trap: "The guest's programs can read its kernel's memory: for disposable guests.",
        source: "openSUSE/obs-build#452: for disposable guests; no figure",
    },
    KnownChange {
        set: &[("cpu-model", "qemu64")],
        moves: |target, _| has_kernel(target) && computes(target) && !target.machine.is_kvm(),
        trap: "The guest lacks SSE4, AVX and AES instructions: programs that need them do not run.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("cpu-model", "host")],
        moves: |target, _| lacks_of_kvm(target) && computes(target),
        trap: "The guest cannot be migrated to a host with another CPU.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("cpu-flag.kvm-pv-ipi", "on")],
        moves: |target, _| lacks_of_kvm(target) && target.cpus > 1,
        not_for: needs_hardware,
        trap: "A host without it cannot take the guest by migration.",
        source: "kvm mailing list: ebizzy 14 % faster, 70 % fewer MSR exits with 64 vCPUs",
    },
    KnownChange {
        set: &[("cpu-flag.kvm-pv-tlb-flush", "on")],
        moves: |target, _| lacks_of_kvm(target) && target.cpus > 1,
        not_for: needs_hardware,
        trap: "It helps where vCPUs wait for host CPUs, else it only costs.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("cpu-flag.kvm-pv-unhalt", "on")],
        moves: |target, _| lacks_of_kvm(target) && target.cpus > 1,
        not_for: |target, baseline| {
            let is_dedicated = target
                .has_spare_cpu()
                .then_some("each vCPU has a host CPU for itself");
            needs_hardware(target, baseline).or(is_dedicated)
        },
        trap: "Slower locks where each vCPU has a host CPU for itself.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("cpu-flag.tsc-deadline", "on")],
        moves: |target, _| lacks_of_kvm(target) && waits(target),
        not_for: needs_hardware,
        trap: "A host without it cannot take the guest by migration.",
        source: "Linux commit 26efe2fd92e5: a timer of 3,028 cycles takes 2,494",
    },
    KnownChange {
        set: &[("cpu-flag.kvm-hint-dedicated", "on")],
        moves: |target, _| has_kernel(target) && target.machine.is_kvm() && waits(target),
        not_for: |target, baseline| needs_hardware(target, baseline).or(is_shared(target)),
        trap: "Locks spin in the guest: for vCPUs that are pinned to dedicated CPUs.",
        source: "Linux kernel documentation, KVM CPUID bits: KVM_HINTS_REALTIME; no figure",
    },
    KnownChange {
        set: &[("qemu-args", "-overcommit cpu-pm=on")],
        moves: |target, _| has_kernel(target) && target.machine.is_kvm() && waits(target),
        not_for: |target, baseline| {
            let of_host = needs_hardware(target, baseline).or(is_shared(target));
            of_host.or(has_arguments(baseline))
        },
        trap: "A vCPU that is idle keeps its host CPU, and the host shows it as busy.",
        source: "Linux commit a6c3f4a2524f; no figure",
    },
    KnownChange {
        set: &[("kernel-arg.clocksource", "tsc")],
        moves: |target, baseline| {
            let is_named = baseline.contains_key("kernel-arg.clocksource");
            has_kernel(target)
                && target.machine.is_kvm()
                && target.workload == WorkloadName::Syscalls
                && !is_named
        },
        trap: "Wrong times where the TSC is not constant, and after a migration to a host with another frequency.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("pinning", "split")],
        moves: |target, baseline| {
            let is_pinned = baseline
                .get("pinning")
                .map_or(target.is_pinned, |how| how == "split");
            !is_pinned && has_kernel(target) && (waits(target) || computes(target))
        },
        not_for: |target, _| {
            (!target.has_spare_cpu())
                .then_some("QEMU's other threads need a host CPU besides the vCPUs'")
        },
        trap: "A vCPU waits while another program has its CPU, although others are idle.",
        source: "kubevirt/user-guide#305: it takes a host CPU; no figure",
    },
    KnownChange {
        set: &[("memory-backend.hugetlb", "on")],
        moves: |target, _| has_kernel(target) && faults(target),
        not_for: |target, baseline| {
            let is_small = "the host has fewer free huge pages than the guest's memory takes (vm.nr_hugepages)";
            of_virtiofs(baseline).or((!target.has_huge_pages).then_some(is_small))
        },
        trap: "The pages are reserved for guests also while none runs.",
        source: "Intel 749114: crosvm 3 % faster, 70 % fewer EPT violations",
    },
    KnownChange {
        set: &[("memory-backend.prealloc", "on")],
        moves: |target, _| has_kernel(target) && faults(target),
        not_for: |_, baseline| of_virtiofs(baseline),
        trap: "The VM starts later, and takes all of its memory from the host at once.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("host.thp", "always")],
        moves: |target, _| has_kernel(target) && faults(target),
        trap: "For all programs of the host; khugepaged makes latencies uneven (cloud-hypervisor#4852).",
        source: "firecracker-microvm/firecracker#6003: boot -19 to -55 %",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("host.ksm", "0")],
        moves: |target, _| has_kernel(target) && faults(target),
        trap: "For all guests of the host: pages that they have in common take memory for each.",
        source: "Red Hat, TuneD: profiles for real-time hosts stop KSM; no figure",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("host.nx-huge-pages", "N")],
        moves: |target, _| has_kernel(target) && faults(target),
        not_for: |target, baseline| needs_kvm(target, baseline).or(needs_trust(target)),
        trap: "A guest can stop a host whose CPU has the iTLB multihit erratum: for guests that are trusted.",
        source: "hyperlight-dev/hyperlight#47: a VM is made in 1.87 ms in place of 8.75 ms",
    },
    KnownChange {
        set: &[("host.l1d-flush", "never")],
        moves: |target, _| waits(target),
        not_for: |target, baseline| needs_kvm(target, baseline).or(needs_trust(target)),
        trap: "A guest can read the host's memory (L1TF): for guests that are trusted.",
        source: "Linux kernel documentation, L1TF; no figure",
    },
    KnownChange {
        set: &[("host.halt-poll-ns", "200000")],
        moves: |target, _| waits(target),
        not_for: needs_kvm,
        trap: "Idle guests burn the host's CPU: for all VMs of the host.",
        source: "Linux commit 2cffe9f6b96f: SAP HANA up to 12 % faster",
    },
    KnownChange {
        set: &[("host.halt-poll-ns", "0")],
        moves: |target, _| waits(target),
        not_for: needs_kvm,
        trap: "Each wake-up of a vCPU takes longer: for all VMs of the host.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[
            ("kernel-arg.console", "hvc0"),
            (
                "qemu-args",
                "-chardev null,id=hvc0 -device virtconsole,chardev=hvc0",
            ),
        ],
        moves: |target, _| has_kernel(target) && prints(target.command),
        not_for: |_, baseline| has_arguments(baseline),
        trap: "Messages before the driver of virtio is loaded are lost; early panics need the serial port.",
        source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): a VM exit for each byte",
    },
];

/// Why the guest's memory is not changed.
fn of_virtiofs(baseline: &Settings) -> Option<&'static str> {
    is(baseline, "share", "virtiofs").then_some("virtiofs has a memory of its own for the guest")
}

/// Returns true if a command prints to the console.
fn prints(command: &[String]) -> bool {
    command.iter().any(|word| {
        ["/dev/console", "/dev/kmsg", "/dev/ttyS"]
            .iter()
            .any(|file| word.contains(file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_prints_names_a_console() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(prints(&words("sh -c yes>/dev/console")) && !prints(&words("make -j2")));
    }
}
