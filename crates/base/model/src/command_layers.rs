//! Requests of a command to its guest's disk, and packets of its network card.

use crate::{Batching, LayerFindings, Machine, Summary};
use serde::{Deserialize, Serialize};

/// Operation that a request of the block layer asks for, or direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// Bytes of the disk.
    Read,
    /// That bytes be written.
    Write,
    /// That what was written be kept.
    Flush,
    /// That bytes be forgotten.
    Discard,
    /// Anything else, and what nobody told.
    Other,
    /// A packet that the guest sends.
    Transmit,
    /// A packet that the guest receives.
    Receive,
}

impl RequestKind {
    /// Several of them, for people.
    pub const fn label(self) -> &'static str {
        match self {
            RequestKind::Read => "reads",
            RequestKind::Write => "writes",
            RequestKind::Flush => "flushes",
            RequestKind::Discard => "discards",
            RequestKind::Other => "other requests",
            RequestKind::Transmit => "transmitted packets",
            RequestKind::Receive => "received packets",
        }
    }
}

/// The requests of one kind, those that could not be followed among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindUse {
    /// Kind of these requests.
    pub kind: RequestKind,
    /// Number of requests that the guest's kernel saw completed.
    pub requests: u64,
    /// Of these, those that were followed through every layer.
    pub followed: u64,
    /// Bytes, all together.
    pub bytes: u64,
    /// Number of requests of each length: bytes, count; shortest first.
    pub sizes: Vec<(u64, u64)>,
    /// From the guest's block layer taking one in, to its completing it.
    pub time: Summary,
}

/// Use of a guest's disk while its command ran once more, under probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Machine of the guest.
    pub machine: Machine,
    /// Wall time of the command under probes, seconds.
    pub wall_s: f64,
    /// For how much of that requests were seen: less where a buffer for events became full, seconds.
    pub observed_s: f64,
    /// Time during which at least one request was in flight, seconds.
    pub under_way_s: f64,
    /// By kind; none where no request reached the disk.
    pub kinds: Vec<KindUse>,
}

/// The packets of one direction, those that could not be followed among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketUse {
    /// Direction of these packets.
    pub kind: RequestKind,
    /// Number of packets in this direction.
    pub packets: u64,
    /// Number of these packets that were followed.
    pub followed: u64,
    /// Bytes of those that both sides show, with their Ethernet headers.
    pub bytes: u64,
    /// Of those followed: from the guest's stack to QEMU's backend, or from there to the guest's stack.
    pub time: Summary,
    /// Numbers of packets that one doorbell or interrupt served.
    pub batching: Vec<Batching>,
}

/// Use of a guest's network card while its command ran once more, under probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NicUse {
    /// Machine of the guest.
    pub machine: Machine,
    /// Wall time of the command under probes, seconds.
    pub wall_s: f64,
    /// For how much of that packets were seen: less where a buffer for events became full, seconds.
    pub observed_s: f64,
    /// Time during which at least one of the followed packets was in flight, seconds.
    pub under_way_s: f64,
    /// By direction; none where no packet passed the card.
    pub directions: Vec<PacketUse>,
}

/// The packets of a command's guests: how the network cards were used, and where the time of a packet goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandPackets {
    /// Guest by guest.
    pub nics: Vec<NicUse>,
    /// A column for each guest and direction, which is its variant's name.
    pub layers: LayerFindings,
}

/// The requests of a command's guests: how the disks were used, and where the time of a request goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandLayers {
    /// Guest by guest.
    pub disks: Vec<DiskUse>,
    /// A column for each guest and kind of request, which is its variant's name; of each guest those first that took most
    /// time.
    pub layers: LayerFindings,
    /// Packets of the guests' network cards; null where they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<CommandPackets>,
}
