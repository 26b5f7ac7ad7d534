//! The limits of a running VM's disk: how much of them its requests use, and the commands that remove and restore them.

use crate::rule::{is_libvirts, live_change, qmp, virsh};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use vmtax_findings::VmRates;
use vmtax_model::number::significant;
use vmtax_model::{DiskSettings, IoLimits, LiveChange, LiveMetric, LiveSetting};

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
            let what = format!("{} of {limit} {name} a second", significant(*rate));
            (rate / *limit as f64, what)
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
        let arguments = json!({ "path": group_path(limits), "property": "limits", "value": value });
        return qmp(vm, "qom-set", &arguments);
    }
    if is_libvirts(vm) {
        let options = libvirt_limits(disk, limits, sets);
        return virsh(vm, &options);
    }
    qmp(
        vm,
        "block_set_io_throttle",
        &throttle(disk, limits, sets).into(),
    )
}

/// Returns the words of virsh's command that sets limits.
fn libvirt_limits(disk: &DiskSettings, limits: &IoLimits, sets: bool) -> Vec<String> {
    let name = |unit: &str, kind: usize, part: &str| {
        let unit = if unit == "bps" { "bytes" } else { unit };
        format!("--{}-{unit}-sec{part}", ["total", "read", "write"][kind])
    };
    let mut parts = limit_parts(limits, sets, 0, name);
    if limits.request_size > 0 {
        let size = if sets { limits.request_size } else { 0 };
        parts.push(("--size-iops-sec".to_owned(), size));
    }
    let file = disk.file.to_string_lossy().into_owned();
    let words = ["blkdeviotune", "DOMAIN", &file, "--live"].map(str::to_owned);
    let numbers = parts
        .into_iter()
        .flat_map(|(name, value)| [name, value.to_string()]);
    words.into_iter().chain(numbers).collect()
}

/// Returns the arguments of the QMP command that sets limits.
fn throttle(disk: &DiskSettings, limits: &IoLimits, sets: bool) -> Map<String, Value> {
    let name = |unit: &str, kind: usize, part: &str| {
        let part = part.replace('-', "_");
        format!("{unit}{}{part}", ["", "_rd", "_wr"][kind])
    };
    let parts = limit_parts(limits, sets, 1, name).into_iter();
    let mut arguments: Map<String, Value> = parts.map(|(name, n)| (name, n.into())).collect();
    arguments.insert("id".to_owned(), disk.device.as_str().into());
    if sets {
        // Without limits the disk is in no group.
        arguments.insert("group".to_owned(), limits.group.as_str().into());
        if limits.request_size > 0 {
            arguments.insert("iops_size".to_owned(), limits.request_size.into());
        }
    }
    arguments
}

/// Returns the value of the property `limits` of a throttle group.
fn group_limits(limits: &IoLimits, sets: bool) -> BTreeMap<String, u64> {
    let name = |unit: &str, kind: usize, part: &str| {
        format!("{unit}-{}{part}", ["total", "read", "write"][kind])
    };
    let mut value: BTreeMap<String, u64> = limit_parts(limits, sets, 1, name).into_iter().collect();
    if limits.request_size > 0 {
        let size = if sets { limits.request_size } else { 0 };
        value.insert("iops-size".to_owned(), size);
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
        let device = disk.device.clone();
        (LiveSetting::DiskLimits { device }, json!({}))
    };
    let action = format!("Remove the I/O limits of {}", disk.name);
    LiveChange {
        metric: Some(LiveMetric::Latency),
        disk: is_alone.then(|| disk.name.clone()),
        ..live_change(action, setting, value.to_string())
    }
}

/// Returns the setting of a disk's limits with all of them doubled, as [`without_limits`] sets none.
pub(super) fn doubled_limits(disk: &DiskSettings, limits: &IoLimits) -> String {
    let double = |all: [u64; 3]| all.map(|limit| limit.saturating_mul(2));
    let doubled = IoLimits {
        requests_per_s: double(limits.requests_per_s),
        bytes_per_s: double(limits.bytes_per_s),
        burst_requests_per_s: double(limits.burst_requests_per_s),
        burst_bytes_per_s: double(limits.burst_bytes_per_s),
        ..limits.clone()
    };
    if limits.is_object {
        return json!(group_limits(&doubled, true)).to_string();
    }
    let mut arguments = throttle(disk, &doubled, true);
    // The setting names the device itself.
    arguments.remove("id");
    Value::Object(arguments).to_string()
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
                let (burst, length) = match sets {
                    true => (bursts[kind], lengths[kind].max(1)),
                    false => (0, no_length),
                };
                parts.push((name(unit, kind, "-max"), burst));
                parts.push((name(unit, kind, "-max-length"), length));
            }
        }
    }
    parts
}

/// The command that reads limits.
pub(super) fn read_limits(vm: &VmRates, disk: &DiskSettings, limits: &IoLimits) -> String {
    match (limits.is_object, is_libvirts(vm)) {
        (true, _) => {
            let arguments = json!({ "path": group_path(limits), "property": "limits" });
            qmp(vm, "qom-get", &arguments)
        }
        (false, true) => {
            let file = disk.file.to_string_lossy();
            virsh(vm, &["blkdeviotune", "DOMAIN", &file])
        }
        (false, false) => qmp(vm, "query-block", &json!({})),
    }
}

pub(super) fn group_path(limits: &IoLimits) -> String {
    format!("/objects/{}", limits.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::VmSettings;

    #[test]
    fn a_command_over_qmp_is_whole_and_names_the_vms_socket() {
        let disk = DiskSettings {
            device: "virtio0".to_owned(),
            ..DiskSettings::default()
        };
        let limits = IoLimits {
            requests_per_s: [20, 0, 0],
            ..IoLimits::default()
        };
        let command = |socket: Option<&str>| {
            let vm = VmRates {
                settings: VmSettings {
                    qmp_socket: socket.map(Into::into),
                    ..VmSettings::default()
                },
                ..VmRates::default()
            };
            limit_command(&vm, &disk, &limits, false)
        };
        let known = command(Some("/run/a b,c.qmp"));
        assert!(
            known.starts_with(r#"echo '{"execute":"qmp_capabilities"}{"arguments":{"bps":0,"#)
                && known.contains(r#""execute":"block_set_io_throttle"}' | socat -t1 - "#),
            "{known}"
        );
        assert!(
            known.ends_with(r"| socat -t1 - 'UNIX-CONNECT:/run/a b\,c.qmp,shut-none'"),
            "{known}"
        );
        assert!(command(None).ends_with("UNIX-CONNECT:QMP_SOCKET,shut-none"));
    }
}
