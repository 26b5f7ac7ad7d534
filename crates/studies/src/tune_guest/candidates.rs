//! What a tuning of a guest tries: the changes of QEMU's disk path, each with where it applies, when it harms, what is published.

use std::collections::BTreeMap;
use vmtax_model::{GuestCandidate, Machine, NotTried, QemuFacts};
use vmtax_workload::BlockWork;

/// Of what a change is tried.
pub(super) struct Tuned<'a> {
    /// The QEMU, where it is known.
    pub qemu: Option<&'a QemuFacts>,
    /// The machine.
    pub machine: Machine,
    /// Its vCPUs.
    pub cpus: u32,
    /// The block requests; `None` for a command.
    pub requests: Option<&'a BlockWork>,
    /// Whether changes are tried that lose data when the host fails.
    pub risks_data: bool,
}

/// A change.
struct Known {
    set: &'static [(&'static str, &'static str)],
    /// The first QEMU that has it.
    since: (u32, u32),
    /// Why it is not tried there; `None` where it is.
    not_for: fn(&Tuned<'_>) -> Option<&'static str>,
    /// When it harms.
    trap: &'static str,
    /// What is published of it.
    source: &'static str,
}

/// `aio`, which a QEMU may be built without.
fn lacks(tuned: &Tuned<'_>, engine: &str) -> Option<&'static str> {
    tuned.qemu.is_some_and(|qemu| qemu.aio.iter().all(|one| one != engine)).then_some("this QEMU was built without it")
}

/// What a driver of the guest's kernel negotiates.
fn needs_driver(tuned: &Tuned<'_>) -> Option<&'static str> {
    (!tuned.machine.has_kernel()).then_some("the micro-guest's driver does not use it")
}

const TABLE: &[Known] = &[
    Known {
        set: &[("cache", "none")],
        since: (1, 0),
        not_for: |_| None,
        trap: "What the guest reads again comes from the device, not from the host's page cache.",
        source: "QEMU manual page, -drive: cache",
    },
    Known {
        set: &[("aio", "native"), ("cache", "none")],
        since: (1, 0),
        not_for: |tuned| lacks(tuned, "native"),
        trap: "With the host's page cache (cache=writeback) its submission blocks, so it is only used with cache=none.",
        source: "Virtio block latency (KVM wiki, 2010): a 4 KiB read from 200 to 193 µs",
    },
    Known {
        set: &[("aio", "io_uring")],
        since: (5, 0),
        not_for: |tuned| lacks(tuned, "io_uring"),
        trap: "With cache=writeback it hangs on krbd and LVM, and fails on CIFS (Proxmox qemu-server, Drive.pm).",
        source: "no published figure for virtio-blk",
    },
    Known {
        set: &[("iothread", "on")],
        since: (2, 0),
        not_for: |_| None,
        trap: "Slower where the vCPUs need all of the host's CPUs.",
        source: "kata-containers/runtime#133: reads +120 %, random writes +97 %",
    },
    Known {
        set: &[("num-queues", "1")],
        since: (2, 7),
        not_for: |tuned| match tuned.cpus {
            1 => Some("with one vCPU there is one queue"),
            _ => needs_driver(tuned),
        },
        trap: "Completions may interrupt another vCPU than the one that waits.",
        source: "qemu-devel, virtio-blk-pci: default num_queues to -smp N: a queue for each vCPU gives +1 to +4 %",
    },
    Known {
        set: &[("packed", "on")],
        since: (4, 2),
        not_for: needs_driver,
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure for virtio-blk",
    },
    Known {
        set: &[("event_idx", "off")],
        since: (1, 0),
        not_for: needs_driver,
        trap: "More kicks and interrupts with many requests in flight.",
        source: "no published figure for one request at a time",
    },
    Known {
        set: &[("modern-pio-notify", "on")],
        since: (2, 4),
        not_for: |tuned| match tuned.machine.is_kvm() {
            true => needs_driver(tuned),
            false => Some("it is of KVM's exits, and TCG has none"),
        },
        trap: "Slower where KVM has a fast path for MMIO (EPT).",
        source: "QEMU commit 9824d2a39d98: MMIO is slower where there is no EPT",
    },
    Known {
        set: &[("request-merging", "off")],
        since: (3, 0),
        not_for: |tuned| match tuned.requests {
            Some(work) if work.depth == 1 => Some("with one request at a time nothing is merged"),
            _ => None,
        },
        trap: "More requests to the host where the guest writes or reads one block after another.",
        source: "no published figure",
    },
    Known {
        set: &[("queue-size", "1024")],
        since: (2, 10),
        not_for: |tuned| match tuned.requests {
            Some(work) if work.block < 512 << 10 => Some("it is for requests of 512 KiB and more"),
            _ => needs_driver(tuned),
        },
        trap: "More memory for each queue.",
        source: "QEMU commit 1bf8a989a566: larger requests are not split",
    },
    Known {
        set: &[("cache", "unsafe")],
        since: (1, 0),
        not_for: |tuned| {
            let risks =
                "a failure of the host loses what the guest has flushed: --unsafe tries it, for disposable guests";
            (!tuned.risks_data).then_some(risks)
        },
        trap: "A failure of the host loses what the guest has flushed: for disposable guests.",
        source: "QEMU manual page, -drive: cache",
    },
];

/// What QEMU sets by itself: what a baseline that sets something else is tried with.
fn default_of(key: &str, cpus: u32) -> Option<String> {
    Some(match key {
        "cache" => "writeback".to_owned(),
        "aio" => "threads".to_owned(),
        "iothread" | "packed" | "modern-pio-notify" => "off".to_owned(),
        "ioeventfd" | "event_idx" | "indirect_desc" | "request-merging" => "on".to_owned(),
        "num-queues" => cpus.to_string(),
        "queue-size" => "256".to_owned(),
        key if key.starts_with("throttling.") => "0".to_owned(),
        _ => return None,
    })
}

/// The baseline: QEMU's defaults of a virtio-blk disk that are not vmtax's own.
pub(super) fn defaults() -> BTreeMap<String, String> {
    ["cache", "aio"].into_iter().filter_map(|key| Some((key.to_owned(), default_of(key, 1)?))).collect()
}

/// The candidates over a baseline, and what is not tried.
pub(super) fn candidates(
    tuned: &Tuned<'_>,
    baseline: &BTreeMap<String, String>,
) -> (Vec<GuestCandidate>, Vec<NotTried>) {
    let restored = baseline.iter().filter_map(|(key, value)| {
        let default = default_of(key, tuned.cpus).filter(|default| default != value)?;
        Some(GuestCandidate {
            name: if key.starts_with("throttling.") { format!("without {key}") } else { format!("{key}={default}") },
            set: BTreeMap::from([(key.clone(), default)]),
            trap: String::new(),
            source: "QEMU's default".to_owned(),
        })
    });
    let mut all: Vec<GuestCandidate> = restored.collect();
    let mut not_tried = Vec::new();
    for known in TABLE {
        let set: BTreeMap<String, String> =
            known.set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        if set.iter().all(|(key, value)| baseline.get(key) == Some(value)) || all.iter().any(|one| one.set == set) {
            continue;
        }
        let name = known.set[0];
        let name = format!("{}={}", name.0, name.1);
        let is_older = tuned.qemu.is_some_and(|qemu| version(&qemu.version) < known.since);
        match (known.not_for)(tuned).or(is_older.then_some("this QEMU is older than it")) {
            Some(why) => not_tried.push(NotTried { action: name, line: String::new(), why: why.to_owned() }),
            None => {
                all.push(GuestCandidate { name, set, trap: known.trap.to_owned(), source: known.source.to_owned() })
            }
        }
    }
    (all, not_tried)
}

/// `7.2.22` as 7 and 2.
fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn names(tuned: &Tuned<'_>, from: &[(&str, &str)]) -> Vec<String> {
        let mut baseline = defaults();
        baseline.extend(from.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        candidates(tuned, &baseline).0.into_iter().map(|candidate| candidate.name).collect()
    }

    #[test]
    fn what_does_not_apply_or_risks_data_is_not_tried() {
        let work = |block, depth| BlockWork { block, random: true, write: false, depth, time_ns: 1, count: 0 };
        let small = work(4096, 1);
        let tcg = Tuned { qemu: None, machine: Machine::TCG, cpus: 1, requests: Some(&small), risks_data: false };
        let usual = ["cache=none", "aio=native", "aio=io_uring", "iothread=on", "packed=on", "event_idx=off"];
        assert_eq!(names(&tcg, &[]), usual);
        let large = work(1 << 20, 32);
        let kvm = Tuned { machine: Machine::KVM, cpus: 2, requests: Some(&large), risks_data: true, ..tcg };
        let all = names(&kvm, &[]);
        for name in ["num-queues=1", "modern-pio-notify=on", "request-merging=off", "queue-size=1024", "cache=unsafe"] {
            assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
        }
        let micro = Tuned { machine: Machine::MICRO_TCG, ..tcg };
        assert_eq!(names(&micro, &[]), ["cache=none", "aio=native", "aio=io_uring", "iothread=on"]);
        let qemu = QemuFacts {
            path: PathBuf::new(),
            version: "4.1.0".to_owned(),
            accelerators: Vec::new(),
            aio: vec!["threads".to_owned(), "native".to_owned()],
            iothread: true,
            exported_functions: 0,
            trace_backends: Vec::new(),
        };
        let old = Tuned { qemu: Some(&qemu), ..tcg };
        assert_eq!(names(&old, &[]), ["cache=none", "aio=native", "iothread=on", "event_idx=off"]);
        let (_, not_tried) = candidates(&old, &defaults());
        let why = |name: &str| not_tried.iter().find(|one| one.action == name).unwrap().why.clone();
        assert!(why("aio=io_uring").contains("built without") && why("packed=on").contains("older"));
        assert!(why("cache=unsafe").contains("--unsafe"));
    }

    #[test]
    fn a_baseline_that_is_set_badly_is_tried_with_what_qemu_sets_by_itself() {
        let tcg = Tuned { qemu: None, machine: Machine::TCG, cpus: 2, requests: None, risks_data: false };
        let from =
            [("cache", "writethrough"), ("event_idx", "off"), ("num-queues", "1"), ("throttling.iops-total", "50")];
        let all = names(&tcg, &from);
        for name in ["cache=writeback", "event_idx=on", "num-queues=2", "without throttling.iops-total", "cache=none"] {
            assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
        }
        for name in ["event_idx=off", "num-queues=1", "cache=writethrough"] {
            assert!(all.iter().all(|known| known != name), "{name}: {all:?}");
        }
    }
}
