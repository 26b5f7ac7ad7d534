//! All facts of this host together: what it is, its kernel's settings, its checks.

use crate::command::begin;
use crate::system_files::{self, read};
use crate::{cpu, kvm, qemu, system, tracing};
use rustix::system::uname;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use vmtax_guests::kernel::FoundKernels;
use vmtax_model::{
    Check, HostFacts, HostIdentity, SCHEMA, host_setting_files, in_effect, without_secrets,
};

/// Everything about this host, in less than two seconds: QEMUs are asked and KVM is tried at the same time.
///
/// `explicit_qemu` is probed first and, if usable, is the first of the QEMUs; its check has the error otherwise.
/// `fetched_qemus` come after those of the search path: none for a caller who wants the first alone.
/// `kernels` are those that the caller found; the usable are passed on, and all get a check.
pub fn collect(
    explicit_qemu: Option<&Path>,
    fetched_qemus: &[PathBuf],
    kernels: FoundKernels,
) -> HostFacts {
    let (kvm_facts, qemus) = thread::scope(|scope| {
        let trying = begin(scope, kvm::kvm);
        let qemus = qemu::survey(explicit_qemu, fetched_qemus);
        let failed = || kvm::broken("the probe itself failed".into());
        (trying.result().unwrap_or_else(failed), qemus)
    });
    let cpus = cpu::collect();
    let usable =
        thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let transparent = read("/sys/kernel/mm/transparent_hugepage/enabled");

    let mut checks: Vec<Check> = cpu::checks(&cpus, usable, &cpu::clocks_available());
    checks.extend(system::memory(&meminfo, transparent.as_deref()));
    let device_group = fs::metadata("/dev/kvm").ok().map(|device| device.gid());
    checks.push(kvm::check(&kvm_facts, &cpus, device_group));
    checks.extend(qemu::checks(&qemus));
    checks.push(system::guest_kernels(&kernels));
    checks.extend(tracing::tracefs_checks());
    checks.extend(tracing::perf_checks());
    checks.push(system::memory_limit());
    checks.extend(system::programs());

    HostFacts {
        schema: SCHEMA,
        identity: identity(),
        kernel: uname().release().to_string_lossy().into_owned(),
        distribution: distribution(),
        cpu: cpus,
        memory_mib: system_files::meminfo(&meminfo, "MemTotal").unwrap_or(0) / 1024,
        transparent_hugepage: transparent.map(|text| in_effect(&text).to_owned()),
        halt_poll_ns: read("/sys/module/kvm/parameters/halt_poll_ns")
            .and_then(|value| value.parse().ok()),
        settings: kernel_settings(),
        kvm: kvm_facts,
        qemu: qemus
            .into_iter()
            .filter_map(|found| Some(found.ok()?.facts))
            .collect(),
        kernels: kernels.kernels,
        checks,
    }
}

fn distribution() -> String {
    let release = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
    release
        .and_then(|text| system_files::distribution(&text))
        .unwrap_or_else(|| "unknown".into())
}

/// Reads who this host is.
fn identity() -> HostIdentity {
    let name = uname().nodename().to_string_lossy().into_owned();
    HostIdentity {
        name: Some(name).filter(|name| !name.is_empty() && name != "(none)"),
        id: read("/etc/machine-id").and_then(|machine_id| host_id(&machine_id)),
    }
}

/// machine-id(5) asks for a hash, as the number itself is confidential. It has 128 random bits, so that the hash leads to
/// nothing. `None` for what is none: it is empty, or "uninitialized", in images.
fn host_id(machine_id: &str) -> Option<String> {
    let is_set = machine_id.len() == 32 && machine_id.bytes().all(|b| b.is_ascii_hexdigit());
    let digest = Sha256::new()
        .chain_update("vmtax host\n")
        .chain_update(machine_id)
        .finalize();
    is_set.then(|| {
        digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    })
}

/// The values of the host's kernel settings that remedies change, as [`HostFacts::settings`] has them.
pub fn kernel_settings() -> BTreeMap<String, String> {
    settings_below(Path::new("/"))
}

/// Values by the file below `root` as remedies name it; without those that this host does not have.
fn settings_below(root: &Path) -> BTreeMap<String, String> {
    let value = |pattern: &'static str| {
        let text = read(last_file(
            root.to_path_buf(),
            pattern.trim_start_matches('/'),
        )?)?;
        Some((
            pattern.to_owned(),
            without_secrets(in_effect(&text)).into_owned(),
        ))
    };
    host_setting_files().filter_map(value).collect()
}

/// The last file that a path stands for, in the order of the numbers in the place of each `*`.
fn last_file(folder: PathBuf, pattern: &str) -> Option<PathBuf> {
    let (name, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    let Some(prefix) = name.strip_suffix('*') else {
        let path = folder.join(name);
        return if rest.is_empty() {
            Some(path).filter(|path| path.is_file())
        } else {
            last_file(path, rest)
        };
    };
    let entries = fs::read_dir(&folder).ok()?.flatten();
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .rev()
        .find_map(|number| last_file(folder.join(format!("{prefix}{number}")), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};
    use vmtax_model::Readiness;
    use vmtax_model::testing::put;

    #[test]
    fn everything_in_time_with_a_problem_for_what_is_missing() {
        let start = Instant::now();
        let facts = collect(None, &[], FoundKernels::default());
        // The bound is 2 s; other tests run beside this one.
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "took {:?}",
            start.elapsed()
        );
        let ids: BTreeSet<&str> = facts.checks.iter().map(|check| check.id.as_str()).collect();
        for id in [
            "virtualisation",
            "kvm",
            "qemu",
            "guest-kernel",
            "tracefs",
            "perf-event",
            "memory-limit",
            "mkfs-ext4",
        ] {
            assert!(ids.contains(id), "no check {id}");
        }
        for check in &facts.checks {
            assert!(
                !check.found.is_empty() && !check.why.is_empty() && !check.found.contains('\n'),
                "{check:?}"
            );
            assert!(
                check.state != Readiness::Missing
                    || check.problem.is_some()
                    || !check.remedies.is_empty(),
                "{check:?}"
            );
            assert!(
                check.state != Readiness::Ok || check.problem.is_none(),
                "{check:?}"
            );
        }
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
    }

    #[test]
    fn a_wrong_explicit_qemu_is_the_first_line_on_qemu() {
        let facts = collect(
            Some(Path::new("/nonexistent/qemu")),
            &[],
            FoundKernels::default(),
        );
        let check = facts
            .checks
            .iter()
            .find(|check| check.id == "qemu")
            .unwrap();
        assert_eq!(check.state, Readiness::Missing);
        assert!(check.found.contains("/nonexistent/qemu"));
    }

    #[test]
    fn the_id_is_a_hash_of_what_is_set() {
        let known = host_id("0123456789abcdef0123456789abcdef").unwrap();
        assert!(
            known.len() == 16 && !"0123456789abcdef0123456789abcdef".contains(&known),
            "{known}"
        );
        assert_ne!(host_id("0123456789abcdef0123456789abcdee"), Some(known));
        assert_eq!([host_id(""), host_id("uninitialized")], [None, None]);
    }

    #[test]
    fn the_value_in_effect_is_read_and_what_the_host_lacks_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state10/disable", "1\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state9/disable", "0\n"),
            // An offline CPU.
            ("sys/devices/system/cpu/cpu1/online", "0\n"),
        ];
        for (file, text) in files {
            put(root.path(), file, text).unwrap();
        }
        let found = settings_below(root.path());
        let value = |file: &str| found.get(file).map(String::as_str);
        assert_eq!(
            value("/sys/kernel/mm/transparent_hugepage/enabled"),
            Some("madvise")
        );
        assert_eq!(
            value("/sys/devices/system/cpu/cpu*/cpuidle/state*/disable"),
            Some("1"),
            "the deepest state"
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
