//! Settings of the host's block device beneath a running VM's disk: its I/O scheduler.
//!
//! Not its read-ahead: the kernel takes that when a file is opened, and QEMU has its images open.

use super::vm_guest::{BUSY_PER_S, SCHEDULERS};
use crate::rule::live_change;
use crate::{Finding, Rule};
use vmtax_findings::{DiskRates, VmRates};
use vmtax_model::number::significant;
use vmtax_model::{
    ChangeCost, HostQueue, LiveChange, LiveMetric, LiveSetting, Remedy, SettingPlace,
};

pub(super) const VM_HOST_SCHEDULER: Rule = Rule {
    id: "vm-host-scheduler",
    finds: "a disk on a device of the host whose requests the host schedules by bfq or kyber, 500 a second and more",
    remedies: &[Remedy {
        place: SettingPlace::HostSysfs,
        setting: "/sys/block/HOST_DISK/queue/scheduler",
        value: "none",
        action: "Set the I/O scheduler of the host's disk to none; processes and control groups then have no I/O priorities and weights on it",
        line: "echo none | sudo tee /sys/block/HOST_DISK/queue/scheduler",
        cost: Some(ChangeCost::HostSetting),
        read_back: "/sys/block/HOST_DISK/queue/scheduler",
        undo: "echo BEFORE | sudo tee /sys/block/HOST_DISK/queue/scheduler",
    }],
    source: "Linux kernel documentation, Switching Scheduler",
    evaluate: |evidence| {
        let Some(vm) = evidence.vm else {
            return Vec::new();
        };
        vm.settings
            .host_queues
            .iter()
            .filter_map(|queue| scheduler(vm, queue))
            .collect()
    },
};

fn scheduler(vm: &VmRates, queue: &HostQueue) -> Option<Finding> {
    let HostQueue {
        device, scheduler, ..
    } = queue;
    let on_it = |disk: &DiskRates| {
        let on = disk.device.as_ref()?;
        (on.name == *device).then_some(on.per_s)
    };
    let mut disks = vm.disks.iter();
    let (disk, per_s) = disks.find_map(|disk| Some((disk, on_it(disk)?)))?;
    let holds_back = SCHEDULERS.contains(&scheduler.as_str()) && per_s >= BUSY_PER_S;
    let text = format!(
        "The host schedules the requests of {device}, which holds {}, by {scheduler}, {} a second of all processes.",
        disk.name,
        significant(per_s)
    );
    let action = format!("Set the host's I/O scheduler of {device} to none");
    let setting = LiveSetting::HostFile {
        path: queue.scheduler_file(),
    };
    holds_back.then(|| Finding {
        values: vec![("HOST_DISK", device.clone()), ("BEFORE", scheduler.clone())],
        change: Some(LiveChange {
            cost: ChangeCost::HostSetting,
            metric: Some(LiveMetric::Latency),
            disk: Some(disk.name.clone()),
            ..live_change(action, setting, "none".to_owned())
        }),
        ..Finding::new(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::advice;
    use vmtax_findings::{Advice, DeviceRates};
    use vmtax_model::VmSettings;

    fn found(scheduler: &str, device: &str, per_s: f64) -> Vec<Advice> {
        let queue = HostQueue {
            device: "sda".to_owned(),
            scheduler: scheduler.to_owned(),
            rotational: None,
        };
        let disks = ["system", "data"].map(|name| DiskRates {
            name: name.to_owned(),
            device: Some(DeviceRates {
                name: device.to_owned(),
                per_s,
                ..DeviceRates::default()
            }),
            ..DiskRates::default()
        });
        let settings = VmSettings {
            host_queues: vec![queue],
            ..VmSettings::default()
        };
        let vm = VmRates {
            disks: disks.to_vec(),
            settings,
            ..VmRates::default()
        };
        advice(
            "vm-host-scheduler",
            &Evidence {
                vm: Some(&vm),
                ..Evidence::default()
            },
        )
    }

    #[test]
    fn a_scheduler_of_a_busy_device_is_found_once() {
        let all = found("bfq", "sda", 900.0);
        let [advice] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(
            advice.finding,
            "The host schedules the requests of sda, which holds system, by bfq, 900 a second of all processes."
        );
        assert_eq!(
            advice.remedies[0].line,
            "echo none | sudo tee /sys/block/sda/queue/scheduler"
        );
        assert_eq!(
            advice.remedies[0].undo,
            "echo bfq | sudo tee /sys/block/sda/queue/scheduler"
        );
        let change = advice.change.as_ref().unwrap();
        let path = "/sys/block/sda/queue/scheduler".into();
        assert_eq!(
            (&change.settings[0].setting, change.cost),
            (&LiveSetting::HostFile { path }, ChangeCost::HostSetting)
        );
    }

    #[test]
    fn a_device_that_has_little_to_do_or_passes_on_is_fine() {
        for (scheduler, device, per_s) in [
            ("bfq", "sda", 90.0),
            ("mq-deadline", "sda", 900.0),
            ("bfq", "sdb", 900.0),
        ] {
            assert_eq!(
                found(scheduler, device, per_s),
                [],
                "{scheduler} {device} {per_s}"
            );
        }
    }
}
