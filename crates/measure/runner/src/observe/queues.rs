//! Requests that stay in the virtqueues of a running VM, read from the guest's memory: without its monitor, and of any VMM.

use super::observer::{Stop, wait};
use std::time::{Duration, Instant};
use vmtax_model::{Missing, StalledQueue};
use vmtax_vmm::ring::{BlockRequest, Operation, Virtqueue, Virtqueues};

/// Time between two samples of the queues.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// A healthy disk completes a request sooner.
const MIN_STALL: Duration = Duration::from_secs(1);

/// Finds the virtqueues of a VM.
///
/// # Errors
/// [`Missing`] where the memory of its process cannot be read, or not all of it was.
pub(super) fn find(pid: i32) -> Result<Virtqueues, Missing> {
    let not_known = |why: String, fix: &str| Missing {
        what: "requests that stay in virtqueues".to_owned(),
        why,
        fix: fix.to_owned(),
    };
    let queues = Virtqueues::find(pid).map_err(|error| {
        let why = format!("the memory of process {pid} cannot be read ({error})");
        not_known(why, "run vmtax as root")
    })?;
    match queues.searched().is_complete {
        true => Ok(queues),
        false => Err(not_known(
            format!("the memory of process {pid} is too large to be searched for them"),
            "",
        )),
    }
}

/// Samples the virtqueues of a VM until the time has passed or `stop` says so. Returns those of disks in which requests stayed for a
/// second and more until the end.
pub(super) fn stalled(
    mut queues: Virtqueues,
    time: Duration,
    stop: &Stop<'_>,
) -> Vec<StalledQueue> {
    let begun = Instant::now();
    let left = || time.saturating_sub(begun.elapsed());
    while !left().is_zero() && !stop() {
        wait(SAMPLE_INTERVAL.min(left()), stop);
        queues.sample();
    }
    queues.confirmed().iter().filter_map(of_disk).collect()
}

/// A queue of a disk, if requests stay in it.
fn of_disk(queue: &Virtqueue) -> Option<StalledQueue> {
    let (time, requests) = queue.stall.filter(|(time, _)| *time >= MIN_STALL)?;
    queue.is_disk.then(|| StalledQueue {
        requests,
        seconds: time.as_secs_f64(),
        since_empty: queue.since_empty,
        // Those that came later are not among them.
        operations: queue
            .requests
            .as_deref()
            .filter(|all| all.len() == requests as usize)
            .map(operations),
    })
}

/// Numbers of reads, writes, flushes and others.
fn operations(requests: &[BlockRequest]) -> [u32; 4] {
    use Operation::{Flush, Other, Read, Write};
    [Read, Write, Flush, Other].map(|operation| {
        let same = requests.iter();
        same.filter(|request| request.operation == operation)
            .count() as u32
    })
}
