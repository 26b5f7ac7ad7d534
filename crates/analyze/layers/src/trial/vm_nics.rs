//! Reads the packets of a running VM's network cards, followed from the host alone.

use super::open::feed;
use super::vm_data::{NicData, facts};
use crate::error::LayersError;
use crate::events::event::{Event, HostEvent};
use crate::events::trace_reader::{Trace, TraceReader, next};
use crate::join::joiner::Join;
use vmtax_model::{Accelerator, Missing, TraceFacts, TracedNic, VmTrace};

/// More are not followed: the trace is read once for each.
const MAX_NICS: usize = 16;

/// The cards with packets, and the taps of those without.
pub(super) fn read_nics(
    host: &Trace,
    trace: &VmTrace,
) -> Result<(Vec<NicData>, Vec<String>), LayersError> {
    let all = trace
        .nics
        .iter()
        .take(MAX_NICS)
        .map(|traced| read_nic(host, trace, traced));
    let all = all.collect::<Result<Vec<NicData>, LayersError>>()?;
    let has_packets =
        |data: &NicData| !(data.joined.requests.is_empty() && data.joined.rejected.is_empty());
    let (nics, idle): (Vec<NicData>, Vec<NicData>) = all.into_iter().partition(has_packets);
    let beyond = trace
        .nics
        .iter()
        .skip(MAX_NICS)
        .map(|traced| format!("{} (not followed)", traced.nic.tap));
    Ok((
        nics,
        idle.into_iter()
            .map(|data| data.nic.tap)
            .chain(beyond)
            .collect(),
    ))
}

fn read_nic(host: &Trace, trace: &VmTrace, traced: &TracedNic) -> Result<NicData, LayersError> {
    let facts = TraceFacts {
        notify: traced.notify.clone(),
        ..facts(trace)
    };
    let mut join = Join::packets_from_host(&facts);
    let mut side = Some(TraceReader::begin(host, |ticks| ticks)?);
    let mut pull = || {
        next(&mut side, |readers, event| {
            let is_other = readers
                .interface(event)
                .is_some_and(|of| of != traced.nic.tap);
            let found = readers.host(event, &facts);
            if is_other {
                Event {
                    what: HostEvent::Other,
                    ..found
                }
            } else {
                found
            }
        })
    };
    // The guest does not trace.
    feed::<fn(u64) -> u64>(&mut join, &facts, &mut None, &mut pull)?;
    let (mut losses, mut missing) = (Vec::new(), Vec::new());
    if let Some(side) = side {
        side.end(&mut losses, &mut missing);
    }
    let is_kvm = trace.vm.accelerator == Some(Accelerator::Kvm);
    missing
        .extend((is_kvm && traced.notify.is_empty()).then(|| unknown_doorbells(&traced.nic.tap)));
    Ok(NicData {
        nic: traced.nic.clone(),
        joined: join.finish(),
        losses,
        missing,
    })
}

fn unknown_doorbells(tap: &str) -> Missing {
    Missing {
        what: format!("virtqueue kicks of the card on {tap}"),
        why: "no QMP monitor tells their addresses, so a kick shows by the thread that it wakes"
            .to_owned(),
        fix: "give QEMU a QMP socket, and trace once the guest is up".to_owned(),
    }
}
