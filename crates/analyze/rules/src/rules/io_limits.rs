//! The limits of a running VM's disk: how much of them its requests use, and the commands that remove and restore them.

use super::monitor_command::{is_libvirts, qmp, virsh};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use vmtax_model::number::significant;
use vmtax_model::{
    ChangeCost, DiskSettings, IoLimits, LiveChange, LiveMetric, LiveSetting, SettingValue, VmRates,
};

/// Requests that use so much of a limit run at it.
const AT_LIMIT: f64 = 0.9;

/// Returns the limit that the disks of a group reach, and how much of it they use, in words; `None` below 90 % of it.
pub(super) fn limit_reached(vm: &VmRates, limits: &IoLimits) -> Option<String> {
    let (used, what) = used(limits, &of_group(vm, limits));
    (used >= AT_LIMIT).then_some(what)
}

/// The requests of all disks of a group: a second all, reads, writes, then their bytes.
fn of_group(vm: &VmRates, limits: &IoLimits) -> [f64; 6] {
    let is_in = |disk: &&DiskSettings| {
        disk.limits
            .as_ref()
            .is_some_and(|own| own.group == limits.group && own.is_object == limits.is_object)
    };
    let disks = vm.settings.disks.iter().filter(is_in);
    let rates = disks.filter_map(|settings| vm.disk(&settings.name)?.io);
    rates.fold([0.0; 6], |sum, io| {
        let (reads, writes) = (io.reads_per_s, io.writes_per_s);
        let (read, written) = (io.read_bytes_per_s, io.written_bytes_per_s);
        let all = [reads + writes, reads, writes, read + written, read, written];
        std::array::from_fn(|at| sum[at] + all[at])
    })
}

/// The limit that is used most: which part of it, and both in words.
fn used(limits: &IoLimits, rates: &[f64; 6]) -> (f64, String) {
    const NAMES: [&str; 6] = [
        "requests",
        "reads",
        "writes",
        "bytes",
        "bytes read",
        "bytes written",
    ];
    let all = limits
        .requests_per_s
        .iter()
        .chain(&limits.bytes_per_s)
        .zip(rates)
        .zip(NAMES);
    let used = all
        .filter(|((limit, _), _)| **limit > 0)
        .map(|((limit, rate), name)| {
            let part = rate / *limit as f64;
            (
                part,
                format!("{} of {limit} {name} a second", significant(*rate)),
            )
        });
    used.max_by(|(a, _), (b, _)| a.total_cmp(b))
        .unwrap_or_default()
}

/// The command that sets limits with their bursts, or takes all of them away.
pub(super) fn limit_command(
    vm: &VmRates,
    disk: &DiskSettings,
    limits: &IoLimits,
    sets: bool,
) -> String {
    if limits.is_object {
        let value = group_limits(limits, sets);
        return qmp(
            vm,
            "qom-set",
            &json!({ "path": group_path(limits), "property": "limits", "value": value }),
        );
    }
    if is_libvirts(vm) {
        let name = |unit: &str, kind: usize, part: &str| {
            let unit = if unit == "bps" { "bytes" } else { unit };
            format!("--{}-{unit}-sec{part}", ["total", "read", "write"][kind])
        };
        let mut parts = limit_parts(limits, sets, 0, name);
        if limits.request_size > 0 {
            parts.push((
                "--size-iops-sec".to_owned(),
                if sets { limits.request_size } else { 0 },
            ));
        }
        let file = disk.file.to_string_lossy().into_owned();
        let words = ["blkdeviotune", "DOMAIN", &file, "--live"].map(str::to_owned);
        let numbers = parts
            .into_iter()
            .flat_map(|(name, value)| [name, value.to_string()]);
        return virsh(vm, &words.into_iter().chain(numbers).collect::<Vec<_>>());
    }
    let name = |unit: &str, kind: usize, part: &str| {
        format!(
            "{unit}{}{}",
            ["", "_rd", "_wr"][kind],
            part.replace('-', "_")
        )
    };
    let mut arguments: Map<String, Value> = limit_parts(limits, sets, 1, name)
        .into_iter()
        .map(|(name, value)| (name, value.into()))
        .collect();
    arguments.insert("id".to_owned(), disk.device.as_str().into());
    if sets {
        // Without limits the disk is in no group.
        arguments.insert("group".to_owned(), limits.group.as_str().into());
        arguments.extend(
            (limits.request_size > 0).then(|| ("iops_size".to_owned(), limits.request_size.into())),
        );
    }
    qmp(vm, "block_set_io_throttle", &arguments.into())
}

/// Returns the value of the property `limits` of a throttle group.
fn group_limits(limits: &IoLimits, sets: bool) -> BTreeMap<String, u64> {
    let name = |unit: &str, kind: usize, part: &str| {
        format!("{unit}-{}{part}", ["total", "read", "write"][kind])
    };
    let mut value: BTreeMap<String, u64> = limit_parts(limits, sets, 1, name).into_iter().collect();
    if limits.request_size > 0 {
        value.insert(
            "iops-size".to_owned(),
            if sets { limits.request_size } else { 0 },
        );
    }
    value
}

/// No limits, which `vmtax tune` can try; the disks of a group are limited together.
pub(super) fn without_limits(vm: &VmRates, disk: &DiskSettings, limits: &IoLimits) -> LiveChange {
    let in_group = |disk: &&DiskSettings| {
        disk.limits
            .as_ref()
            .is_some_and(|other| other.group == limits.group)
    };
    let is_alone =
        limits.group.is_empty() || vm.settings.disks.iter().filter(in_group).count() == 1;
    let (setting, value) = if limits.is_object {
        let property = LiveSetting::QomProperty {
            path: group_path(limits),
            property: "limits".to_owned(),
        };
        (property, json!(group_limits(limits, false)))
    } else {
        (
            LiveSetting::DiskLimits {
                device: disk.device.clone(),
            },
            json!({}),
        )
    };
    LiveChange {
        action: format!("Remove the I/O limits of {}", disk.name),
        cost: ChangeCost::Live,
        metric: Some(LiveMetric::Latency),
        disk: is_alone.then(|| disk.name.clone()),
        settings: vec![SettingValue {
            setting,
            value: value.to_string(),
        }],
    }
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
        (
            "iops",
            limits.requests_per_s,
            limits.burst_requests_per_s,
            limits.burst_requests_s,
        ),
        (
            "bps",
            limits.bytes_per_s,
            limits.burst_bytes_per_s,
            limits.burst_bytes_s,
        ),
    ];
    let mut parts = Vec::new();
    for (unit, rates, bursts, lengths) in units {
        for kind in 0..3 {
            parts.push((name(unit, kind, ""), if sets { rates[kind] } else { 0 }));
            if bursts[kind] > 0 {
                parts.push((
                    name(unit, kind, "-max"),
                    if sets { bursts[kind] } else { 0 },
                ));
                parts.push((
                    name(unit, kind, "-max-length"),
                    if sets {
                        lengths[kind].max(1)
                    } else {
                        no_length
                    },
                ));
            }
        }
    }
    parts
}

/// The command that reads limits.
pub(super) fn read_limits(vm: &VmRates, disk: &DiskSettings, limits: &IoLimits) -> String {
    match (limits.is_object, is_libvirts(vm)) {
        (true, _) => qmp(
            vm,
            "qom-get",
            &json!({ "path": group_path(limits), "property": "limits" }),
        ),
        (false, true) => virsh(
            vm,
            &["blkdeviotune", "DOMAIN", &disk.file.to_string_lossy()],
        ),
        (false, false) => "QMP query-block: iops, bps".to_owned(),
    }
}

fn group_path(limits: &IoLimits) -> String {
    format!("/objects/{}", limits.group)
}
