//! Places of settings, read and set: files of the host's, files of the guest's by the agent in the guest, the CPUs on which a
//! thread of a VM, or of a program that serves it, may run, and QEMU's monitor.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;
use vmtax_host::value_in_effect;
use vmtax_model::{HostQueue, PinnedThread, SetBy, Setting, SettingPart, cpu_list, in_effect};
use vmtax_observe::counters::{Cgroups, block_device, cpuset};
use vmtax_vmm::qemu::guest_agent::{self, Ask, GuestAgent};
use vmtax_vmm::qemu::monitor::Monitor;
use vmtax_vmm::{Vm, VmmError};

/// Files of the VM's control groups that may be set.
const OF_A_GROUP: [&str; 4] = ["cpu.max", "cpu.cfs_quota_us", "cpu.weight", "cpu.shares"];

/// Time limit for the agent's work on one file.
const TIMEOUT: Duration = Duration::from_secs(5);

/// File with the boot ID, which differs between two boots of a guest.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the value in effect from a file of the host.
pub(super) fn read_on_host(path: &Path) -> Result<String, String> {
    value_in_effect(path).map_err(|e| e.to_string())
}

/// Writes a value to a file of the host.
pub(super) fn write_on_host(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|e| format!("writing {value} failed: {e}"))
}

/// Returns true for a known file, one of a control group of the VM, or the scheduler of a device beneath its disks.
pub(super) fn may_set_on_host(vm: &Vm, path: &Path) -> bool {
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
            rotational: None,
        };
        queue.scheduler = value_in_effect(&queue.scheduler_file()).ok()?;
        let rotational = queue.scheduler_file().with_file_name("rotational");
        queue.rotational = value_in_effect(&rotational).ok().map(|value| value == "1");
        Some(queue)
    };
    devices
        .collect::<BTreeSet<u64>>()
        .into_iter()
        .filter_map(queue)
        .collect()
}

/// Reads the value in effect from a file of the guest.
pub(super) fn read_in_guest(vm: &Vm, path: &str) -> Result<String, String> {
    ask(vm, |ask| guest_agent::read_file(ask, path)).map(|text| in_effect(&text).to_owned())
}

/// Writes a value to a file of the guest.
pub(super) fn write_in_guest(vm: &Vm, path: &str, value: &str) -> Result<(), String> {
    ask(vm, |ask| guest_agent::write_file(ask, path, value))
}

/// Reads the ID of the boot of the guest that runs.
pub(super) fn guest_boot(vm: &Vm) -> Result<String, String> {
    ask(vm, |ask| guest_agent::read_file(ask, BOOT_ID))
}

/// Has the guest's agent carry out commands.
fn ask<T>(
    vm: &Vm,
    commands: impl FnOnce(&mut Ask<'_>) -> Result<T, VmmError>,
) -> Result<T, String> {
    let agent = GuestAgent::of(vm.pid(), vm.monitor());
    let agent =
        agent.ok_or("the VM has no channel for QEMU's guest agent (org.qemu.guest_agent.0)")?;
    agent.session(TIMEOUT, commands).map_err(|e| {
        let why = e.monitor_reason();
        format!("QEMU's guest agent: {why}. Check that qemu-guest-agent runs in the guest, and that no other program holds its socket")
    })
}

/// Reads the CPUs of a thread, as a list: `0-3,8`.
pub(super) fn affinity(vm: &Vm, tid: i32) -> Result<String, String> {
    let set = sched_getaffinity(Some(own(vm, tid)?)).map_err(|e| e.to_string())?;
    Ok(list(&set))
}

/// Sets the CPUs of a thread, given as such a list.
pub(super) fn set_affinity(vm: &Vm, tid: i32, cpus: &str) -> Result<(), String> {
    let mut set = CpuSet::new();
    let all = cpu_list::parse(cpus).filter(|all| all.iter().all(|cpu| *cpu < CpuSet::MAX_CPU));
    for cpu in all.ok_or_else(|| format!("\"{cpus}\" is no list of CPUs"))? {
        set.set(cpu);
    }
    sched_setaffinity(Some(own(vm, tid)?), &set).map_err(|e| format!("CPUs {cpus}: {e}"))
}

/// The host's CPUs on which a VM may run, as a list, and those of these threads that may not run on all of them: those
/// that are online and in its cpuset, without those that are isolated (`isolcpus`).
pub(crate) fn pinned(pid: i32, threads: impl Iterator<Item = i32>) -> (String, Vec<PinnedThread>) {
    let cpus_in_file = |file: &str| {
        let text =
            std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default();
        cpu_list::parse(&text)
            .unwrap_or_default()
            .into_iter()
            .collect::<BTreeSet<usize>>()
    };
    let cpuset = cpuset(pid)
        .and_then(|list| cpu_list::parse(&list))
        .map(|cpus| cpus.into_iter().collect::<BTreeSet<usize>>());
    let (online, isolated) = (cpus_in_file("online"), cpus_in_file("isolated"));
    let is_usable = |cpu: &usize| {
        !isolated.contains(cpu) && cpuset.as_ref().is_none_or(|set| set.contains(cpu))
    };
    let all: BTreeSet<usize> = online.into_iter().filter(is_usable).collect();
    let pinned = |tid: i32| {
        let set = sched_getaffinity(Some(Pid::from_raw(tid)?)).ok()?;
        let is_pinned = all.iter().any(|cpu| !set.is_set(*cpu));
        is_pinned.then(|| PinnedThread {
            tid,
            cpus: list(&set),
        })
    };
    let pinned = threads.filter_map(pinned).collect();
    (cpu_list::format(all.iter().copied()), pinned)
}

/// Returns true if the VM's process has the thread.
pub(super) fn thread_exists(vm: &Vm, tid: i32) -> bool {
    Path::new(&format!("/proc/{}/task/{tid}", vm.pid())).exists()
}

/// A thread of the VM's process; of no other.
fn own(vm: &Vm, tid: i32) -> Result<Pid, String> {
    Pid::from_raw(tid)
        .filter(|_| thread_exists(vm, tid))
        .ok_or_else(|| "the thread has ended".to_owned())
}

/// The CPUs of a set, as a list.
fn list(set: &CpuSet) -> String {
    cpu_list::format((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)))
}

/// The limits that `query-block` tells and `block_set_io_throttle` takes.
const LIMITS: [&str; 19] = [
    "bps",
    "bps_rd",
    "bps_wr",
    "iops",
    "iops_rd",
    "iops_wr",
    "bps_max",
    "bps_rd_max",
    "bps_wr_max",
    "iops_max",
    "iops_rd_max",
    "iops_wr_max",
    "bps_max_length",
    "bps_rd_max_length",
    "bps_wr_max_length",
    "iops_max_length",
    "iops_rd_max_length",
    "iops_wr_max_length",
    "iops_size",
];

/// Those that `block_set_io_throttle` must be given.
const REQUIRED: [&str; 6] = ["bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"];

/// The limits of a disk, as a JSON object, with its throttle group.
pub(super) fn limits(vm: &Vm, device: &str) -> Result<String, String> {
    let monitor = monitor(vm)?;
    let answer = monitor.execute("query-block").map_err(|e| e.to_string())?;
    let disks = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let disk = disks
        .iter()
        .find(|disk| disk["qdev"] == device || disk["device"] == device);
    let inserted = &disk.ok_or("QEMU has no such disk")?["inserted"];
    let known = LIMITS
        .iter()
        .chain(&["group"])
        .filter_map(|key| Some(((*key).to_owned(), inserted.get(key)?.clone())));
    let mut found: Map<String, Value> = known.collect();
    // A disk without limits is in no group.
    if REQUIRED
        .iter()
        .all(|key| found.get(*key).is_none_or(|limit| *limit == 0))
    {
        found.clear();
    }
    Ok(Value::Object(found).to_string())
}

/// Sets the limits of a disk, given as JSON.
pub(super) fn set_limits(vm: &Vm, device: &str, limits: &str) -> Result<(), String> {
    let mut arguments: Map<String, Value> =
        serde_json::from_str(limits).map_err(|e| e.to_string())?;
    if !arguments
        .keys()
        .all(|key| LIMITS.contains(&&**key) || key == "group")
    {
        return Err(format!("{limits} has something that is no limit"));
    }
    for key in REQUIRED {
        arguments.entry(key).or_insert_with(|| json!(0));
    }
    arguments.insert("id".to_owned(), json!(device));
    execute(vm, "block_set_io_throttle", &Value::Object(arguments)).map(drop)
}

/// Limits of a throttle group that is an object of its own, and how long an iothread polls; other properties do other things.
pub(super) fn may_set_property(path: &str, property: &str) -> bool {
    path.strip_prefix("/objects/")
        .is_some_and(|name| !name.is_empty() && !name.contains('/'))
        && ["limits", "poll-max-ns"].contains(&property)
}

/// A property of an object, as JSON.
pub(super) fn property(vm: &Vm, path: &str, property: &str) -> Result<String, String> {
    let arguments = json!({ "path": path, "property": property });
    execute(vm, "qom-get", &arguments).map(|value| value.to_string())
}

/// Sets a property of an object to a value, given as JSON.
pub(super) fn set_property(vm: &Vm, path: &str, property: &str, value: &str) -> Result<(), String> {
    let value: Value =
        serde_json::from_str(value).map_err(|e| format!("{value} is no JSON: {e}"))?;
    let arguments = json!({ "path": path, "property": property, "value": value });
    execute(vm, "qom-set", &arguments).map(drop)
}

/// Opens the image of a disk again with an L2 cache of so many bytes.
pub(super) fn set_l2_cache(vm: &Vm, device: &str, size: &str) -> Result<(), String> {
    let size: u64 = size
        .parse()
        .map_err(|_| format!("{size} is no size in bytes"))?;
    qemu_io(vm, device, &format!("reopen -o l2-cache-size={size}"))
}

/// Flushes what was written to a disk.
pub(super) fn flush(vm: &Vm, device: &str) -> Result<(), String> {
    qemu_io(vm, device, "flush")
}

/// Executes a command of qemu-io on a disk.
fn qemu_io(vm: &Vm, device: &str, command: &str) -> Result<(), String> {
    if !device
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./[]#".contains(&b))
    {
        return Err("the device's name cannot be written in a monitor command".to_owned());
    }
    let line = format!("qemu-io -d {device} \"{command}\"");
    let arguments = json!({ "command-line": line });
    let answer = execute(vm, "human-monitor-command", &arguments)?;
    // It answers with nothing where it worked.
    match answer.as_str().unwrap_or_default().trim() {
        "" => Ok(()),
        said => Err(said.to_owned()),
    }
}

/// Executes a command of the monitor; gives its answer.
fn execute(vm: &Vm, command: &str, arguments: &Value) -> Result<Value, String> {
    let answer = monitor(vm)?.execute_with(command, arguments);
    answer.map_err(|e| e.to_string())
}

/// The monitor of a VM, or why there is none.
fn monitor(vm: &Vm) -> Result<&Monitor, String> {
    vm.monitor()
        .ok_or_else(|| format!("QEMU's monitor is needed: {}", vm.monitor_advice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_are_set() {
        let vm = Vm::attach(std::process::id() as i32);
        let allowed = |path: &str| may_set_on_host(&vm, Path::new(path));
        assert!(allowed("/sys/module/kvm/parameters/halt_poll_ns"));
        assert!(!allowed("/etc/passwd") && !allowed("/sys/block/sda/queue/scheduler"));
        assert!(
            !allowed("/sys/fs/cgroup/somebody.slice/cpu.max"),
            "a group that is not the VM's"
        );
        assert!(!allowed("/sys/fs/cgroup/../../../etc/cpu.max") && !allowed("cpu.max"));
    }

    #[test]
    fn a_thread_of_another_process_is_left_alone() {
        let own_tid = rustix::thread::gettid().as_raw_nonzero().get();
        let vm = Vm::attach(std::process::id() as i32);
        let before = affinity(&vm, own_tid).unwrap();
        set_affinity(&vm, own_tid, &before).unwrap();
        assert!(affinity(&vm, 1).is_err() && set_affinity(&vm, own_tid, "").is_err());
        assert!(set_affinity(&vm, own_tid, "0-99999999999").is_err());
    }
}
