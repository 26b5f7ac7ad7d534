//! Joined requests as a Perfetto trace: a process for each trial, a track for each side and each of QEMU's threads, a
//! slice for each segment of a request's way, and arrows that follow the request from slice to slice.

use crate::joined::{Record, Sheet, Slice};
use crate::{ExportError, Trial};
use prost::Message;
use std::collections::HashMap;
use std::io::{BufWriter, Write};
use vmtax_findings::State;
use vmtax_layers::{JoinedRequest, Who};
use vmtax_model::Layer;

/// Everything is one sequence of packets.
const SEQUENCE: u32 = 1;
/// Track numbers of one trial begin at a multiple of this; more tracks no trial has.
const TRACKS: u64 = 1 << 24;
/// Numbers of processes and threads, likewise. They are made up: the same QEMU may be in several trials, which a viewer
/// would take for one process.
const THREADS: u64 = 1 << 12;

/// A trace being written.
pub struct Perfetto<W: Write> {
    out: BufWriter<W>,
    names: Names,
    categories: Names,
    trials: u64,
    packet: Vec<u8>,
}

/// Numbers of names that were already written to the trace.
#[derive(Default)]
struct Names(HashMap<String, u64>);

impl Names {
    /// The number, and the name when it is new.
    fn number(&mut self, name: &str) -> (u64, Option<Interned>) {
        if let Some(iid) = self.0.get(name) {
            return (*iid, None);
        }
        let iid = self.0.len() as u64 + 1;
        self.0.insert(name.to_owned(), iid);
        let interned = Interned {
            iid: Some(iid),
            name: Some(name.to_owned()),
        };
        (iid, Some(interned))
    }
}

/// Where a slice is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Application,
    Guest,
    Thread(u16),
    HostKernel,
    Device,
}

impl Place {
    fn of_slice(slice: &Slice) -> Place {
        match slice.who {
            Who::Guest => Place::Guest,
            Who::Thread(i) => Place::Thread(i),
            Who::Host if slice.to.info().layer == Layer::Device => Place::Device,
            Who::Host => Place::HostKernel,
        }
    }

    fn name(self, sheet: &Sheet) -> String {
        match self {
            Place::Application => "guest application".to_owned(),
            Place::Guest => "guest".to_owned(),
            Place::Thread(i) => sheet.name(Who::Thread(i)).to_owned(),
            Place::HostKernel => "host kernel".to_owned(),
            Place::Device => "device".to_owned(),
        }
    }
}

/// A slice to be drawn.
struct Drawn<'a> {
    place: Place,
    begin: u64,
    end: u64,
    name: String,
    category: &'static str,
    flow: u64,
    /// True if the request's arrows end here.
    last: bool,
    /// Set for the operation as a whole.
    request: Option<&'a Record>,
}

impl<W: Write> Perfetto<W> {
    /// Begins a trace.
    pub fn new(out: W) -> Self {
        Perfetto {
            out: BufWriter::new(out),
            names: Names::default(),
            categories: Names::default(),
            trials: 0,
            packet: Vec::new(),
        }
    }

    /// Adds the requests of a trial for which `which` holds; time counts from the begin of the first of them, so that
    /// trials lie below each other.
    ///
    /// # Errors
    /// [`ExportError::Write`] when they cannot be written.
    pub fn add(
        &mut self,
        trial: &Trial,
        which: impl Fn(&JoinedRequest) -> bool,
    ) -> Result<(), ExportError> {
        self.sheet(&Sheet::of_trial(trial, which))
    }

    pub(crate) fn sheet(&mut self, sheet: &Sheet) -> Result<(), ExportError> {
        self.trial(sheet).map_err(failed)
    }

    fn trial(&mut self, sheet: &Sheet) -> std::io::Result<()> {
        self.trials += 1;
        let mut tracks = Tracks {
            sheet,
            base: self.trials * TRACKS,
            lanes: HashMap::new(),
            next: 1,
        };
        self.descriptor(tracks.process())?;
        let mut drawn: Vec<Drawn> = sheet
            .requests
            .iter()
            .flat_map(|r| slices(r, self.trials))
            .collect();
        drawn.sort_by_key(|d| d.begin);
        let mut lanes = Vec::with_capacity(drawn.len());
        for d in &drawn {
            let (uuid, new) = tracks.lane(d);
            if let Some(descriptor) = new {
                self.descriptor(descriptor)?;
            }
            lanes.push(uuid);
        }
        // What ends before what begins at the same time on the same track: the order of insertion is that.
        let mut events: Vec<(u64, usize, Kind)> = Vec::with_capacity(drawn.len() * 2);
        for (i, d) in drawn.iter().enumerate() {
            events.extend([(d.begin, i, Kind::SliceBegin), (d.end, i, Kind::SliceEnd)]);
        }
        events.sort_by_key(|(at, ..)| *at);
        for (at, i, kind) in events {
            self.event(at, &drawn[i], lanes[i], kind)?;
        }
        Ok(())
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) -> std::io::Result<()> {
        let packet = TracePacket {
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        };
        self.write(packet, 0)
    }

    fn event(&mut self, at: u64, drawn: &Drawn, track: u64, kind: Kind) -> std::io::Result<()> {
        let mut event = TrackEvent {
            r#type: Some(kind as i32),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        let mut interned = None;
        if kind == Kind::SliceBegin {
            let (name, new_name) = self.names.number(&drawn.name);
            let (category, new_category) = self.categories.number(drawn.category);
            event.name_iid = Some(name);
            event.category_iids = vec![category];
            *(if drawn.last {
                &mut event.terminating_flow_ids
            } else {
                &mut event.flow_ids
            }) = vec![drawn.flow];
            event.debug_annotations = drawn.request.map(annotations).unwrap_or_default();
            let is_new = new_name.is_some() || new_category.is_some();
            interned = is_new.then(|| InternedData {
                event_names: new_name.into_iter().collect(),
                event_categories: new_category.into_iter().collect(),
            });
        }
        let packet = TracePacket {
            timestamp: Some(at),
            track_event: Some(event),
            interned_data: interned,
            ..TracePacket::default()
        };
        self.write(packet, NEEDS_INCREMENTAL_STATE)
    }

    fn write(&mut self, packet: TracePacket, flags: u32) -> std::io::Result<()> {
        let is_first = self.packet.is_empty();
        let flags = if is_first {
            INCREMENTAL_STATE_CLEARED
        } else {
            flags
        };
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: (flags != 0).then_some(flags),
            ..packet
        };
        self.packet.clear();
        // A trace is the repetition of its field 1, so that packets can be written one by one.
        self.packet.push(1 << 3 | 2);
        packet
            .encode_length_delimited(&mut self.packet)
            .map_err(std::io::Error::other)?;
        self.out.write_all(&self.packet)
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// [`ExportError::Write`] when it cannot be written.
    pub fn finish(mut self) -> Result<(), ExportError> {
        self.out.flush().map_err(failed)
    }
}

fn failed(source: std::io::Error) -> ExportError {
    ExportError::Write {
        what: "Perfetto trace",
        source,
    }
}

/// A request as slices: the operation as a whole, then its segments.
fn slices(record: &Record, trial: u64) -> impl Iterator<Item = Drawn<'_>> {
    let flow = trial << 32 | u64::from(record.number);
    let whole = Drawn {
        place: Place::Application,
        begin: record.begin(),
        end: record.end(),
        name: "operation".to_owned(),
        category: "operation",
        flow,
        last: record.slices.is_empty(),
        request: Some(record),
    };
    let segments = record.slices.iter().enumerate().map(move |(i, s)| {
        let stretch = format!("{} to {}", s.from.label(), s.to.label());
        Drawn {
            place: Place::of_slice(s),
            begin: s.begin,
            end: s.end,
            name: if s.state == State::Running {
                stretch
            } else {
                format!("{stretch} ({})", s.state.label())
            },
            category: s.state.label(),
            flow,
            last: i + 1 == record.slices.len(),
            request: None,
        }
    });
    [whole].into_iter().chain(segments)
}

fn annotations(record: &Record) -> Vec<DebugAnnotation> {
    let figures = [
        ("request", u64::from(record.number)),
        ("disk offset", record.offset),
    ];
    let annotation = |(name, value): (&str, u64)| DebugAnnotation {
        name: Some(name.to_owned()),
        uint_value: Some(value),
    };
    figures.map(annotation).into()
}

/// The tracks of a trial. Slices of one track must not overlap: requests that are there at the same time get lanes
/// beside each other, of the same name, which the viewer stacks.
struct Tracks<'a> {
    sheet: &'a Sheet,
    base: u64,
    /// When each lane is free again, and its number.
    lanes: HashMap<Place, Vec<(u64, u64)>>,
    next: u64,
}

impl Tracks<'_> {
    fn pid(&self) -> i32 {
        i32::try_from(self.base / TRACKS * THREADS).unwrap_or(i32::MAX)
    }

    fn process(&self) -> TrackDescriptor {
        let sheet = self.sheet;
        let mut name = sheet.machine.to_string();
        if !sheet.variant.is_empty() {
            name = format!("{name} {}", sheet.variant);
        }
        name += &format!(", round {}, trial {}", sheet.round + 1, sheet.number);
        let process = ProcessDescriptor {
            pid: Some(self.pid()),
            process_name: Some(name),
        };
        TrackDescriptor {
            uuid: Some(self.base),
            process: Some(process),
            ..TrackDescriptor::default()
        }
    }

    /// The lane for a slice, and its description when it is new. Slices must come in the order in which they begin.
    fn lane(&mut self, drawn: &Drawn) -> (u64, Option<TrackDescriptor>) {
        let lanes = self.lanes.entry(drawn.place).or_default();
        if let Some((free, uuid)) = lanes.iter_mut().find(|(free, _)| *free <= drawn.begin) {
            *free = drawn.end;
            return (*uuid, None);
        }
        let uuid = self.base + self.next;
        self.next += 1;
        let first = lanes.is_empty();
        lanes.push((drawn.end, uuid));
        let name = drawn.place.name(self.sheet);
        let mut track = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(self.base),
            ..TrackDescriptor::default()
        };
        match drawn.place {
            Place::Thread(i) if first => {
                let thread = self.sheet.threads.get(usize::from(i));
                let tid = thread.map_or(0, |(_, tid)| *tid);
                track.thread = Some(ThreadDescriptor {
                    pid: Some(self.pid()),
                    tid: Some(self.pid().saturating_add(i32::from(i) + 1)),
                    thread_name: Some(format!("{name} (tid {tid})")),
                });
            }
            Place::Thread(_) => track.name = Some(format!("{name}, more at once")),
            _ => track.name = Some(name),
        }
        (uuid, Some(track))
    }
}

/// The part of Perfetto's trace format that is written here: the whole file, packet by packet. Field numbers are those of its
/// `protos/perfetto/trace`: `trace.proto`, `trace_packet.proto`,
/// `track_event/{track_event,track_descriptor,process_descriptor,thread_descriptor,debug_annotation}.proto`,
/// `interned_data/interned_data.proto`.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Time stamp of the packet, in ns.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// The sequence begins: nothing is interned yet.
pub const INCREMENTAL_STATE_CLEARED: u32 = 1;
/// The packet uses what was interned before.
pub const NEEDS_INCREMENTAL_STATE: u32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub event_categories: Vec<Interned>,
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Interned>,
}

/// `EventCategory` and `EventName` alike.
#[derive(Clone, PartialEq, Message)]
pub struct Interned {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "Kind", optional, tag = "9")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// Values of `TrackEvent.Type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

#[cfg(test)]
#[path = "perfetto_tests.rs"]
mod tests;
