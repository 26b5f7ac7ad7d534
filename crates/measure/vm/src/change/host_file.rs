//! Settings in files of the host's kernel.

use crate::host_settings::value_in_effect;
use std::fs;
use std::path::{Component, Path};

/// Files that may be set: a pattern whose `*` stands for one name.
const KNOWN: [&str; 9] = [
    "/sys/module/kvm/parameters/halt_poll_ns",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/block/*/queue/scheduler",
    "/sys/block/*/queue/read_ahead_kb",
    "/sys/block/*/queue/wbt_lat_usec",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/kernel/numa_balancing",
];
/// Files of a control group that may be set, at any depth.
const OF_A_GROUP: [&str; 5] = ["cpu.max", "cpu.weight", "cpu.cfs_quota_us", "memory.high", "io.weight"];

/// What a file holds.
pub(super) fn read(path: &Path) -> Result<String, String> {
    check(path)?;
    value_in_effect(path).map_err(|e| e.to_string())
}

/// Writes a value.
pub(super) fn write(path: &Path, value: &str) -> Result<(), String> {
    check(path)?;
    fs::write(path, value).map_err(|e| format!("writing {value} failed: {e}"))
}

/// A plan may come from anybody: it names no other files.
fn check(path: &Path) -> Result<(), String> {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_of_a_group = path.starts_with("/sys/fs/cgroup") && OF_A_GROUP.contains(&name);
    let is_known = is_of_a_group || KNOWN.iter().any(|pattern| matches(pattern, path));
    if is_plain && is_known { Ok(()) } else { Err("vmtax does not set this file".to_owned()) }
}

fn matches(pattern: &str, path: &Path) -> bool {
    let (parts, names) = (Path::new(pattern).components(), path.components());
    parts.clone().count() == names.clone().count()
        && parts.zip(names).all(|(part, name)| part.as_os_str() == "*" || part == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_are_set() {
        let allowed = |path: &str| check(Path::new(path)).is_ok();
        assert!(allowed("/sys/block/sda/queue/scheduler") && allowed("/sys/fs/cgroup/a.slice/b/cpu.max"));
        assert!(allowed("/sys/module/kvm/parameters/halt_poll_ns"));
        assert!(!allowed("/etc/passwd") && !allowed("/sys/block/sda/queue/rotational"));
        assert!(!allowed("/sys/fs/cgroup/../../../etc/cpu.max") && !allowed("sys/fs/cgroup/cpu.max"));
        assert!(!allowed("/sys/fs/cgroup/a/cgroup.procs"));
    }
}
