//! Settings of a running VM's disk that its requests wait for: a limit, a flush after each write, a small cache of qcow2 tables.

use super::io_limits::{limit_command, limit_reached, read_limits, without_limits};
use super::vm_io::{MIN_PER_S, MIN_WAITING, waiting};
use crate::evidence::MIN_SHARE;
use crate::rule::{live_change, measurement, qmp};
use crate::{Evidence, Finding, Rule, VmPart};
use serde_json::json;
use vmtax_findings::{DiskRates, IoRates, VmRates};
use vmtax_model::number::{bytes, nanoseconds, percent, significant};
use vmtax_model::{
    ChangeCost, DiskSettings, GuestDiskSettings, LiveChange, LiveMetric, LiveSetting,
    Qcow2Settings, Remedy, Setting, SettingPlace,
};

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
            let waits = waiting(io.per_s(), io.blkavg_ns?);
            let text = format!(
                "Requests on {} run at the limit of throttle group {}: {what}; one takes {} (BLKAVG).",
                disk.name,
                limits.group.escape_default(),
                nanoseconds(io.blkavg_ns?),
            );
            (waits >= MIN_WAITING).then(|| Finding {
                values: vec![
                    ("UNLIMIT", limit_command(vm, settings, limits, false)),
                    ("LIMIT_AGAIN", limit_command(vm, settings, limits, true)),
                    ("READ_BACK", read_limits(vm, settings, limits)),
                    ("VM", vm.argument()),
                ],
                change: Some(without_limits(vm, settings, limits)),
                ..Finding::with_gain(text, waits)
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
            action: "Switch the disk to write-back in the guest: writes that it has not flushed are lost if the host crashes",
            line: "echo \"write back\" | sudo tee CACHE_FILE # in the guest; CACHE_DISK: its name for DISK_NAME",
            cost: Some(ChangeCost::Live),
            read_back: "QMP query-block: writeback",
            undo: "echo \"write through\" | sudo tee CACHE_FILE",
        },
        Setting::named("cache").remedy("none", "Start the VM with a write-back cache: a guest that never flushes can lose its last writes"),
    ],
    source: "QEMU manual page, -drive: cache",
    evaluate: |evidence| {
        each_disk(evidence, |vm, disk, io, settings| {
            let ns = io
                .write_ns
                .filter(|_| settings.write_through == Some(true))?;
            let time = waiting(io.writes_per_s, ns);
            let text = format!(
                "QEMU flushes each write on {} before it completes (write-through): {} a second, each {}.",
                disk.name,
                significant(io.writes_per_s),
                nanoseconds(ns)
            );
            let guest = vm
                .settings
                .in_guest(&disk.name)
                .filter(|guest| guest.cache_type.is_some());
            let guessed_file = cache_file(settings);
            let guessed = if is_virtio(settings) { "vda" } else { "sda" };
            let file = guest.map_or_else(
                || guessed_file.unwrap_or_default().to_owned(),
                |guest| guest.file("cache_type"),
            );
            let name = guest.map_or(guessed, |guest| &guest.name);
            (io.writes_per_s >= MIN_PER_S && time >= MIN_SHARE).then(|| Finding {
                values: vec![
                    ("CACHE_FILE", file),
                    ("CACHE_DISK", name.to_owned()),
                    ("DISK_NAME", disk.name.clone()),
                ],
                change: guest.and_then(|guest| written_back(settings, guest)),
                unfit: guessed_file.is_none().then_some(SettingPlace::GuestSysfs),
                ..Finding::with_gain(text, time)
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
        Setting::named("l2-cache-size").remedy("CACHE_BYTES", "And start the VM with it"),
    ],
    source: "QEMU documentation, qcow2 L2/refcount cache configuration",
    evaluate: |evidence| {
        each_disk(evidence, |vm, disk, io, settings| {
            let image = settings.qcow2.as_ref()?;
            let covered = image.covered().filter(|covered| *covered < COVERED)?;
            let factor = read_factor(vm)?;
            let time = waiting(io.reads_per_s, io.read_ns?);
            let text = format!(
                "QEMU's cache holds {} of the L2 tables of {}: it reads {} times as many bytes as the guest requests, {} reads a second.",
                percent(covered),
                disk.name,
                significant(factor),
                significant(io.reads_per_s)
            );
            let is_missed = factor >= MIN_READ_FACTOR && io.reads_per_s >= MIN_PER_S;
            // What a hit takes is not known: it may be next to nothing.
            let gain = time * (1.0 - covered);
            (is_missed && time >= MIN_SHARE).then(|| Finding {
                values: cache_values(vm, settings, image),
                change: larger_cache(settings, image),
                // A disk whose first node is the throttle group's has no such options.
                unfit: is_in_group_object(settings).then_some(SettingPlace::Qmp),
                ..Finding::with_gain(text, gain)
            })
        })
    },
};

/// The guest flushes when its writes have to be durable, which `vmtax tune` can try where an agent in it sets that.
fn written_back(disk: &DiskSettings, guest: &GuestDiskSettings) -> Option<LiveChange> {
    let is_through = guest.cache_type.as_deref() == Some("write through");
    // What was written meanwhile is not durable when each write is again.
    let setting = LiveSetting::GuestFile {
        path: guest.file("cache_type"),
        flushed: Some(disk.device.clone()),
    };
    let action = format!(
        "Switch {} to write-back in the guest (writes that it has not flushed are lost if the host crashes)",
        guest.name
    );
    is_through.then(|| LiveChange {
        metric: Some(LiveMetric::WriteLatency),
        disk: Some(guest.disk.clone()),
        ..live_change(action, setting, "write back".to_owned())
    })
}

/// The file in a Linux guest that sets a disk's cache; `None` where none is known, as for NVMe.
fn cache_file(settings: &DiskSettings) -> Option<&'static str> {
    let has_prefix = |prefix: &&str| settings.driver.starts_with(prefix);
    if is_virtio(settings) {
        return Some("/sys/block/vda/cache_type");
    }
    // Linux drives SATA disks as SCSI disks.
    let is_of_scsi = ["scsi-", "ide-"].iter().any(has_prefix);
    is_of_scsi.then_some("/sys/block/sda/device/scsi_disk/*/cache_type")
}

fn is_virtio(settings: &DiskSettings) -> bool {
    settings.driver.starts_with("virtio-blk")
}

/// Returns the findings of each disk whose settings and requests are known.
fn each_disk(
    evidence: &Evidence<'_>,
    find: impl Fn(&VmRates, &DiskRates, &IoRates, &DiskSettings) -> Option<Finding>,
) -> Vec<Finding> {
    let Some(vm) = evidence.vm else {
        return Vec::new();
    };
    let found = |settings: &DiskSettings| {
        let disk = vm.disk(&settings.name)?;
        let finding = find(vm, disk, disk.io.as_ref()?, settings)?;
        Some(Finding {
            part: VmPart::Disk(disk.name.clone()),
            ..finding
        })
    };
    vm.settings.disks.iter().filter_map(found).collect()
}

/// A cache for all tables, which `vmtax tune` can try where what it is now is known.
fn larger_cache(disk: &DiskSettings, image: &Qcow2Settings) -> Option<LiveChange> {
    let setting = LiveSetting::Qcow2Cache {
        device: disk.device.clone(),
        started_with: image.l2_cache?,
    };
    let full = full_cache(image);
    let action = format!(
        "Give the qcow2 image of {} an L2 cache of {}",
        disk.name,
        bytes(full)
    );
    (!is_in_group_object(disk)).then(|| LiveChange {
        metric: Some(LiveMetric::Latency),
        disk: Some(disk.name.clone()),
        ..live_change(action, setting, full.to_string())
    })
}

/// Returns true if a throttle group of its own is the disk's first node.
fn is_in_group_object(disk: &DiskSettings) -> bool {
    disk.limits.as_ref().is_some_and(|limits| limits.is_object)
}

/// The cache that holds all tables of an image, in whole clusters, bytes.
fn full_cache(image: &Qcow2Settings) -> u64 {
    image
        .full_cache()
        .checked_next_multiple_of(image.cluster_size.max(1))
        .unwrap_or(u64::MAX)
}

/// Returns the ratio of the bytes that QEMU reads to the guest's: by system calls, or from block devices where it
/// reads past the page cache.
fn read_factor(vm: &VmRates) -> Option<f64> {
    let guest = vm.io?.read_bytes_per_s;
    let device = vm.process_io.map(|[read, _]| read);
    let read = vm.rchar_per_s.into_iter().chain(device).reduce(f64::max)?;
    (guest > 0.0).then(|| read / guest)
}

fn cache_values(
    vm: &VmRates,
    disk: &DiskSettings,
    image: &Qcow2Settings,
) -> Vec<(&'static str, String)> {
    let full = full_cache(image);
    // Devices that the user did not name have brackets in their path.
    let reopen = |size: u64| {
        let device = &disk.device;
        let line = format!("qemu-io -d {device} \"reopen -o l2-cache-size={size}\"");
        let arguments = json!({ "command-line": line });
        qmp(vm, "human-monitor-command", &arguments)
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
