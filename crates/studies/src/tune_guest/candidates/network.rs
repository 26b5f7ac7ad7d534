//! Changes of a guest's network card and of what is behind it.

use super::known::{Known, Settings, Tuned, needs_program};
use vmtax_model::WorkloadName;

fn uses_network(tuned: &Tuned<'_>) -> bool {
    tuned.workload.needs_network()
}

/// Whether the card is on another backend than this.
fn is_behind_other(tuned: &Tuned<'_>, baseline: &Settings, backend: &str) -> bool {
    uses_network(tuned) && baseline.get("backend").is_some_and(|own| own != backend)
}

pub(super) const TABLE: &[Known] = &[
    Known {
        set: &[("backend", "tap")],
        since: (1, 0),
        moves: |tuned, baseline| is_behind_other(tuned, baseline, "tap"),
        not_for: |_, _| (!rustix::process::geteuid().is_root()).then_some("only root makes a tap"),
        trap: "The guest's packets are in the host's network: it needs a bridge or routes, and a firewall.",
        source: "no published figure",
    },
    Known {
        set: &[("backend", "passt")],
        since: (7, 2),
        moves: |tuned, baseline| is_behind_other(tuned, baseline, "passt"),
        not_for: |_, _| needs_program("passt", "passt is not installed"),
        trap: "One more process a VM.",
        source: "the-void-ia/void-box#81: a connection by slirp takes 2.6 times as long",
    },
    Known {
        set: &[("rx_queue_size", "1024")],
        since: (2, 8),
        moves: |tuned, _| matches!(tuned.workload, WorkloadName::NetPps | WorkloadName::NetStream),
        not_for: |_, _| None,
        trap: "More memory for each queue.",
        source: "qemu/qemu#115: bursts are dropped with 256; no figure",
    },
    Known {
        set: &[("packed", "on")],
        since: (4, 2),
        moves: |tuned, _| uses_network(tuned),
        not_for: |_, _| None,
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure",
    },
    Known {
        set: &[("event_idx", "off")],
        since: (1, 0),
        moves: |tuned, _| tuned.workload == WorkloadName::NetRr,
        not_for: |_, _| None,
        trap: "More kicks and interrupts with many packets under way.",
        source: "no published figure for one request at a time",
    },
];
