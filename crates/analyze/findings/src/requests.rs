//! Requests to disks and packets of network cards: of a command's guest, and of a running VM.

use crate::{Batching, Estimate, LayerFindings, Summary};
use serde::{Deserialize, Serialize};
use vmtax_model::{Machine, Missing, VmFacts};

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
    /// From the guest's block layer taking a request in, to its completing it. Of packets that were followed: from the
    /// guest's stack to QEMU's backend, or from there to the guest's stack.
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

/// The traced requests of one kind, or packets of one direction, of a device of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmTraced {
    /// The thread that takes requests from the ring, or that reads or writes the tap, as `main loop`, `iothread io0`.
    pub thread: String,
    /// Kind of these requests.
    pub kind: RequestKind,
    /// Number of requests that QEMU completed, or of packets that the tap passed on.
    #[serde(flatten)]
    pub count: RequestCount,
    /// Number of these that were followed.
    pub followed: u64,
    /// Requests or packets per second.
    pub per_s: f64,
}

/// The requests of one kind to one disk of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmRequests {
    /// The disk's name: libvirt's target, QEMU's ID of the device, else its path among QEMU's objects.
    pub disk: String,
    /// The file or device behind it; null where it is not known.
    pub file: Option<String>,
    /// The image's format; null where it is not known.
    pub format: Option<String>,
    /// The requests.
    #[serde(flatten)]
    pub traced: VmTraced,
    /// Requests in flight at once, mean over the time.
    pub in_flight: f64,
    /// From the first to the last moment that the host sees of each: esxtop's GAVG without the guest's own part.
    pub gavg: Summary,
    /// GAVG without the time at the host's device; null where that is not observed.
    pub kavg: Option<Summary>,
    /// From the host's block layer issuing it to the device completing it, 0 where the page cache answers; null where it is not
    /// observed, as of flushes.
    pub davg: Option<Summary>,
}

/// The part of the time in which a disk of a running VM had no request: the guest asked for nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmptyQueue {
    /// The disk's name, as [`VmRequests::disk`].
    pub disk: String,
    /// Requests of all kinds that were followed, per second.
    pub per_s: f64,
    /// Part of the traced time without a request, 0 to 1.
    pub empty: f64,
    /// The median of that part over twentieths of the time, with its interval.
    pub by_part: Estimate,
}

/// The packets of one direction of a network card of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmPackets {
    /// The card's tap on the host.
    pub tap: String,
    /// The queues that the tap has.
    pub queues: usize,
    /// The packets.
    #[serde(flatten)]
    pub traced: VmTraced,
    /// From the first to the last moment that the host sees of each.
    pub time: Summary,
    /// Numbers of packets that one doorbell, write or interrupt served.
    pub batching: Vec<Batching>,
}

impl VmLayers {
    /// Name of the missing data where this build of QEMU shows no requests at all.
    pub const REQUESTS: &str = "requests to its disks";
}

/// The findings of the traced requests of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmLayers {
    /// VM that was traced.
    pub vm: VmFacts,
    /// Duration of the trace, s.
    pub seconds: f64,
    /// True if the VM ended before the timeout.
    pub ended: bool,
    /// By disk and kind, those first that took most time; none where no request was seen.
    pub requests: Vec<VmRequests>,
    /// By network card and direction, where packets were traced and not requests; those first that took most time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<VmPackets>,
    /// Disk by disk, the part of the time without a request; none where a trace does not show every request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<EmptyQueue>,
    /// The disks that had no request, or the taps that had no packet.
    pub idle: Vec<String>,
    /// The disks whose requests the trace does not show, whether they had any or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_followed: Vec<String>,
    /// Data that could not be observed of any disk.
    pub missing: Vec<Missing>,
    /// Where the time goes: a column for each of `requests`, or of `packets`, in their order.
    pub layers: LayerFindings,
}
