//! What KVM itself counts of a guest, in debugfs.

use crate::tracefs::mounted_nowhere;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const USUAL: &str = "/sys/kernel/debug";

/// KVM's counters of a process's guest by name, summed over its processors; empty where they cannot be had: that takes
/// root, and a KVM of the process.
pub fn kvm_counters(process: i32) -> BTreeMap<String, u64> {
    let usual = Path::new(USUAL).join("kvm");
    if usual.is_dir() {
        return counters_in(&usual, process);
    }
    let Some(mount) = mounted_nowhere("debugfs") else { return BTreeMap::new() };
    counters_in(&PathBuf::from(format!("/proc/self/fd/{}/kvm", mount.as_raw_fd())), process)
}

fn counters_in(kvm: &Path, process: i32) -> BTreeMap<String, u64> {
    let prefix = format!("{process}-");
    let folders = fs::read_dir(kvm).into_iter().flatten().flatten();
    let Some(guest) = folders.map(|e| e.path()).find(|path| named(path).is_some_and(|n| n.starts_with(&prefix))) else {
        return BTreeMap::new();
    };
    let files = fs::read_dir(guest).into_iter().flatten().flatten().map(|entry| entry.path());
    let counter = |path: PathBuf| Some((named(&path)?, fs::read_to_string(&path).ok()?.trim().parse().ok()?));
    files.filter(|path| path.is_file()).filter_map(counter).collect()
}

fn named(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_own_counters_are_read() {
        let kvm = tempfile::tempdir().unwrap();
        for (file, text) in [("7-12/exits", "31\n"), ("7-12/halt_wait_hist", "1 2\n"), ("77-12/exits", "5\n")] {
            let path = kvm.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir(kvm.path().join("7-12/vcpu0")).unwrap();
        assert_eq!(counters_in(kvm.path(), 7), BTreeMap::from([("exits".to_owned(), 31)]));
        assert!(counters_in(kvm.path(), 8).is_empty());
    }
}
