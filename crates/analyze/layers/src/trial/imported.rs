//! Reads the traces of a guest's kernel and its host that other tools recorded: the requests of each of the guest's disks,
//! joined with what QEMU and the host's kernel tell of them.

use super::trial_data::Traces;
use super::vm_data::{Device, DiskData, facts};
use crate::error::LayersError;
use crate::events::clocks::clock;
use crate::events::trace_reader::{Trace, open};
use crate::join::joiner::Join;
use std::path::Path;
use vmtax_clock::ClockError;
use vmtax_model::{
    ClockFinding, DISK, GuestDisk, GuestTrace, Missing, Series, Side, TraceFacts, VmTrace, files,
};

/// The requests of the guest's disks.
pub(super) fn read_guest(
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
        .map(|disk| read_disk(trace, of_guest, disk, &guest, host))
        .collect()
}

fn read_disk(
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
    let owner = if of_guest.is_unknown_kernel {
        ""
    } else {
        "guest "
    };
    let name = format!("{owner}disk {major}:{minor}");
    let mut missing = Vec::new();
    let map = match clock(&facts, &Series::default(), Some(guest), host, &[], None) {
        Ok(map) => Some(map),
        // The guest's own part is valid alone.
        Err(LayersError::Offset(
            ClockError::NoEvidence | ClockError::Contradiction { .. } | ClockError::Jumped { .. },
        )) => {
            missing.push(unjoined(&name));
            None
        }
        Err(e) => return Err(e),
    };
    if host.is_none() {
        missing.push(unobserved(&name));
    }
    let host = host.filter(|_| map.is_some());
    let bound = map
        .as_ref()
        .map_or(0, |map| map.bound())
        .saturating_add(of_guest.bound);
    let ns = |ticks: u64| ticks as f64 * 1000.0 / trace.tsc_mhz;
    let source = match &map {
        None => "the guest's events alone".to_owned(),
        Some(_) if of_guest.is_on_host_clock => of_guest.source.clone(),
        Some(map) => map.source().to_string(),
    };
    let drift_ns = map.as_ref().map_or(0.0, |map| ns(map.moved()));
    let clock = ClockFinding {
        bound_ns: ns(bound),
        source,
        drift_ns,
        violations: 0,
    };

    let traces = Traces {
        guest: Some(guest),
        host,
        log: Vec::new(),
        map: map.as_ref(),
        clock,
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

fn unobserved(name: &str) -> Missing {
    Missing {
        what: format!("KVM, QEMU and the host's kernel beneath {name}"),
        why: "the guest's events alone are used, which do not distinguish them".to_owned(),
        fix: "give QEMU's trace (`-trace 'virtio_blk_*'`) and the host's, too".to_owned(),
    }
}

fn unjoined(name: &str) -> Missing {
    Missing {
        what: format!("QEMU and the host beneath {name}"),
        why: "nothing in the files bounds the offset between the clocks of guest and host".to_owned(),
        fix: "record both with `trace-cmd record -A GUEST`, or QEMU's virtio_blk events with the host's".to_owned(),
    }
}
