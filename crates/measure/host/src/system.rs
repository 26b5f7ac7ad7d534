//! Memory, huge pages, memory limits, and the programs around a guest.

use crate::line::CheckResult;
use crate::program::{find_program, is_writable};
use crate::system_files;
use procfs::process::Process;
use procfs::{MountEntry, ProcessCGroups};
use std::path::{Path, PathBuf};
use vmtax_guests::kernel::FoundKernels;
use vmtax_model::{Check, HostProblem, SourceOfKernel};

/// Memory that the default guest and the default native trial need side by side, MiB.
const MEMORY_NEEDED: u64 = 2048;

/// The guest kernels that the caller found, and those it could not use.
pub fn guest_kernels(found: &FoundKernels) -> Check {
    let FoundKernels { kernels, unusable } = found;
    let whence = |source| match source {
        SourceOfKernel::Given => "given",
        SourceOfKernel::Running => "running",
        SourceOfKernel::Cache => "in the cache",
    };
    let mut parts: Vec<String> = kernels
        .iter()
        .map(|kernel| format!("{} ({})", kernel.release, whence(kernel.source)))
        .collect();
    parts.extend(
        unusable
            .iter()
            .map(|kernel| format!("not {}: {}", kernel.path.display(), kernel.reason)),
    );
    let verdict = if kernels.is_empty() {
        let found = if parts.is_empty() {
            "none".into()
        } else {
            parts.join("; ")
        };
        CheckResult::missing(found, HostProblem::NoGuestKernel)
    } else {
        CheckResult::ok(parts.join("; "))
    };
    verdict.about(
        "guest-kernel",
        "guest kernel",
        "guests boot it directly; the host's running kernel makes the fairest comparison",
    )
}

/// Memory and huge pages, from /proc/meminfo and the kernel's choice on transparent huge pages.
pub fn memory(meminfo: &str, transparent: Option<&str>) -> [Check; 2] {
    let kib = |key| system_files::meminfo(meminfo, key).unwrap_or(0);
    let (total, available) = (kib("MemTotal") / 1024, kib("MemAvailable") / 1024);
    let found = format!("{total} MiB, {available} MiB available");
    let enough = if available >= MEMORY_NEEDED {
        CheckResult::ok(found)
    } else {
        CheckResult::limited(found, HostProblem::LittleMemory)
    };
    let (reserved, size) = (kib("HugePages_Total"), kib("Hugepagesize"));
    let transparent = transparent.and_then(system_files::chosen);
    let found = format!(
        "transparent: {}; reserved: {reserved} of {size} KiB",
        transparent.unwrap_or("not in this kernel")
    );
    let huge = match transparent {
        // QEMU asks for them for a guest's memory, so `madvise` will do.
        Some("always" | "madvise") => CheckResult::ok(found),
        Some(_) => CheckResult::limited(found, HostProblem::TransparentHugePagesOff),
        None if reserved > 0 => CheckResult::ok(found),
        None => CheckResult::limited(found, HostProblem::NoHugePages),
    };
    [
        enough.about("memory", "memory", "a guest that makes the host swap measures swapping"),
        huge.about(
            "huge-pages",
            "huge pages",
            "with small pages a guest's TLB misses cost more; native and guest should use the same page size",
        ),
    ]
}

/// Checks that a native trial can get a guest's memory limit.
pub fn memory_limit() -> Check {
    let mounts = procfs::mounts().unwrap_or_default();
    let own = Process::myself()
        .and_then(|process| process.cgroups())
        .unwrap_or(ProcessCGroups(Vec::new()));
    let root = rustix::process::geteuid().is_root();
    limit_verdict(&mounts, &own, root).about(
        "memory-limit",
        "memory limit (cgroup)",
        "limits a native trial to the guest's memory; without it, a native trial can use the whole host's page cache",
    )
}

/// Root may make a group at the top of the hierarchy, a user only below a group that was handed over.
fn limit_verdict(mounts: &[MountEntry], own: &ProcessCGroups, root: bool) -> CheckResult {
    let home = |mount: &Path, path: Option<&str>| {
        let below = mount.join(path.unwrap_or("/").trim_start_matches('/'));
        // In a container the path can be one of the outside.
        if !root && below.is_dir() {
            below
        } else {
            mount.to_path_buf()
        }
    };
    if let Some(mount) = system_files::mount_point(mounts, "cgroup", Some("memory")) {
        let home = home(&mount, system_files::own_cgroup(own, Some("memory")));
        return usable(&home, "v1");
    }
    let Some(mount) = system_files::mount_point(mounts, "cgroup2", None) else {
        return CheckResult::missing("no cgroup hierarchy is mounted", HostProblem::NoCgroup);
    };
    let has_memory = |folder: &Path| {
        let controllers = system_files::read(folder.join("cgroup.controllers")).unwrap_or_default();
        controllers
            .split_ascii_whitespace()
            .any(|name| name == "memory")
    };
    let home = home(&mount, system_files::own_cgroup(own, None));
    if !has_memory(&mount) {
        CheckResult::limited(
            "cgroup v2 without the memory controller",
            HostProblem::NoMemoryController,
        )
    } else if has_memory(&home) {
        usable(&home, "v2")
    } else {
        not_ours("v2")
    }
}

fn usable(home: &Path, version: &str) -> CheckResult {
    if is_writable(home) {
        CheckResult::ok(format!(
            "cgroup {version}, groups can be created in {}",
            home.display()
        ))
    } else {
        not_ours(version)
    }
}

fn not_ours(version: &str) -> CheckResult {
    CheckResult::limited(
        format!("cgroup {version}, but this user may not create a group with a memory limit"),
        HostProblem::NoCgroupRights,
    )
}

/// The programs that some trials need.
pub fn programs() -> Vec<Check> {
    let program = |names: &[&str]| names.iter().find_map(|name| find_program(name));
    let found = |path: Option<PathBuf>, problem| match path {
        Some(path) => CheckResult::ok(path.display().to_string()),
        None => CheckResult::missing(
            "not found in PATH, /usr/sbin, /usr/libexec or /usr/lib/qemu",
            problem,
        ),
    };
    vec![
        found(program(&["mkfs.ext4"]), HostProblem::NoMkfs).about(
            "mkfs-ext4",
            "mkfs.ext4",
            "formats the guest's disk, which fileio needs",
        ),
        found(program(&["virtiofsd"]), HostProblem::NoVirtiofsd).about(
            "virtiofsd",
            "file sharing: virtiofsd",
            "shares a folder with a guest over virtiofs",
        ),
        found(program(&["ganesha.nfsd"]), HostProblem::NoNfsServer).about(
            "nfs-ganesha",
            "file sharing: NFS",
            "shares a folder with a guest over NFS, without the host kernel's server",
        ),
    ]
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
