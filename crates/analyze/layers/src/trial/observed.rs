//! The trace that `vmtax agent observe` made in a running VM's guest, beside the trace of its host.

use super::open::read_json;
use super::shared_requests::{NotShared, SharedClock, SharedRequests, Span};
use super::vm_data::facts;
use crate::LayersError;
use crate::disk::{Ended, GuestRequest, InDevice, InFlight, NOWHERE};
use crate::events::GuestEvent;
use crate::events::decode::{Trace, each, open};
use std::collections::HashMap;
use std::path::Path;
use vmtax_clock::{ClockMap, GuestTicks};
use vmtax_findings::{ClockFinding, RequestKind};
use vmtax_model::{
    DISK, Missing, ObservedDisk, ObservedGuest, Side, TraceFacts, TracedDisk, VmTrace, files,
};

/// A guest's trace, joined with its host's.
pub(super) struct GuestSide {
    pub trace: Trace,
    pub map: ClockMap,
    pub clock: ClockFinding,
    /// When both traced, host ticks.
    pub window: (u64, u64),
    pub missing: Vec<Missing>,
    /// Disks of the guest by the number of QEMU's device.
    disks: HashMap<usize, ObservedDisk>,
}

impl GuestSide {
    /// The guest's disk that is QEMU's device of this number.
    pub fn disk(&self, device: usize) -> Option<&ObservedDisk> {
        self.disks.get(&device)
    }

    /// Opens the trace of a guest that lies beside that of its host, if there is one. `devices` are QEMU's, with what is known of
    /// each.
    pub fn open(
        folder: &Path,
        trace: &VmTrace,
        host: &Trace,
        devices: &[(&String, Option<TracedDisk>)],
    ) -> Result<Option<GuestSide>, LayersError> {
        let path = folder.join(files::GUEST_FACTS);
        if !path.exists() {
            return Ok(None);
        }
        let guest: ObservedGuest = read_json(&path)?;
        let of_guest = open(&folder.join(files::GUEST), DISK, Side::Guest)?;
        let of_guest = of_guest.ok_or(LayersError::GuestTrace("it has no events"))?;
        let requests = guest_requests(&of_guest, trace, &guest.disks)?;
        let on_host = host_requests(host, trace, devices)?;
        let shared = SharedRequests::new(&requests, &on_host, trace.begin..trace.end);
        let SharedClock { map, source } = shared
            .clock(trace.kvm_offset)
            .map_err(|why| LayersError::GuestTrace(reason(why)))?;
        let host_ticks = |ticks| map.host(GuestTicks(ticks)).0;
        let window = (
            trace.begin.max(host_ticks(guest.begin)),
            trace.end.min(host_ticks(guest.end)),
        );
        let disks = same_disks(&shared, &map, &guest.disks, devices);
        let bound_ns = map.bound() as f64 * 1000.0 / trace.tsc_mhz;
        let clock = ClockFinding {
            bound_ns,
            source,
            ..ClockFinding::default()
        };
        let mut missing = guest.missing;
        missing.extend(guest.full.then(|| Missing {
            what: "requests at the end".to_owned(),
            why: "the guest's trace had reached the most bytes that are kept".to_owned(),
            fix: "choose a shorter --duration of `vmtax agent observe`".to_owned(),
        }));
        Ok(Some(GuestSide {
            trace: of_guest,
            map,
            clock,
            window,
            missing,
            disks,
        }))
    }
}

fn reason(why: NotShared) -> &'static str {
    match why {
        NotShared::NoRequest => {
            "no disk of the guest on virtio-blk or virtio-scsi had a request while it traced"
        }
        NotShared::NothingInCommon => {
            "it has no requests in common with the host's: it is of another VM, or they did not trace at the same time"
        }
        NotShared::Ambiguous => {
            "the guest repeats the same requests, so which is which on the host does not show: trace for longer"
        }
    }
}

/// The guest's disks by the number of QEMU's device that each is: by the address of its doorbell; where QEMU does not tell
/// that, or several disks have one controller, by its requests.
fn same_disks(
    shared: &SharedRequests<'_>,
    map: &ClockMap,
    disks: &[ObservedDisk],
    devices: &[(&String, Option<TracedDisk>)],
) -> HashMap<usize, ObservedDisk> {
    let mut same = HashMap::new();
    for (number, disk) in disks.iter().enumerate() {
        let has_doorbell = |known: &TracedDisk| {
            let is_within = |(first, length): &(u64, u64), at: u64| {
                at.checked_sub(*first).is_some_and(|at| at < *length)
            };
            known
                .notify
                .iter()
                .any(|(at, _)| disk.regions.iter().any(|region| is_within(region, *at)))
        };
        let with_doorbell = |(number, (_, known)): (usize, &(&String, Option<TracedDisk>))| {
            known.as_ref().is_some_and(has_doorbell).then_some(number)
        };
        let mut ring = devices.iter().enumerate().filter_map(with_doorbell);
        let rings = ring.next().filter(|_| ring.next().is_none());
        let shown = || {
            shared
                .shown_by_disk(number, map)
                .into_iter()
                .max_by_key(|(_, count)| *count)
        };
        if let Some(device) = rings.or_else(|| shown().map(|(device, _)| device)) {
            same.entry(device).or_insert_with(|| disk.clone());
        }
    }
    same
}

/// The reads and writes of each of the guest's disks.
fn guest_requests(
    guest: &Trace,
    trace: &VmTrace,
    disks: &[ObservedDisk],
) -> Result<Vec<Span>, LayersError> {
    let mut spans = Vec::new();
    for (number, disk) in disks.iter().enumerate() {
        let facts = TraceFacts {
            guest_disk: Some(disk.disk.clone()),
            ..facts(trace)
        };
        let mut in_flight = InFlight::default();
        each(guest, |readers, event| {
            let event = readers.guest(event, &facts);
            match event.what {
                GuestEvent::Issue {
                    offset,
                    bytes,
                    kind,
                } => in_flight.issue(offset, bytes, kind, event.moment()),
                GuestEvent::Complete { offset } => {
                    spans.extend(
                        in_flight
                            .complete(offset, event.moment())
                            .and_then(|request| span(&request, number)),
                    );
                }
                _ => {}
            }
        })?;
    }
    Ok(spans)
}

/// The reads and writes of each of QEMU's devices.
fn host_requests(
    host: &Trace,
    trace: &VmTrace,
    devices: &[(&String, Option<TracedDisk>)],
) -> Result<Vec<Span>, LayersError> {
    let facts = facts(trace);
    let mut in_device: Vec<InDevice> = devices.iter().map(|_| InDevice::default()).collect();
    let mut spans = Vec::new();
    each(host, |readers, event| {
        let device = readers.device(event);
        let event = readers.host(event, &facts);
        // A push does not tell: only the device that popped the request's address has it.
        for (number, (path, _)) in devices.iter().enumerate() {
            if device.as_ref().is_none_or(|device| *device == **path) {
                if let Some(Ended::Done(request)) = in_device[number].take(&event) {
                    spans.extend(span(&request, number));
                }
            }
        }
    })?;
    Ok(spans)
}

fn span(request: &GuestRequest, disk: usize) -> Option<Span> {
    let GuestRequest {
        offset,
        kind,
        issue,
        complete,
        ..
    } = *request;
    let is_somewhere = offset != NOWHERE && matches!(kind, RequestKind::Read | RequestKind::Write);
    (is_somewhere && issue.at <= complete.at).then_some(Span {
        offset,
        begin: issue.at,
        end: complete.at,
        disk,
    })
}
