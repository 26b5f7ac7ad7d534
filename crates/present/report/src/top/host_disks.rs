//! The host's block devices beneath the disks of VMs. Their figures are those of all their users, and no VM's.

use std::collections::BTreeMap;
use vmtax_model::number::{nanoseconds, significant};
use vmtax_model::{DeviceRates, VmRates};

/// "Host disks, all users: vda 605 µs a request, 34.0 IOPS"; `None` where none is known.
pub fn host_disks(vms: &[VmRates]) -> Option<String> {
    let devices = vms
        .iter()
        .flat_map(|vm| &vm.disks)
        .filter_map(|disk| disk.device.as_ref());
    let by_name: BTreeMap<&str, &DeviceRates> = devices
        .map(|device| (device.name.as_str(), device))
        .collect();
    let text = |device: &DeviceRates| match device.mean_ns {
        Some(ns) => format!(
            "{} {} a request, {} IOPS",
            device.name,
            nanoseconds(ns),
            significant(device.per_s)
        ),
        None => format!("{} no requests", device.name),
    };
    let all: Vec<String> = by_name.into_values().map(text).collect();
    (!all.is_empty()).then(|| format!("Host disks, all users: {}", all.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::DiskRates;

    #[test]
    fn each_device_is_named_once() {
        let on = |name: &str, mean_ns| {
            let device = Some(DeviceRates {
                name: name.to_owned(),
                per_s: 34.0,
                mean_ns,
            });
            DiskRates {
                device,
                ..DiskRates::default()
            }
        };
        let vm = |disks| VmRates {
            disks,
            ..VmRates::default()
        };
        let vms = [
            vm(vec![on("vda", Some(605e3)), on("sdb", None)]),
            vm(vec![on("vda", Some(605e3))]),
        ];
        let line = host_disks(&vms).map(|line| line.replace('\u{a0}', " "));
        assert_eq!(
            line.as_deref(),
            Some("Host disks, all users: sdb no requests; vda 605 µs a request, 34.0 IOPS")
        );
        assert_eq!(host_disks(&[vm(vec![DiskRates::default()])]), None);
    }
}
