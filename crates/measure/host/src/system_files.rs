//! Parsers of what the kernel shows in /proc and /sys. They take text and never fail: what is not there is `None`, zero or
//! empty, since kernels differ in what they show.

use procfs::{MountEntry, ProcessCGroup, ProcessCGroups};
use std::path::{Path, PathBuf};

/// The text of a file of /proc or /sys without the space around it; `None` when it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The value of `key` for the first CPU in /proc/cpuinfo.
pub fn cpuinfo<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// Returns true if the first CPU has that flag.
pub fn has_flag(cpuinfo_text: &str, flag: &str) -> bool {
    cpuinfo(cpuinfo_text, "flags")
        .is_some_and(|flags| flags.split_ascii_whitespace().any(|word| word == flag))
}

/// Returns the count of numbers that a list like `0-3,8` names.
pub fn list_length(text: &str) -> u32 {
    let length = |part: &str| -> Option<u32> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    text.split(',')
        .filter_map(length)
        .fold(0, u32::saturating_add)
}

/// Time of all CPUs since boot, from /proc/stat. Guest time is in the user time already, so only the first eight
/// columns count.
pub fn cpu_time(text: &str) -> CpuTime {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .unwrap_or_default();
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    CpuTime {
        total: ticks.iter().fold(0, |sum, t| sum.saturating_add(*t)),
        stolen: ticks.get(7).copied().unwrap_or(0),
    }
}

/// Time of all CPUs since boot, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    total: u64,
    stolen: u64,
}

impl CpuTime {
    /// This host's, now.
    pub fn now() -> CpuTime {
        cpu_time(&read("/proc/stat").unwrap_or_default())
    }

    /// Share that the hypervisor underneath gave to others between `before` and now, 0 to 1.
    pub fn stolen_since(&self, before: &CpuTime) -> f64 {
        let total = self.total.saturating_sub(before.total);
        if total == 0 {
            0.0
        } else {
            (self.stolen.saturating_sub(before.stolen) as f64 / total as f64).min(1.0)
        }
    }
}

/// A value of /proc/meminfo: kiB, or a plain number for the counts of huge pages.
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name != key {
            return None;
        }
        value.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// The chosen word of a choice like `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    text.split_ascii_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// PRETTY_NAME of /etc/os-release, or NAME.
pub fn distribution(text: &str) -> Option<String> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            line.trim()
                .strip_prefix(key)?
                .strip_prefix('=')
                .map(|v| v.trim_matches(['"', '\'']))
        })
    };
    value("PRETTY_NAME")
        .or_else(|| value("NAME"))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

/// Where a file system of that type is mounted; with `option`, only one that has it.
pub fn mount_point(mounts: &[MountEntry], kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let has = |mount: &MountEntry| option.is_none_or(|wanted| mount.fs_mntops.contains_key(wanted));
    let found = mounts
        .iter()
        .find(|mount| mount.fs_vfstype == kind && has(mount))?;
    // The one escape of the kernel's that procfs leaves.
    Some(PathBuf::from(found.fs_file.replace("\\040", " ")))
}

/// The path of this process in a cgroup hierarchy: that of v2, or that of a v1 controller.
pub fn own_cgroup<'a>(groups: &'a ProcessCGroups, v1_controller: Option<&str>) -> Option<&'a str> {
    let fits = |group: &&ProcessCGroup| match v1_controller {
        None => group.hierarchy == 0,
        Some(wanted) => group.controllers.iter().any(|name| name == wanted),
    };
    groups.into_iter().find(fits).map(|group| &*group.pathname)
}

#[cfg(test)]
#[path = "system_files_tests.rs"]
mod tests;
