//! Memory, huge pages, memory limits, and the programs around a guest.

use crate::command::{ask, find_program, is_writable};
use crate::{CheckResult, system_files};
use procfs::process::Process;
use procfs::{MountEntry, ProcessCGroups};
use std::path::Path;
use std::time::Duration;
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
    if parts.is_empty() {
        parts.push("none".into());
    }
    let verdict = if kernels.is_empty() {
        CheckResult::missing(parts.join("; "), HostProblem::NoGuestKernel)
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
    let is_enough = available >= MEMORY_NEEDED;
    let enough = CheckResult::ok_if(is_enough, found, HostProblem::LittleMemory);
    let (reserved, size) = (kib("HugePages_Total"), kib("Hugepagesize"));
    let transparent = transparent.map(vmtax_model::in_effect);
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
    let found = |name: &str, problem| match find_program(name) {
        Some(path) => CheckResult::ok(path.display().to_string()),
        None => CheckResult::missing(
            "not found in PATH, /usr/sbin, /usr/libexec or /usr/lib/qemu",
            problem,
        ),
    };
    vec![
        found("mkfs.ext4", HostProblem::NoMkfs).about(
            "mkfs-ext4",
            "mkfs.ext4",
            "formats the guest's disk, which fileio needs",
        ),
        found("virtiofsd", HostProblem::NoVirtiofsd).about(
            "virtiofsd",
            "file sharing: virtiofsd",
            "shares a directory with a guest over virtiofs",
        ),
        found("ganesha.nfsd", HostProblem::NoNfsServer).about(
            "nfs-ganesha",
            "file sharing: NFS",
            "shares a directory with a guest over NFS, without the host kernel's server",
        ),
    ]
}

/// Timeout for passt's answer.
const PASST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns true if this passt can be a vhost-user back end: those of December 2024 and later, which print their
/// capabilities as <https://qemu-project.gitlab.io/qemu/interop/vhost-user.html> asks of a back end.
pub fn passt_has_vhost_user(passt: &Path) -> bool {
    let answer = ask(
        passt,
        &["--vhost-user", "--print-capabilities"],
        PASST_TIMEOUT,
    );
    matches!(answer, Ok(Some(answer)) if answer.success)
}

/// Returns true if the host's kernel can move the packets of a tap (vhost-net).
pub fn has_vhost_net() -> bool {
    Path::new("/dev/vhost-net").exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use std::fs;
    use vmtax_guests::kernel::UnusableKernel;
    use vmtax_model::KernelFacts;
    use vmtax_model::Readiness::{Limited, Missing, Ok as Fine};

    #[test]
    fn kernels_and_what_is_wrong_with_others() {
        let none = guest_kernels(&FoundKernels::default());
        assert_eq!(
            (none.state, none.problem),
            (Missing, Some(HostProblem::NoGuestKernel))
        );
        let unreadable = UnusableKernel {
            path: "/boot/vmlinuz-6.8".into(),
            reason: "permission denied".to_owned(),
        };
        let mut found = FoundKernels {
            kernels: Vec::new(),
            unusable: vec![unreadable],
        };
        let closed = guest_kernels(&found);
        assert_eq!(
            (closed.state, closed.found.as_str()),
            (Missing, "not /boot/vmlinuz-6.8: permission denied")
        );
        found.kernels.push(KernelFacts {
            image: "/c/vmlinuz".into(),
            modules: None,
            release: "6.1.0-9-amd64".into(),
            source: SourceOfKernel::Cache,
        });
        let some = guest_kernels(&found);
        assert_eq!(some.state, Fine);
        assert_eq!(
            some.found,
            "6.1.0-9-amd64 (in the cache); not /boot/vmlinuz-6.8: permission denied"
        );
    }

    #[test]
    fn memory_and_huge_pages() {
        let meminfo = |available, reserved| {
            format!(
                "MemTotal: 8388608 kB\nMemAvailable: {available} kB\nHugePages_Total: {reserved}\nHugepagesize: 2048 kB\n"
            )
        };
        let states =
            |meminfo: &str, transparent| memory(meminfo, transparent).map(|check| check.state);
        assert_eq!(
            states(&meminfo(4_194_304, 0), Some("always [madvise] never")),
            [Fine, Fine]
        );
        assert_eq!(
            states(&meminfo(1_048_576, 0), Some("always madvise [never]")),
            [Limited, Limited]
        );
        assert_eq!(states(&meminfo(4_194_304, 9), None), [Fine, Fine]);
        assert_eq!(states("", None), [Limited, Limited]);
    }

    /// A cgroup hierarchy in a folder, and the line of /proc/mounts for it.
    fn hierarchy(kind: &str, options: &str) -> (tempfile::TempDir, Vec<MountEntry>) {
        let folder = tempfile::tempdir().unwrap();
        let mounts = format!(
            "cgroup {} {kind} rw,{options} 0 0\n",
            folder.path().display()
        );
        let mounts = Vec::from_buf_read(mounts.as_bytes()).unwrap();
        (folder, mounts)
    }

    fn groups(text: &str) -> ProcessCGroups {
        ProcessCGroups::from_buf_read(text.as_bytes()).unwrap()
    }

    #[test]
    fn memory_limits_in_version_1() {
        let (folder, mounts) = hierarchy("cgroup", "memory");
        let verdict = limit_verdict(&mounts, &groups("4:memory:/outside/box\n"), false);
        assert_eq!(verdict.state, Fine);
        assert!(
            verdict.found.ends_with(folder.path().to_str().unwrap()),
            "{}",
            verdict.found
        );
        fs::create_dir(folder.path().join("mine")).unwrap();
        let verdict = limit_verdict(&mounts, &groups("4:memory:/mine\n"), false);
        assert!(
            verdict.found.contains("v1") && verdict.found.ends_with("/mine"),
            "{}",
            verdict.found
        );
        assert!(
            !limit_verdict(&mounts, &groups("4:memory:/mine\n"), true)
                .found
                .ends_with("/mine")
        );
    }

    #[test]
    fn memory_limits_in_version_2() {
        let (folder, mounts) = hierarchy("cgroup2", "nsdelegate");
        assert!(
            limit_verdict(&mounts, &groups("0::/mine\n"), true)
                .found
                .contains("without the memory controller")
        );
        fs::write(
            folder.path().join("cgroup.controllers"),
            "cpu io memory pids\n",
        )
        .unwrap();
        assert_eq!(
            limit_verdict(&mounts, &groups("0::/mine\n"), true).state,
            Fine
        );
        let mine = folder.path().join("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("cgroup.controllers"), "pids\n").unwrap();
        assert_eq!(
            limit_verdict(&mounts, &groups("0::/mine\n"), false).state,
            Limited,
            "memory is not handed over"
        );
        fs::write(mine.join("cgroup.controllers"), "memory pids\n").unwrap();
        assert_eq!(
            limit_verdict(&mounts, &groups("0::/mine\n"), false).state,
            Fine
        );
        assert_eq!(limit_verdict(&[], &groups(""), false).state, Missing);
    }

    #[test]
    fn a_group_that_may_not_be_written_is_not_ours() {
        // /proc/1 is a folder that nobody may write, root neither.
        assert_eq!(usable(Path::new("/nonexistent"), "v2").state, Limited);
    }

    #[test]
    fn each_program_has_its_line() {
        let checks = programs();
        assert_eq!(
            checks.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(),
            ["mkfs-ext4", "virtiofsd", "nfs-ganesha"]
        );
        assert!(
            checks
                .iter()
                .all(|check| check.state == Fine || check.problem.is_some())
        );
    }
}
