use super::*;
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("qemu-system-x86_64");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A script that answers like a QEMU of that version and those machines.
fn fake(version: &str, machine: &str) -> String {
    format!(
        r#"#!/bin/sh
case "$1" in
--version) echo "QEMU emulator version {version} (fake)";;
-accel) echo "Possible accelerators: kvm, xen, hax, tcg";;
-machine) echo "Supported machines are:"; echo "{machine}   a machine";;
-object) echo "List of user creatable objects:"; echo "  iothread";;
-device) echo 'name "virtio-blk-pci", bus PCI'; echo 'name "virtserialport", bus virtio-serial-bus';;
esac
"#
    )
}

#[test]
fn what_is_no_qemu_is_named_with_its_fix() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(matches!(
        best_qemu(Some(&at.join("none"))),
        Err(HostError::QemuMissing { .. })
    ));
    assert!(matches!(
        best_qemu(Some(at)),
        Err(HostError::QemuNotAFile {
            kind: "a directory",
            ..
        })
    ));
    assert!(matches!(
        best_qemu(Some(Path::new("/dev/null"))),
        Err(HostError::QemuNotAFile { .. })
    ));
    assert!(matches!(
        best_qemu(Some(Path::new("/bin/true/x"))),
        Err(HostError::QemuMissing { .. })
    ));
    assert!(matches!(
        best_qemu(Some(Path::new("/bin/true"))),
        Err(HostError::NotQemu { .. })
    ));
    let plain = at.join("plain");
    fs::write(&plain, "text").unwrap();
    assert!(matches!(
        best_qemu(Some(&plain)),
        Err(HostError::QemuNotExecutable { .. })
    ));
}

#[test]
fn scripts_of_all_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let try_one = |text: &str| best_qemu(Some(&script(folder.path(), text)));
    let Err(HostError::NotQemu { said, .. }) =
        try_one("#!/bin/sh\nprintf 'a\\033[31mb\\nmore\\n'\n")
    else {
        panic!()
    };
    assert_eq!(said, "a[31mb", "no control characters");
    assert!(matches!(
        try_one("#!/bin/sh\nexit 0\n"),
        Err(HostError::NotQemu { .. })
    ));
    let Err(HostError::QemuDoesNotStart { reason, .. }) =
        try_one("#!/bin/sh\necho libx.so missing >&2; exit 127\n")
    else {
        panic!()
    };
    assert_eq!(reason, "libx.so missing");
    assert!(matches!(
        try_one("#!/no/such/shell\n"),
        Err(HostError::QemuDoesNotStart { .. })
    ));
    assert!(matches!(
        try_one("\x7fELF rubbish"),
        Err(HostError::QemuDoesNotStart { .. })
    ));
    assert!(matches!(
        try_one("#!/bin/sh\nsleep 100\n"),
        Err(HostError::QemuHangs { .. })
    ));
    assert!(matches!(
        try_one(&fake("3.1.0", "pc")),
        Err(HostError::QemuTooOld { .. })
    ));
    assert!(matches!(
        try_one(&fake("8.2.0", "virt")),
        Err(HostError::QemuNotX86 { .. })
    ));
    let facts = try_one(&fake("8.2.0", "q35")).unwrap();
    assert_eq!(
        (facts.version.as_str(), facts.exported_functions),
        ("8.2.0", 0)
    );
    assert_eq!(facts.accelerators, ["kvm", "tcg", "xen"]);
    assert_eq!(facts.aio, ["threads"]);
    assert!(facts.iothread);
}

#[test]
fn every_error_ends_with_its_fix() {
    let path = PathBuf::from("/x");
    let version = OLDEST_QEMU;
    let errors = [
        HostError::NoQemu,
        HostError::QemuMissing { path: path.clone() },
        HostError::QemuNotAFile {
            path: path.clone(),
            kind: "a directory",
        },
        HostError::QemuNotExecutable { path: path.clone() },
        HostError::QemuDoesNotStart {
            path: path.clone(),
            reason: "r".into(),
        },
        HostError::NotQemu {
            path: path.clone(),
            said: "s".into(),
        },
        HostError::QemuHangs {
            path: path.clone(),
            arguments: "-h".into(),
            seconds: 3,
        },
        HostError::QemuNotX86 { path: path.clone() },
        HostError::QemuTooOld { path, version },
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.ends_with(&error.fix()), "{text}");
        assert!(text.contains("/x") || error == HostError::NoQemu, "{text}");
    }
}

#[test]
fn a_check_says_what_is_lacking() {
    let folder = tempfile::tempdir().unwrap();
    let probed = probe(&script(folder.path(), &fake("8.2.0", "pc")));
    let line = check(&probed);
    assert_eq!(line.state, Readiness::Limited);
    assert!(
        line.found.contains("wrapper") && line.found.contains("lacks virtio-serial-pci"),
        "{}",
        line.found
    );
    let none = checks(&[]);
    assert_eq!((none.len(), none[0].state), (1, Readiness::Missing));
    assert!(
        none[0].remedies[0]
            .action
            .contains("apt-get install qemu-system-x86")
    );
}

#[test]
fn those_with_both_accelerators_come_first_and_broken_ones_last() {
    let qemu_with = |accelerators: &[&str]| {
        Ok(Probed {
            facts: QemuFacts {
                path: PathBuf::from(accelerators.concat()),
                version: "7.2.0".into(),
                accelerators: accelerators.iter().map(|a| a.to_string()).collect(),
                aio: vec![],
                iothread: true,
                exported_functions: 0,
                trace_backends: vec![],
            },
            lacks: vec![],
            is_wrapper: false,
        })
    };
    let mut all = [
        Err(HostError::NoQemu),
        qemu_with(&["tcg"]),
        qemu_with(&["kvm", "tcg"]),
        qemu_with(&["kvm", "tcg", "xen"]),
    ];
    all.sort_by_key(rank);
    let order: Vec<_> = all
        .iter()
        .map(|f| f.as_ref().map(|p| p.facts.path.display().to_string()).ok())
        .collect();
    assert_eq!(
        order,
        [
            Some("kvmtcg".into()),
            Some("kvmtcgxen".into()),
            Some("tcg".into()),
            None
        ]
    );
}

#[test]
fn one_file_under_two_names_is_one_qemu() {
    let folder = tempfile::tempdir().unwrap();
    let real = script(folder.path(), "x");
    let link = folder.path().join("qemu-kvm");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let found = candidates(&[folder.path().to_path_buf()]);
    assert_eq!(found, [real.clone(), link.clone()]);
    assert_eq!(distinct(found.clone(), None), std::slice::from_ref(&real));
    assert_eq!(distinct(found, Some(&link)), Vec::<PathBuf>::new());
}

#[test]
fn accelerators_of_old_and_new_qemus() {
    let new =
        "Accelerators supported in QEMU binary:\ntcg\nkvm\nqemu: module ui-ui-gtk not found\n";
    assert_eq!(accelerators_in(new), ["kvm", "tcg"]);
    assert_eq!(
        accelerators_in("Possible accelerators: kvm, xen, hax, tcg\n"),
        ["kvm", "tcg", "xen"]
    );
}

/// The real one, where it is installed (the tests' prerequisites install it).
#[test]
fn the_installed_qemu() {
    let facts = best_qemu(None).unwrap();
    assert_eq!(facts.accelerators[..2], ["kvm", "tcg"]);
    assert_eq!(facts.aio, ["threads", "native", "io_uring"]);
    assert!(facts.iothread);
    assert!(
        facts.exported_functions > 1000,
        "{}",
        facts.exported_functions
    );
    assert_eq!(facts.trace_backends, ["log"]);
    assert_eq!(best_qemu(Some(&facts.path)).unwrap(), facts);
    assert_eq!(best_qemu(None).unwrap(), facts);
}

#[test]
fn a_program_that_is_no_qemu_has_none_of_it() {
    let found = read_binary(&std::env::current_exe().unwrap()).unwrap();
    assert_eq!(found.aio, Vec::<String>::new());
    // The shell imports many functions and exports none.
    let shell = read_binary(Path::new("/bin/sh")).unwrap();
    assert!(
        shell.exported_functions < 50,
        "{}",
        shell.exported_functions
    );
    assert_eq!(shell.trace_backends, Vec::<String>::new());
    assert_eq!(read_binary(Path::new("/etc/passwd")), None);
    assert_eq!(read_binary(Path::new("/nonexistent")), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A damaged ELF file: real headers with bytes changed.
    #[test]
    fn a_damaged_file_never_panics(changes in proptest::collection::vec((0usize..4096, any::<u8>()), 0..40)) {
        let mut bytes = std::fs::read("/bin/true").unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            // Half of the changes near the end, where the section headers are.
            let at = if value % 2 == 0 { at } else { bytes.len() - 1 - at };
            bytes[at] = value;
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let _ = read_binary(file.path());
    }
}
