//! Threads of a VM as rows: each vCPU, each thread that stays, and the others by their role.

use vmtax_findings::{ThreadRates, VmRates};
use vmtax_model::Role;
use vmtax_model::number::{NONE, percent};

/// Heads of the columns of [`rows`].
pub(crate) const HEADS: &str = "thread|TID|%RUN|%RDY|%THR";

/// A row for each vCPU by its number, for the main loop and each iothread, then one for all threads of each other role, the busiest
/// first; of several threads the sums.
pub(crate) fn rows(vm: &VmRates) -> Vec<Vec<String>> {
    let mut roles: Vec<(&Role, Vec<&ThreadRates>)> = Vec::new();
    for thread in &vm.threads {
        match roles.iter_mut().find(|(role, _)| **role == thread.role) {
            Some((_, threads)) => threads.push(thread),
            None => roles.push((&thread.role, vec![thread])),
        }
    }
    roles.sort_by_key(|(role, _)| match role {
        Role::Vcpu(number) => (0, *number),
        Role::Main => (1, 0),
        Role::Iothread(_) => (2, 0),
        _ => (3, 0),
    });
    roles
        .iter()
        .map(|(role, threads)| row(role, threads))
        .collect()
}

fn row(role: &Role, threads: &[&ThreadRates]) -> Vec<String> {
    let sum = |part: fn(&ThreadRates) -> f64| percent(threads.iter().map(|one| part(one)).sum());
    let throttled = threads.iter().map(|thread| thread.throttled);
    let throttled: Option<f64> = throttled.sum();
    let tid = match threads {
        [one] => one.tid.to_string(),
        several => format!("{} threads", several.len()),
    };
    vec![
        role.label(),
        tid,
        sum(|thread| thread.run),
        sum(|thread| thread.ready),
        throttled.map_or(NONE.to_owned(), percent),
    ]
}

/// Reason for "–" of %THR of a thread; `None` where each is known, or the VM's is not known either, which has its own reason.
pub(crate) fn why_no_throttling(vm: &VmRates) -> Option<String> {
    let is_unknown = vm.threads.iter().any(|thread| thread.throttled.is_none());
    vm.throttled.filter(|_| is_unknown).map(|throttled| {
        let throttled = percent(throttled);
        format!(
            "%THR of threads: the kernel counts the throttling of a control group once for all its threads; of the vCPUs together it is {throttled}"
        )
    })
}
