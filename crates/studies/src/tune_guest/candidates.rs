//! What a tuning of a guest tries: the changes of QEMU's disk path, each with where it applies, when it harms, what is published.

use std::collections::BTreeMap;
use vmtax_model::{GuestCandidate, Machine, NotTried, Qcow2Settings, QemuFacts, parse_size};
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
    /// The guest's disk, bytes, where it is a twin of another.
    pub size: Option<u64>,
    /// Whether changes are tried that lose data when the host fails.
    pub risks_data: bool,
}

/// A change.
struct Known {
    set: &'static [(&'static str, &'static str)],
    /// The first QEMU that has it.
    since: (u32, u32),
    /// Whether it is a property of virtio-blk's or virtio-scsi's device.
    is_virtio: bool,
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
        is_virtio: false,
        not_for: |_| None,
        trap: "What the guest reads again comes from the device, not from the host's page cache.",
        source: "QEMU manual page, -drive: cache",
    },
    Known {
        set: &[("aio", "native"), ("cache", "none")],
        since: (1, 0),
        is_virtio: false,
        not_for: |tuned| lacks(tuned, "native"),
        trap: "With the host's page cache (cache=writeback) its submission blocks, so it is only used with cache=none.",
        source: "Virtio block latency (KVM wiki, 2010): a 4 KiB read from 200 to 193 µs",
    },
    Known {
        set: &[("aio", "io_uring")],
        since: (5, 0),
        is_virtio: false,
        not_for: |tuned| lacks(tuned, "io_uring"),
        trap: "With cache=writeback it hangs on krbd and LVM, and fails on CIFS (Proxmox qemu-server, Drive.pm).",
        source: "no published figure for virtio-blk",
    },
    Known {
        set: &[("iothread", "on")],
        since: (2, 0),
        is_virtio: true,
        not_for: |_| None,
        trap: "Slower where the vCPUs need all of the host's CPUs.",
        source: "kata-containers/runtime#133: reads +120 %, random writes +97 %",
    },
    Known {
        set: &[("num-queues", "1")],
        since: (2, 7),
        is_virtio: true,
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
        is_virtio: true,
        not_for: needs_driver,
        trap: "Guests before Linux 5.0 fall back to the split ring.",
        source: "no published figure for virtio-blk",
    },
    Known {
        set: &[("event_idx", "off")],
        since: (1, 0),
        is_virtio: true,
        not_for: needs_driver,
        trap: "More kicks and interrupts with many requests in flight.",
        source: "no published figure for one request at a time",
    },
    Known {
        set: &[("modern-pio-notify", "on")],
        since: (2, 4),
        is_virtio: true,
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
        is_virtio: true,
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
        is_virtio: true,
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
        is_virtio: false,
        not_for: |tuned| {
            let risks =
                "a failure of the host loses what the guest has flushed: --unsafe tries it, for disposable guests";
            (!tuned.risks_data).then_some(risks)
        },
        trap: "A failure of the host loses what the guest has flushed: for disposable guests.",
        source: "QEMU manual page, -drive: cache",
    },
];

/// When another bus harms.
const TRAP_OF_BUS: &str = "The guest needs the driver of virtio-blk, and finds the disk by another name.";

/// What QEMU sets by itself: what a baseline that sets something else is tried with.
fn default_of(key: &str, cpus: u32) -> Option<String> {
    Some(match key {
        "bus" => "virtio-blk".to_owned(),
        "format" => "raw".to_owned(),
        "discard" => "ignore".to_owned(),
        "detect-zeroes" | "image.lazy_refcounts" => "off".to_owned(),
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
        let (trap, source) = match key.as_str() {
            "bus" => (TRAP_OF_BUS, "no published figure"),
            "format" => ("No snapshots, no backing image; the image is as large as its disk.", "no published figure"),
            "discard" => ("What the guest frees stays allocated on the host.", "no published figure"),
            _ => ("", "QEMU's default"),
        };
        Some(GuestCandidate {
            name: if key.starts_with("throttling.") { format!("without {key}") } else { format!("{key}={default}") },
            set: BTreeMap::from([(key.clone(), default)]),
            trap: trap.to_owned(),
            source: source.to_owned(),
        })
    });
    let mut all: Vec<GuestCandidate> = restored.collect();
    let mut not_tried = Vec::new();
    if baseline.contains_key("image.size") {
        all.retain(|one| one.name != "format=raw");
        let why = "the twin's image is larger than what is written of it".to_owned();
        not_tried.push(NotTried { action: "format=raw".to_owned(), line: String::new(), why });
    }
    all.extend(l2_cache(tuned, baseline));
    let bus = baseline.get("bus").map_or("virtio-blk", String::as_str);
    for known in TABLE {
        let mut set: BTreeMap<String, String> =
            known.set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        if set.iter().all(|(key, value)| baseline.get(key) == Some(value)) || all.iter().any(|one| one.set == set) {
            continue;
        }
        let name = known.set[0];
        let mut name = format!("{}={}", name.0, name.1);
        let mut trap = known.trap.to_owned();
        let mut elsewhere = None;
        if known.is_virtio && !bus.starts_with("virtio") {
            match name.as_str() {
                // It is worth little without: the two are one change.
                "iothread=on" => {
                    set.insert("bus".to_owned(), "virtio-blk".to_owned());
                    name = format!("bus=virtio-blk,{name}");
                    trap = format!("{trap} {TRAP_OF_BUS}");
                }
                _ => elsewhere = Some("the disk is none of virtio: tune again once bus=virtio-blk is kept"),
            }
        } else if name.starts_with("request-merging") && bus != "virtio-blk" {
            elsewhere = Some("it is of virtio-blk alone");
        }
        let is_older = tuned.qemu.is_some_and(|qemu| version(&qemu.version) < known.since);
        match (known.not_for)(tuned).or(elsewhere).or(is_older.then_some("this QEMU is older than it")) {
            Some(why) => not_tried.push(NotTried { action: name, line: String::new(), why: why.to_owned() }),
            None => all.push(GuestCandidate { name, set, trap, source: known.source.to_owned() }),
        }
    }
    (all, not_tried)
}

/// The whole of a qcow2 image's L2 cache, bytes, where that which these settings give it covers less; `size` of the guest's disk.
pub(super) fn uncovered(settings: &BTreeMap<String, String>, size: Option<u64>) -> Option<u64> {
    let number = |key: &str| settings.get(key).and_then(|text| parse_size(text));
    settings.get("format").filter(|format| *format == "qcow2")?;
    let cluster_size = number("image.cluster_size").unwrap_or(65536).max(512);
    let has_subclusters = settings.get("image.extended_l2").is_some_and(|value| value == "on");
    // `read_cache_sizes` of QEMU's qcow2 driver: of one size for both caches the refcounts get four clusters.
    let l2_cache = number("l2-cache-size")
        .or_else(|| Some(number("cache-size")?.saturating_sub(cluster_size.saturating_mul(4))))
        .unwrap_or(32 << 20);
    let entry_size = if has_subclusters { 16 } else { 8 };
    let image = Qcow2Settings { virtual_size: size?, cluster_size, entry_size, l2_cache: Some(l2_cache) };
    image.full_cache().checked_next_multiple_of(cluster_size).filter(|full| *full > l2_cache)
}

/// An L2 cache that covers the whole image.
fn l2_cache(tuned: &Tuned<'_>, baseline: &BTreeMap<String, String>) -> Option<GuestCandidate> {
    let full = uncovered(baseline, tuned.size)?;
    // QEMU refuses an L2 cache that is larger than the size for both caches.
    let (key, value) = match baseline.contains_key("cache-size") {
        true => (
            "cache-size",
            full + 4 * baseline.get("image.cluster_size").and_then(|text| parse_size(text)).unwrap_or(65536),
        ),
        false => ("l2-cache-size", full),
    };
    Some(GuestCandidate {
        name: format!("{key}={value}"),
        set: BTreeMap::from([(key.to_owned(), value.to_string())]),
        trap: "Memory of QEMU, once the guest has used all of the image.".to_owned(),
        source: "Proxmox wiki: 5,100 to 63,600 requests/s with 1 and 2.5 MB for 20 GB; IBM: over 10 times".to_owned(),
    })
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
        let tcg =
            Tuned { qemu: None, machine: Machine::TCG, cpus: 1, requests: Some(&small), size: None, risks_data: false };
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
    fn a_twins_bus_and_format_are_tried_with_the_usual_ones() {
        let tcg = Tuned {
            qemu: None,
            machine: Machine::TCG,
            cpus: 1,
            requests: None,
            size: Some(16 << 30),
            risks_data: false,
        };
        let sata = names(&tcg, &[("bus", "sata"), ("format", "qcow2"), ("discard", "unmap")]);
        for name in ["bus=virtio-blk", "format=raw", "discard=ignore", "bus=virtio-blk,iothread=on", "cache=none"] {
            assert!(sata.iter().any(|known| known == name), "{name}: {sata:?}");
        }
        assert!(sata.iter().all(|known| known != "packed=on" && !known.starts_with("l2-cache")), "{sata:?}");
        let (all, _) = candidates(&tcg, &[("bus".to_owned(), "nvme".to_owned())].into());
        let iothread = all.iter().find(|one| one.name == "bus=virtio-blk,iothread=on").unwrap();
        assert!(iothread.trap.contains("driver of virtio-blk"));
        assert_eq!(iothread.set.get("bus").map(String::as_str), Some("virtio-blk"));
        let small = names(&tcg, &[("format", "qcow2"), ("l2-cache-size", "128K"), ("image.size", "17179869184")]);
        assert!(small.iter().any(|name| name == "l2-cache-size=2097152"), "{small:?}");
        assert!(small.iter().all(|name| name != "format=raw"), "{small:?}");
        let both = names(&tcg, &[("format", "qcow2"), ("cache-size", "1M")]);
        assert!(both.iter().any(|name| name == "cache-size=2359296"), "{both:?}");
        assert_eq!(
            (parse_size("1M"), parse_size("512"), parse_size("x"), parse_size("99999999999999999T")),
            (Some(1 << 20), Some(512), None, None)
        );
    }

    #[test]
    fn a_baseline_that_is_set_badly_is_tried_with_what_qemu_sets_by_itself() {
        let tcg = Tuned { qemu: None, machine: Machine::TCG, cpus: 2, requests: None, size: None, risks_data: false };
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
