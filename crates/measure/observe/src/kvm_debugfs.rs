//! Figures that KVM itself keeps: of a guest, in debugfs, its counters and the offset of its clock; of the host's CPU, in the
//! parameters of its modules, the features that it uses.

use crate::process::tasks;
use crate::tracefs::{is_first_pid_namespace, mounted_nowhere};
use crate::{entries, read_number, read_text};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use vmtax_model::samples::KvmFeatures;
use vmtax_model::{CounterMap, CounterSource};

const USUAL: &str = "/sys/kernel/debug/kvm";

/// KVM's counters of a process's guest by name, summed over its CPUs; empty where they cannot be read: that takes
/// root, and a KVM of the process.
pub fn kvm_counters(process: i32) -> BTreeMap<String, u64> {
    in_debugfs(|kvm| counters_in(kvm, process)).unwrap_or_default()
}

/// The entries of KVM's counters of a process's guest, summed over its vCPUs; none where they cannot be read: see
/// [`kvm_counters`]. The kernels before 5.15 have no times of halts.
pub fn kvm_stats(process: i32) -> CounterMap<u64> {
    in_debugfs(|kvm| stats_in(kvm, process)).unwrap_or_default()
}

fn stats_in(kvm: &Path, process: i32) -> Option<CounterMap<u64>> {
    let guest = guest_of(kvm, process)?;
    Some(CounterMap::read(|source| match source {
        CounterSource::Kvm(stats) => stats
            .iter()
            .filter_map(|stat| read_number(guest.join(stat)))
            .reduce(u64::saturating_add),
        _ => None,
    }))
}

fn counters_in(kvm: &Path, process: i32) -> Option<BTreeMap<String, u64>> {
    let files = entries(guest_of(kvm, process)?)
        .map(|entry| entry.path())
        .filter(|path| path.is_file());
    let counter = |path: PathBuf| Some((named(&path)?, read_number(&path)?));
    Some(files.filter_map(counter).collect())
}

/// Host ticks minus guest ticks for a guest of KVM, exact: the negative of the offset that KVM adds to the host's counter
/// (`tsc-offset` in debugfs).
///
/// `None` when debugfs is not there or not for us, when the guest's counter is scaled or differs between its CPUs,
/// and on a KVM that does not apply the offset to all of the guest's code (PVM, whose guests read the host's counter in
/// user mode).
pub fn kvm_offset(process: i32) -> Option<i64> {
    if Path::new("/sys/module/kvm_pvm").exists() {
        return None;
    }
    in_debugfs(|kvm| offset_in(kvm, process))
}

fn offset_in(kvm: &Path, process: i32) -> Option<i64> {
    let mut offset = None;
    for entry in entries(guest_of(kvm, process)?) {
        let vcpu = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("vcpu") {
            continue;
        }
        let of_vcpu: i64 = read_number(vcpu.join("tsc-offset"))?;
        // One to one is a ratio of 2 to the number of its fraction's bits; the files are there only where KVM can scale.
        let bits = read_number::<i64>(vcpu.join("tsc-scaling-ratio-frac-bits"));
        let scaled = read_number::<i64>(vcpu.join("tsc-scaling-ratio"))
            .zip(bits)
            .is_some_and(|(r, b)| b > 0 && r != 1 << b.min(62));
        if scaled || offset.is_some_and(|other| other != of_vcpu) {
            return None;
        }
        offset = Some(of_vcpu);
    }
    offset?.checked_neg()
}

/// Reads in KVM's folder of debugfs, wherever that is mounted. Its folders have the PIDs of the host, which in a PID namespace are
/// those of other processes.
fn in_debugfs<T>(read: impl FnOnce(&Path) -> Option<T>) -> Option<T> {
    if !is_first_pid_namespace() {
        return None;
    }
    let usual = Path::new(USUAL);
    if usual.is_dir() {
        return read(usual);
    }
    let mount = mounted_nowhere("debugfs")?;
    let kvm = format!("/proc/self/fd/{}/kvm", mount.as_raw_fd());
    read(Path::new(&kvm))
}

/// The folder of a process's guest. It has the number of the thread that made the VM: of QEMU that is the process's own.
fn guest_of(kvm: &Path, process: i32) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = entries(kvm).map(|entry| entry.path()).collect();
    let of_thread = |tid: i32| {
        let prefix = format!("{tid}-");
        let mut folders = folders.iter();
        folders.find(|path| named(path).is_some_and(|name| name.starts_with(&prefix)))
    };
    let others = || tasks(process).filter_map(|task| task.file_name().to_str()?.parse().ok());
    let found = of_thread(process).or_else(|| others().find_map(of_thread));
    found.cloned()
}

fn named(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// A module of KVM: whether it is Intel's, and its parameters for nested page tables and for the local APIC.
struct Module {
    name: &'static str,
    is_intel: bool,
    nested_paging: &'static str,
    apicv: &'static str,
}

const MODULES: [Module; 2] = [
    Module {
        name: "kvm_intel",
        is_intel: true,
        nested_paging: "ept",
        apicv: "enable_apicv",
    },
    Module {
        name: "kvm_amd",
        is_intel: false,
        nested_paging: "npt",
        apicv: "avic",
    },
];

/// Returns the features of this host; unknown where none of these modules is loaded.
pub fn kvm_features() -> KvmFeatures {
    features_in(Path::new("/sys/module"))
}

fn features_in(modules: &Path) -> KvmFeatures {
    let of_module = |module: &Module| {
        let parameters = modules.join(module.name).join("parameters");
        let parameter = |name: &str| match read_text(parameters.join(name))?.as_str() {
            "Y" | "1" => Some(true),
            "N" | "0" => Some(false),
            _ => None,
        };
        parameters.is_dir().then(|| KvmFeatures {
            is_intel: Some(module.is_intel),
            nested_paging: parameter(module.nested_paging),
            apicv: parameter(module.apicv),
        })
    };
    MODULES.iter().find_map(of_module).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use vmtax_model::testing::put;

    #[test]
    fn the_guests_own_counters_are_read() {
        let kvm = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("7-12/exits", "31\n"),
            ("7-12/halt_wait_hist", "1 2\n"),
            ("77-12/exits", "5\n"),
        ] {
            put(kvm.path(), file, text).unwrap();
        }
        fs::create_dir(kvm.path().join("7-12/vcpu0")).unwrap();
        assert_eq!(
            counters_in(kvm.path(), 7),
            Some(BTreeMap::from([("exits".to_owned(), 31)]))
        );
        assert_eq!(counters_in(kvm.path(), 8), None);
    }

    #[test]
    fn exits_and_halts_are_those_of_the_process() {
        let kvm = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| put(kvm.path(), file, text).unwrap();
        let found = |numbers: &[(&'static str, u64)]| Some(numbers.iter().copied().collect());
        put("77-12/exits", "5\n");
        put("7-12/exits", "31\n");
        put("7-12/halt_exits", "9\n");
        assert_eq!(
            stats_in(kvm.path(), 7),
            found(&[("exits", 31), ("halt_exits", 9)])
        );
        for (file, text) in [
            ("wait", "100\n"),
            ("poll_success", "20\n"),
            ("poll_fail", "3\n"),
        ] {
            put(&format!("7-12/halt_{file}_ns"), text);
        }
        let all = [("exits", 31), ("halt_exits", 9), ("halted", 123)];
        assert_eq!(
            (stats_in(kvm.path(), 7), stats_in(kvm.path(), 8)),
            (found(&all), None)
        );
    }

    #[test]
    fn the_offset_is_exact_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| put(folder.path(), file, text).unwrap();
        assert_eq!(offset_in(folder.path(), 7), None);
        put("77-9/vcpu0/tsc-offset", "5\n");
        put("7-9/vcpu0/tsc-offset", "-1234\n");
        put("7-9/vcpu0/tsc-scaling-ratio", "4294967296\n");
        put("7-9/vcpu0/tsc-scaling-ratio-frac-bits", "32\n");
        assert_eq!(offset_in(folder.path(), 7), Some(1234));
        put("7-9/vcpu1/tsc-offset", "-1234\n");
        assert_eq!(offset_in(folder.path(), 7), Some(1234));
        put("7-9/vcpu1/tsc-offset", "-1235\n");
        assert_eq!(offset_in(folder.path(), 7), None);
        put("7-9/vcpu1/tsc-offset", "-1234\n");
        put("7-9/vcpu1/tsc-scaling-ratio", "4294967297\n");
        put("7-9/vcpu1/tsc-scaling-ratio-frac-bits", "32\n");
        assert_eq!(offset_in(folder.path(), 7), None);
    }

    #[test]
    fn the_module_that_is_loaded_says_what_it_uses() {
        let modules = tempfile::tempdir().unwrap();
        assert_eq!(features_in(modules.path()), KvmFeatures::default());
        for (file, value) in [("npt", "Y\n"), ("avic", "0\n"), ("ept", "N\n")] {
            put(modules.path(), &format!("kvm_amd/parameters/{file}"), value).unwrap();
        }
        let amd = KvmFeatures {
            is_intel: Some(false),
            nested_paging: Some(true),
            apicv: Some(false),
        };
        assert_eq!(features_in(modules.path()), amd);
        put(modules.path(), "kvm_intel/parameters/ept", "?\n").unwrap();
        let intel = KvmFeatures {
            is_intel: Some(true),
            ..KvmFeatures::default()
        };
        assert_eq!(features_in(modules.path()), intel);
    }
}
