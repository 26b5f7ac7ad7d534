//! QEMU's latency histograms of disks: `block-latency-histogram-set`, by the path of the disk's device.

use super::counters::{KINDS, histogram};
use super::monitor::Monitor;
use crate::MachineError;
use serde_json::{Value, json};

const COMMAND: &str = "block-latency-histogram-set";
/// The first bin ends here, ns; each further one a quarter later, up to ten seconds.
const FIRST: u64 = 10_000;
const LAST: u64 = 10_000_000_000;

/// Where bins end, ns. No other program sets exactly these, so they tell which histograms are ours.
fn boundaries() -> Vec<u64> {
    std::iter::successors(Some(FIRST), |end| Some(end + end / 4))
        .take_while(|end| *end < LAST)
        .collect()
}

/// The devices of disks that have no histogram.
///
/// # Errors
/// [`MachineError::Monitor`].
pub(crate) fn unset_disks(monitor: &Monitor) -> Result<Vec<String>, MachineError> {
    Ok(devices(&monitor.execute("query-blockstats")?, |stats| {
        KINDS.iter().all(|kind| histogram(stats, kind).is_none())
    }))
}

/// Sets histograms of these disks.
///
/// # Errors
/// [`MachineError::Monitor`] with what QEMU refused.
pub(crate) fn set(monitor: &Monitor, disks: &[String]) -> Result<(), MachineError> {
    let all = disks
        .iter()
        .map(|disk| (COMMAND, json!({ "id": disk, "boundaries": boundaries() })));
    monitor
        .execute_all(&all.collect::<Vec<_>>())?
        .into_iter()
        .try_for_each(|answer| answer.map(|_| ()))
}

/// Removes the histograms of these disks, as far as they are still those that [`set`] sets.
///
/// # Errors
/// [`MachineError::Monitor`] where the monitor does not answer.
pub(crate) fn remove(monitor: &Monitor, disks: &[String]) -> Result<(), MachineError> {
    let own = boundaries();
    let is_own = |stats: &Value| {
        KINDS
            .iter()
            .any(|kind| histogram(stats, kind).is_some_and(|set| set.boundaries == own))
    };
    let ours = devices(&monitor.execute("query-blockstats")?, is_own);
    let all = disks
        .iter()
        .filter(|disk| ours.contains(disk))
        .map(|disk| (COMMAND, json!({ "id": disk })));
    monitor.execute_all(&all.collect::<Vec<_>>()).map(|_| ())
}

/// The devices of `query-blockstats` whose statistics are so.
fn devices(answer: &Value, is_so: impl Fn(&Value) -> bool) -> Vec<String> {
    let device = |entry: &Value| {
        let path = entry["qdev"].as_str().filter(|path| !path.is_empty())?;
        is_so(entry.get("stats")?).then(|| path.to_owned())
    };
    answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(device)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_narrow_and_reach_from_microseconds_to_seconds() {
        let ends = boundaries();
        assert_eq!((ends.len(), ends[0]), (62, FIRST));
        assert!(
            ends.windows(2)
                .all(|pair| pair[1] > pair[0] && pair[1] <= pair[0] * 5 / 4)
        );
        assert!(ends[ends.len() - 1] * 5 / 4 >= LAST);
    }

    #[test]
    fn disks_without_a_device_are_left_out() {
        let set = json!({ "bins": [0, 0], "boundaries": [5] });
        let answer = json!([{ "qdev": "/a", "stats": {} }, { "qdev": "", "stats": {} },
            { "qdev": "/b", "stats": { "wr_latency_histogram": set } }]);
        assert_eq!(
            devices(&answer, |stats| histogram(stats, "wr").is_none()),
            ["/a"]
        );
    }
}
