//! Settings of a running VM's disk that its requests wait for: a limit, a flush after each write, a small cache of qcow2 tables.

use super::monitor_command::{is_libvirts, qmp, virsh};
use super::vm_io::{MIN_PER_S, MIN_WAITING, waiting};
use crate::evidence::MIN_SHARE;
use crate::rule::measurement;
use crate::{Evidence, Finding, Rule};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use vmtax_model::number::{bytes, nanoseconds, percent, significant};
use vmtax_model::{
    ChangeCost, DiskRates, DiskSettings, IoLimits, IoRates, Qcow2Settings, Remedy, SettingPlace, VmRates,
};

/// Requests that use so much of a limit run at it.
const AT_LIMIT: f64 = 0.9;
/// QEMU reads so many times the bytes of the guest where it reads tables, too.
const MIN_READ_FACTOR: f64 = 1.5;
/// A cache that covers so much of the image does not miss.
const COVERED: f64 = 0.95;

pub(super) const VM_IO_LIMIT: Rule = Rule {
    id: "vm-io-limit",
    finds: "a disk whose requests run at nine tenths of a limit and more (throttle group, libvirt's iotune), and wait for it",
    remedies: &[
        Remedy {
            place: SettingPlace::Qmp,
            setting: "limits",
            value: "0",
            action: "Remove the limits of the disk, or raise them",
            line: "UNLIMIT",
            cost: Some(ChangeCost::Live),
            read_back: "READ_BACK",
            undo: "LIMIT_AGAIN",
        },
        measurement("See how long requests wait in QEMU", "vmtax layers --vm VM"),
    ],
    source: "QEMU documentation, The QEMU throttling infrastructure",
    evaluate: |evidence| {
        each_disk(evidence, |vm, disk, io, settings| {
            let limits = settings.limits.as_ref()?;
            let what = limit_reached(vm, limits)?;
            let waits = waiting(io.per_s(), io.qavg_ns?);
            let text = format!(
                "Requests on {} run at the limit of throttle group {}: {what}; one takes {} (QAVG).",
                disk.name,
                limits.group.escape_default(),
                nanoseconds(io.qavg_ns?),
            );
            (waits >= MIN_WAITING).then(|| Finding {
                text,
                gain: waits,
                values: vec![
                    ("UNLIMIT", limit_command(vm, settings, limits, false)),
                    ("LIMIT_AGAIN", limit_command(vm, settings, limits, true)),
                    ("READ_BACK", read_limits(vm, settings, limits)),
                    ("VM", vm.argument()),
                ],
                ..Finding::default()
            })
        })
    },
};

pub(super) const VM_WRITE_THROUGH: Rule = Rule {
    id: "vm-write-through",
    finds: "a disk whose writes QEMU flushes one by one, for a twentieth of the time and more",
    remedies: &[
        Remedy {
            place: SettingPlace::GuestSysfs,
            setting: "CACHE_FILE",
            value: "write back",
            action: "Let the guest decide when to flush",
            line: "echo \"write back\" | sudo tee CACHE_FILE # in the guest; CACHE_DISK: its name for DISK_NAME",
            cost: Some(ChangeCost::Live),
            read_back: "QMP query-block: writeback",
            undo: "echo \"write through\" | sudo tee CACHE_FILE",
        },
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "cache",
            value: "none",
            action: "Start the VM with a cache that is written back: a guest that never flushes can lose its last writes",
            line: "-drive file=…,cache=none # libvirt: <driver cache='none'/>",
            cost: Some(ChangeCost::VmRestart),
            read_back: "QMP query-block: writeback",
            undo: "cache=writethrough",
        },
    ],
    source: "QEMU manual page, -drive: cache",
    evaluate: |evidence| {
        each_disk(evidence, |_, disk, io, settings| {
            let ns = io.write_ns.filter(|_| settings.write_through == Some(true))?;
            let time = waiting(io.writes_per_s, ns);
            let text = format!(
                "QEMU flushes each write on {} before it completes (write-through): {} a second, each {}.",
                disk.name,
                significant(io.writes_per_s),
                nanoseconds(ns)
            );
            (io.writes_per_s >= MIN_PER_S && time >= MIN_SHARE).then(|| Finding {
                text,
                gain: time,
                values: vec![
                    ("CACHE_FILE", cache_file(settings).unwrap_or_default().to_owned()),
                    ("CACHE_DISK", if is_virtio(settings) { "vda" } else { "sda" }.to_owned()),
                    ("DISK_NAME", disk.name.clone()),
                ],
                unfit: cache_file(settings).is_none().then_some(SettingPlace::GuestSysfs),
            })
        })
    },
};

pub(super) const VM_QCOW2_CACHE: Rule = Rule {
    id: "vm-qcow2-l2-cache",
    finds: "a qcow2 image whose L2 tables do not fit into QEMU's cache, while QEMU reads half as much again as its guest and more",
    remedies: &[
        Remedy {
            place: SettingPlace::Qmp,
            setting: "l2-cache-size",
            value: "CACHE_BYTES",
            action: "Give the image a cache for all its tables, CACHE_SIZE of memory",
            line: "ENLARGE",
            cost: Some(ChangeCost::Live),
            read_back: "vmtax top VM --level 1: reads take less time (QMP does not tell the size)",
            undo: "SHRINK",
        },
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "l2-cache-size",
            value: "CACHE_BYTES",
            action: "And start the VM with it",
            line: "-drive file=…,l2-cache-size=CACHE_BYTES # libvirt: <metadata_cache><max_size unit='bytes'>CACHE_BYTES</max_size></metadata_cache>",
            cost: Some(ChangeCost::VmRestart),
            read_back: "QEMU's command line: l2-cache-size",
            undo: "leave l2-cache-size= out",
        },
    ],
    source: "QEMU documentation, qcow2 L2/refcount cache configuration",
    evaluate: |evidence| {
        each_disk(evidence, |vm, disk, io, settings| {
            let image = settings.qcow2.as_ref()?;
            let covered = image.covered().filter(|covered| *covered < COVERED)?;
            let factor = read_factor(vm)?;
            let time = waiting(io.reads_per_s, io.read_ns?);
            let text = format!(
                "QEMU's cache holds {} of the L2 tables of {}: it reads {} times the guest's bytes, {} reads a second.",
                percent(covered),
                disk.name,
                significant(factor),
                significant(io.reads_per_s)
            );
            (factor >= MIN_READ_FACTOR && io.reads_per_s >= MIN_PER_S && time >= MIN_SHARE).then(|| Finding {
                text,
                // What a hit takes is not known: it may be next to nothing.
                gain: time * (1.0 - covered),
                values: cache_values(vm, settings, image),
                // A disk whose first node is the throttle group's has no such options.
                unfit: settings.limits.as_ref().filter(|limits| limits.is_object).map(|_| SettingPlace::Qmp),
            })
        })
    },
};

/// The file in a Linux guest that sets a disk's cache; `None` where none is known, as for NVMe.
fn cache_file(settings: &DiskSettings) -> Option<&'static str> {
    let is_of_scsi = ["scsi-", "ide-"].iter().any(|bus| settings.driver.starts_with(bus));
    match () {
        () if is_virtio(settings) => Some("/sys/block/vda/cache_type"),
        // Linux drives SATA disks as SCSI disks.
        () if is_of_scsi => Some("/sys/block/sda/device/scsi_disk/*/cache_type"),
        () => None,
    }
}

fn is_virtio(settings: &DiskSettings) -> bool {
    settings.driver.starts_with("virtio-blk")
}

/// What is found of each disk whose settings and requests are known.
fn each_disk(
    evidence: &Evidence<'_>,
    find: impl Fn(&VmRates, &DiskRates, &IoRates, &DiskSettings) -> Option<Finding>,
) -> Vec<Finding> {
    let Some(vm) = evidence.vm else { return Vec::new() };
    let found = |settings: &DiskSettings| {
        let disk = vm.disks.iter().find(|disk| disk.name == settings.name)?;
        find(vm, disk, disk.io.as_ref()?, settings)
    };
    vm.settings.disks.iter().filter_map(found).collect()
}

/// Which limit the disks of a group reach, and how much of it they use, in words.
pub(super) fn limit_reached(vm: &VmRates, limits: &IoLimits) -> Option<String> {
    let (used, what) = used(limits, &of_group(vm, limits));
    (used >= AT_LIMIT).then_some(what)
}

/// The requests of all disks of a group: a second all, reads, writes, then their bytes.
fn of_group(vm: &VmRates, limits: &IoLimits) -> [f64; 6] {
    let is_in = |disk: &&DiskSettings| {
        disk.limits.as_ref().is_some_and(|own| own.group == limits.group && own.is_object == limits.is_object)
    };
    let disks = vm.settings.disks.iter().filter(is_in);
    let rates = disks.filter_map(|settings| vm.disks.iter().find(|disk| disk.name == settings.name)?.io);
    rates.fold([0.0; 6], |sum, io| {
        let (reads, writes) = (io.reads_per_s, io.writes_per_s);
        let (read, written) = (io.read_bytes_per_s, io.written_bytes_per_s);
        let all = [reads + writes, reads, writes, read + written, read, written];
        std::array::from_fn(|at| sum[at] + all[at])
    })
}

/// The limit that is used most: which part of it, and both in words.
fn used(limits: &IoLimits, rates: &[f64; 6]) -> (f64, String) {
    const NAMES: [&str; 6] = ["requests", "reads", "writes", "bytes", "bytes read", "bytes written"];
    let all = limits.requests_per_s.iter().chain(&limits.bytes_per_s).zip(rates).zip(NAMES);
    let used = all.filter(|((limit, _), _)| **limit > 0).map(|((limit, rate), name)| {
        let part = rate / *limit as f64;
        (part, format!("{} of {limit} {name} a second", significant(*rate)))
    });
    used.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap_or_default()
}

/// The command that sets limits with their bursts, or takes all of them away.
fn limit_command(vm: &VmRates, disk: &DiskSettings, limits: &IoLimits, sets: bool) -> String {
    if limits.is_object {
        let name = |unit: &str, kind: usize, part: &str| format!("{unit}-{}{part}", ["total", "read", "write"][kind]);
        let mut value: BTreeMap<String, u64> = limit_parts(limits, sets, 1, name).into_iter().collect();
        if limits.request_size > 0 {
            value.insert("iops-size".to_owned(), if sets { limits.request_size } else { 0 });
        }
        return qmp(vm, "qom-set", &json!({ "path": group_path(limits), "property": "limits", "value": value }));
    }
    if is_libvirts(vm) {
        let name = |unit: &str, kind: usize, part: &str| {
            let unit = if unit == "bps" { "bytes" } else { unit };
            format!("--{}-{unit}-sec{part}", ["total", "read", "write"][kind])
        };
        let mut parts = limit_parts(limits, sets, 0, name);
        if limits.request_size > 0 {
            parts.push(("--size-iops-sec".to_owned(), if sets { limits.request_size } else { 0 }));
        }
        let file = disk.file.to_string_lossy().into_owned();
        let words = ["blkdeviotune", "DOMAIN", &file, "--live"].map(str::to_owned);
        let numbers = parts.into_iter().flat_map(|(name, value)| [name, value.to_string()]);
        return virsh(vm, &words.into_iter().chain(numbers).collect::<Vec<_>>());
    }
    let name =
        |unit: &str, kind: usize, part: &str| format!("{unit}{}{}", ["", "_rd", "_wr"][kind], part.replace('-', "_"));
    let mut arguments: Map<String, Value> =
        limit_parts(limits, sets, 1, name).into_iter().map(|(name, value)| (name, value.into())).collect();
    arguments.insert("id".to_owned(), disk.device.as_str().into());
    if sets {
        // Without limits the disk is in no group.
        arguments.insert("group".to_owned(), limits.group.as_str().into());
        arguments.extend((limits.request_size > 0).then(|| ("iops_size".to_owned(), limits.request_size.into())));
    }
    qmp(vm, "block_set_io_throttle", &arguments.into())
}

/// Each part of limits, named by its unit (`iops`, `bps`), its kind (all, reads, writes) and the part (``, `-max`, `-max-length`),
/// with its value; 0 to take it away, of a burst's length `no_length`.
fn limit_parts(
    limits: &IoLimits,
    sets: bool,
    no_length: u64,
    name: impl Fn(&str, usize, &str) -> String,
) -> Vec<(String, u64)> {
    let units = [
        ("iops", limits.requests_per_s, limits.burst_requests_per_s, limits.burst_requests_s),
        ("bps", limits.bytes_per_s, limits.burst_bytes_per_s, limits.burst_bytes_s),
    ];
    let mut parts = Vec::new();
    for (unit, rates, bursts, lengths) in units {
        for kind in 0..3 {
            parts.push((name(unit, kind, ""), if sets { rates[kind] } else { 0 }));
            if bursts[kind] > 0 {
                parts.push((name(unit, kind, "-max"), if sets { bursts[kind] } else { 0 }));
                parts.push((name(unit, kind, "-max-length"), if sets { lengths[kind].max(1) } else { no_length }));
            }
        }
    }
    parts
}

/// The command that reads limits.
fn read_limits(vm: &VmRates, disk: &DiskSettings, limits: &IoLimits) -> String {
    match (limits.is_object, is_libvirts(vm)) {
        (true, _) => qmp(vm, "qom-get", &json!({ "path": group_path(limits), "property": "limits" })),
        (false, true) => virsh(vm, &["blkdeviotune", "DOMAIN", &disk.file.to_string_lossy()]),
        (false, false) => "QMP query-block: iops, bps".to_owned(),
    }
}

fn group_path(limits: &IoLimits) -> String {
    format!("/objects/{}", limits.group)
}

/// How many times the guest's bytes QEMU reads: by system calls, or from block devices where it reads past the page cache.
fn read_factor(vm: &VmRates) -> Option<f64> {
    let guest = vm.io?.read_bytes_per_s;
    let device = vm.process_io.map(|[read, _]| read);
    let read = vm.rchar_per_s.into_iter().chain(device).reduce(f64::max)?;
    (guest > 0.0).then(|| read / guest)
}

fn cache_values(vm: &VmRates, disk: &DiskSettings, image: &Qcow2Settings) -> Vec<(&'static str, String)> {
    let full = image.full_cache().checked_next_multiple_of(image.cluster_size.max(1)).unwrap_or(u64::MAX);
    // Devices that the user did not name have brackets in their path.
    let reopen = |size: u64| {
        let line = format!("qemu-io -d {} \"reopen -o l2-cache-size={size}\"", disk.device);
        qmp(vm, "human-monitor-command", &json!({ "command-line": line }))
    };
    vec![
        ("ENLARGE", reopen(full)),
        ("SHRINK", reopen(image.l2_cache.unwrap_or(full))),
        ("CACHE_BYTES", full.to_string()),
        ("CACHE_SIZE", bytes(full)),
        ("VM", vm.argument()),
    ]
}

#[cfg(test)]
#[path = "vm_disk_settings_tests.rs"]
mod tests;
