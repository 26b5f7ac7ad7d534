//! The workloads on a shared tree, run for real on a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use vmtax_model::{Keeping, Kept, Metric, Places, TrialResult, WorkloadName, WorkloadSpec};
use vmtax_workload::{GuestState, WorkloadError, check_from_host, lingering, run};

/// Thirty small files in three folders, a large one, and what is not to be copied.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in 0..3 {
        let path = root.path().join(format!("small/{folder:03}"));
        fs::create_dir_all(&path).unwrap();
        (0..10).for_each(|n| fs::write(path.join(format!("{n:04}")), vec![b'x'; 2048]).unwrap());
    }
    fs::write(root.path().join("large"), vec![b'l'; (3 << 20) + 5]).unwrap();
    fs::create_dir(root.path().join("scratch")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.path().join("link")).unwrap();
    let fifo = root.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    root
}

fn attempt(
    name: WorkloadName,
    share: &Path,
    options: &[(&str, &str)],
) -> Result<TrialResult, WorkloadError> {
    let spec = options
        .iter()
        .fold(WorkloadSpec::new(name), |spec, (option, value)| {
            spec.with(option, value)
        });
    run(
        &spec,
        &Places {
            share: Some(share.to_owned()),
            ..Places::default()
        },
    )
}

fn count(result: &TrialResult, operation: &str) -> u64 {
    result.summary(operation).map_or(0, |s| s.count)
}

/// Every name below a folder with its length, type and time of change.
fn snapshot(root: &Path) -> BTreeSet<(String, u64, bool, i64)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root).unwrap().flatten() {
        use std::os::unix::fs::MetadataExt;
        let about = entry.metadata().unwrap();
        let changed = if about.is_dir() {
            0
        } else {
            about.ctime_nsec()
        };
        found.insert((
            entry.path().display().to_string(),
            if about.is_dir() { 0 } else { about.len() },
            about.is_dir(),
            changed,
        ));
        if about.is_dir() {
            found.extend(snapshot(&entry.path()));
        }
    }
    found
}

#[test]
fn tree_copies_and_walks_every_file_and_maps_the_larger() {
    let root = tree();
    let before = snapshot(root.path());
    let got = attempt(WorkloadName::Tree, root.path(), &[]).unwrap();
    for pass in ["cold", "warm"] {
        let n = |kind: &str| count(&got, &format!("{kind}-{pass}"));
        // The root, small, its three folders, scratch; each is opened, and closed with its entries.
        assert_eq!(
            (n("open"), n("close"), n("fstat")),
            (31 + 6, 31, 31),
            "{pass}"
        );
        // small, three folders, large, scratch, link, fifo and thirty files.
        assert_eq!(
            (n("lstat"), n("read"), n("read-large")),
            (38, 30, 4),
            "{pass}"
        );
        assert_eq!((n("readdir"), n("write")), (12, 34), "{pass}");
    }
    assert_eq!(
        (count(&got, "lstat-walk"), count(&got, "open-walk")),
        (31, 6)
    );
    // 768 whole pages and a rest.
    assert_eq!(count(&got, "page-mmap"), 768 + 1);
    for metric in Metric::ALL
        .iter()
        .filter(|m| m.workload() == WorkloadName::Tree)
    {
        assert!(got.value(*metric).unwrap() > 0.0, "{metric}");
        assert!(count(&got, metric.operation().unwrap()) > 0, "{metric}");
    }
    assert_eq!(snapshot(root.path()), before);
    // Thirty pages of half their size.
    fs::remove_file(root.path().join("large")).unwrap();
    assert_eq!(
        count(
            &attempt(WorkloadName::Tree, root.path(), &[]).unwrap(),
            "page-mmap"
        ),
        30
    );
    fs::write(root.path().join("huge"), vec![1; 17 << 20]).unwrap();
    assert_eq!(
        count(
            &attempt(WorkloadName::Tree, root.path(), &[]).unwrap(),
            "page-mmap"
        ),
        4096
    );
}

#[test]
fn tree_with_nothing_in_it_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let error = attempt(WorkloadName::Tree, root.path(), &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has no file") && error.contains("mounted"),
        "{error}"
    );
}

#[test]
fn bonnie_does_each_operation_as_often_as_asked_and_leaves_nothing() {
    let root = tree();
    let before = snapshot(root.path());
    for file_size in ["0", "9000"] {
        let options = [
            ("size", "2M"),
            ("seeks", "500"),
            ("files", "300"),
            ("file-size", file_size),
        ];
        let got = attempt(WorkloadName::Bonnie, root.path(), &options).unwrap();
        for metric in Metric::ALL
            .iter()
            .filter(|m| m.workload() == WorkloadName::Bonnie)
        {
            assert!(got.value(*metric).unwrap() > 0.0, "{metric}");
            let expected = match metric {
                Metric::BonnieSeeks => 500,
                Metric::BonnieWrite | Metric::BonnieRewrite | Metric::BonnieRead => 256,
                _ => 300,
            };
            assert_eq!(
                count(&got, metric.operation().unwrap()),
                expected,
                "{metric}"
            );
        }
        assert!(
            got.notes.iter().any(|n| n.contains("memory")),
            "{:?}",
            got.notes
        );
        assert_eq!(snapshot(root.path()), before);
    }
    let files = attempt(
        WorkloadName::Bonnie,
        root.path(),
        &[("size", "0"), ("files", "10")],
    )
    .unwrap();
    assert_eq!(
        (files.value(Metric::BonnieRead), count(&files, "stat-seq")),
        (None, 10)
    );
}

#[test]
fn what_writes_does_so_in_scratch_alone_and_says_where_there_is_none() {
    let root = tree();
    fs::remove_dir(root.path().join("scratch")).unwrap();
    for name in [
        WorkloadName::Bonnie,
        WorkloadName::OpenFids,
        WorkloadName::Names,
        WorkloadName::FsSemantics,
    ] {
        let error = attempt(name, root.path(), &[]).unwrap_err().to_string();
        assert!(
            error.contains("scratch") && error.contains("create it in the shared tree"),
            "{name}: {error}"
        );
    }
    let missing = attempt(WorkloadName::Tree, Path::new("/nowhere/at/all"), &[])
        .unwrap_err()
        .to_string();
    assert!(missing.contains("/nowhere/at/all"), "{missing}");
    let none = run(
        &WorkloadSpec::new(WorkloadName::OpenFids),
        &Places::default(),
    )
    .unwrap_err()
    .to_string();
    assert!(none.contains("--share DIR"), "{none}");
}

#[test]
fn fids_knows_as_many_names_as_asked_and_leaves_nothing() {
    let root = tree();
    let names = |root: &Path| {
        snapshot(root)
            .into_iter()
            .map(|(name, ..)| name)
            .collect::<BTreeSet<_>>()
    };
    let before = snapshot(root.path());
    for (how, learned) in [("cached", "lookup"), ("held", "hold")] {
        for known in ["1", "20", "1500"] {
            let options = [("how", how), ("count", known), ("samples", "300")];
            let got = attempt(WorkloadName::OpenFids, root.path(), &options).unwrap();
            assert_eq!(count(&got, learned), known.parse::<u64>().unwrap(), "{how}");
            assert_eq!(
                (count(&got, "stat"), count(&got, "open_close")),
                (300, 300),
                "{how}"
            );
            assert!(got.value(Metric::OpenFidsStat).unwrap() > 0.0);
            assert_eq!(
                got.notes.iter().any(|n| n.contains("RLIMIT_NOFILE")),
                how == "held",
                "{:?}",
                got.notes
            );
        }
    }
    assert_eq!(names(root.path()).len(), before.len());
    assert_eq!(snapshot(root.path()), before);
}

#[test]
fn names_that_are_kept_are_known_to_the_next_trial_too() {
    let root = tree();
    let own = || {
        let files = snapshot(root.path()).into_iter().map(|(name, ..)| name);
        files
            .filter(|name| name.contains("scratch/vmtax-open-fids/"))
            .collect::<BTreeSet<_>>()
    };
    let run = |known: &str, keep: &str| {
        let options = [("count", known), ("samples", "50"), ("keep", keep)];
        let got = attempt(WorkloadName::OpenFids, root.path(), &options).unwrap();
        assert_eq!(count(&got, "lookup"), known.parse::<u64>().unwrap());
        own()
    };
    let few = run("500", "yes");
    let more = run("1500", "yes");
    assert!(
        few.len() > 50 && more.len() > few.len() && more.is_superset(&few),
        "{} and {}",
        few.len(),
        more.len()
    );
    assert_eq!(run("1500", "yes"), more, "what is there is used again");
    assert!(
        run("20", "no").is_empty(),
        "what earlier trials kept is removed"
    );
}

#[test]
fn names_makes_what_is_asked_times_it_and_leaves_nothing() {
    let root = tree();
    let before = snapshot(root.path());
    let options = [
        ("files", "250"),
        ("depth", "7"),
        ("xattrs", "3"),
        ("samples", "40"),
    ];
    let got = attempt(WorkloadName::Names, root.path(), &options).unwrap();
    for (metric, calls) in [
        (Metric::NamesStat, 40),
        (Metric::NamesOpenClose, 40),
        (Metric::NamesCreateUnlink, 40),
        (Metric::NamesList, 10),
    ] {
        assert_eq!(count(&got, metric.operation().unwrap()), calls, "{metric}");
        assert!(got.value(metric).unwrap() > 0.0, "{metric}");
    }
    // Not every filesystem has attributes; one that has none says so.
    let without = got
        .unsupported
        .iter()
        .any(|u| u.metric == Metric::NamesGetxattr && u.reason.contains("EOPNOTSUPP"));
    assert_ne!(got.value(Metric::NamesGetxattr).is_some(), without);
    assert_eq!(snapshot(root.path()), before);
    // A folder of ten thousand takes longer to list than one of ten.
    let listing = |files: &str| {
        let got = attempt(
            WorkloadName::Names,
            root.path(),
            &[("files", files), ("samples", "5")],
        )
        .unwrap();
        got.value(Metric::NamesList).unwrap()
    };
    let (few, many) = (listing("10"), listing("10000"));
    assert!(many > 20.0 * few, "{few} against {many}");
}

fn lines<'a>(kept: &'a [Kept], what: &str) -> &'a Kept {
    kept.iter().find(|k| k.what == what).unwrap()
}

#[test]
fn a_folder_keeps_its_meaning_and_the_host_sees_the_same() {
    let root = tree();
    for _ in 0..2 {
        let got = attempt(WorkloadName::FsSemantics, root.path(), &[("linger", "20")]).unwrap();
        for what in [
            "mode",
            "symlink",
            "hard link",
            "FIFO",
            "socket",
            "nanosecond mtime",
            "case-sensitive names",
            "names of 255 bytes",
            "names of any bytes",
            "sparse file",
            "unlinked, but open",
            "renamed over, but open",
            "byte-range locks",
            "fsync",
            "writable mmap (MAP_SHARED)",
        ] {
            let line = lines(&got.kept, what);
            assert_eq!(line.keeping, Keeping::Kept, "{line:?}");
        }
        assert_eq!(lines(&got.kept, "nanosecond mtime").detail, "to 1 ns");
        let seen = check_from_host(&lingering(5), root.path(), GuestState::Running);
        for line in &seen {
            let inside = lines(&got.kept, &line.what);
            assert!(
                inside.keeping == line.keeping || inside.keeping == Keeping::Refused,
                "{inside:?} {line:?}"
            );
        }
        assert_eq!(lines(&seen, "byte-range locks").keeping, Keeping::Kept);
        let left = check_from_host(&lingering(5), root.path(), GuestState::Ended);
        assert_eq!(
            (left[0].keeping, left.len()),
            (Keeping::Kept, 1),
            "{left:?}"
        );
    }
    // What is changed on the other side is seen.
    let folder = root.path().join("scratch/vmtax-fs-semantics");
    fs::set_permissions(
        folder.join("mode"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    fs::remove_file(folder.join("link-2")).unwrap();
    fs::write(folder.join("unlinked-and-held/.nfs0001"), "left").unwrap();
    let seen = check_from_host(&lingering(5), root.path(), GuestState::Running);
    assert_eq!(lines(&seen, "mode").detail, "0600 of 0641");
    assert_eq!(
        (
            lines(&seen, "mode").keeping,
            lines(&seen, "hard link").keeping
        ),
        (Keeping::Lost, Keeping::Lost)
    );
    let left = check_from_host(&lingering(5), root.path(), GuestState::Ended);
    assert!(
        left[0].keeping == Keeping::Lost && left[0].detail.contains(".nfs0001"),
        "{left:?}"
    );
}

#[test]
fn the_host_looks_at_nothing_outside_whatever_a_guest_puts_there() {
    let (root, outside) = (tree(), tempfile::tempdir().unwrap());
    attempt(
        WorkloadName::FsSemantics,
        outside_with_scratch(&outside),
        &[],
    )
    .unwrap();
    let theirs = outside.path().join("scratch/vmtax-fs-semantics");
    // The whole folder is elsewhere, by a link.
    std::os::unix::fs::symlink(&theirs, root.path().join("scratch/vmtax-fs-semantics")).unwrap();
    assert!(
        check_from_host(&lingering(5), root.path(), GuestState::Running)
            .iter()
            .all(|k| k.keeping == Keeping::Lost)
    );
    fs::remove_file(root.path().join("scratch/vmtax-fs-semantics")).unwrap();
    // So is the folder above it.
    fs::remove_dir(root.path().join("scratch")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("scratch"), root.path().join("scratch"))
        .unwrap();
    assert!(
        check_from_host(&lingering(5), root.path(), GuestState::Running)
            .iter()
            .all(|k| k.keeping == Keeping::Lost)
    );
    fs::remove_file(root.path().join("scratch")).unwrap();
    fs::create_dir(root.path().join("scratch")).unwrap();
    // A pipe, which would never open, and a link in the lock's place.
    fs::create_dir(root.path().join("scratch/vmtax-fs-semantics")).unwrap();
    let lock = root.path().join("scratch/vmtax-fs-semantics/locked");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &lock,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(
        lines(
            &check_from_host(&lingering(5), root.path(), GuestState::Running),
            "byte-range locks"
        )
        .detail,
        "it is not a regular file"
    );
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(theirs.join("mode"), &lock).unwrap();
    assert_eq!(
        lines(
            &check_from_host(&lingering(5), root.path(), GuestState::Running),
            "byte-range locks"
        )
        .keeping,
        Keeping::Lost
    );
}

fn outside_with_scratch(outside: &TempDir) -> &Path {
    fs::create_dir(outside.path().join("scratch")).unwrap();
    outside.path()
}
