//! Counters that QEMU's monitor has of its VM: requests of disks with their latency histograms, VM exits, the balloon, and
//! whether the guest runs.

use super::conversation::items;
use super::disks::name_of;
use super::libvirt::Answers;
use super::monitor::{Monitor, qom_get};
use crate::VmmError;
use serde_json::{Value, json};
use vmtax_model::{
    Counter, CounterMap, CounterSource, DiskCounters, LatencyHistogram, RequestCounters, RunState,
};

/// Kinds of requests, as the keys of `query-blockstats` begin.
pub(super) const KINDS: [&str; 3] = ["rd", "wr", "flush"];
/// The last part of the path of a virtio device's own object.
const BACKEND: &str = "/virtio-backend";
/// More queues of a disk are not asked for.
const MAX_QUEUES: u64 = 64;

/// Data that a monitor is asked for besides the disks' counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// KVM runs the guest.
    pub kvm: bool,
    /// It has a balloon.
    pub balloon: bool,
    /// Virtio disks by the path of their object, with the number of their queues: asked for the requests in flight.
    pub queues: Vec<(String, u64)>,
}

/// Asks for the counters in one conversation. What this QEMU does not have is absent.
///
/// # Errors
/// [`VmmError::Monitor`] where the monitor does not answer.
pub fn counters(monitor: &Monitor, questions: &Questions) -> Result<Answers, VmmError> {
    let mut commands = vec![("query-status", json!({})), ("query-blockstats", json!({}))];
    if questions.kvm {
        let names = Counter::all().flat_map(|counter| match counter.source {
            CounterSource::Kvm(stats) => stats,
            _ => &[],
        });
        let names: Vec<&str> = names.copied().collect();
        let providers = json!([{ "provider": "kvm", "names": names }]);
        let of_vcpus = json!({ "target": "vcpu", "providers": providers });
        commands.push(("query-stats", of_vcpus));
    }
    if questions.balloon {
        commands.push(("query-balloon", json!({})));
    }
    for (path, queues) in &questions.queues {
        commands.extend((0..*queues).map(|queue| of_queue(path, queue)));
    }
    let all = monitor.execute_all(&commands)?;
    let mut answers = Answers::default();
    let (mut disks_by_path, mut in_flight) = (Vec::new(), Vec::new());
    for ((command, arguments), answer) in commands.iter().zip(all) {
        // A disk that was unplugged, a balloon without its driver.
        let Ok(answer) = answer else { continue };
        match *command {
            "query-status" => answers.state = run_state(&answer),
            "query-blockstats" => disks_by_path = disks(&answer),
            "query-stats" => answers.counters.add(kvm(&answer)),
            "query-balloon" => {
                let bytes = answer["actual"].as_u64();
                let balloon = CounterMap::of(CounterSource::Balloon, bytes);
                answers.counters.add(balloon);
            }
            _ => in_flight.extend(arguments["path"].as_str().zip(answer["inuse"].as_u64())),
        }
    }
    let with_queues = |(path, disk): (String, DiskCounters)| {
        let of_disk = in_flight.iter().filter(|(of_queue, _)| *of_queue == path);
        let of_disk = of_disk.map(|(_, count)| *count);
        DiskCounters {
            in_flight: of_disk.reduce(u64::saturating_add),
            ..disk
        }
    };
    answers.disks = disks_by_path.into_iter().map(with_queues).collect();
    Ok(answers)
}

/// Returns the disks on virtio-blk with the number of their queues, where QEMU counts requests in flight (it does since
/// 7.2). Not by `x-query-virtio-status`, which ends a QEMU 11.1.3 by a failed assertion.
pub fn queues(monitor: &Monitor) -> Vec<(String, u64)> {
    let Ok(stats) = monitor.execute("query-blockstats") else {
        return Vec::new();
    };
    let of_virtio = disks(&stats)
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.ends_with(BACKEND));
    let queues = |path: String| {
        let property = |name| qom_get(&path, name);
        let commands = [property("type"), property("num-queues"), of_queue(&path, 0)];
        let answers = monitor.execute_all(&commands).ok()?;
        let [Ok(kind), Ok(queues), Ok(_)] = answers.as_slice() else {
            return None;
        };
        let queues = queues.as_u64().filter(|_| kind == "virtio-blk-device")?;
        Some((path, queues.min(MAX_QUEUES)))
    };
    of_virtio.filter_map(queues).collect()
}

/// The command that tells the requests in flight of one queue of a disk, by the path of the disk's object.
fn of_queue(path: &str, queue: u64) -> (&'static str, Value) {
    let arguments = json!({ "path": path, "queue": queue });
    ("x-query-virtio-queue-status", arguments)
}

pub(crate) fn run_state(answer: &Value) -> Option<RunState> {
    match answer["running"].as_bool()? {
        true => Some(RunState::Running),
        false => Some(RunState::Stopped(
            answer["status"].as_str().unwrap_or("stopped").to_owned(),
        )),
    }
}

/// Returns the disks of `query-blockstats`, those of devices and others that were used, each with the path of its device's object.
fn disks(answer: &Value) -> Vec<(String, DiskCounters)> {
    let disk = |entry: &Value| {
        let stats = entry.get("stats")?;
        let counter =
            |kind: &str, what: &str| stats[format!("{kind}_{what}")].as_u64().unwrap_or(0);
        let requests = KINDS.map(|kind| RequestCounters {
            count: counter(kind, "operations"),
            bytes: counter(kind, "bytes"),
            total_ns: counter(kind, "total_time_ns"),
        });
        let path = entry["qdev"].as_str().unwrap_or_default();
        let is_used = requests.iter().any(|requests| requests.count > 0);
        let histograms = KINDS
            .map(|kind| histogram(stats, kind))
            .into_iter()
            .collect();
        let name = name_of(&entry["qdev"], &entry["device"], &entry["node-name"]);
        let counters = DiskCounters {
            name,
            qemu: Some(requests),
            histograms,
            ..DiskCounters::default()
        };
        (is_used || !path.is_empty()).then(|| (path.to_owned(), counters))
    };
    items(answer).filter_map(disk).collect()
}

/// A histogram of one kind of requests; `None` where it is not set, or is none.
pub(super) fn histogram(stats: &Value, kind: &str) -> Option<LatencyHistogram> {
    let histogram: LatencyHistogram =
        serde_json::from_value(stats.get(format!("{kind}_latency_histogram"))?.clone()).ok()?;
    let is_sound =
        histogram.bins.len() == histogram.boundaries.len() + 1 && histogram.boundaries.is_sorted();
    is_sound.then_some(histogram)
}

/// KVM's counters, summed over vCPUs; none where there are none.
fn kvm(answer: &Value) -> CounterMap<u64> {
    let all = || items(answer).flat_map(|vcpu| items(&vcpu["stats"]));
    CounterMap::read(|source| match source {
        CounterSource::Kvm(stats) => all()
            .filter(|stat| stats.iter().any(|name| stat["name"] == *name))
            .filter_map(|stat| stat["value"].as_u64())
            .reduce(u64::saturating_add),
        _ => None,
    })
}

/// Reads the answers of a monitor to `query-status`, `query-blockstats` and `query-stats`, for fuzzing: returns the
/// number of parts that were understood.
pub fn read_answers(status: &Value, blockstats: &Value, stats: &Value) -> usize {
    usize::from(run_state(status).is_some())
        + disks(blockstats).len()
        + usize::from(kvm(stats) != CounterMap::default())
}

const SET_HISTOGRAM: &str = "block-latency-histogram-set";
/// The first bin ends here, ns; each further one a quarter later, up to ten seconds.
const FIRST_BIN: u64 = 10_000;
const LAST_BIN: u64 = 10_000_000_000;

/// Where bins end, ns. No other program sets exactly these, so they tell which histograms are ours.
fn boundaries() -> Vec<u64> {
    std::iter::successors(Some(FIRST_BIN), |end| Some(end + end / 4))
        .take_while(|end| *end < LAST_BIN)
        .collect()
}

/// The devices of disks that have no histogram.
///
/// # Errors
/// [`VmmError::Monitor`].
pub fn disks_without_histograms(monitor: &Monitor) -> Result<Vec<String>, VmmError> {
    Ok(disks_whose(
        &monitor.execute("query-blockstats")?,
        |stats| KINDS.iter().all(|kind| histogram(stats, kind).is_none()),
    ))
}

/// Sets histograms of these disks.
///
/// # Errors
/// [`VmmError::Monitor`] with what QEMU refused.
pub fn set_histograms(monitor: &Monitor, disks: &[String]) -> Result<(), VmmError> {
    let all = disks.iter().map(|disk| {
        (
            SET_HISTOGRAM,
            json!({ "id": disk, "boundaries": boundaries() }),
        )
    });
    monitor
        .execute_all(&all.collect::<Vec<_>>())?
        .into_iter()
        .try_for_each(|answer| answer.map(|_| ()))
}

/// Removes the histograms of these disks, as far as they are still those that [`set_histograms`] sets.
///
/// # Errors
/// [`VmmError::Monitor`] where the monitor does not answer.
pub fn remove_histograms(monitor: &Monitor, disks: &[String]) -> Result<(), VmmError> {
    let own = boundaries();
    let is_own = |stats: &Value| {
        KINDS
            .iter()
            .any(|kind| histogram(stats, kind).is_some_and(|set| set.boundaries == own))
    };
    let ours = disks_whose(&monitor.execute("query-blockstats")?, is_own);
    let all = disks
        .iter()
        .filter(|disk| ours.contains(disk))
        .map(|disk| (SET_HISTOGRAM, json!({ "id": disk })));
    monitor.execute_all(&all.collect::<Vec<_>>()).map(|_| ())
}

/// The devices of `query-blockstats` whose statistics are so.
fn disks_whose(answer: &Value, is_so: impl Fn(&Value) -> bool) -> Vec<String> {
    let device = |entry: &Value| {
        let path = entry["qdev"].as_str().filter(|path| !path.is_empty())?;
        is_so(entry.get("stats")?).then(|| path.to_owned())
    };
    items(answer).filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As QEMU 7.2 has it, shortened.
    fn blockstats() -> Value {
        let histogram = json!({ "bins": [1, 2, 3], "boundaries": [1000, 2000] });
        json!([
            { "device": "dr0", "node-name": "#block157", "qdev": "/machine/peripheral/vd0/virtio-backend", "stats": {
                "rd_operations": 4, "rd_bytes": 2048, "rd_total_time_ns": 147_415, "wr_operations": 1,
                "rd_latency_histogram": histogram, "wr_latency_histogram": histogram, "flush_latency_histogram": histogram }},
            { "device": "", "qdev": "", "node-name": "pflash", "stats": { "rd_operations": 0 }},
            { "device": "ide0", "qdev": "/machine/unattached/device[5]", "stats": {}},
        ])
    }

    #[test]
    fn disks_have_the_names_of_their_devices() {
        let (paths, disks): (Vec<_>, Vec<_>) = disks(&blockstats()).into_iter().unzip();
        assert_eq!(
            disks
                .iter()
                .map(|disk| disk.name.as_str())
                .collect::<Vec<_>>(),
            ["vd0", "ide0"]
        );
        assert_eq!(
            paths,
            [
                "/machine/peripheral/vd0/virtio-backend",
                "/machine/unattached/device[5]"
            ]
        );
        let [reads, writes, flushes] = disks[0].qemu.unwrap();
        assert_eq!(
            (reads.count, reads.bytes, reads.total_ns, writes.count),
            (4, 2048, 147_415, 1)
        );
        assert_eq!(flushes, RequestCounters::default());
        assert_eq!(disks[0].histograms.as_ref().unwrap()[2].bins, [1, 2, 3]);
        assert_eq!(disks[1].histograms, None);
    }

    #[test]
    fn histograms_that_do_not_fit_together_are_none() {
        let read_histogram = |bins: Value, boundaries: Value| {
            histogram(
                &json!({ "rd_latency_histogram": { "bins": bins, "boundaries": boundaries } }),
                "rd",
            )
        };
        assert!(read_histogram(json!([1, 2]), json!([5])).is_some());
        assert_eq!(read_histogram(json!([1]), json!([5])), None);
        assert_eq!(read_histogram(json!([1, 2, 3]), json!([5, 4])), None);
        assert_eq!(read_histogram(json!([1, -2]), json!([5])), None);
        assert_eq!(read_histogram(json!("x"), json!([5])), None);
    }

    #[test]
    fn exits_are_summed_over_vcpus_and_absent_under_tcg() {
        let vcpu = |exits: u64| {
            json!({ "provider": "kvm", "stats": [{ "name": "exits", "value": exits },
                { "name": "halt_wait_ns", "value": 5 }, { "name": "halt_poll_fail_ns", "value": 1 },
                { "name": "halt_wait_hist", "value": [1, 2] }]})
        };
        let sums = [("exits", 7), ("halted", 12)];
        assert_eq!(kvm(&json!([vcpu(3), vcpu(4)])), sums.into_iter().collect());
        for none in [json!([]), json!("nonsense")] {
            assert_eq!(kvm(&none), CounterMap::default());
        }
    }

    #[test]
    fn a_stopped_guest_says_why() {
        let of =
            |running, status: &str| run_state(&json!({ "running": running, "status": status }));
        assert_eq!(of(true, "running"), Some(RunState::Running));
        assert_eq!(
            of(false, "io-error"),
            Some(RunState::Stopped("io-error".to_owned()))
        );
        assert_eq!(run_state(&json!([])), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(text in r#"[\[\]{}":,a-z_0-9-]{0,80}"#) {
            if let Ok(value) = serde_json::from_str(&text) {
                read_answers(&value, &value, &value);
            }
        }
    }

    #[test]
    fn bins_are_narrow_and_reach_from_microseconds_to_seconds() {
        let ends = boundaries();
        assert_eq!((ends.len(), ends[0]), (62, FIRST_BIN));
        assert!(
            ends.windows(2)
                .all(|pair| pair[1] > pair[0] && pair[1] <= pair[0] * 5 / 4)
        );
        assert!(ends[ends.len() - 1] * 5 / 4 >= LAST_BIN);
    }

    #[test]
    fn disks_without_a_device_are_left_out() {
        let set = json!({ "bins": [0, 0], "boundaries": [5] });
        let answer = json!([{ "qdev": "/a", "stats": {} }, { "qdev": "", "stats": {} },
            { "qdev": "/b", "stats": { "wr_latency_histogram": set } }]);
        assert_eq!(
            disks_whose(&answer, |stats| histogram(stats, "wr").is_none()),
            ["/a"]
        );
    }
}
