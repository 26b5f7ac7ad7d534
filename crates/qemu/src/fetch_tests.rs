//! Against the real apt, with an archive of our own on this disk: no network. That what is fetched runs, is a test of the
//! binary.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A machine's apt with its sources, and a cache.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    /// The archive's suite is called sid, and has these packages: name, version, what it depends on.
    fn new(packages: &[(&str, &str, &str)]) -> Site {
        let site = Site { dir: tempfile::tempdir().unwrap() };
        let path = site.dir.path().display().to_string();
        site.put("sources.list", &format!("deb copy:{path}/archive sid main\n"));
        // Nobody here has the key of a distribution.
        site.put(
            "apt.conf",
            &format!(
                "Dir::Etc::sourcelist \"{path}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::State::lists \"{path}/lists\";\nDir::State::status \"/dev/null\";\n\
                 Acquire::AllowInsecureRepositories \"true\";\nAPT::Get::AllowUnauthenticated \"true\";\n"
            ),
        );
        site.put("lists/partial/.keep", "");
        let list: String = packages.iter().map(|(name, version, depends)| paragraph(name, version, depends)).collect();
        site.put("archive/dists/sid/main/binary-amd64/Packages", &list);
        let sum = Command::new("sha256sum").arg(site.path("archive/dists/sid/main/binary-amd64/Packages")).output();
        let sum = String::from_utf8(sum.unwrap().stdout).unwrap();
        let (sum, size) = (sum.split(' ').next().unwrap(), list.len());
        site.put(
            "archive/dists/sid/Release",
            &format!(
                "Origin: Debian\nSuite: unstable\nCodename: sid\nArchitectures: amd64\nComponents: main\n\
                 Date: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n {sum} {size} main/binary-amd64/Packages\n"
            ),
        );
        site
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn put(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A fetch in a process of its own, whose environment leads apt to this site.
    fn command(&self, wanted: &str, path: Option<&Path>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "fetch::tests::fetches_in_a_process_of_its_own", "--ignored", "--nocapture"])
            .env("APT_CONFIG", self.path("apt.conf"))
            .env("VMTAX_TEST_CACHE", self.path("cache"))
            .env("VMTAX_TEST_WANTED", wanted)
            .stdin(Stdio::null());
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command
    }

    /// What it says.
    fn fetch(&self, wanted: &str, path: Option<&Path>) -> String {
        let output = self.command(wanted, path).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// What is in the cache, hidden things too.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/qemus")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

fn paragraph(name: &str, version: &str, depends: &str) -> String {
    let depends = if depends.is_empty() { String::new() } else { format!("Depends: {depends}\n") };
    let section = if name.starts_with("lib") { "libs" } else { "misc" };
    format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: n <n@n>\nSection: {section}\n{depends}\
         Filename: pool/{name}.deb\nSize: 3000000\nSHA256: {:064}\nDescription: test\n\n",
        0
    )
}

/// Not a test: the other half of those below.
#[test]
#[ignore = "run by the tests below"]
fn fetches_in_a_process_of_its_own() {
    let Some(cache) = std::env::var_os("VMTAX_TEST_CACHE") else { return };
    let wanted = std::env::var("VMTAX_TEST_WANTED").unwrap();
    match fetch(&wanted, Path::new(&cache), &mut |line| println!("said: {line}")) {
        Ok(qemu) => println!("got: {qemu:?}"),
        Err(error) => println!("error: {error}"),
    }
}

const QEMU: [(&str, &str, &str); 7] = [
    ("qemu-system-x86", "1:11.1.2+ds-3", "libaio1t64 (>= 0.3), seabios | none, qemu-system-common"),
    ("qemu-system-common", "1:11.1.2+ds-3", "systemd"),
    ("libaio1t64", "0.3", "libc6"),
    ("libc6", "2.42", ""),
    ("seabios", "1.17", ""),
    ("systemd", "258", "libpam"),
    ("libpam", "1", ""),
];

#[test]
fn what_it_needs_to_run_is_downloaded_and_nothing_to_install_it() {
    let site = Site::new(&QEMU);
    let said = site.fetch("sid", None);
    // Six of seven: systemd is no library, and QEMU itself does not name it.
    assert!(said.contains("downloading QEMU of sid with its libraries, 6 packages (18 MB)"), "{said}");
    // The files themselves are not there.
    assert!(said.contains("error: `apt-get -q download") && said.contains("qemu-system-x86=1:11.1.2+ds-3"), "{said}");
    assert!(said.contains("name a QEMU of your own"), "{said}");
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn a_version_that_nobody_has_is_told_with_those_there_are() {
    let site = Site::new(&QEMU);
    let said = site.fetch("11.2", None);
    for part in ["asking bookworm-backports", "11.2; there are 5.2 (bullseye), 7.2 (bookworm)", "11.1.2 (sid)"] {
        assert!(said.contains(part), "{said}");
    }
    // The suites that this archive lacks do not stand in the way of the one that it has.
    let said = site.fetch("11.1", None);
    assert!(said.contains("downloading QEMU of sid"), "{said}");
}

#[test]
fn a_suite_without_a_qemu_or_that_is_not_there_is_told() {
    let site = Site::new(&QEMU[1..]);
    let said = site.fetch("sid", None);
    assert!(said.contains("error: sid has no package qemu-system-x86"), "{said}");
    // Unsigned suites are not looked into, as on every real machine.
    site.put("apt.conf", &fs::read_to_string(site.path("apt.conf")).unwrap().replace("true", "false"));
    let said = site.fetch("rawhide", None);
    assert!(said.contains("has no suite rawhide"), "{said}");
    let said = site.fetch("sid", None);
    assert!(said.contains("error: ") && said.contains("is not signed"), "{said}");
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn words_that_are_neither_and_systems_without_apt_are_told() {
    let site = Site::new(&QEMU);
    for word in ["", "-oDir=/", "../sid", "5.2*", "Trixie"] {
        assert!(site.fetch(word, None).contains("is neither a QEMU version"), "{word}");
    }
    let said = site.fetch("sid", Some(&site.path("archive")));
    assert!(said.contains("apt-get is not on this system") && said.contains("--qemu"), "{said}");
    site.put("sources.list", "deb copy:/nowhere nodistro main\n");
    assert!(site.fetch("sid", None).contains("name no archive of Debian or Ubuntu"));
}

#[test]
fn a_killed_fetch_leaves_nothing_that_is_taken_for_a_qemu() {
    let site = Site::new(&QEMU);
    // An apt that never ends to download: the fetch is killed in the middle of it.
    let real = std::env::var("PATH").unwrap();
    site.put(
        "bin/apt-get",
        &format!("#!/bin/sh\ncase $2 in download) exec sleep 2;; esac\nPATH={real}\nexec apt-get \"$@\"\n"),
    );
    fs::set_permissions(site.path("bin/apt-get"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = PathBuf::from(format!("{}:{real}", site.path("bin").display()));
    let mut child = site.command("sid", Some(&path)).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("downloading") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0);
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(site.cached().iter().any(|name| name.starts_with(".fetch-")), "{:?}", site.cached());
    assert_eq!(crate::find(&site.path("cache")), []);
    assert!(site.fetch("sid", None).contains("downloading"));
    assert_eq!(site.cached(), [".lock"]);
}
