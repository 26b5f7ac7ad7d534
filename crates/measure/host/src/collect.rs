use crate::system_files::{self, read};
use crate::{counters, cpu, identity, kvm, qemu, settings, system, threads, tracing};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use vmtax_guests::kernel::FoundKernels;
use vmtax_model::{Check, HostFacts, KvmClass, KvmFacts, SCHEMA};

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
        let trying = threads::begin(scope, kvm::kvm);
        let qemus = qemu::survey(explicit_qemu, fetched_qemus);
        let failed = || KvmFacts {
            class: KvmClass::Broken,
            evidence: "the probe itself failed".into(),
        };
        (trying.result().unwrap_or_else(failed), qemus)
    });
    let cpus = cpu::collect();
    let usable =
        thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let transparent = read("/sys/kernel/mm/transparent_hugepage/enabled");

    let mut checks: Vec<Check> = cpu::checks(&cpus, usable, &cpu::clocks_available());
    checks.extend(system::memory(&meminfo, transparent.as_deref()));
    let device_group = std::fs::metadata("/dev/kvm")
        .ok()
        .map(|metadata| metadata.gid());
    checks.push(kvm::check(&kvm_facts, &cpus, device_group));
    checks.extend(qemu::checks(&qemus));
    checks.push(system::guest_kernels(&kernels));
    checks.extend(tracing::checks());
    checks.extend(counters::checks());
    checks.push(system::memory_limit());
    checks.extend(system::programs());

    HostFacts {
        schema: SCHEMA,
        identity: identity::collect(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        distribution: distribution(),
        cpu: cpus,
        memory_mib: system_files::meminfo(&meminfo, "MemTotal").unwrap_or(0) / 1024,
        transparent_hugepage: transparent
            .as_deref()
            .and_then(system_files::chosen)
            .map(str::to_owned),
        halt_poll_ns: read("/sys/module/kvm/parameters/halt_poll_ns")
            .and_then(|value| value.parse().ok()),
        settings: settings::collect(),
        kvm: kvm_facts,
        qemu: qemus
            .into_iter()
            .filter_map(Result::ok)
            .map(|probed| probed.facts)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};
    use vmtax_model::Readiness;

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
}
