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

/// Number of requests to a disk, or of packets of a network card; a field of JSON that is named after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestCount {
    /// Of a disk.
    Requests(u64),
    /// Of a network card.
    Packets(u64),
}

impl RequestCount {
    /// Returns the number alone.
    pub const fn number(self) -> u64 {
        let (RequestCount::Requests(number) | RequestCount::Packets(number)) = self;
        number
    }
}

/// The requests of one kind, or the packets of one direction, those that could not be followed among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindUse {
    /// Kind of these requests.
    pub kind: RequestKind,
    /// Number of requests that the guest's kernel saw completed, or of packets.
    #[serde(flatten)]
    pub count: RequestCount,
    /// Of these, those that were followed through every layer.
    pub followed: u64,
    /// Bytes, all together; of the packets that both sides show, with their Ethernet headers.
    pub bytes: u64,
    /// Number of requests of each length: bytes, count; shortest first. Packets have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<(u64, u64)>,
    /// From the guest's block layer taking a request in, to its completing it. Of packets that were followed: from the guest's stack to
    /// QEMU's backend, or from there to the guest's stack.
    pub time: Summary,
    /// Numbers of packets that one doorbell or interrupt served; requests have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<Vec<Batching>>,
}

/// Requests by kind, or packets by direction; a field of JSON that is named after them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsedKinds {
    /// Of a disk.
    Kinds(Vec<KindUse>),
    /// Of a network card.
    Directions(Vec<KindUse>),
}

impl UsedKinds {
    /// Returns all of them, of either class of device.
    pub fn all(&self) -> &[KindUse] {
        let (UsedKinds::Kinds(all) | UsedKinds::Directions(all)) = self;
        all
    }
}

/// Use of a guest's disk or network card while its command ran once more, under probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Machine of the guest.
    pub machine: Machine,
    /// Wall time of the command under probes, seconds.
    pub wall_s: f64,
    /// For how much of that requests were seen: less where a buffer for events became full, seconds.
    pub observed_s: f64,
    /// Time during which at least one request, or one of the followed packets, was in flight, seconds.
    pub under_way_s: f64,
    /// None where no request reached the disk, or no packet passed the card.
    #[serde(flatten)]
    pub kinds: UsedKinds,
}

/// The packets of a command's guests: how the network cards were used, and where the time of a packet goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandPackets {
    /// Guest by guest.
    pub nics: Vec<DeviceUse>,
    /// A column for each guest and direction, which is its variant's name.
    pub layers: LayerFindings,
}

/// The requests of a command's guests: how the disks were used, and where the time of a request goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandLayers {
    /// Guest by guest.
    pub disks: Vec<DeviceUse>,
    /// A column for each guest and kind of request, which is its variant's name; of each guest those first that took most
    /// time.
    pub layers: LayerFindings,
    /// Packets of the guests' network cards; null where they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<CommandPackets>,
}
