//! A limit raised in place of being removed: what somebody has set a limit for may need one.

use super::io_limits::{doubled_limits, group_path};
use vmtax_findings::VmRates;
use vmtax_model::{DiskSettings, IoLimits, LiveChange, LiveSetting, SettingValue};

/// Returns the change that doubles the limits, CPU quotas or I/O limits, which a change of a VM removes. `None` for a change that
/// removes none, and where a limit is not known.
pub fn raised_limit(vm: &VmRates, change: &LiveChange) -> Option<LiveChange> {
    let limits = change.action.strip_prefix("Remove ")?;
    let raised = |removed: &SettingValue| {
        Some(SettingValue {
            setting: removed.setting.clone(),
            value: doubled(vm, &removed.setting)?,
        })
    };
    let settings: Option<Vec<SettingValue>> = change.settings.iter().map(raised).collect();
    Some(LiveChange {
        action: format!("Double {limits}"),
        settings: settings?,
        ..change.clone()
    })
}

/// Returns twice the limit that a setting has now.
fn doubled(vm: &VmRates, setting: &LiveSetting) -> Option<String> {
    let limited = || {
        let disks = vm.settings.disks.iter();
        disks.filter_map(|disk| Some((disk, disk.limits.as_ref()?)))
    };
    let of_disk = |(disk, limits): (&DiskSettings, &IoLimits)| doubled_limits(disk, limits);
    match setting {
        LiveSetting::HostFile { path } => {
            let quota = vm
                .settings
                .quotas
                .iter()
                .find(|quota| quota.file == *path)?;
            doubled_quota(&quota.quota)
        }
        LiveSetting::DiskLimits { device } => limited()
            .find(|(disk, _)| disk.device == *device)
            .map(of_disk),
        LiveSetting::QomProperty { path, .. } => limited()
            .find(|(_, limits)| limits.is_object && group_path(limits) == *path)
            .map(of_disk),
        _ => None,
    }
}

/// `20000 100000` or `20000`: of each period, of which a cgroup of version 1 has a file of its own, the first number is the quota,
/// in microseconds.
fn doubled_quota(quota: &str) -> Option<String> {
    let (number, period) = match quota.split_once(' ') {
        Some((number, period)) => (number, format!(" {period}")),
        None => (quota, String::new()),
    };
    let number: u64 = number.trim().parse().ok()?;
    Some(format!("{}{period}", number.checked_mul(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::advice;
    use vmtax_model::{CpuQuota, VmSettings};

    #[test]
    fn a_quota_is_doubled_in_either_form() {
        assert_eq!(
            doubled_quota("20000 100000").as_deref(),
            Some("40000 100000")
        );
        assert_eq!(doubled_quota("20000").as_deref(), Some("40000"));
        assert_eq!(
            [doubled_quota("max 100000"), doubled_quota("-1")],
            [None, None]
        );
    }

    #[test]
    fn the_change_that_a_rule_proposes_is_raised_and_no_other() {
        let quota = CpuQuota {
            file: "/sys/fs/cgroup/vm/cpu.max".into(),
            quota: "20000 100000".to_owned(),
            unlimited: "max 100000".to_owned(),
            is_shared: false,
        };
        let vm = VmRates {
            throttled: Some(0.4),
            settings: VmSettings {
                quotas: vec![quota],
                ..VmSettings::default()
            },
            ..VmRates::default()
        };
        let evidence = Evidence {
            vm: Some(&vm),
            ..Evidence::default()
        };
        let change = advice("vm-throttled", &evidence)[0].change.clone().unwrap();
        let raised = raised_limit(&vm, &change).unwrap();
        assert_eq!(
            raised.action,
            "Double the CPU quota of the VM's control group"
        );
        assert_eq!(raised.settings[0].value, "40000 100000");
        assert_eq!(raised.settings[0].setting, change.settings[0].setting);
        let other = LiveChange {
            action: "Set the clock".to_owned(),
            ..change
        };
        assert_eq!(raised_limit(&vm, &other), None);
    }

    #[test]
    fn io_limits_are_doubled_in_the_form_of_their_setting() {
        let limits = |is_object| IoLimits {
            group: "g".to_owned(),
            is_object,
            requests_per_s: [20, 0, 0],
            ..IoLimits::default()
        };
        let disk = |is_object| DiskSettings {
            name: "vda".to_owned(),
            device: "virtio0".to_owned(),
            limits: Some(limits(is_object)),
            ..DiskSettings::default()
        };
        for is_object in [false, true] {
            let vm = VmRates {
                settings: VmSettings {
                    disks: vec![disk(is_object)],
                    ..VmSettings::default()
                },
                ..VmRates::default()
            };
            let disk = &vm.settings.disks[0];
            let change = super::super::io_limits::without_limits(&vm, disk, &limits(is_object));
            let raised = raised_limit(&vm, &change).unwrap();
            assert_eq!(raised.action, "Double the I/O limits of vda");
            let value: serde_json::Value = serde_json::from_str(&raised.settings[0].value).unwrap();
            let key = if is_object { "iops-total" } else { "iops" };
            assert_eq!(value[key], 40, "{value}");
            assert!(value.get("id").is_none(), "{value}");
        }
    }
}
