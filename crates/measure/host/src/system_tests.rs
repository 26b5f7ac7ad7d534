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
    let states = |meminfo: &str, transparent| memory(meminfo, transparent).map(|check| check.state);
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
