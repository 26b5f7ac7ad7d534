//! Fetches a suite's QEMU into the cache, without installing it.

use crate::apt::{
    Apt, AptError, Archive, Fetch, Package, check_suite, is_suite, known, released_versions,
    version, with_version,
};
use crate::error::QemuError;
use crate::qemu::{BINARY, Fetched, PROGRAM, fetched, is_version, named, shelf, upstream};
use crate::{ResultExt, entries};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package with QEMU for x86, in Debian and Ubuntu.
const PACKAGE: &str = "qemu-system-x86";
/// Room that packages need while those that are kept are picked out, as a multiple of their download size.
const UNPACKED: u64 = 6;

/// Gives the QEMU that `wanted` means, a version or its beginning (5.2) or a suite (bullseye), from `cache` or else fetched
/// with apt into it: the newest that matches.
///
/// Nothing is installed and no root is needed. The suite is looked for in the archive of the system's own sources; its lists
/// are fetched for this use only, and apt checks their signatures. `say` gets a line for each step. One fetch runs at a time
/// per cache; a killed one leaves nothing that looks like a QEMU, and its remains are swept by the next.
///
/// # Errors
/// When there is no apt, no such version or suite, no network, no room, or what was fetched does not run.
pub fn fetch(wanted: &str, cache: &Path, say: &mut dyn FnMut(&str)) -> Result<Fetched, QemuError> {
    if !is_version(wanted) && !is_suite(wanted) {
        return Err(QemuError::BadName {
            name: wanted.into(),
        });
    }
    if let Some(qemu) = named(cache, wanted) {
        return Ok(qemu);
    }
    if is_suite(wanted) {
        check_suite(wanted)?;
    }
    let fetch = Fetch::begin(&shelf(cache), "a QEMU", say)?;
    // Another fetch may have had it.
    if let Some(qemu) = named(cache, wanted) {
        return Ok(qemu);
    }
    let apt = Apt::new(fetch.work())?;
    let archive = apt.archive()?;
    let suite = choose(&apt, &archive, wanted, say)?;
    let packages = needed(&apt, &suite)?;
    let bytes: u64 = packages.iter().map(|package| package.size).sum();
    fetch.need(bytes * UNPACKED)?;
    say(&format!(
        "downloading QEMU of {suite} with its libraries, {} packages ({:.0} MB)",
        packages.len(),
        bytes as f64 / 1e6
    ));
    let exact = packages.iter().map(|p| format!("{}={}", p.name, p.version));
    let files = apt.download(&exact.collect::<Vec<_>>())?;
    say("unpacking it");
    let qemu = unpack(&apt, &files, &fetch, &suite, cache)?;
    if is_version(wanted) && !version::matches(&qemu.version, wanted) {
        return Err(not_offered(wanted, vec![offer(&qemu.version, &suite)]));
    }
    Ok(qemu)
}

/// The suites that are known to have a QEMU and their versions, where these stay as they were released.
///
/// # Errors
/// When there is no apt, or its sources name no archive of a distribution.
pub fn available() -> Result<Vec<(&'static str, Option<&'static str>)>, QemuError> {
    Ok(released_versions(|suite| suite.qemu)?)
}

/// The suite to fetch from; afterwards apt looks there.
pub(crate) fn choose(
    apt: &Apt,
    archive: &Archive,
    wanted: &str,
    say: &mut dyn FnMut(&str),
) -> Result<String, QemuError> {
    let known = known(archive.distribution);
    let ask = if is_version(wanted) {
        with_version(known, |suite| suite.qemu, wanted)
    } else {
        vec![wanted]
    };
    say(&format!("asking {} for its QEMU", ask.join(", ")));
    let failed = apt.look_in(archive, &ask)?;
    let offers = apt.versions(PACKAGE)?.into_iter();
    let offers: Vec<(String, String)> = offers
        .filter(|(suite, _)| ask.contains(&suite.as_str()))
        .map(|(suite, package)| (suite, upstream(&package).to_owned()))
        .collect();
    // A package's version may be shorter than QEMU's own, and longer than what is wanted.
    let fits = |(_, has): &&(String, String)| {
        !is_version(wanted) || version::matches(has, wanted) || version::matches(wanted, has)
    };
    let fitting = offers.iter().filter(fits);
    let best = fitting.max_by(|(_, a), (_, b)| version::compare(a, b));
    match (best, failed) {
        (Some((suite, _)), _) => {
            if ask.len() > 1 {
                // What the others have must not be mixed in.
                apt.look_in(archive, &[suite])?;
            }
            Ok(suite.clone())
        }
        // One suite of several may be on no mirror; when nothing was offered, that is the reason to tell.
        (None, Some(failed)) if offers.is_empty() => Err(failed.into()),
        (None, _) => {
            let released = known.iter();
            let released = released.filter_map(|s| Some(offer(s.qemu?, s.name)));
            let asked = offers.iter().map(|(suite, has)| offer(has, suite));
            Err(not_offered(wanted, released.chain(asked).collect()))
        }
    }
}

fn not_offered(wanted: &str, offered: Vec<String>) -> QemuError {
    let wanted = wanted.to_owned();
    if is_version(&wanted) {
        QemuError::NotOffered {
            version: wanted,
            offered,
        }
    } else {
        QemuError::NoQemu { suite: wanted }
    }
}

/// Returns the packages that a QEMU needs to run: its own, those that it names as needed, and the libraries of all
/// these. Packages that are needed only to install them are left out.
fn needed(apt: &Apt, suite: &str) -> Result<Vec<Package>, QemuError> {
    let all = apt.with_dependencies(PACKAGE, suite)?;
    let Some(qemu) = all.iter().find(|package| package.name == PACKAGE).cloned() else {
        return Err(AptError::Failed {
            command: "apt-cache show".into(),
            said: format!("nothing of {PACKAGE}"),
        }
        .into());
    };
    let is_needed =
        |p: &Package| p.is_library || p.name == PACKAGE || qemu.depends.contains(&p.name);
    Ok(all.into_iter().filter(is_needed).collect())
}

fn offer(version: &str, suite: &str) -> String {
    format!("{version} ({suite})")
}

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
    let mut loaders = folders(&libc).map(|folder| folder.join(LOADER));
    let loader = loaders.find(|path| path.is_file());
    let loader = loader.ok_or_else(|| lacks(LOADER))?;
    let linked = linked(&loader, &[&libc, &all], &all.join(INSTALLED));
    let linked = linked.ok_or_else(|| lacks(INSTALLED))?;

    let root = ready.join("root");
    for (name, path) in linked.iter().filter(|(_, path)| path.starts_with(&all)) {
        fetch.keep(path, &root.join("lib").join(name))?;
    }
    keep_own_files(fetch, &all, &ready)?;
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

/// Moves a QEMU's program, accelerators and firmware from its unpacked packages to its folder.
fn keep_own_files(fetch: &Fetch, all: &Path, ready: &Path) -> Result<(), QemuError> {
    let modules = ready.join(BUNDLE).join(MODULES);
    fs::create_dir_all(&modules).writing(&modules)?;
    for (name, path) in accelerators(&all.join(MODULES)) {
        fetch.keep(&path, &modules.join(name))?;
    }
    fetch.keep(&all.join(INSTALLED), &ready.join(BINARY))?;
    for (from, to) in FIRMWARE {
        let from = all.join(from);
        if from.is_dir() {
            fetch.keep(&from, &ready.join("root").join(to))?;
        }
    }
    Ok(())
}

/// The accelerators among QEMU's modules, by name; TCG was one from 6.1 to 7.2. The others are displays, sound and USB, with
/// libraries of their own.
fn accelerators(modules: &Path) -> impl Iterator<Item = (OsString, PathBuf)> {
    let found = entries(modules).map(|entry| (entry.file_name(), entry.path()));
    found.filter(|(name, _)| name.as_encoded_bytes().starts_with(b"accel-"))
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
#[path = "fetch_tests.rs"]
mod tests;
