//! Candidates of a guest's tuning: the changes that can affect its workload, each with where it applies, when it
//! harms, and the published figures.

mod devices;
mod guest;
mod known_change;

pub(crate) use known_change::{Settings, TuneTarget, uses_disk};

use known_change::{KnownChange, cost_of, is};
use std::collections::BTreeMap;
use vmtax_host::QemuVersion;
use vmtax_model::{
    GuestCandidate, GuestTuneSpec, NotTried, Qcow2Settings, QemuFacts, Setting, SettingPart,
    ShareMethod, Unset, Variant, WorkloadName, parse_size,
};

/// The largest clusters that an image of qcow2 may have.
const MAX_CLUSTER_SIZE: &str = "2M";

/// The baseline: of the disk QEMU's defaults that are not vmtax's own; of a share QEMU's own server, 9p.
pub(super) fn defaults(workload: WorkloadName) -> Settings {
    let disk = uses_disk(workload)
        .then_some(["cache", "aio"])
        .into_iter()
        .flatten();
    let disk = disk.filter_map(|key| Some((key.to_owned(), Setting::of(key).unset_value(1)?)));
    let share = workload
        .needs_share()
        .then(|| ("share".to_owned(), ShareMethod::NineP.to_string()));
    disk.chain(share).collect()
}

/// The candidates over a baseline, and what is not tried.
pub(super) fn candidates(
    target: &TuneTarget<'_>,
    baseline: &Settings,
) -> (Vec<GuestCandidate>, Vec<NotTried>) {
    let all: Vec<GuestCandidate> = baseline
        .iter()
        .filter_map(|(key, value)| restored(target, key, value))
        .chain(newer_qemus(target))
        .collect();
    let mut found = Found {
        target,
        baseline,
        all,
        not_tried: Vec::new(),
    };
    if baseline.contains_key("image.size") {
        found.leave_out_raw();
    }
    found.all.extend(
        [l2_cache(target, baseline), cluster_size(target, baseline)]
            .into_iter()
            .flatten(),
    );
    let tables = [
        devices::DISK,
        guest::GUEST,
        devices::SHARE,
        devices::NETWORK,
    ];
    tables
        .into_iter()
        .flatten()
        .for_each(|known| found.add(known));
    let is_allowed =
        |one: &GuestCandidate| one.cost.is_none_or(|cost| target.allowed.contains(&cost));
    let (all, others): (Vec<_>, Vec<_>) = found.all.into_iter().partition(is_allowed);
    let mut not_tried = found.not_tried;
    not_tried.extend(others.into_iter().map(too_costly));
    (all, not_tried)
}

/// Candidates that are found over a baseline, and what is not tried.
struct Found<'a> {
    target: &'a TuneTarget<'a>,
    baseline: &'a Settings,
    all: Vec<GuestCandidate>,
    not_tried: Vec<NotTried>,
}

impl Found<'_> {
    /// Moves the raw format to what is not tried: a raw image has the size of what is written.
    fn leave_out_raw(&mut self) {
        self.all.retain(|one| one.name != "format=raw");
        let why = "the scratch image is larger than its written part";
        self.not_tried.push(untried("format=raw".to_owned(), why));
    }

    /// Adds a change to the candidates or to what is not tried, if it can affect the workload and is no candidate yet.
    fn add(&mut self, known: &KnownChange) {
        let (target, baseline) = (self.target, self.baseline);
        let mut set: Settings = known
            .set
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let is_there = set
            .iter()
            .all(|(key, value)| baseline.get(key) == Some(value));
        if !(known.moves)(target, baseline) || is_there || self.all.iter().any(|one| one.set == set)
        {
            return;
        }
        // Another method of sharing has other options.
        if set.contains_key("share") {
            for option in baseline.keys().filter(|key| key.starts_with("share.")) {
                set.entry(option.clone())
                    .or_insert_with(|| GuestTuneSpec::LEFT_OUT.to_owned());
            }
        }
        let elsewhere = if uses_disk(target.workload) {
            on_bus(known, baseline, &mut set)
        } else {
            None
        };
        let (name, trap) = named_with_needs(known, baseline, &mut set);
        match self.fault(known, &set, elsewhere) {
            Some(why) => self.not_tried.push(untried(name, why)),
            None => self.all.push(candidate(name, set, &trap, known.source)),
        }
    }

    /// Returns the reason why a change with these settings is not tried; `elsewhere` is that of the disk's bus.
    fn fault(
        &self,
        known: &KnownChange,
        set: &Settings,
        elsewhere: Option<&'static str>,
    ) -> Option<&'static str> {
        let (target, baseline) = (self.target, self.baseline);
        let is_older = target
            .qemu
            .is_some_and(|qemu| version(&qemu.version) < known.since());
        let fault_of_host = set
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(Variant::OF_HOST)?, value)))
            .find_map(|(name, value)| (target.host_fault)(name, value));
        let not_for = (known.not_for)(target, baseline)
            .or(elsewhere)
            .or(fault_of_host);
        not_for.or(is_older.then_some("this QEMU is older than it"))
    }
}

/// Returns the name and the trap of a change; those of an iothread with what it needs besides, which is added to `set`.
fn named_with_needs(
    known: &KnownChange,
    baseline: &Settings,
    set: &mut Settings,
) -> (String, String) {
    let (mut name, mut trap) = (name_of(known), known.trap.to_owned());
    if known.set[0] == ("iothread", "on") {
        if set.contains_key("bus") {
            name = format!("bus=virtio-blk,{name}");
            trap = format!("{trap} {}", Setting::of("bus").trap);
        }
        // QEMU refuses an iothread without: the two are one change.
        if is(baseline, "ioeventfd", "off") {
            set.insert("ioeventfd".to_owned(), "on".to_owned());
            name = format!("ioeventfd=on,{name}");
        }
    }
    (name, trap)
}

/// Returns a candidate as one that is not tried, since applying it costs more than is allowed.
fn too_costly(one: GuestCandidate) -> NotTried {
    let cost = one.cost.map_or(String::new(), |cost| cost.to_string());
    let why = format!("applying it costs more than --allow names ({cost})");
    untried(one.name, why)
}

/// A change that is not tried, with the reason.
pub(crate) fn untried(action: String, why: impl Into<String>) -> NotTried {
    NotTried {
        finding: String::new(),
        action,
        line: String::new(),
        why: why.into(),
    }
}

fn candidate(name: String, set: Settings, trap: &str, source: &str) -> GuestCandidate {
    let cost = Some(cost_of(&set));
    GuestCandidate {
        name,
        set,
        trap: trap.to_owned(),
        source: source.to_owned(),
        cost,
    }
}

/// Returns the name of a change: its first setting; all settings for a share.
fn name_of(known: &KnownChange) -> String {
    let words: Vec<String> = known
        .set
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if words[0].starts_with("share=") {
        words.join(",")
    } else {
        words[0].clone()
    }
}

/// Returns the candidate without the user's setting: QEMU's default, or the setting left out; `None` if there is
/// nothing to try.
fn restored(target: &TuneTarget<'_>, key: &str, value: &str) -> Option<GuestCandidate> {
    let setting = Setting::of(key);
    let (name, unset) = match setting.unset_value(target.cpus) {
        Some(unset) if unset == value => return None,
        Some(unset) if setting.part == SettingPart::Throttle => (format!("without {key}"), unset),
        Some(unset) => (format!("{key}={unset}"), unset),
        None if setting.unset == Unset::Choice || !target.named.contains_key(key) => return None,
        None => (
            format!("without {key}={value}"),
            GuestTuneSpec::LEFT_OUT.to_owned(),
        ),
    };
    let set = BTreeMap::from([(key.to_owned(), unset)]);
    Some(candidate(name, set, setting.trap, setting.source))
}

/// Why a change of the disk is not tried on its bus; an iothread brings the bus that it needs.
fn on_bus(known: &KnownChange, baseline: &Settings, set: &mut Settings) -> Option<&'static str> {
    let bus = baseline.get("bus").map_or("virtio-blk", String::as_str);
    let (key, value) = known.set[0];
    if bus.starts_with("virtio") || !devices::is_of_virtio(key) || !Variant::is_of_disk(key) {
        return (key == "request-merging" && bus != "virtio-blk")
            .then_some("only virtio-blk has it");
    }
    if (key, value) == ("iothread", "on") {
        // It is worth little without: the two are one change.
        set.insert("bus".to_owned(), "virtio-blk".to_owned());
        return None;
    }
    Some("the disk is not on virtio: run tune again once bus=virtio-blk is kept")
}

/// QEMUs of this host that are newer than the one that is used: the first, which is used where none is named, and the newest.
fn newer_qemus(target: &TuneTarget<'_>) -> Vec<GuestCandidate> {
    let Some(own) = target.qemu else {
        return Vec::new();
    };
    let is_newer = |qemu: &&QemuFacts| version(&qemu.version) > version(&own.version);
    // One that was named comes before it.
    let first = target
        .qemus
        .iter()
        .find(|qemu| qemu.path != own.path)
        .filter(is_newer);
    let newest = target
        .qemus
        .iter()
        .filter(is_newer)
        .max_by_key(|qemu| version(&qemu.version));
    let source = match target.workload.needs_share() && version(&own.version) < (7, 2) {
        true => {
            "Make your QEMU 10 times faster with this one weird trick (2022): a copy from over 2 hours to 7 minutes"
        }
        false => "no published figure",
    };
    let mut all: Vec<&QemuFacts> = first.into_iter().chain(newest).collect();
    all.dedup_by(|a, b| a.version == b.version);
    let set =
        |qemu: &QemuFacts| BTreeMap::from([("qemu".to_owned(), qemu.path.display().to_string())]);
    let trap = "Another machine version: the guest may see other devices unless its machine type is versioned.";
    all.into_iter()
        .map(|qemu| candidate(format!("qemu={}", qemu.version), set(qemu), trap, source))
        .collect()
}

/// The whole of a qcow2 image's L2 cache, bytes, where that which these settings give it covers less; `size` of the guest's disk.
pub(super) fn uncovered(settings: &Settings, size: Option<u64>) -> Option<u64> {
    let number = |key: &str| settings.get(key).and_then(|text| parse_size(text));
    settings.get("format").filter(|format| *format == "qcow2")?;
    let image = image(settings, size?);
    // `read_cache_sizes` of QEMU's qcow2 driver: of one size for both caches the refcounts get four clusters.
    let l2_cache = number("l2-cache-size")
        .or_else(|| {
            Some(number("cache-size")?.saturating_sub(image.cluster_size.saturating_mul(4)))
        })
        .unwrap_or(32 << 20);
    image
        .full_cache()
        .checked_next_multiple_of(image.cluster_size)
        .filter(|full| *full > l2_cache)
}

/// The qcow2 image that the settings make.
fn image(settings: &Settings, size: u64) -> Qcow2Settings {
    Qcow2Settings::made(size, |option| {
        settings.get(&format!("image.{option}")).map(String::as_str)
    })
}

/// The size of the disk, bytes, where it is known.
fn image_size(target: &TuneTarget<'_>, baseline: &Settings) -> Option<u64> {
    target
        .size
        .or_else(|| parse_size(baseline.get("image.size")?))
}

/// An L2 cache that covers the whole image.
fn l2_cache(target: &TuneTarget<'_>, baseline: &Settings) -> Option<GuestCandidate> {
    let size = image_size(target, baseline)?;
    let full = uncovered(baseline, Some(size))?;
    // QEMU refuses an L2 cache that is larger than the size for both caches.
    let (key, value) = match baseline.contains_key("cache-size") {
        true => ("cache-size", full + 4 * image(baseline, size).cluster_size),
        false => ("l2-cache-size", full),
    };
    Some(candidate(
        format!("{key}={value}"),
        BTreeMap::from([(key.to_owned(), value.to_string())]),
        "Memory of QEMU, once the guest has used all of the image.",
        "Proxmox wiki: 5,100 to 63,600 requests/s with 1 and 2.5 MB for 20 GB; IBM: over 10 times",
    ))
}

/// Clusters that are so large that the image's L2 cache covers it.
fn cluster_size(target: &TuneTarget<'_>, baseline: &Settings) -> Option<GuestCandidate> {
    let size = image_size(target, baseline)?;
    uncovered(baseline, Some(size))?;
    let set: Settings =
        BTreeMap::from([("image.cluster_size".to_owned(), MAX_CLUSTER_SIZE.to_owned())]);
    let with = baseline.clone().into_iter().chain(set.clone()).collect();
    uncovered(&with, Some(size)).is_none().then(|| {
        let trap =
            "The image has to be converted; a first write to a cluster, and one after a snapshot, copies all of it.";
        let source = "QEMU documentation, qcow2 L2/refcount cache configuration; no figure";
        candidate(format!("image.cluster_size={MAX_CLUSTER_SIZE}"), set, trap, source)
    })
}

/// `7.2.22` as 7 and 2.
fn version(text: &str) -> (u32, u32) {
    text.parse::<QemuVersion>()
        .map_or((0, 0), |version| (version.major, version.minor))
}

#[cfg(test)]
mod tests;
