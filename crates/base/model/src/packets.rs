//! Packets of a column over the network: in which batches they were served, and the lost ones.

use serde::{Deserialize, Serialize};

/// Kind of event that serves several packets at once, or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchKind {
    /// The guest's notification of its transmit queue.
    Doorbell,
    /// QEMU's system call that writes to the backend.
    Write,
    /// The guest's receive interrupt.
    Interrupt,
    /// A packet as the guest's stack receives it: GRO merges several of one connection.
    Gro,
    /// A packet as the guest's stack hands it to the card, which segments it (TSO, or GSO of UDP).
    Tso,
}

impl BatchKind {
    /// As a table names it.
    pub fn label(self) -> &'static str {
        match self {
            BatchKind::Doorbell => "transmitted per doorbell",
            BatchKind::Write => "transmitted per write to the backend",
            BatchKind::Interrupt => "received per interrupt",
            BatchKind::Gro => "received per packet of the guest's stack (GRO)",
            BatchKind::Tso => "segments per packet of the guest's stack (TSO)",
        }
    }
}

/// Packets, and what served them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batching {
    pub kind: BatchKind,
    pub packets: u64,
    /// Number of doorbells, writes, interrupts, or merged packets.
    pub batches: u64,
}

impl Batching {
    /// Packets per batch.
    pub fn mean(&self) -> f64 {
        self.packets as f64 / self.batches.max(1) as f64
    }
}

/// Requests that the workload waited for in vain, and what came instead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Requests that got no response in time.
    pub lost: u64,
    /// Responses that came when another was awaited: late, or twice.
    pub late: u64,
}

/// The packets of the traced round trips, from the first's begin to the last's end; others on the card, such as TCP's
/// acknowledgements, are among the batched ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Of what was observed.
    pub batching: Vec<Batching>,
    #[serde(flatten)]
    pub unanswered: Unanswered,
    /// Packets that QEMU passed on again: TCP sent them twice.
    pub repeated: u64,
    /// Packets that QEMU passed on after a later one of the same connection.
    pub reordered: u64,
}

impl PacketCounts {
    /// Adds those of another trial.
    pub fn add(&mut self, other: &PacketCounts) {
        for batching in &other.batching {
            match self
                .batching
                .iter_mut()
                .find(|known| known.kind == batching.kind)
            {
                Some(known) => {
                    known.packets += batching.packets;
                    known.batches += batching.batches;
                }
                None => self.batching.push(*batching),
            }
        }
        self.unanswered.lost += other.unanswered.lost;
        self.unanswered.late += other.unanswered.late;
        self.repeated += other.repeated;
        self.reordered += other.reordered;
    }
}
