//! Changes of the guest's devices: of the disk path, in QEMU and in the guest's kernel; of the network card and of what is behind
//! it; of how a guest is given a tree of files.

use super::known_change::{KnownChange, Settings, TuneTarget, is, needs_program, uses_disk};
use vmtax_host::{find_program, has_vhost_net, passt_has_vhost_user};
use vmtax_model::{NetBackend, WorkloadName};

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
    uses_disk(target.workload) && is(baseline, "iothread", "on")
}

/// Returns true if several requests are in flight; also for a command, whose requests are not known.
fn is_deep(target: &TuneTarget<'_>) -> bool {
    uses_disk(target.workload) && target.requests.is_none_or(|work| work.depth > 1)
}

/// Returns true if the guest's files are read and written through its page cache.
fn is_cached(target: &TuneTarget<'_>) -> bool {
    target.machine.has_kernel() && uses_disk(target.workload) && target.requests.is_none()
}

/// Changes of the disk.
pub(super) const DISK: &[KnownChange] = &[
    KnownChange {
        set: &[("cache", "none")],
        trap: "What the guest reads again comes from the device, not from the host's page cache.",
        source: "QEMU manual page, -drive: cache",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("aio", "native"), ("cache", "none")],
        not_for: |target, _| lacks(target, "native"),
        trap: "With the host's page cache (cache=writeback) its submission blocks, so it is only used with cache=none.",
        source: "Virtio block latency (KVM wiki, 2010): a 4 KiB read from 200 to 193 µs",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("aio", "io_uring")],
        not_for: |target, _| lacks(target, "io_uring"),
        trap: "With cache=writeback it hangs on krbd and LVM, and fails on CIFS (Proxmox qemu-server, Drive.pm).",
        source: "no published figure for virtio-blk",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("iothread", "on")],
        trap: "Slower where the vCPUs need all of the host's CPUs.",
        source: "kata-containers/runtime#133: reads +120 %, random writes +97 %",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("num-queues", "1")],
        not_for: |target, _| match target.cpus {
            1 => Some("with one vCPU there is one queue"),
            _ => needs_driver(target),
        },
        trap: "Completions may interrupt another vCPU than the one that waits.",
        source: "qemu-devel, virtio-blk-pci: default num_queues to -smp N: a queue for each vCPU gives +1 to +4 %",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("packed", "on")],
        not_for: |target, _| needs_driver(target),
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure for virtio-blk",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("event_idx", "off")],
        not_for: |target, _| needs_driver(target),
        trap: "More kicks and interrupts with many requests in flight.",
        source: "no published figure for one request at a time",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("modern-pio-notify", "on")],
        not_for: |target, _| match target.machine.is_kvm() {
            true => needs_driver(target),
            false => Some("it is of KVM's exits, and TCG has none"),
        },
        trap: "Slower where KVM has a fast path for MMIO (EPT).",
        source: "QEMU commit 9824d2a39d98: MMIO is slower where there is no EPT",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("request-merging", "off")],
        not_for: |target, _| match target.requests {
            Some(work) if work.depth == 1 => Some("with one request at a time nothing is merged"),
            _ => None,
        },
        trap: "More requests to the host where the guest writes or reads one block after another.",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("queue-size", "1024")],
        not_for: |target, _| match target.requests {
            Some(work) if work.block < 512 << 10 => {
                Some("it only matters for requests of 512 KiB and more")
            }
            _ => needs_driver(target),
        },
        trap: "More memory for each queue.",
        source: "QEMU commit 1bf8a989a566: larger requests are not split",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("iothread.poll-max-ns", "0")],
        moves: has_iothread,
        trap: "The iothread sleeps between requests: one at a time takes longer.",
        source: "QEMU commit 3aa221b382c9: 10 to 60 k requests/s with 100 devices of 32 queues each",
        ..KnownChange::OF_DISK
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
            is(baseline, "aio", "native")
                && has_iothread(target, baseline)
                && target.requests.is_none_or(|work| work.depth > 32)
        },
        trap: "Requests wait for each other before they are submitted.",
        source: "QEMU commit fc73548e444a: 9.4 % less CPU time of the host where requests are submitted together",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("iothread.thread-pool-min", "16")],
        moves: |target, baseline| {
            is(baseline, "aio", "threads") && has_iothread(target, baseline) && is_deep(target)
        },
        trap: "So many threads stay while the disk is idle.",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("logical_block_size", "4096")],
        moves: |target, _| {
            let is_whole = target.requests.is_none_or(|work| work.block % 4096 == 0);
            uses_disk(target.workload) && target.has_large_sectors && is_whole
        },
        trap: "Partitions and file systems have to be made for it: for new disks.",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("block-queue.scheduler", "none")],
        moves: |target, baseline| {
            // The kernel's default of a disk with several queues.
            let has_one = target.cpus == 1 || is(baseline, "num-queues", "1");
            target.machine.has_kernel() && is_deep(target) && has_one
        },
        trap: "Where the host's disk is slow and several programs share it, one may wait long.",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("block-queue.nomerges", "2")],
        moves: |target, _| {
            target.machine.has_kernel()
                && is_deep(target)
                && target.requests.is_some_and(|work| work.random)
        },
        trap: "More requests where the guest writes or reads one block after another.",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("block-queue.rq_affinity", "2")],
        moves: |target, _| target.machine.has_kernel() && is_deep(target) && target.cpus > 1,
        trap: "A completion may interrupt another vCPU, under KVM by an exit.",
        source: "Linux kernel documentation, Queue sysfs files; no figure",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("block-queue.read_ahead_kb", "4096")],
        moves: |target, _| is_cached(target),
        trap: "What is read at random positions brings more than is needed.",
        source: "TuneD, profile throughput-performance: 4096 and more; no figure",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("block-queue.wbt_lat_usec", "0")],
        moves: |target, _| is_cached(target),
        trap: "Reads may wait behind many writes.",
        source: "Linux kernel documentation, Queue sysfs files; no figure",
        ..KnownChange::OF_DISK
    },
    KnownChange {
        set: &[("cache", "unsafe")],
        not_for: |target, _| {
            let risks = "a host crash loses data that the guest has flushed: --unsafe tries it, for disposable guests";
            (!target.risks_data).then_some(risks)
        },
        trap: "A failure of the host loses what the guest has flushed: for disposable guests.",
        source: "QEMU manual page, -drive: cache",
        ..KnownChange::OF_DISK
    },
];

fn uses_network(target: &TuneTarget<'_>) -> bool {
    target.workload.needs_network()
}

/// Returns true if the network card is on another backend than this one.
fn is_behind_other(target: &TuneTarget<'_>, baseline: &Settings, backend: &str) -> bool {
    uses_network(target) && baseline.get("backend").is_some_and(|own| own != backend)
}

fn needs_vhost() -> Option<&'static str> {
    (!has_vhost_net()).then_some("this host has no /dev/vhost-net (module vhost_net)")
}

fn needs_vhost_user() -> Option<&'static str> {
    let can = find_program("passt").is_some_and(|passt| passt_has_vhost_user(&passt));
    (!can).then_some("it needs a passt of December 2024 or later")
}

/// Changes of the network card.
pub(super) const NETWORK: &[KnownChange] = &[
    KnownChange {
        set: &[("backend", "tap")],
        moves: |target, baseline| is_behind_other(target, baseline, "tap"),
        not_for: |_, _| (!rustix::process::geteuid().is_root()).then_some("only root makes a tap"),
        trap: "The guest's packets are in the host's network: it needs a bridge or routes, and a firewall.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("backend", "passt")],
        moves: |target, baseline| is_behind_other(target, baseline, "passt"),
        not_for: |_, _| needs_program("passt", "passt is not installed"),
        trap: "One more process a VM.",
        source: "the-void-ia/void-box#81: a connection by slirp takes 2.6 times as long",
    },
    KnownChange {
        set: &[("backend", "vhost-user")],
        moves: |target, baseline| is_behind_other(target, baseline, "vhost-user"),
        not_for: |target, _| {
            let needs_kvm =
                (!target.machine.is_kvm()).then_some("without KVM QEMU 5.2 and 7.2 crash with it");
            needs_kvm.or_else(needs_vhost_user)
        },
        trap: "One more process a VM, which has all of the guest's memory; the VM cannot be migrated to a host without it.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[(NetBackend::VHOST, "on")],
        moves: |target, baseline| uses_network(target) && is(baseline, "backend", "tap"),
        not_for: |_, _| needs_vhost(),
        trap: "A thread of the host's kernel for each queue, which needs a CPU.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("netdev.poll-us", "50"), (NetBackend::VHOST, "on")],
        moves: |target, baseline| {
            matches!(target.workload, WorkloadName::NetRr | WorkloadName::NetPps)
                && is(baseline, "backend", "tap")
        },
        not_for: |target, _| {
            needs_vhost().or((!target.has_spare_cpu())
                .then_some("a thread that polls needs a host CPU besides those of the vCPUs"))
        },
        trap: "Guest and kernel use CPUs while they wait for packets.",
        source: "Linux netdev, November 2025: without it a UDP load kicks over 20,000 times a second",
    },
    KnownChange {
        set: &[("rx_queue_size", "1024")],
        moves: |target, _| {
            matches!(
                target.workload,
                WorkloadName::NetPps | WorkloadName::NetStream
            )
        },
        trap: "More memory for each queue.",
        source: "qemu/qemu#115: bursts are dropped with 256; no figure",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("packed", "on")],
        moves: |target, _| uses_network(target),
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("event_idx", "off")],
        moves: |target, _| target.workload == WorkloadName::NetRr,
        trap: "More kicks and interrupts with many packets under way.",
        source: "no published figure for one request at a time",
        ..KnownChange::TRIED
    },
];

fn uses_share(target: &TuneTarget<'_>) -> bool {
    target.workload.needs_share()
}

/// An image is only read.
fn needs_reads(target: &TuneTarget<'_>) -> Option<&'static str> {
    (target.workload != WorkloadName::Tree).then_some("an image cannot be written")
}

/// Changes of the shared tree.
pub(super) const SHARE: &[KnownChange] = &[
    KnownChange {
        set: &[("share.msize", "512000")],
        moves: |target, baseline| uses_share(target) && is(baseline, "share", "9p"),
        trap: "Some memory for each request; kernels before 5.15 take at most 512000.",
        source: "cilium #916: 174 MB/s to 6.7 GB/s",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("share.cache", "loose")],
        moves: |target, baseline| uses_share(target) && is(baseline, "share", "9p"),
        trap: "The guest does not see what others change: for trees that it has for itself.",
        source: "Linux kernel documentation, v9fs; lkml 2022: simple file transfers roughly 10 times as fast",
        ..KnownChange::TRIED
    },
    KnownChange {
        set: &[("share", "virtiofs")],
        moves: |target, baseline| uses_share(target) && !is(baseline, "share", "virtiofs"),
        not_for: |_, _| needs_program("virtiofsd", "virtiofsd is not installed"),
        trap: "One more process a share, and memory that it shares with QEMU.",
        source: "virtme-ng #9: 283.8 to 1.17 s; nixpkgs #552774: 1.00 to 1.44 times as fast",
    },
    KnownChange {
        set: &[("share", "virtiofs"), ("share.cache", "always")],
        moves: |target, _| uses_share(target),
        not_for: |_, _| needs_program("virtiofsd", "virtiofsd is not installed"),
        trap: "The guest does not see what others change: for trees that it has for itself.",
        source: "virtiofs-tests, December 2020: sequential reads 98 to 650 MB/s",
    },
    KnownChange {
        set: &[("share", "disk")],
        moves: |target, baseline| uses_share(target) && !is(baseline, "share", "disk"),
        not_for: |_, _| needs_program("mkfs.ext4", "mkfs.ext4 is not installed"),
        trap: "A copy of the tree on a disk: host and guest do not see what the other changes.",
        source: "nixpkgs #181746: over 1000 to 249 s with an image, its making included",
    },
    KnownChange {
        set: &[("share", "erofs")],
        moves: |target, baseline| uses_share(target) && !is(baseline, "share", "erofs"),
        not_for: |target, _| {
            needs_reads(target)
                .or_else(|| needs_program("mkfs.erofs", "mkfs.erofs is not installed"))
        },
        trap: "An image has to be rebuilt whenever the tree changes; the guest only reads it.",
        source: "nixpkgs #181746: over 1000 to 249 s, the making included",
    },
];
