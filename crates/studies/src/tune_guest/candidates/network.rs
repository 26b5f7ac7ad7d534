//! Changes of a guest's network card and of what is behind it.

use super::known_change::{KnownChange, Settings, TuneTarget, needs_program};
use vmtax_host::{find_program, has_vhost_net, passt_has_vhost_user};
use vmtax_model::{NetBackend, WorkloadName};

fn uses_network(target: &TuneTarget<'_>) -> bool {
    target.workload.needs_network()
}

/// Returns true if the network card is on another backend than this one.
fn is_behind_other(target: &TuneTarget<'_>, baseline: &Settings, backend: &str) -> bool {
    uses_network(target) && baseline.get("backend").is_some_and(|own| own != backend)
}

fn is_behind_tap(baseline: &Settings) -> bool {
    baseline.get("backend").is_some_and(|own| own == "tap")
}

fn needs_vhost() -> Option<&'static str> {
    (!has_vhost_net()).then_some("this host has no /dev/vhost-net (module vhost_net)")
}

fn needs_vhost_user() -> Option<&'static str> {
    let can = find_program("passt").is_some_and(|passt| passt_has_vhost_user(&passt));
    (!can).then_some("it needs a passt of December 2024 or later")
}

pub(super) const TABLE: &[KnownChange] = &[
    KnownChange {
        set: &[("backend", "tap")],
        moves: |target, baseline| is_behind_other(target, baseline, "tap"),
        not_for: |_, _| (!rustix::process::geteuid().is_root()).then_some("only root makes a tap"),
        trap: "The guest's packets are in the host's network: it needs a bridge or routes, and a firewall.",
        source: "no published figure",
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
        source: "no published figure",
    },
    KnownChange {
        set: &[(NetBackend::VHOST, "on")],
        moves: |target, baseline| uses_network(target) && is_behind_tap(baseline),
        not_for: |_, _| needs_vhost(),
        trap: "A thread of the host's kernel for each queue, which needs a CPU.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("netdev.poll-us", "50"), (NetBackend::VHOST, "on")],
        moves: |target, baseline| {
            matches!(target.workload, WorkloadName::NetRr | WorkloadName::NetPps)
                && is_behind_tap(baseline)
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
        not_for: |_, _| None,
        trap: "More memory for each queue.",
        source: "qemu/qemu#115: bursts are dropped with 256; no figure",
    },
    KnownChange {
        set: &[("packed", "on")],
        moves: |target, _| uses_network(target),
        not_for: |_, _| None,
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure",
    },
    KnownChange {
        set: &[("event_idx", "off")],
        moves: |target, _| target.workload == WorkloadName::NetRr,
        not_for: |_, _| None,
        trap: "More kicks and interrupts with many packets under way.",
        source: "no published figure for one request at a time",
    },
];
