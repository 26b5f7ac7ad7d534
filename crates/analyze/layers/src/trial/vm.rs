//! Reads the trace of a running VM: the requests of each of its disks, joined from the host alone or with a guest's trace,
//! or the packets of its network cards.

use super::Traces;
use super::joined_trial::JoinedTrial;
use super::observed::GuestSide;
use super::open::{check, read_json};
use super::vm_data::{
    Device, DiskData, NicData, VmData, facts, is_placed, missing, name, no_descriptor,
    no_interrupts, no_room, no_steps, no_steps_of_packets, unjoined, unknown_kicks,
    unnamed_requests, unobserved, untraced,
};
use crate::LayersError;
use crate::events::clocks::clock;
use crate::events::decode::{Trace, each, open};
use crate::join::joiner::Join;
use crate::net::from_host::VmmPart;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_clock::{ClockError, ClockMap};
use vmtax_findings::{ClockFinding, RequestKind};
use vmtax_model::{
    Accelerator, Checkpoint, DISK, DiskBus, GuestDisk, GuestTrace, HostDisk, Machine, NETWORK,
    ObservedDisk, Series, Side, TraceFacts, TracedDisk, TracedNic, VmTrace, files,
};

/// More disks than this are not followed: the trace is read once for each.
const MAX_DISKS: usize = 64;

/// The requests of one disk of a running VM, or the packets of one network card.
#[derive(Debug, Clone)]
pub struct VmTrial {
    /// Machine that runs the VM.
    pub machine: Machine,
    /// The disk's name: libvirt's target, QEMU's ID of the device, else its path among QEMU's objects. Of a network card its tap.
    pub device: String,
    /// Requests of all kinds, joined.
    pub joined: JoinedTrial,
}

/// Joins the requests of a traced VM, device by device; those without requests are left out. `folder` has the files of
/// [`vmtax_model::files`].
///
/// # Errors
/// [`LayersError`] when a file cannot be read.
pub fn join_vm(folder: &Path) -> Result<Vec<VmTrial>, LayersError> {
    let VmData {
        trace, disks, nics, ..
    } = read_vm(folder)?;
    let machine = machine(&trace);
    let disks = disks.into_iter().map(|disk| (disk.device.name, disk.data));
    let nics = nics.into_iter().map(|nic| (nic.device.name, nic.data));
    let joined = |(device, data)| VmTrial {
        machine,
        device,
        joined: JoinedTrial::new(data),
    };
    Ok(disks.chain(nics).map(joined).collect())
}

/// A Linux guest stands for any: what it is the host does not know.
pub(crate) fn machine(trace: &VmTrace) -> Machine {
    if trace.vm.accelerator == Some(Accelerator::Tcg) {
        Machine::TCG
    } else {
        Machine::KVM
    }
}

pub(crate) fn read_vm(folder: &Path) -> Result<VmData, LayersError> {
    let path = folder.join(files::VM_TRACE);
    let trace: VmTrace = read_json(&path)?;
    check(&path, trace.schema, trace.tsc_mhz)?;
    let is_of_nics = !trace.nics.is_empty();
    let table = if is_of_nics { NETWORK } else { DISK };
    let host = open(&folder.join(files::HOST), table, Side::Host)?;
    let mut data = VmData {
        missing: trace.missing.clone(),
        trace,
        disks: Vec::new(),
        nics: Vec::new(),
        idle: Vec::new(),
        not_followed: Vec::new(),
        is_guest_traced: false,
        is_by_calls: false,
    };
    // A vhost worker makes no call, and needs no probe.
    let is_of_vhost = is_of_nics && data.trace.nics.iter().all(|traced| traced.nic.vhost);
    let hides = |host: &Trace| match is_of_nics {
        true => !is_of_vhost && !host.readers.tells_packets(),
        false => !host.readers.tells_devices(),
    };
    if data.trace.guest.is_none() && host.as_ref().is_some_and(hides) {
        data.is_by_calls = !data.trace.imported;
        data.missing.push(match (data.is_by_calls, is_of_nics) {
            (true, true) => no_steps_of_packets(data.trace.vm.vmm),
            (true, false) => no_steps(data.trace.vm.vmm),
            (false, _) => unnamed_requests(),
        });
    }
    if data.trace.full {
        data.missing.push(no_room(&data.trace));
    }
    match (&data.trace.guest, host) {
        (Some(guest), host) => data.disks = read_guest(folder, &data.trace, guest, host.as_ref())?,
        (None, None) => return Err(LayersError::no_trace(path)),
        (None, Some(host)) if is_of_nics => {
            let part = match (data.is_by_calls, data.trace.vm.vmm.is_qemu()) {
                (false, true) => VmmPart::Probes,
                (true, true) => VmmPart::QemuCalls,
                (_, false) => VmmPart::OtherCalls,
            };
            (data.nics, data.idle) = read_nics(&host, &data.trace, part)?;
        }
        (None, Some(host)) if data.is_by_calls => read_by_calls(&host, &mut data)?,
        (None, Some(host)) => read_disks(folder, &host, &mut data)?,
    }
    Ok(data)
}

/// Reads the requests of the VM's disks, from the guest's block layer on where its trace lies beside the host's.
fn read_disks(folder: &Path, host: &Trace, data: &mut VmData) -> Result<(), LayersError> {
    let trace = &data.trace;
    let devices = devices(host, trace)?;
    let with: Vec<(&String, Option<TracedDisk>)> = devices
        .keys()
        .map(|device| (device, known(device, trace, &devices).cloned()))
        .collect();
    let without = trace
        .disks
        .iter()
        .filter(|disk| !with.iter().any(|(_, known)| known.as_ref() == Some(disk)));
    let (idle, others): (Vec<&TracedDisk>, Vec<&TracedDisk>) = without
        .partition(|disk| disk.bus() != Some(DiskBus::Other) || host.readers.tells_accounts());
    let named = |disk: &TracedDisk| match disk.device.as_str() {
        "" => disk.disk.file.display().to_string(),
        device => name(device, Some(disk), trace),
    };
    data.idle = idle.into_iter().map(named).collect();
    data.not_followed = others.into_iter().map(named).collect();
    let untraced = data.not_followed.iter().map(|disk| untraced(disk));
    data.missing.extend(untraced);
    let guest = GuestSide::open(folder, trace, host, &with)?;
    for (number, (path, disk)) in with.into_iter().enumerate() {
        let device = TracedDevice {
            path,
            is_accounted: devices[path],
        };
        let of_guest = guest
            .as_ref()
            .and_then(|guest| Some((guest, guest.disk(number)?)));
        let mut disk = read_disk(host, trace, &device, disk, of_guest)?;
        if let Some(guest) = &guest {
            let (begin, end) = guest.window;
            let joined = &mut disk.data.joined;
            joined
                .requests
                .retain(|request| request.begin() >= begin && request.end() <= end);
            joined
                .rejected
                .retain(|request| request.begin >= begin && request.end <= end);
        }
        data.disks.push(disk);
    }
    data.is_guest_traced = guest.is_some();
    if let Some(guest) = guest {
        (data.trace.begin, data.trace.end) = guest.window;
        data.missing.extend(guest.missing);
    }
    Ok(())
}

/// Reads the requests of the VM's disks where no probe shows the VMM's own steps: by its system calls on their files.
fn read_by_calls(host: &Trace, data: &mut VmData) -> Result<(), LayersError> {
    let trace = &data.trace;
    for disk in trace.disks.iter().take(MAX_DISKS) {
        let name = name_of_disk(disk, trace);
        if disk.host.descriptors.is_empty() {
            data.missing.push(no_descriptor(&name));
            data.not_followed.push(name);
            continue;
        }
        let facts = TraceFacts {
            host_disk: disk.host.clone(),
            notify: disk.notify.clone(),
            ..facts(trace)
        };
        let join = Join::by_calls(&facts).may_lack(&[
            Checkpoint::QemuSubmit,
            Checkpoint::HostIssue,
            Checkpoint::HostComplete,
        ]);
        let mut joined = Traces::of_host(host).join(join, &facts, |_, _| false)?;
        if joined.joined.requests.is_empty() && joined.joined.rejected.is_empty() {
            data.idle.push(name);
            continue;
        }
        joined
            .missing
            .splice(..0, missing(&name, Some(disk), trace));
        let device = Device {
            name,
            known: Some(disk.clone()),
            is_from_host: true,
        };
        data.disks.push(DiskData {
            device,
            data: joined,
        });
    }
    let beyond = trace.disks.iter().skip(MAX_DISKS);
    data.not_followed
        .extend(beyond.map(|disk| name_of_disk(disk, trace)));
    Ok(())
}

/// A disk's name; the path of its file where neither the monitor nor the command line names its device.
fn name_of_disk(disk: &TracedDisk, trace: &VmTrace) -> String {
    let named = name(&disk.device, Some(disk), trace);
    if named.is_empty() {
        disk.disk.file.display().to_string()
    } else {
        named
    }
}

/// The disk that is this device of QEMU's.
fn known<'a>(
    device: &str,
    trace: &'a VmTrace,
    devices: &BTreeMap<String, bool>,
) -> Option<&'a TracedDisk> {
    let disks = &trace.disks;
    let known = disks.iter().find(|disk| disk.device == device);
    // One that is left on either side belongs to the other.
    let mut nameless = disks.iter().filter(|disk| disk.device.is_empty());
    let is_known = |device: &String| disks.iter().any(|disk| disk.device == *device);
    let unknown = || devices.keys().filter(|device| !is_known(device)).count();
    known.or_else(|| {
        let nameless_disk = nameless.next();
        nameless_disk.filter(|_| nameless.next().is_none() && unknown() == 1)
    })
}

/// QEMU's devices with requests, and whether their requests are those that QEMU accounts for, in place of those of
/// virtqueues. Virtio's disks have both, of which the former are not theirs alone.
fn devices(host: &Trace, trace: &VmTrace) -> Result<BTreeMap<String, bool>, LayersError> {
    let mut devices: BTreeMap<String, bool> = BTreeMap::new();
    each(host, |readers, event| {
        let Some(device) = readers.device(event) else {
            return;
        };
        let is_account = readers.is_account(event);
        let known = devices.get(&*device);
        if known.is_some_and(|accounted| !accounted || is_account) {
            return;
        }
        let bus = trace
            .disks
            .iter()
            .find(|disk| disk.device == *device)
            .and_then(TracedDisk::bus);
        // Of one that is not known the virtqueue counts, if it has any.
        let is_virtio = bus.map_or(device.ends_with(TracedDisk::VIRTIO_BACKEND), |bus| {
            bus != DiskBus::Other
        });
        let is_others = if is_account {
            is_virtio
        } else {
            bus == Some(DiskBus::Other)
        };
        if !is_others && (known.is_some() || devices.len() < MAX_DISKS) {
            devices.insert(device.into_owned(), is_account);
        }
    })?;
    Ok(devices)
}

/// A device of QEMU's that has requests.
struct TracedDevice<'a> {
    /// Path of the device among QEMU's objects.
    path: &'a str,
    /// True if its requests are those that QEMU accounts for.
    is_accounted: bool,
}

/// The requests of the disk that is this device; from the guest's block layer on, where that was traced.
fn read_disk(
    host: &Trace,
    trace: &VmTrace,
    device: &TracedDevice<'_>,
    disk: Option<TracedDisk>,
    of_guest: Option<(&GuestSide, &ObservedDisk)>,
) -> Result<DiskData, LayersError> {
    let known = disk.as_ref();
    let name = name(device.path, known, trace);
    let facts = TraceFacts {
        host_disk: known.map_or_else(HostDisk::default, |disk| disk.host.clone()),
        notify: known.map_or_else(Vec::new, |disk| disk.notify.clone()),
        guest_disk: of_guest.map(|(_, disk)| disk.disk.clone()),
        ..facts(trace)
    };
    let (join, traces) = match of_guest {
        None => (Join::from_host(&facts), Traces::of_host(host)),
        Some((guest, _)) => (
            Join::unstamped(&facts, guest.map.bound()),
            Traces {
                guest: Some(&guest.trace),
                map: Some(&guest.map),
                clock: guest.clock.clone(),
                ..Traces::of_host(host)
            },
        ),
    };
    let mut data = traces.join(join.may_lack(may_lack(known)), &facts, |readers, event| {
        // An account that tells no device is that of something else than a disk, as of a block job.
        let is_account = readers.is_account(event);
        readers.device(event).map_or(is_account, |of| {
            of != device.path || is_account != device.is_accounted
        })
    })?;
    data.missing.splice(..0, missing(&name, known, trace));
    let device = Device {
        name: of_guest.map_or(name.clone(), |(_, disk)| format!("{name} ({})", disk.name)),
        known: disk,
        is_from_host: of_guest.is_none(),
    };
    Ok(DiskData { device, data })
}

/// Checkpoints that a request to a disk may lack although most have them.
fn may_lack(disk: Option<&TracedDisk>) -> &'static [Checkpoint] {
    let is_placed = disk.is_some_and(|disk| is_placed(&disk.host));
    let is_direct = disk.is_some_and(|disk| disk.disk.direct == Some(true));
    match (is_placed, is_direct) {
        (true, true) => &[],
        // The page cache answers some.
        (true, false) => &[Checkpoint::HostIssue, Checkpoint::HostComplete],
        // Of several at once, which call is whose does not show.
        (false, _) => &[Checkpoint::HostCall],
    }
}

/// The requests of the disks of a guest whose kernel another tool traced, joined with what QEMU and the host's kernel tell of
/// them.
fn read_guest(
    folder: &Path,
    trace: &VmTrace,
    of_guest: &GuestTrace,
    host: Option<&Trace>,
) -> Result<Vec<DiskData>, LayersError> {
    let guest = open(&folder.join(files::GUEST), DISK, Side::Guest)?;
    let guest = guest.ok_or_else(|| LayersError::no_trace(folder.join(files::VM_TRACE)))?;
    of_guest
        .disks
        .iter()
        .map(|disk| read_guest_disk(trace, of_guest, disk, &guest, host))
        .collect()
}

fn read_guest_disk(
    trace: &VmTrace,
    of_guest: &GuestTrace,
    disk: &GuestDisk,
    guest: &Trace,
    host: Option<&Trace>,
) -> Result<DiskData, LayersError> {
    let facts = TraceFacts {
        kvm_offset: of_guest.is_on_host_clock.then_some(0),
        guest_disk: Some(disk.clone()),
        ..facts(trace)
    };
    let (major, minor) = (disk.device >> 20, disk.device & 0xf_ffff);
    let owner = match of_guest.is_unknown_kernel {
        true => "",
        false => "guest ",
    };
    let name = format!("{owner}disk {major}:{minor}");
    let map = clock(&facts, &Series::default(), Some(guest), host, &[], None);
    let map = match map {
        // The guest's own part is valid alone.
        Err(LayersError::Offset(
            ClockError::NoEvidence | ClockError::Contradiction { .. } | ClockError::Jumped { .. },
        )) => None,
        map => Some(map?),
    };
    let mut missing = Vec::new();
    missing.extend(map.is_none().then(|| unjoined(&name)));
    missing.extend(host.is_none().then(|| unobserved(&name)));
    let host = host.filter(|_| map.is_some());
    let bound = map.as_ref().map_or(0, ClockMap::bound);
    let bound = bound.saturating_add(of_guest.bound);
    let traces = Traces {
        guest: Some(guest),
        host,
        log: Vec::new(),
        map: map.as_ref(),
        clock: imported_clock(trace, of_guest, map.as_ref(), bound),
    };
    let mut data = traces.join(Join::unstamped(&facts, bound), &facts, |_, _| false)?;
    data.missing.splice(..0, missing);
    let device = Device {
        name,
        known: None,
        is_from_host: false,
    };
    Ok(DiskData { device, data })
}

/// The common clock of a guest and its host that other tools traced, with its bound in ticks.
fn imported_clock(
    trace: &VmTrace,
    of_guest: &GuestTrace,
    map: Option<&ClockMap>,
    bound: u64,
) -> ClockFinding {
    let ns = |ticks: u64| ticks as f64 * 1000.0 / trace.tsc_mhz;
    let source = match map {
        None => "the guest's events alone".to_owned(),
        Some(_) if of_guest.is_on_host_clock => of_guest.source.clone(),
        Some(map) => map.source().to_string(),
    };
    ClockFinding {
        bound_ns: ns(bound),
        source,
        drift_ns: map.map_or(0.0, |map| ns(map.moved())),
        violations: 0,
    }
}

/// More network cards than this are not followed: the trace is read once for each.
const MAX_NICS: usize = 16;

/// The cards with packets, and the taps of those without.
fn read_nics(
    host: &Trace,
    trace: &VmTrace,
    part: VmmPart,
) -> Result<(Vec<NicData>, Vec<String>), LayersError> {
    let all = trace.nics.iter().take(MAX_NICS);
    let all = all
        .map(|traced| read_nic(host, trace, traced, part))
        .collect::<Result<Vec<_>, LayersError>>()?;
    let (nics, idle): (Vec<_>, Vec<_>) = all.into_iter().partition(|nic| {
        let joined = &nic.data.joined;
        !(joined.requests.is_empty() && joined.rejected.is_empty())
    });
    let beyond = trace.nics.iter().skip(MAX_NICS);
    let beyond = beyond.map(|traced| format!("{} (not traced)", traced.nic.tap));
    let idle = idle.into_iter().map(|nic| nic.device.name).chain(beyond);
    Ok((nics, idle.collect()))
}

fn read_nic(
    host: &Trace,
    trace: &VmTrace,
    traced: &TracedNic,
    part: VmmPart,
) -> Result<NicData, LayersError> {
    let facts = TraceFacts {
        notify: traced.notify.clone(),
        tap: traced.descriptors.clone(),
        ..facts(trace)
    };
    let tap = &traced.nic.tap;
    let join = Join::packets_from_host(&facts, part);
    let mut data = Traces::of_host(host).join(join, &facts, |readers, event| {
        readers.interface(event).is_some_and(|of| of != *tap)
    })?;
    let received = data.joined.requests.iter();
    let mut received = received.filter(|packet| packet.kind == RequestKind::Receive);
    let is_by_calls = part != VmmPart::Probes && !traced.nic.vhost;
    if is_by_calls && received.clone().next().is_some() {
        let is_told = received.any(|packet| packet.at(Checkpoint::NetInject).is_some());
        data.missing.extend((!is_told).then(|| no_interrupts(tap)));
    }
    // Only QEMU's monitor is asked.
    let is_known_by_monitor =
        trace.vm.accelerator == Some(Accelerator::Kvm) && trace.vm.vmm.is_qemu();
    data.missing
        .extend((is_known_by_monitor && traced.notify.is_empty()).then(|| {
            unknown_kicks(
                &format!("the card on {tap}"),
                "no QMP monitor tells their addresses",
            )
        }));
    let device = Device {
        name: tap.clone(),
        known: traced.nic.clone(),
        is_from_host: true,
    };
    Ok(NicData { device, data })
}
