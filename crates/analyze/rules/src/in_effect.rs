//! The value of a remedy's setting in effect: a remedy is advised only where the part is there and the value is another one.

use crate::{Evidence, Register};
use std::path::Path;
use vmtax_model::{
    Accelerator, CLOCK_SOURCE_FILE, Counter, DiskSettings, ExitReportRow, GuestSettings,
    NetBackend, Remedy, SettingPlace, ThreadGroup, VmDisk,
};

const BALLOON: &Counter = Counter::named("balloon");
/// Beginning of the settings of Hyper-V's enlightenments.
const ENLIGHTENMENT: &str = "cpu-flag.hv-";

/// The part of a VM that a finding is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VmPart {
    /// The whole VM: a setting of its disks is in effect where each of them has it.
    #[default]
    Whole,
    /// The disk of this name.
    Disk(String),
    /// The thread with this TID.
    Thread(i32),
    /// A program that serves a device of the VM from a process of its own.
    Daemon,
}

/// A setting of the VM, its guest or its host.
#[derive(Debug, PartialEq, Eq)]
enum InEffect {
    /// There is nothing to set: no such part, no such file, no control group of the VM's own.
    Absent,
    /// The value; of a setting that has several values, each.
    Values(Vec<String>),
    /// Nobody read it.
    Unknown,
}

/// True if a remedy can be applied and is not in effect, as far as that is known.
pub(crate) fn is_to_do(evidence: &Evidence<'_>, part: &VmPart, remedy: &Remedy) -> bool {
    match in_effect(evidence, part, remedy) {
        InEffect::Absent => false,
        InEffect::Values(values) => !values.contains(&remedy.value),
        InEffect::Unknown => true,
    }
}

fn in_effect(evidence: &Evidence<'_>, part: &VmPart, remedy: &Remedy) -> InEffect {
    match remedy.place {
        SettingPlace::QemuArgument => qemu_argument(evidence, part, remedy),
        SettingPlace::Qmp => monitor_setting(evidence, part, &remedy.setting),
        SettingPlace::Cgroup => control_group(evidence, part, remedy),
        SettingPlace::GuestSysfs => of_guest(evidence, |guest| guest_file(guest, &remedy.setting)),
        SettingPlace::GuestCommandLine => of_guest(evidence, |guest| {
            Some(words(guest.command_line.as_deref()?, &remedy.value))
        }),
        SettingPlace::HostSysfs => host_file(evidence, &remedy.read_back),
        SettingPlace::HostCommandLine => match host_file(evidence, "/proc/cmdline") {
            InEffect::Values(line) => {
                let has = |line: &&String| line.split(' ').any(|word| word == remedy.line);
                let set = line.iter().filter(has);
                InEffect::Values(set.map(|_| remedy.value.clone()).collect())
            }
            other => other,
        },
        // Which CPUs are free is a person's choice.
        SettingPlace::Affinity => InEffect::Unknown,
        SettingPlace::Instruction | SettingPlace::LibvirtXml | SettingPlace::Vmtax => {
            InEffect::Unknown
        }
    }
}

impl InEffect {
    fn one(value: Option<String>) -> InEffect {
        value.map_or(InEffect::Unknown, |value| InEffect::Values(vec![value]))
    }

    /// A switch of which it may be known whether it is on; `on` is the remedy's value.
    fn switch(is_on: Option<bool>, on: &str) -> InEffect {
        is_on.map_or(InEffect::Unknown, |is_on| {
            InEffect::Values(is_on.then(|| on.to_owned()).into_iter().collect())
        })
    }

    /// True of every one, as far as that is known; absent where there is none.
    fn all<T>(parts: &[T], is_on: impl Fn(&T) -> Option<bool>, on: &str) -> InEffect {
        if parts.is_empty() {
            return InEffect::Absent;
        }
        let known: Option<Vec<bool>> = parts.iter().map(is_on).collect();
        InEffect::switch(known.map(|known| known.into_iter().all(|is_on| is_on)), on)
    }
}

fn qemu_argument(evidence: &Evidence<'_>, part: &VmPart, remedy: &Remedy) -> InEffect {
    let on = &remedy.value;
    let apic = evidence.exits.map(|exits| exits.apic).unwrap_or_default();
    // Only a CPU in x2APIC mode writes the MSR.
    let exits = evidence.exits;
    let writes_msr = exits.is_some_and(|exits| exits.writes(Register::EoiByMsr) > 0);
    match (remedy.setting.as_str(), on.as_str()) {
        ("aio", _) => of_disks(evidence, part, on, submits_without_threads),
        ("iothread", _) => own_iothreads(evidence, part, on),
        ("cache", _) => of_settings(evidence, part, |disk| {
            Some(on.clone()).filter(|_| disk.write_through == Some(false))
        }),
        ("l2-cache-size", _) => monitor_setting(evidence, part, "l2-cache-size"),
        ("cpu-model", "host,,+kvm-pv-eoi") => InEffect::switch(apic.pv_eoi, on),
        ("cpu-model", "host,,+x2apic") => {
            InEffect::switch(Some(true).filter(|_| writes_msr).or(apic.x2apic), on)
        }
        ("cpu-model", "host,,+invtsc") => match evidence.configuration {
            Some(vm) => InEffect::switch(Some(vm.cpu_features.get("invtsc") == Some(&true)), on),
            None => InEffect::Unknown,
        },
        ("cpu-flag.kvm-pv-ipi", _) => pv_ipi(evidence, on),
        ("qemu-args", "-machine hpet=off") => {
            let is_off = evidence.configuration.map(|vm| vm.hpet == Some(false));
            InEffect::switch(is_off, on)
        }
        ("rotation_rate", _) => of_guest(evidence, |guest| {
            let mut disks = guest.disks.iter();
            disks
                .all(|disk| disk.rotational == Some(false))
                .then(|| on.clone())
        }),
        (flag, _) if flag.starts_with(ENLIGHTENMENT) => {
            enlightenment(evidence, flag.trim_start_matches(ENLIGHTENMENT), on)
        }
        ("machine", "kvm") => {
            let accelerator = evidence.facts.and_then(|facts| facts.accelerator);
            InEffect::switch(accelerator.map(|of_vm| of_vm == Accelerator::Kvm), on)
        }
        (NetBackend::VHOST, _) => match evidence.facts {
            Some(facts) => InEffect::all(&facts.nics, |nic| Some(nic.vhost), on),
            None => InEffect::Unknown,
        },
        _ => InEffect::Unknown,
    }
}

/// An enlightenment by the VM's configuration; other guests than Windows have no use for one.
fn enlightenment(evidence: &Evidence<'_>, name: &str, on: &str) -> InEffect {
    match evidence.configuration {
        Some(vm) if vm.windows.is_none() => InEffect::Absent,
        Some(vm) => {
            let is_on = vm.has_all_enlightenments || vm.enlightenments.get(name) == Some(&true);
            InEffect::switch(Some(is_on), on)
        }
        None => InEffect::Unknown,
    }
}

/// Interrupts of other vCPUs by a hypercall, which QEMU offers with `-cpu host` alone unless it is switched on. Windows has none.
fn pv_ipi(evidence: &Evidence<'_>, on: &str) -> InEffect {
    let Some(vm) = evidence.configuration else {
        return InEffect::Unknown;
    };
    if vm.windows.is_some() {
        return InEffect::Absent;
    }
    let given = vm.cpu_features.get("kvm-pv-ipi").copied();
    InEffect::switch(
        Some(given.unwrap_or(vm.cpu_model.as_deref() == Some("host"))),
        on,
    )
}

/// Both submit requests without a pool of threads where QEMU reads past the page cache.
fn submits_without_threads(disk: &VmDisk) -> Option<bool> {
    Some(matches!(disk.aio.as_deref()?, "native" | "io_uring") && disk.direct?)
}

/// A setting of the disk, or of each disk.
fn of_disks(
    evidence: &Evidence<'_>,
    part: &VmPart,
    on: &str,
    is_on: impl Fn(&VmDisk) -> Option<bool>,
) -> InEffect {
    let Some(facts) = evidence.facts else {
        return InEffect::Unknown;
    };
    let is_meant = |disk: &&VmDisk| match part {
        VmPart::Disk(name) => disk.id == *name || disk.file == Path::new(name),
        VmPart::Whole | VmPart::Thread(_) | VmPart::Daemon => true,
    };
    let disks: Vec<&VmDisk> = facts.disks.iter().filter(is_meant).collect();
    match disks.is_empty() && !facts.disks.is_empty() {
        // It has another name there.
        true => InEffect::Unknown,
        false => InEffect::all(&disks, |disk| is_on(disk), on),
    }
}

/// An iothread of its own for the disk, or for each: QEMU's monitor names it.
fn own_iothreads(evidence: &Evidence<'_>, part: &VmPart, on: &str) -> InEffect {
    let Some(facts) = evidence.facts else {
        return InEffect::Unknown;
    };
    let is_alone = |disk: &VmDisk| {
        let others = facts.disks.iter();
        let same = others.filter(|other| other.iothread == disk.iothread);
        let is_own = disk.iothread.is_some() && same.count() == 1;
        facts.version.as_ref().map(|_| is_own)
    };
    of_disks(evidence, part, on, is_alone)
}

/// A setting of the disk that the monitor or the command line tells.
fn of_settings(
    evidence: &Evidence<'_>,
    part: &VmPart,
    value: impl Fn(&DiskSettings) -> Option<String>,
) -> InEffect {
    let (Some(vm), VmPart::Disk(name)) = (evidence.vm, part) else {
        return InEffect::Unknown;
    };
    let mut disks = vm.settings.disks.iter();
    InEffect::one(disks.find(|disk| disk.name == *name).and_then(value))
}

fn monitor_setting(evidence: &Evidence<'_>, part: &VmPart, setting: &str) -> InEffect {
    let Some(vm) = evidence.vm else {
        return InEffect::Unknown;
    };
    match setting {
        "limits" => of_settings(evidence, part, |disk| {
            disk.limits.is_none().then(|| "0".to_owned())
        }),
        "l2-cache-size" => of_settings(evidence, part, |disk| {
            Some(disk.qcow2.as_ref()?.l2_cache?.to_string())
        }),
        "iothread.poll-max-ns" => of_settings(evidence, part, |disk| {
            let mut iothreads = vm.settings.iothreads.iter();
            let iothread = iothreads.find(|known| Some(&known.name) == disk.iothread.as_ref())?;
            Some(iothread.poll_max_ns.to_string())
        }),
        // Where the monitor answers it tells the balloon's size.
        "balloon" if vm.state.is_some() && vm.counters.get(BALLOON).is_none() => InEffect::Absent,
        _ => InEffect::Unknown,
    }
}

fn control_group(evidence: &Evidence<'_>, part: &VmPart, remedy: &Remedy) -> InEffect {
    // Of the groups of a daemon its rule knows.
    let vm = evidence.vm.filter(|_| *part != VmPart::Daemon);
    let settings = vm.map(|vm| &vm.settings);
    let without_limit = || InEffect::Values(vec![remedy.value.clone()]);
    match (remedy.setting.as_str(), settings) {
        ("cpuset.cpus", _) => match (evidence.facts, part) {
            (Some(_), VmPart::Thread(tid)) => {
                let cpus = own_group(evidence, *tid).and_then(|group| group.cpus.clone());
                cpus.map_or(InEffect::Absent, |cpus| InEffect::Values(vec![cpus]))
            }
            _ => InEffect::Unknown,
        },
        ("cpu.max", Some(settings)) => {
            match settings.quotas.iter().find(|quota| !quota.is_shared) {
                Some(own) => InEffect::Values(vec![own.quota.clone()]),
                None if settings.quotas.is_empty() => without_limit(),
                None => InEffect::Absent,
            }
        }
        ("cpu.weight", Some(settings)) => {
            match settings.low_weights.iter().find(|weight| !weight.is_shared) {
                Some(own) => InEffect::Values(vec![own.weight.to_string()]),
                None if settings.low_weights.is_empty() => without_limit(),
                None => InEffect::Absent,
            }
        }
        ("memory.high", Some(settings)) => match &settings.memory_limit {
            Some(limit) if limit.is_shared => InEffect::Absent,
            Some(limit) => InEffect::Values(vec![limit.bytes.to_string()]),
            None => without_limit(),
        },
        _ => InEffect::Unknown,
    }
}

/// The control group of a thread that has no process but the VM's, and limits its CPUs.
fn own_group<'a>(evidence: &Evidence<'a>, tid: i32) -> Option<&'a ThreadGroup> {
    let group = evidence.facts?.thread_group(tid);
    group.filter(|group| !group.is_shared && group.cpus.is_some())
}

fn of_guest(evidence: &Evidence<'_>, value: impl Fn(&GuestSettings) -> Option<String>) -> InEffect {
    // Remedies in the guest are those of Linux.
    if evidence.is_windows() {
        return InEffect::Absent;
    }
    let guest = evidence.vm.and_then(|vm| vm.settings.guest.as_ref());
    InEffect::one(guest.and_then(value))
}

/// A file below the guest's /sys, as far as its agent reads it.
fn guest_file(guest: &GuestSettings, file: &str) -> Option<String> {
    match file {
        CLOCK_SOURCE_FILE => return Some(guest.clock_source.clone()),
        "/sys/devices/system/cpu/cpuidle/current_governor" => {
            return guest.cpuidle_governor.clone();
        }
        _ => {}
    }
    let (disk, name) = file.strip_prefix("/sys/block/")?.split_once('/')?;
    let disk = guest.disks.iter().find(|known| known.name == disk)?;
    match name {
        "cache_type" => disk.cache_type.clone(),
        "queue/scheduler" => disk.scheduler.clone(),
        "queue/read_ahead_kb" => disk.read_ahead_kb.map(|kib| kib.to_string()),
        "queue/rotational" => disk.rotational.map(|rotates| u8::from(rotates).to_string()),
        _ => None,
    }
}

/// The words where a command line has them all, else nothing.
fn words(line: &str, words: &str) -> String {
    let has = |word: &str| line.split_ascii_whitespace().any(|other| other == word);
    if words.split(' ').all(has) {
        words.to_owned()
    } else {
        String::new()
    }
}

/// Tells whether a report is of Intel's CPUs, whose reasons are written in capitals; `None` without a row.
fn is_intel(report: &[ExitReportRow]) -> Option<bool> {
    let is_in_capitals = |row: &ExitReportRow| !row.reason.contains(|c: char| c.is_lowercase());
    (!report.is_empty()).then(|| report.iter().any(is_in_capitals))
}

fn host_file(evidence: &Evidence<'_>, file: &str) -> InEffect {
    let mut queues = evidence.vm.iter().flat_map(|vm| &vm.settings.host_queues);
    if let Some(queue) = queues.find(|queue| queue.scheduler_file() == Path::new(file)) {
        return InEffect::Values(vec![queue.scheduler.clone()]);
    }
    let of_other_vendor = |intel: bool| match intel {
        true => "/sys/module/kvm_amd/",
        false => "/sys/module/kvm_intel/",
    };
    let module = evidence
        .exits
        .and_then(|exits| exits.kvm.is_intel)
        .or_else(|| is_intel(evidence.exit_report));
    if module.is_some_and(|intel| file.starts_with(of_other_vendor(intel))) {
        return InEffect::Absent;
    }
    // Older recordings have none.
    let settings = evidence.settings_of_host();
    match settings.filter(|settings| !settings.is_empty()) {
        Some(settings) => settings.get(file).map_or(InEffect::Absent, |value| {
            InEffect::Values(vec![value.clone()])
        }),
        None => InEffect::Unknown,
    }
}

#[cfg(test)]
#[path = "in_effect_tests.rs"]
mod tests;
