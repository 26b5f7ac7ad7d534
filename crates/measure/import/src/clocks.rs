//! Joins the clock of the guest's trace to that of its host's.

use crate::surveyed::Surveyed;
use vmtax_model::VmFacts;
use vmtax_trace::TimeShift;

/// Returns the time shift by which trace-cmd joined the guest's clock to that of this host.
pub(crate) fn time_shift<'a>(guest: &'a Surveyed, host: &Surveyed) -> Option<&'a TimeShift> {
    let id = host.file.dat()?.trace_id()?;
    guest
        .file
        .dat()?
        .time_shifts()
        .iter()
        .find(|shift| shift.peer == id)
}

/// Returns the offset that turns the guest's ticks of the time stamp counter into the host's: minus KVM's offset where
/// the host's trace has it, or 0 for a guest that reads the counter as it is; the first by which the guest's events
/// lie within the host's.
pub(crate) fn shared_tsc(guest: &Surveyed, host: &Surveyed, vm: &VmFacts) -> Option<i64> {
    if !(guest.file.counts_tsc() && host.file.counts_tsc()) {
        return None;
    }
    let (first, last) = host.survey.span?;
    let (begin, end) = guest.survey.span?;
    let of_vm = |(tid, _): &(&i32, &i64)| vm.threads.iter().any(|thread| thread.tid == **tid);
    let kvms = host
        .survey
        .tsc_offsets
        .iter()
        .filter(of_vm)
        .map(|(_, offset)| offset.wrapping_neg());
    kvms.chain([0]).find(|offset| {
        let host_ticks = |ticks: u64| ticks.checked_add_signed(*offset);
        host_ticks(begin)
            .zip(host_ticks(end))
            .is_some_and(|(begin, end)| first <= begin && end <= last)
    })
}

/// Ticks of one rate as those of another.
pub(crate) fn scaled(from: f64, to: f64) -> Box<dyn Fn(u32, u64) -> u64> {
    if (from - to).abs() < f64::EPSILON * to {
        return Box::new(|_, ticks| ticks);
    }
    let ratio = to / from;
    Box::new(move |_, ticks| (ticks as f64 * ratio) as u64)
}
