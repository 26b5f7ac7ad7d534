//! From packages to a folder in which a QEMU runs.

use crate::ResultExt;
use crate::apt::{Apt, Fetch};
use crate::qemu::error::QemuError;
use crate::qemu::name::upstream;
use crate::qemu::{BINARY, Fetched, PROGRAM, fetched, shelf};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the archive's packages have the program.
const INSTALLED: &str = "usr/bin/qemu-system-x86_64";
/// Firmware and option ROMs: where packages have them, and where they are kept, below `root`.
const FIRMWARE: [(&str, &str); 3] = [
    ("usr/share/qemu", "share/qemu"),
    ("usr/share/seabios", "share/seabios"),
    ("usr/lib/ipxe/qemu", "share/ipxe"),
];
/// Where packages have libraries, and the loader too.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
/// Where packages have QEMU's modules.
const MODULES: &str = "usr/lib/x86_64-linux-gnu/qemu";
/// Where QEMU since 7.1 looks for its files in place of the system's, once it is there: beside the program. Without it a
/// QEMU takes the modules of the one that is installed, and fails. Older ones need `QEMU_MODULE_DIR`.
const BUNDLE: &str = "root/bin/qemu-bundle";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Unpacks a suite's packages and moves what its QEMU runs with, which is all that is kept, into the cache in one step.
pub(crate) fn unpack(
    apt: &Apt,
    packages: &[PathBuf],
    fetch: &Fetch,
    suite: &str,
    cache: &Path,
) -> Result<Fetched, QemuError> {
    // The C library apart: the host's own serves unless it is older.
    // By its whole name, since what is found in it is named so.
    let work = fs::canonicalize(fetch.work()).reading(fetch.work())?;
    let (all, libc, ready) = (work.join("all"), work.join("libc"), work.join("ready"));
    for package in packages {
        let is_libc = package
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("libc6_"));
        apt.unpack(package, if is_libc { &libc } else { &all })?;
    }
    let lacks = |missing: &str| QemuError::Lacks {
        suite: suite.into(),
        missing: missing.into(),
    };
    let loader = folders(&libc)
        .map(|folder| folder.join(LOADER))
        .find(|path| path.is_file());
    let loader = loader.ok_or_else(|| lacks(LOADER))?;
    let program = all.join(INSTALLED);
    let linked = linked(&loader, &[&libc, &all], &program).ok_or_else(|| lacks(INSTALLED))?;

    let (root, modules) = (ready.join("root"), ready.join(BUNDLE).join(MODULES));
    for (name, path) in linked.iter().filter(|(_, path)| path.starts_with(&all)) {
        fetch.keep(path, &root.join("lib").join(name))?;
    }
    fs::create_dir_all(&modules).writing(&modules)?;
    for (name, path) in accelerators(&all.join(MODULES)) {
        fetch.keep(&path, &modules.join(name))?;
    }
    fetch.keep(&program, &ready.join(BINARY))?;
    for (from, to) in FIRMWARE {
        let from = all.join(from);
        if from.is_dir() {
            fetch.keep(&from, &root.join(to))?;
        }
    }
    let version = match start(&ready, suite, &launcher(suite, false)) {
        Err(QemuError::DoesNotStart { .. }) => {
            for (name, path) in linked.iter().filter(|(_, path)| path.starts_with(&libc)) {
                fetch.keep(path, &root.join("libc").join(name))?;
            }
            fetch.keep(&loader, &root.join("bin").join(LOADER))?;
            start(&ready, suite, &launcher(suite, true))
        }
        other => other,
    }?;
    let home = shelf(cache).join(format!("{version}-{suite}"));
    fetch.settle(&ready, &home)?;
    fetched(&home).ok_or_else(|| lacks(PROGRAM))
}

/// The accelerators among QEMU's modules, by name; TCG was one from 6.1 to 7.2. The others are displays, sound and USB, with
/// libraries of their own.
fn accelerators(modules: &Path) -> Vec<(OsString, PathBuf)> {
    let entries = fs::read_dir(modules).into_iter().flatten().flatten();
    let found = entries.map(|entry| (entry.file_name(), entry.path()));
    found
        .filter(|(name, _)| name.as_encoded_bytes().starts_with(b"accel-"))
        .collect()
}

fn folders(root: &Path) -> impl Iterator<Item = PathBuf> {
    LIBRARIES.iter().map(move |folder| root.join(folder))
}

/// The libraries that a program is linked with, by name; `None` when the loader does not find all of them. The suite's own
/// loader is asked, which is sure to understand them.
fn linked(loader: &Path, roots: &[&Path], program: &Path) -> Option<BTreeMap<String, PathBuf>> {
    let search: Vec<String> = roots
        .iter()
        .flat_map(|root| folders(root))
        .map(|folder| folder.display().to_string())
        .collect();
    let output = Command::new(loader)
        .args(["--library-path", &search.join(":"), "--list"])
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    listed(&String::from_utf8_lossy(&output.stdout))
        .into_iter()
        .map(|(name, path)| Some((name, fs::canonicalize(path).ok()?)))
        .collect()
}

/// `NAME => PATH (ADDRESS)` of a loader's list; the kernel's own and the loader itself have no path.
fn listed(said: &str) -> Vec<(String, PathBuf)> {
    let read = |line: &str| {
        let (name, rest) = line.trim().split_once(" => ")?;
        let path = rest.rsplit_once(" (").map_or(rest, |(path, _)| path);
        (!name.contains('/')).then(|| (name.to_owned(), PathBuf::from(path)))
    };
    said.lines().filter_map(read).collect()
}

/// Writes the script into `home` and starts it once; gives the version that it says.
pub(crate) fn start(home: &Path, suite: &str, script: &str) -> Result<String, QemuError> {
    let path = home.join(PROGRAM);
    fs::write(&path, script).writing(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).writing(&path)?;
    let output = Command::new(&path)
        .arg("--version")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let output = output.writing(&path)?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // The package's own version may follow, in brackets.
    let word = |rest: &str| upstream(rest.split_whitespace().next().unwrap_or_default()).to_owned();
    let version = said
        .lines()
        .find_map(|line| line.strip_prefix("QEMU emulator version ").map(word));
    version
        .filter(|version| !version.is_empty() && output.status.success())
        .ok_or_else(|| {
            let last = said.lines().next_back().unwrap_or("it says nothing");
            QemuError::DoesNotStart {
                suite: suite.into(),
                said: last.chars().take(200).collect(),
            }
        })
}

/// The script that starts a fetched QEMU from wherever its folder is. The environment variable would be passed on to what
/// QEMU starts, but leaves QEMU the process's own program; only a loader of its own can bring a newer C library.
fn launcher(suite: &str, own_libc: bool) -> String {
    let begin = if own_libc {
        format!("exec \"$root/bin/{LOADER}\" --library-path \"$root/libc:$root/lib\"")
    } else {
        "LD_LIBRARY_PATH=\"$root/lib\" exec".to_owned()
    };
    let firmware: String = FIRMWARE
        .iter()
        .map(|(_, folder)| format!(" \\\n    -L \"$root/{folder}\""))
        .collect();
    format!(
        "#!/bin/sh\n\
         # QEMU of {suite}, with its own libraries and firmware; made by `vmtax get qemu`.\n\
         home=$(dirname -- \"$(readlink -f -- \"$0\")\")\n\
         root=$home/root\n\
         export QEMU_MODULE_DIR=\"$home/{BUNDLE}/{MODULES}\"\n\
         {begin} \"$home/{BINARY}\"{firmware} \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_starts_the_program_with_its_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("a folder with 'blanks'");
        let program = home.join(BINARY);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let says = "#!/bin/sh\necho \"QEMU emulator version 5.2.0 (Debian 1:5.2+dfsg-11)\"\necho \"$LD_LIBRARY_PATH|$*\"\n";
        fs::write(&program, says).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            start(&home, "bullseye", &launcher("bullseye", false)).unwrap(),
            "5.2.0"
        );

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(home.join(PROGRAM), &link).unwrap();
        let said = Command::new(&link)
            .args(["-m", "a b"])
            .output()
            .unwrap()
            .stdout;
        let root = home.join("root").display().to_string();
        let expected = format!(
            "{root}/lib|-L {root}/share/qemu -L {root}/share/seabios -L {root}/share/ipxe -m a b\n"
        );
        assert_eq!(
            String::from_utf8(said).unwrap().split_once('\n').unwrap().1,
            expected
        );
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let error = start(dir.path(), "sid", &launcher("sid", true))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("QEMU of sid does not start on this host (")
                && error.contains("not found"),
            "{error}"
        );
    }

    #[test]
    fn a_loaders_list_is_read() {
        let said = "\tlinux-vdso.so.1 (0x00007fd6ff091000)\n\tlibm.so.6 => /r/lib/libm.so.6 (0x00007f885e7a3000)\n\
                    \tlibx.so => not found\n\t/lib64/ld-linux-x86-64.so.2 => /r/ld.so (0x00007f885e7a3000)\n";
        assert_eq!(
            listed(said),
            [
                ("libm.so.6".into(), "/r/lib/libm.so.6".into()),
                ("libx.so".into(), PathBuf::from("not found"))
            ]
        );
    }
}
