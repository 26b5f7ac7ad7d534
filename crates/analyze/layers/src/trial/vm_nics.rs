//! Reads the packets of a running VM's network cards, followed from the host alone.

use super::trial_data::Traces;
use super::vm_data::{Device, NicData, facts, unknown_kicks};
use crate::error::LayersError;
use crate::events::trace_reader::Trace;
use crate::join::joiner::Join;
use vmtax_model::{Accelerator, TraceFacts, TracedNic, VmTrace};

/// More are not followed: the trace is read once for each.
const MAX_NICS: usize = 16;

/// The cards with packets, and the taps of those without.
pub(super) fn read_nics(
    host: &Trace,
    trace: &VmTrace,
) -> Result<(Vec<NicData>, Vec<String>), LayersError> {
    let all = trace.nics.iter().take(MAX_NICS);
    let all = all
        .map(|traced| read_nic(host, trace, traced))
        .collect::<Result<Vec<_>, LayersError>>()?;
    let (nics, idle): (Vec<_>, Vec<_>) = all.into_iter().partition(|nic| {
        let joined = &nic.data.joined;
        !(joined.requests.is_empty() && joined.rejected.is_empty())
    });
    let beyond = trace.nics.iter().skip(MAX_NICS);
    let beyond = beyond.map(|traced| format!("{} (not followed)", traced.nic.tap));
    let idle = idle.into_iter().map(|nic| nic.device.name).chain(beyond);
    Ok((nics, idle.collect()))
}

fn read_nic(host: &Trace, trace: &VmTrace, traced: &TracedNic) -> Result<NicData, LayersError> {
    let facts = TraceFacts {
        notify: traced.notify.clone(),
        ..facts(trace)
    };
    let tap = &traced.nic.tap;
    let join = Join::packets_from_host(&facts);
    let mut data = Traces::of_host(host).join(join, &facts, |readers, event| {
        readers.interface(event).is_some_and(|of| of != *tap)
    })?;
    let is_kvm = trace.vm.accelerator == Some(Accelerator::Kvm);
    data.missing
        .extend((is_kvm && traced.notify.is_empty()).then(|| {
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
