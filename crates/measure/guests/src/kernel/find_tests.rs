use super::*;
use crate::testing::{bzimage, put, tree};
use std::os::unix::fs::PermissionsExt;
use vmtax_model::testing::skipped;

/// An unpacked package of this release.
fn package(root: &Path, release: &str) -> PathBuf {
    let image = root.join(format!("boot/vmlinuz-{release}"));
    put(&image, &bzimage(release));
    tree(&root.join("lib/modules").join(release), release);
    image
}

#[test]
fn modules_are_found_beside_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = package(dir.path(), "6.1.0-7-amd64");
    let kernel = given(&image, None).unwrap();
    assert_eq!(
        kernel.modules,
        Some(
            dir.path()
                .canonicalize()
                .unwrap()
                .join("lib/modules/6.1.0-7-amd64")
        )
    );
    assert_eq!(
        (kernel.release.as_str(), kernel.source),
        ("6.1.0-7-amd64", SourceOfKernel::Given)
    );

    // Fedora's layout: the image among its modules.
    let among = dir.path().join("lib/modules/6.1.0-7-amd64/vmlinuz");
    fs::rename(&image, &among).unwrap();
    assert!(
        given(&among, None)
            .unwrap()
            .modules
            .unwrap()
            .ends_with("lib/modules/6.1.0-7-amd64")
    );
}

#[test]
fn an_image_alone_has_all_built_in() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("bzImage");
    put(&image, &bzimage("6.9.0-custom"));
    assert_eq!(given(&image, None).unwrap().modules, None);
}

#[test]
fn modules_may_be_named_at_any_height() {
    let (dir, boot) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = boot.path().join("bzImage");
    put(&image, &bzimage("6.1.0-7-amd64"));
    package(dir.path(), "6.1.0-7-amd64");
    let expected = dir.path().join("lib/modules/6.1.0-7-amd64");
    for name in ["", "lib/modules", "lib/modules/6.1.0-7-amd64"] {
        let kernel = given(&image, Some(&dir.path().join(name))).unwrap();
        assert_eq!(
            kernel.modules.unwrap().components().as_path(),
            expected,
            "{name:?}"
        );
    }
}

#[test]
fn modules_of_another_version_are_refused_with_both_named() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path(), "6.1.0-7-amd64");
    let image = dir.path().join("bzImage");
    put(&image, &bzimage("6.9.0"));
    // By the name of the folder, and by what the modules themselves say.
    for name in ["lib/modules", "lib/modules/6.1.0-7-amd64", ""] {
        let error = given(&image, Some(&dir.path().join(name))).unwrap_err();
        assert!(
            matches!(&error, KernelError::OtherVersion { release, found, .. } if release == "6.9.0" && found == "6.1.0-7-amd64"),
            "{error}"
        );
    }
    fs::rename(
        dir.path().join("lib/modules/6.1.0-7-amd64"),
        dir.path().join("lib/modules/6.9.0"),
    )
    .unwrap();
    let text = given(&image, Some(&dir.path().join("lib/modules")))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("6.9.0") && text.contains("6.1.0-7-amd64") && text.contains("--modules"),
        "{text}"
    );
}

#[test]
fn a_folder_without_modules_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("bzImage");
    put(&image, &bzimage("6.9.0"));
    assert!(matches!(
        given(&image, Some(dir.path())),
        Err(KernelError::NoModules { .. })
    ));
    assert!(matches!(
        given(&image, Some(&dir.path().join("none"))),
        Err(KernelError::File(_))
    ));
}

#[test]
fn a_kernel_without_virtio_is_refused_early() {
    let dir = tempfile::tempdir().unwrap();
    let image = package(dir.path(), "6.1.0");
    fs::remove_dir_all(dir.path().join("lib/modules/6.1.0/kernel/drivers/virtio")).unwrap();
    assert!(matches!(
        given(&image, None),
        Err(KernelError::NoVirtio { .. })
    ));
}

#[test]
fn what_is_no_whole_kernel_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("bzImage");
    let whole = bzimage("6.9.0");
    put(&image, &whole[..whole.len() - 1]);
    let error = given(&image, None).unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::NotAKernel {
                why: NotBzImage::Truncated { .. },
                ..
            }
        ),
        "{error}"
    );
    put(&image, b"#!/bin/sh");
    assert!(
        given(&image, None)
            .unwrap_err()
            .to_string()
            .starts_with(image.to_str().unwrap())
    );
    for path in [
        dir.path(),
        Path::new("/dev/zero"),
        Path::new("/nonexistent"),
    ] {
        assert!(
            matches!(given(path, None), Err(KernelError::File(_))),
            "{}",
            path.display()
        );
    }
}

#[test]
fn the_cache_gives_the_newest_first_and_tells_what_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    for release in ["6.1.0-9-amd64", "6.12.94+deb13-amd64", "6.1.0-56-amd64"] {
        package(&dir.path().join("kernels").join(release), release);
    }
    put(
        &dir.path()
            .join("kernels/6.2.0-amd64/boot/vmlinuz-6.2.0-amd64"),
        b"half",
    );
    put(&dir.path().join("kernels/.fetch-x/apt.env"), b"");
    put(&dir.path().join("kernels/.lock"), b"");
    let FoundKernels { kernels, unusable } = cached(dir.path());
    let releases: Vec<&str> = kernels
        .iter()
        .map(|kernel| kernel.release.as_str())
        .collect();
    assert_eq!(
        releases,
        ["6.12.94+deb13-amd64", "6.1.0-56-amd64", "6.1.0-9-amd64"]
    );
    assert!(
        kernels
            .iter()
            .all(|kernel| kernel.source == SourceOfKernel::Cache)
    );
    assert_eq!(unusable.len(), 1);
    assert!(
        unusable[0].path.ends_with("6.2.0-amd64") && unusable[0].reason.contains("rm -r"),
        "{unusable:?}"
    );
    assert_eq!(cached(Path::new("/nonexistent")), FoundKernels::default());
}

#[test]
fn a_further_kernel_in_the_cache_is_not_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path();
    let fetch = |release: &str| {
        package(&cache.join("kernels").join(release), release);
        keep_default(cache, release).unwrap();
    };
    let absent = || {
        Err(UnusableKernel {
            path: cache.join("boot/vmlinuz-7"),
            reason: "the running kernel is not here".to_owned(),
        })
    };
    let order = || {
        let found = in_order(absent(), Some(cache));
        found
            .kernels
            .into_iter()
            .map(|kernel| kernel.release)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        in_order(absent(), Some(cache)).unusable.len(),
        1,
        "no kernel at all: the reason is told"
    );
    fetch("6.1.0-56-amd64");
    fetch("6.12.117-amd64");
    fetch("5.10.0-9-amd64");
    assert_eq!(
        order(),
        ["6.1.0-56-amd64", "6.12.117-amd64", "5.10.0-9-amd64"]
    );
    assert_eq!(
        in_order(absent(), Some(cache)).unusable,
        [],
        "a kernel that is not installed is not unusable"
    );
    set_default(cache, "6.12.117-amd64").unwrap();
    assert_eq!(order()[0], "6.12.117-amd64");
    fs::remove_dir_all(cache.join("kernels/6.12.117-amd64")).unwrap();
    assert!(order().len() == 2, "a default that was removed is none");
    let broken = cache.join("vmlinuz");
    put(&broken, b"half");
    let half = UnusableKernel {
        path: broken,
        reason: "half".to_owned(),
    };
    assert_eq!(in_order(Err(half), Some(cache)).unusable.len(), 1);
}

#[test]
fn an_image_under_another_name_is_not_taken_for_that_release() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path(), "6.1.0");
    put(&dir.path().join("boot/vmlinuz-6.1.0"), &bzimage("6.2.0"));
    assert!(matches!(running(dir.path(), "6.1.0"), Err(kernel) if kernel.reason.contains("6.2.0")));
}

#[test]
fn the_running_kernel_needs_image_and_modules() {
    let dir = tempfile::tempdir().unwrap();
    let image = package(dir.path(), "6.1.0");
    assert_eq!(
        running(dir.path(), "6.1.0").unwrap().source,
        SourceOfKernel::Running
    );

    let UnusableKernel { path, reason: why } = running(dir.path(), "6.5.0").unwrap_err();
    assert!(
        path.ends_with("boot/vmlinuz-6.5.0")
            && why.contains("6.5.0")
            && why.contains("there is no such file; it belongs to the running kernel"),
        "{why}"
    );

    fs::rename(
        dir.path().join("lib/modules/6.1.0"),
        dir.path().join("away"),
    )
    .unwrap();
    let UnusableKernel { path, reason: why } = running(dir.path(), "6.1.0").unwrap_err();
    assert!(path == image && why.contains("lib/modules/6.1.0"), "{why}");
}

#[test]
fn an_image_that_may_not_be_read_is_told_with_the_reason() {
    if rustix::process::geteuid().is_root() {
        return skipped("root may read everything");
    }
    let dir = tempfile::tempdir().unwrap();
    let image = package(dir.path(), "6.1.0");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o000)).unwrap();
    let why = running(dir.path(), "6.1.0").unwrap_err().reason;
    assert!(
        why.contains("ermission denied") && why.contains("vmtax get kernel"),
        "{why}"
    );
}
