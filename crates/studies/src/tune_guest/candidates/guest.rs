//! Changes of the guest as a whole: its CPU, its kernel's arguments, its memory, what runs it, the host beneath it.

use super::known::{Known, Settings, Tuned};
use vmtax_model::WorkloadName;

/// Whether vCPUs wait, so that what waking up costs counts.
fn waits(tuned: &Tuned<'_>) -> bool {
    let one_at_a_time = tuned.requests.is_some_and(|work| work.depth == 1);
    one_at_a_time || matches!(tuned.workload, WorkloadName::NetRr | WorkloadName::Syscalls | WorkloadName::Threads)
}

/// Whether vCPUs run all the time.
fn computes(tuned: &Tuned<'_>) -> bool {
    use WorkloadName::{Cpu, Exec, Memory, Mutex, Syscalls, Threads};
    matches!(tuned.workload, Cpu | Memory | Mutex | Threads | Syscalls | Exec)
}

/// Whether it touches memory for the first time.
fn faults(tuned: &Tuned<'_>) -> bool {
    matches!(tuned.workload, WorkloadName::Memory | WorkloadName::Syscalls | WorkloadName::Exec)
}

fn needs_kvm(tuned: &Tuned<'_>, _: &Settings) -> Option<&'static str> {
    (!tuned.machine.is_kvm()).then_some("it is of KVM")
}

fn has_kernel(tuned: &Tuned<'_>) -> bool {
    tuned.machine.has_kernel()
}

pub(super) const TABLE: &[Known] = &[
    Known {
        set: &[("kernel-arg.idle", "poll")],
        since: (1, 0),
        moves: |tuned, _| has_kernel(tuned) && waits(tuned),
        not_for: |tuned, _| {
            (tuned.host_cpus <= tuned.cpus).then_some("a guest that never sleeps needs a host CPU for each vCPU")
        },
        trap: "Each vCPU takes all of a host CPU, and slows its SMT sibling: for CPUs that the guest has for itself.",
        source: "lkml 2017, x86/idle: add halt poll support: a context switch from 2,493 to 1,159 ns",
    },
    Known {
        set: &[("kernel-arg.tsc", "reliable")],
        since: (1, 0),
        moves: |tuned, _| has_kernel(tuned) && matches!(tuned.workload, WorkloadName::Syscalls | WorkloadName::Exec),
        not_for: |tuned, _| {
            tuned
                .machine
                .is_kvm()
                .then_some("KVM's own clock, or the TSC that KVM vouches for, is read without an exit")
        },
        trap: "Wrong times where the TSC is not constant: check the guest's clock against another first.",
        source: "no published figure",
    },
    Known {
        set: &[("kernel-arg.mitigations", "off")],
        since: (1, 0),
        moves: |tuned, _| has_kernel(tuned) && computes(tuned) && tuned.machine.is_kvm(),
        not_for: |tuned, _| {
            let risks =
                "the guest's programs can then read its kernel's memory: --unsafe tries it, for disposable guests";
            (!tuned.risks_data).then_some(risks)
        },
        trap: "The guest's programs can read its kernel's memory: for disposable guests.",
        source: "openSUSE/obs-build#452: for disposable guests; no figure",
    },
    Known {
        set: &[("cpu-model", "qemu64")],
        since: (1, 0),
        moves: |tuned, _| has_kernel(tuned) && computes(tuned) && !tuned.machine.is_kvm(),
        not_for: |_, _| None,
        trap: "The guest lacks SSE4, AVX and AES instructions: programs that need them do not run.",
        source: "no published figure",
    },
    Known {
        set: &[("memory-backend.prealloc", "on")],
        since: (5, 0),
        moves: |tuned, _| has_kernel(tuned) && faults(tuned),
        not_for: |_, baseline| {
            let is_virtiofs = baseline.get("share").is_some_and(|share| share == "virtiofs");
            is_virtiofs.then_some("virtiofs has a memory of its own for the guest")
        },
        trap: "The VM starts later, and takes all of its memory from the host at once.",
        source: "no published figure",
    },
    Known {
        set: &[("host.thp", "always")],
        since: (1, 0),
        moves: |tuned, _| has_kernel(tuned) && faults(tuned),
        not_for: |_, _| None,
        trap: "For all programs of the host; khugepaged makes latencies uneven (cloud-hypervisor#4852).",
        source: "firecracker-microvm/firecracker#6003: boot -19 to -55 %",
    },
    Known {
        set: &[("host.halt-poll-ns", "200000")],
        since: (1, 0),
        moves: |tuned, _| waits(tuned),
        not_for: needs_kvm,
        trap: "Idle guests burn the host's CPU: for all VMs of the host.",
        source: "Linux commit 2cffe9f6b96f: SAP HANA up to 12 % faster",
    },
    Known {
        set: &[("host.halt-poll-ns", "0")],
        since: (1, 0),
        moves: |tuned, _| waits(tuned),
        not_for: needs_kvm,
        trap: "Each wake-up of a vCPU takes longer: for all VMs of the host.",
        source: "no published figure",
    },
    Known {
        set: &[("kernel-arg.console", "hvc0"), ("qemu-args", "-chardev null,id=hvc0 -device virtconsole,chardev=hvc0")],
        since: (1, 0),
        moves: |tuned, _| has_kernel(tuned) && prints(tuned.command),
        not_for: |_, baseline| baseline.contains_key("qemu-args").then_some("qemu-args is in use"),
        trap: "Messages before the driver of virtio is loaded are lost; early panics need the serial port.",
        source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): a VM exit for each byte",
    },
];

/// Whether a command prints to the console.
fn prints(command: &[String]) -> bool {
    command.iter().any(|word| ["/dev/console", "/dev/kmsg", "/dev/ttyS"].iter().any(|file| word.contains(file)))
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
