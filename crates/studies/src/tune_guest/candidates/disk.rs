//! Changes of the disk path, in QEMU and in the guest's kernel.

use super::known_change::{KnownChange, Settings, TuneTarget, uses_disk};

/// Returns true if a setting of the disk is a property of the virtio-blk or virtio-scsi device, not one of QEMU's
/// block layer.
pub(super) fn is_of_virtio(key: &str) -> bool {
    !["aio", "cache"].contains(&key)
}

/// `aio`, which a QEMU may be built without.
fn lacks(target: &TuneTarget<'_>, engine: &str) -> Option<&'static str> {
    target
        .qemu
        .is_some_and(|qemu| qemu.aio.iter().all(|one| one != engine))
        .then_some("this QEMU was built without it")
}

/// Returns the reason not to try a feature that a driver of the guest's kernel negotiates; `None` for a guest with a
/// kernel.
fn needs_driver(target: &TuneTarget<'_>) -> Option<&'static str> {
    (!target.machine.has_kernel()).then_some("the micro-guest's driver does not use it")
}

/// Returns true if the workload's disk has an iothread, whose settings can then be changed.
fn has_iothread(target: &TuneTarget<'_>, baseline: &Settings) -> bool {
    uses_disk(target.workload) && baseline.get("iothread").is_some_and(|value| value == "on")
}

/// Returns true if several requests are in flight; also for a command, whose requests are not known.
fn is_deep(target: &TuneTarget<'_>) -> bool {
    uses_disk(target.workload) && target.requests.is_none_or(|work| work.depth > 1)
}

/// Returns true if the guest's files are read and written through its page cache.
fn is_cached(target: &TuneTarget<'_>) -> bool {
    target.machine.has_kernel() && uses_disk(target.workload) && target.requests.is_none()
}

pub(super) const TABLE: &[KnownChange] = &[
    KnownChange {
        set: &[("cache", "none")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |_, _| None,
        trap: "What the guest reads again comes from the device, not from the host's page cache.",
        source: "QEMU manual page, -drive: cache",
    },
    KnownChange {
        set: &[("aio", "native"), ("cache", "none")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| lacks(target, "native"),
        trap: "With the host's page cache (cache=writeback) its submission blocks, so it is only used with cache=none.",
        source: "Virtio block latency (KVM wiki, 2010): a 4 KiB read from 200 to 193 µs",
    },
    KnownChange {
        set: &[("aio", "io_uring")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| lacks(target, "io_uring"),
        trap: "With cache=writeback it hangs on krbd and LVM, and fails on CIFS (Proxmox qemu-server, Drive.pm).",
        source: "no published figure for virtio-blk",
    },
    KnownChange {
        set: &[("iothread", "on")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |_, _| None,
        trap: "Slower where the vCPUs need all of the host's CPUs.",
        source: "kata-containers/runtime#133: reads +120 %, random writes +97 %",
    },
    KnownChange {
        set: &[("num-queues", "1")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| match target.cpus {
            1 => Some("with one vCPU there is one queue"),
            _ => needs_driver(target),
        },
        trap: "Completions may interrupt another vCPU than the one that waits.",
        source: "qemu-devel, virtio-blk-pci: default num_queues to -smp N: a queue for each vCPU gives +1 to +4 %",
    },
    KnownChange {
        set: &[("packed", "on")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| needs_driver(target),
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure for virtio-blk",
    },
    KnownChange {
        set: &[("event_idx", "off")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| needs_driver(target),
        trap: "More kicks and interrupts with many requests in flight.",
        source: "no published figure for one request at a time",
    },
    KnownChange {
        set: &[("modern-pio-notify", "on")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| match target.machine.is_kvm() {
            true => needs_driver(target),
            false => Some("it is of KVM's exits, and TCG has none"),
        },
        trap: "Slower where KVM has a fast path for MMIO (EPT).",
        source: "QEMU commit 9824d2a39d98: MMIO is slower where there is no EPT",
    },
    KnownChange {
        set: &[("request-merging", "off")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| match target.requests {
            Some(work) if work.depth == 1 => Some("with one request at a time nothing is merged"),
            _ => None,
        },
        trap: "More requests to the host where the guest writes or reads one block after another.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("queue-size", "1024")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| match target.requests {
            Some(work) if work.block < 512 << 10 => {
                Some("it only matters for requests of 512 KiB and more")
            }
            _ => needs_driver(target),
        },
        trap: "More memory for each queue.",
        source: "QEMU commit 1bf8a989a566: larger requests are not split",
    },
    KnownChange {
        set: &[("iothread.poll-max-ns", "0")],
        moves: has_iothread,
        not_for: |_, _| None,
        trap: "The iothread sleeps between requests: one at a time takes longer.",
        source: "QEMU commit 3aa221b382c9: 10 to 60 k requests/s with 100 devices of 32 queues each",
    },
    KnownChange {
        set: &[("iothread.poll-max-ns", "200000")],
        moves: has_iothread,
        not_for: |target, _| {
            (!target.has_spare_cpu())
                .then_some("a thread that polls needs a host CPU besides those of the vCPUs")
        },
        trap: "The iothread uses a host CPU while it waits.",
        source: "no published figure for more than QEMU's 32768",
    },
    KnownChange {
        set: &[("iothread.aio-max-batch", "128")],
        moves: |target, baseline| {
            let is_native = baseline.get("aio").is_some_and(|engine| engine == "native");
            is_native
                && has_iothread(target, baseline)
                && target.requests.is_none_or(|work| work.depth > 32)
        },
        not_for: |_, _| None,
        trap: "Requests wait for each other before they are submitted.",
        source: "QEMU commit fc73548e444a: 9.4 % less CPU time of the host where requests are submitted together",
    },
    KnownChange {
        set: &[("iothread.thread-pool-min", "16")],
        moves: |target, baseline| {
            let is_pool = baseline
                .get("aio")
                .is_some_and(|engine| engine == "threads");
            is_pool && has_iothread(target, baseline) && is_deep(target)
        },
        not_for: |_, _| None,
        trap: "So many threads stay while the disk is idle.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("logical_block_size", "4096")],
        moves: |target, _| {
            let is_whole = target.requests.is_none_or(|work| work.block % 4096 == 0);
            uses_disk(target.workload) && target.has_large_sectors && is_whole
        },
        not_for: |_, _| None,
        trap: "Partitions and file systems have to be made for it: for new disks.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("block-queue.scheduler", "none")],
        moves: |target, baseline| {
            // The kernel's default of a disk with several queues.
            let has_one = target.cpus == 1
                || baseline
                    .get("num-queues")
                    .is_some_and(|queues| queues == "1");
            target.machine.has_kernel() && is_deep(target) && has_one
        },
        not_for: |_, _| None,
        trap: "Where the host's disk is slow and several programs share it, one may wait long.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("block-queue.nomerges", "2")],
        moves: |target, _| {
            target.machine.has_kernel()
                && is_deep(target)
                && target.requests.is_some_and(|work| work.random)
        },
        not_for: |_, _| None,
        trap: "More requests where the guest writes or reads one block after another.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("block-queue.rq_affinity", "2")],
        moves: |target, _| target.machine.has_kernel() && is_deep(target) && target.cpus > 1,
        not_for: |_, _| None,
        trap: "A completion may interrupt another vCPU, under KVM by an exit.",
        source: "Linux kernel documentation, Queue sysfs files; no figure",
    },
    KnownChange {
        set: &[("block-queue.read_ahead_kb", "4096")],
        moves: |target, _| is_cached(target),
        not_for: |_, _| None,
        trap: "What is read at random positions brings more than is needed.",
        source: "TuneD, profile throughput-performance: 4096 and more; no figure",
    },
    KnownChange {
        set: &[("block-queue.wbt_lat_usec", "0")],
        moves: |target, _| is_cached(target),
        not_for: |_, _| None,
        trap: "Reads may wait behind many writes.",
        source: "Linux kernel documentation, Queue sysfs files; no figure",
    },
    KnownChange {
        set: &[("cache", "unsafe")],
        moves: |target, _| uses_disk(target.workload),
        not_for: |target, _| {
            let risks = "a host crash loses data that the guest has flushed: --unsafe tries it, for disposable guests";
            (!target.risks_data).then_some(risks)
        },
        trap: "A failure of the host loses what the guest has flushed: for disposable guests.",
        source: "QEMU manual page, -drive: cache",
    },
];
