//! `exits --vm`: which VM exits a running VM makes.

use super::profile::exits;
use crate::engine::{Notice, Report};
use crate::number::{count, nanoseconds, percent};
use crate::text::when;
use crate::view::{host, origin, vm};
use vmtax_model::{ExitAddress, ExitReason, VmExits};
use vmtax_recording::Recording;

/// The report.
pub fn report<'a>(recording: &'a Recording, found: &'a VmExits) -> Report<'a> {
    let origin = origin(recording);
    Report {
        study: "profile",
        title: format!("VM exits of {}", vm::name(&found.vm)),
        basis: [vm::basis(&found.vm), vec![when(&recording.manifest.started)], host(recording)].concat(),
        answer: answer(found),
        next: vec![format!("{} --details", origin.command), format!("vmtax profile --vm {}", found.vm.pid)],
        advice: found.exits.advice.clone(),
        notices: vec![Notice::missing("Not observed", vm::missing(found.missing.iter()))],
        sections: vec![exits::section(&found.exits)],
        method: exits::method(&found.exits),
        origin,
        ..Report::default()
    }
}

/// How many there are, what they take, and which take most of it.
fn answer(found: &VmExits) -> String {
    let (name, exits) = (vm::name(&found.vm), &found.exits);
    if exits.reasons.is_empty() {
        let counted = exits.counters.get("exits").copied().unwrap_or(0);
        let per_s = counted as f64 / exits.seconds.max(f64::MIN_POSITIVE);
        return format!("{name} makes {} VM exits a second, by KVM's counters.", count(per_s.round() as u64));
    }
    let per_s: f64 = exits.vcpus.iter().map(|vcpu| vcpu.per_s).sum();
    let of_time = |ns: f64| percent(ns / 1e9 / exits.seconds.max(f64::MIN_POSITIVE) / exits.vcpus.len().max(1) as f64);
    let total: f64 = exits.vcpus.iter().map(|vcpu| vcpu.total_ns).sum();
    let most = exits.reasons.iter().max_by(|a, b| a.exits.total_ns.total_cmp(&b.exits.total_ns));
    let most =
        most.filter(|reason| reason.exits.total_ns > 0.0).map_or(String::new(), |reason| reason_text(reason, &of_time));
    let device = exits.addresses.iter().filter(|a| !a.device.is_empty());
    // Where none has a time, the most frequent.
    let most_of = |exit: &ExitAddress| (exit.exits.total_ns, exit.exits.count as f64);
    let device = device.max_by(|a, b| most_of(a).partial_cmp(&most_of(b)).unwrap_or(std::cmp::Ordering::Equal));
    let device = device.map_or(String::new(), device_text);
    let took = if total > 0.0 {
        format!("; those with a known time take {} of its vCPUs' time", of_time(total))
    } else {
        String::new()
    };
    format!("{name} makes {} VM exits a second{took}.{most}{device}", count(per_s.round() as u64))
}

fn reason_text(reason: &ExitReason, of_time: &dyn Fn(f64) -> String) -> String {
    let mean = reason.exits.mean_ns.map_or(String::new(), |ns| format!(", {} each", nanoseconds(ns)));
    format!(
        " Most of it is {}: {}/s{mean}, {}.",
        reason.reason,
        count(reason.exits.per_s.round() as u64),
        of_time(reason.exits.total_ns)
    )
}

fn device_text(exit: &ExitAddress) -> String {
    let register = if exit.register.is_empty() { String::new() } else { format!(", {}", exit.register) };
    let access = if exit.write { "writes" } else { "reads" };
    format!(
        " Of devices, {access} of {}{register} take most: {}/s.",
        exit.device,
        count(exit.exits.per_s.round() as u64)
    )
}
