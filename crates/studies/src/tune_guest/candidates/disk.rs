//! Changes of QEMU's disk path.

use super::known::{Known, Tuned, uses_disk};

/// Whether a change is of virtio-blk's or virtio-scsi's device.
pub(super) fn is_of_virtio(key: &str) -> bool {
    !["aio", "cache"].contains(&key)
}

/// `aio`, which a QEMU may be built without.
fn lacks(tuned: &Tuned<'_>, engine: &str) -> Option<&'static str> {
    tuned.qemu.is_some_and(|qemu| qemu.aio.iter().all(|one| one != engine)).then_some("this QEMU was built without it")
}

/// What a driver of the guest's kernel negotiates.
fn needs_driver(tuned: &Tuned<'_>) -> Option<&'static str> {
    (!tuned.machine.has_kernel()).then_some("the micro-guest's driver does not use it")
}

pub(super) const TABLE: &[Known] = &[
    Known {
        set: &[("cache", "none")],
        since: (1, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |_, _| None,
        trap: "What the guest reads again comes from the device, not from the host's page cache.",
        source: "QEMU manual page, -drive: cache",
    },
    Known {
        set: &[("aio", "native"), ("cache", "none")],
        since: (1, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| lacks(tuned, "native"),
        trap: "With the host's page cache (cache=writeback) its submission blocks, so it is only used with cache=none.",
        source: "Virtio block latency (KVM wiki, 2010): a 4 KiB read from 200 to 193 µs",
    },
    Known {
        set: &[("aio", "io_uring")],
        since: (5, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| lacks(tuned, "io_uring"),
        trap: "With cache=writeback it hangs on krbd and LVM, and fails on CIFS (Proxmox qemu-server, Drive.pm).",
        source: "no published figure for virtio-blk",
    },
    Known {
        set: &[("iothread", "on")],
        since: (2, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |_, _| None,
        trap: "Slower where the vCPUs need all of the host's CPUs.",
        source: "kata-containers/runtime#133: reads +120 %, random writes +97 %",
    },
    Known {
        set: &[("num-queues", "1")],
        since: (2, 7),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| match tuned.cpus {
            1 => Some("with one vCPU there is one queue"),
            _ => needs_driver(tuned),
        },
        trap: "Completions may interrupt another vCPU than the one that waits.",
        source: "qemu-devel, virtio-blk-pci: default num_queues to -smp N: a queue for each vCPU gives +1 to +4 %",
    },
    Known {
        set: &[("packed", "on")],
        since: (4, 2),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| needs_driver(tuned),
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure for virtio-blk",
    },
    Known {
        set: &[("event_idx", "off")],
        since: (1, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| needs_driver(tuned),
        trap: "More kicks and interrupts with many requests in flight.",
        source: "no published figure for one request at a time",
    },
    Known {
        set: &[("modern-pio-notify", "on")],
        since: (2, 4),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| match tuned.machine.is_kvm() {
            true => needs_driver(tuned),
            false => Some("it is of KVM's exits, and TCG has none"),
        },
        trap: "Slower where KVM has a fast path for MMIO (EPT).",
        source: "QEMU commit 9824d2a39d98: MMIO is slower where there is no EPT",
    },
    Known {
        set: &[("request-merging", "off")],
        since: (3, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| match tuned.requests {
            Some(work) if work.depth == 1 => Some("with one request at a time nothing is merged"),
            _ => None,
        },
        trap: "More requests to the host where the guest writes or reads one block after another.",
        source: "no published figure",
    },
    Known {
        set: &[("queue-size", "1024")],
        since: (2, 10),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| match tuned.requests {
            Some(work) if work.block < 512 << 10 => Some("it is for requests of 512 KiB and more"),
            _ => needs_driver(tuned),
        },
        trap: "More memory for each queue.",
        source: "QEMU commit 1bf8a989a566: larger requests are not split",
    },
    Known {
        set: &[("cache", "unsafe")],
        since: (1, 0),
        moves: |tuned, _| uses_disk(tuned.workload),
        not_for: |tuned, _| {
            let risks =
                "a failure of the host loses what the guest has flushed: --unsafe tries it, for disposable guests";
            (!tuned.risks_data).then_some(risks)
        },
        trap: "A failure of the host loses what the guest has flushed: for disposable guests.",
        source: "QEMU manual page, -drive: cache",
    },
];
