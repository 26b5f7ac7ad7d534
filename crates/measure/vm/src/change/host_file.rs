//! Settings in files of the host's kernel.

use crate::host_settings::value_in_effect;
use crate::vm::Vm;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use vmtax_model::{HostQueue, SetBy, Setting, SettingPart};
use vmtax_observe::counters::{Cgroups, block_device};

/// Files of the VM's control groups that may be set.
const OF_A_GROUP: [&str; 4] = ["cpu.max", "cpu.cfs_quota_us", "cpu.weight", "cpu.shares"];

/// Reads the value in effect from a file of the host.
pub(super) fn read(path: &Path) -> Result<String, String> {
    value_in_effect(path).map_err(|e| e.to_string())
}

/// Writes a value.
pub(super) fn write(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|e| format!("writing {value} failed: {e}"))
}

/// Returns true for a known file, one of a control group of the VM, or the scheduler of a device beneath its disks.
pub(super) fn may_set(vm: &Vm, path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let tids: Vec<i32> = vm.vcpus().into_iter().chain([vm.pid()]).collect();
    let is_of_group = || {
        path.parent()
            .is_some_and(|folder| Cgroups::of(vm.pid(), &tids).cpu.contains(folder))
    };
    let is_of_a_disk = || {
        let devices = vm
            .facts()
            .into_iter()
            .flat_map(|facts| facts.disks)
            .filter_map(|disk| disk.host_device);
        host_queues(devices)
            .iter()
            .any(|queue| queue.scheduler_file() == path)
    };
    let is_tuned = |setting: &Setting| matches!(setting.part, SettingPart::HostFile { path: known, by: SetBy::Tune } if Path::new(known) == path);
    Setting::all().any(is_tuned)
        || (OF_A_GROUP.contains(&name) && is_of_group())
        || (name == "scheduler" && is_of_a_disk())
}

/// The queues of devices, by their numbers as [`vmtax_model::VmDisk::host_device`] has them: of whole disks.
pub(crate) fn host_queues(devices: impl Iterator<Item = u64>) -> Vec<HostQueue> {
    let queue = |number: u64| {
        let mut queue = HostQueue {
            device: block_device(number)?.name,
            scheduler: String::new(),
        };
        queue.scheduler = value_in_effect(&queue.scheduler_file()).ok()?;
        Some(queue)
    };
    devices
        .collect::<BTreeSet<u64>>()
        .into_iter()
        .filter_map(queue)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_are_set() {
        let vm = Vm::attach(std::process::id() as i32);
        let allowed = |path: &str| may_set(&vm, Path::new(path));
        assert!(allowed("/sys/module/kvm/parameters/halt_poll_ns"));
        assert!(!allowed("/etc/passwd") && !allowed("/sys/block/sda/queue/scheduler"));
        assert!(
            !allowed("/sys/fs/cgroup/somebody.slice/cpu.max"),
            "a group that is not the VM's"
        );
        assert!(!allowed("/sys/fs/cgroup/../../../etc/cpu.max") && !allowed("cpu.max"));
    }
}
