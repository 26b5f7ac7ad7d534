//! Against the real apt and dpkg, with a package source of our own on this disk: no network.

use super::*;
use crate::kernel::{FoundKernels, suites};
use crate::testing::{UNSIGNED, bzimage, put, suite, tree};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, io};

/// A machine's apt with its sources, and a cache.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let site = Site {
            dir: tempfile::tempdir().unwrap(),
        };
        let path = site.dir.path().display().to_string();
        put(
            &site.path("sources.list"),
            format!("deb [trusted=yes] copy:{path}/archive ./\n").as_bytes(),
        );
        put(
            &site.path("apt.conf"),
            format!(
                "Dir::Etc::sourcelist \"{path}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::State::lists \"{path}/lists\";\nDir::State::status \"/dev/null\";\n"
            )
            .as_bytes(),
        );
        put(&site.path("lists/partial/.keep"), b"");
        put(&site.path("archive/.keep"), b"");
        site
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Puts packages into the archive: name, what it depends on, which files it has.
    fn offer(&self, name: &str, depends: &str, files: impl Fn(&Path)) {
        let root = self.path("build").join(name);
        let depends = if depends.is_empty() {
            String::new()
        } else {
            format!("Depends: {depends}\n")
        };
        let control = format!(
            "Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: n <n@n>\n{depends}Description: test\n"
        );
        put(&root.join("DEBIAN/control"), control.as_bytes());
        files(&root);
        let deb = self.path(&format!("archive/{name}.deb"));
        let built = Command::new("dpkg-deb")
            .args(["--build", "--root-owner-group"])
            .args([&root, &deb])
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let size = fs::metadata(&deb).unwrap().len();
        let sum = Command::new("sha256sum").arg(&deb).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        let sum = sum.split(' ').next().unwrap();
        let mut list = fs::read_to_string(self.path("archive/Packages")).unwrap_or_default();
        list += &format!("{control}Filename: ./{name}.deb\nSize: {size}\nSHA256: {sum}\n\n");
        put(&self.path("archive/Packages"), list.as_bytes());
    }

    /// Makes the archive one of a distribution, as which apt knows `configured`: these suites with their lists.
    fn offer_suites(&self, configured: &str, suites: &[(&str, &str)]) {
        let path = self.dir.path().display().to_string();
        put(
            &self.path("sources.list"),
            format!("deb copy:{path}/archive {configured} main\n").as_bytes(),
        );
        let configuration = fs::read_to_string(self.path("apt.conf")).unwrap() + UNSIGNED;
        put(&self.path("apt.conf"), configuration.as_bytes());
        for (name, packages) in suites {
            suite(&self.path("archive"), name, packages);
        }
    }

    /// A Debian kernel: one package, uncompressed modules below `/usr` as since Debian 13.
    fn offer_debian(&self, release: &str) {
        self.offer(&format!("linux-image-{release}"), "", |root| {
            put(
                &root.join(format!("boot/vmlinuz-{release}")),
                &bzimage(release),
            );
            put(&root.join(format!("boot/System.map-{release}")), b"symbols");
            tree(&root.join("usr/lib/modules").join(release), release);
        });
    }

    /// A fetch in a process of its own, whose environment leads apt to this site.
    fn command(&self, version: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "kernel::fetch::tests::fetches_in_a_process_of_its_own",
                "--ignored",
                "--nocapture",
            ])
            .env("APT_CONFIG", self.path("apt.conf"))
            .env("VMTAX_TEST_CACHE", self.path("cache"))
            .env("VMTAX_TEST_VERSION", version)
            .stdin(Stdio::null());
        command
    }

    fn fetch(&self, version: &str) -> String {
        said(self.command(version).output().unwrap())
    }

    /// Returns the names of what is in the cache, hidden files included.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/kernels"))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn said(output: Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Not a test: the other half of those below.
#[test]
#[ignore = "run by the tests below"]
fn fetches_in_a_process_of_its_own() {
    let Some(cache) = std::env::var_os("VMTAX_TEST_CACHE") else {
        return;
    };
    let version = std::env::var("VMTAX_TEST_VERSION")
        .ok()
        .filter(|version| !version.is_empty());
    match fetch(version.as_deref(), Path::new(&cache), &mut |line| {
        println!("said: {line}")
    }) {
        Ok(kernel) => println!("got: {} {:?}", kernel.release, kernel.source),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
fn the_current_kernel_comes_with_its_modules_and_nothing_else() {
    let site = Site::new();
    site.offer_debian("6.1.0-9-amd64");
    site.offer("linux-image-amd64", "linux-image-6.1.0-9-amd64", |_| {});
    let first = site.fetch("");
    assert!(first.contains("got: 6.1.0-9-amd64 Cache"), "{first}");
    assert!(
        first.contains("package lists are empty, out of date"),
        "{first}"
    );
    assert_eq!(site.cached(), [".lock", "6.1.0-9-amd64"]);
    let home = site.path("cache/kernels/6.1.0-9-amd64");
    assert!(
        home.join("lib/modules/6.1.0-9-amd64/kernel/fs/ext4/ext4.ko")
            .is_file()
    );
    assert!(!home.join("boot/System.map-6.1.0-9-amd64").exists());
    // The lists that were fetched were not the system's.
    let lists = fs::read_dir(site.path("lists"))
        .unwrap()
        .map(|e| e.unwrap().file_name());
    assert_eq!(lists.collect::<Vec<_>>(), ["partial"]);

    // Cached: no archive is needed any more.
    fs::remove_dir_all(site.path("archive")).unwrap();
    let again = site.fetch("6.1");
    assert!(
        again.contains("got: 6.1.0-9-amd64 Cache") && !again.contains("said:"),
        "{again}"
    );
}

#[test]
fn ubuntus_three_packages_make_one_kernel() {
    let site = Site::new();
    let release = "6.8.0-45-generic";
    site.offer(
        "linux-image-virtual",
        "linux-image-6.8.0-45-generic",
        |_| {},
    );
    site.offer(
        "linux-image-6.8.0-45-generic",
        "linux-modules-6.8.0-45-generic",
        |root| {
            put(
                &root.join("boot/vmlinuz-6.8.0-45-generic"),
                &bzimage(release),
            );
        },
    );
    site.offer("linux-modules-6.8.0-45-generic", "", |root| {
        tree(&root.join("lib/modules").join(release), release)
    });
    site.offer("linux-modules-extra-6.8.0-45-generic", "", |root| {
        put(
            &root.join("lib/modules/6.8.0-45-generic/kernel/fs/9p/9p.ko"),
            b"9p",
        );
    });
    let said = site.fetch("");
    assert!(said.contains("got: 6.8.0-45-generic"), "{said}");
    let modules = site.path("cache/kernels/6.8.0-45-generic/lib/modules/6.8.0-45-generic/kernel");
    assert!(modules.join("fs/9p/9p.ko").is_file() && modules.join("fs/ext4/ext4.ko").is_file());
}

/// A Debian kernel since Linux 6.19: image and modules apart, the image among the modules.
fn offer_split(site: &Site, release: &str) {
    let needs = format!("linux-binary-{release}, linux-modules-{release}");
    site.offer(&format!("linux-image-{release}"), &needs, |_| {});
    let modules = format!("usr/lib/modules/{release}");
    site.offer(&format!("linux-binary-{release}"), "", |root| {
        put(&root.join(&modules).join("vmlinuz"), &bzimage(release));
    });
    site.offer(&format!("linux-modules-{release}"), "", |root| {
        tree(&root.join(&modules), release)
    });
}

#[test]
fn debians_split_packages_make_one_kernel() {
    let site = Site::new();
    offer_split(&site, "7.2.13+deb14-amd64");
    let said = site.fetch("7.2");
    assert!(said.contains("got: 7.2.13+deb14-amd64 Cache"), "{said}");
    let home = site.path("cache/kernels/7.2.13+deb14-amd64");
    assert!(home.join("boot/vmlinuz-7.2.13+deb14-amd64").is_file());
    let modules = home.join("lib/modules/7.2.13+deb14-amd64");
    assert!(modules.join("kernel/fs/ext4/ext4.ko").is_file() && !modules.join("vmlinuz").exists());
}

#[test]
fn a_package_with_a_link_out_of_it_is_refused() {
    let site = Site::new();
    let release = "7.2.13+deb14-amd64";
    let image = site.path("hosts");
    put(&image, &bzimage(release));
    site.offer(&format!("linux-image-{release}"), "", |root| {
        fs::create_dir_all(root.join("boot")).unwrap();
        std::os::unix::fs::symlink(&image, root.join(format!("boot/vmlinuz-{release}"))).unwrap();
        tree(&root.join("usr/lib/modules").join(release), release);
    });
    let said = site.fetch("7.2");
    assert!(
        said.contains("a link to a file that the package does not contain"),
        "{said}"
    );
    assert!(image.is_file() && site.cached() == [".lock"]);
}

/// The list of a suite's packages for kernels, as its archive has it.
fn list(suite: &str) -> String {
    fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/packages")
            .join(suite),
    )
    .unwrap()
}

/// Packages that are downloaded from archives with the real packages' lists; the files themselves are not there.
#[test]
fn the_packages_of_a_kernel_are_those_of_the_archives_own_lists() {
    let debian = [
        "bookworm",
        "bookworm-backports",
        "bullseye",
        "sid",
        "trixie-backports",
    ];
    let ubuntu = ["focal", "focal-updates"];
    let empty = "Package: none\nVersion: 1\nArchitecture: amd64\n\n".to_owned();
    for (suites, wanted, packages) in [
        (&debian[..], "", "linux-image-6.1.0-50-amd64 (70 MB)"),
        (&debian, "bullseye", "linux-image-5.10.0-32-amd64 (56 MB)"),
        // Not what apt prefers there, bookworm's.
        (
            &debian,
            "bookworm-backports",
            "linux-image-6.12.95+deb12-amd64 (106 MB)",
        ),
        (
            &debian,
            "trixie-backports",
            "linux-image-7.3.4+deb13-amd64, linux-binary-7.3.4+deb13-amd64, linux-modules-7.3.4+deb13-amd64 (121 MB)",
        ),
        (
            &debian,
            "sid",
            "linux-image-7.2.13+deb14-amd64, linux-binary-7.2.13+deb14-amd64, linux-modules-7.2.13+deb14-amd64 (124 MB)",
        ),
        // In no source of the system: the suite that was released with it, else all that go on.
        (&debian, "5.10", "linux-image-5.10.0-32-amd64 (56 MB)"),
        (
            &debian,
            "7.2.12",
            "linux-image-7.2.12+deb13-amd64, linux-binary-7.2.12+deb13-amd64, linux-modules-7.2.12+deb13",
        ),
        (&debian, "6.18", "linux-image-6.18.15+deb13-amd64 (167 MB)"),
        (
            &ubuntu,
            "",
            "linux-image-5.4.0-26-generic, linux-modules-5.4.0-26-generic, linux-modules-extra-5.4.0-26-generic (3 MB)",
        ),
        (
            &ubuntu,
            "focal-updates",
            "linux-image-5.4.0-144-generic, linux-modules-5.4.0-144-generic, linux-modules-extra-5.4.0-144-generic (3 MB)",
        ),
        (
            &ubuntu,
            "5.4.0-26",
            "linux-image-5.4.0-26-generic, linux-modules-5.4.0-26-generic",
        ),
        (
            &ubuntu,
            "5.4.0-26-lowlatency",
            "linux-image-5.4.0-26-lowlatency (1 MB)",
        ),
    ] {
        let site = Site::new();
        let mut lists: Vec<(&str, String)> =
            suites.iter().map(|suite| (*suite, list(suite))).collect();
        // What backports build upon.
        lists.push(("trixie", empty.clone()));
        let lists: Vec<(&str, &str)> = lists
            .iter()
            .map(|(suite, list)| (*suite, list.as_str()))
            .collect();
        site.offer_suites(suites[0], &lists);
        let said = site.fetch(wanted);
        assert!(
            said.contains(&format!("said: downloading {packages}")),
            "{wanted}: {said}"
        );
        assert!(
            said.contains("error: `apt-get -q download linux-image-"),
            "{wanted}: {said}"
        );
        assert_eq!(site.cached(), [".lock"]);
    }
}

#[test]
fn an_image_whose_modules_the_archive_dropped_is_not_offered() {
    let site = Site::new();
    site.offer_suites(
        "trixie-backports",
        &[("trixie-backports", &list("trixie-backports"))],
    );
    let said = site.fetch("6.19");
    let others = "error: apt offers no kernel 6.19 but 7.3.4+deb13-amd64, 7.2.12+deb13-amd64, 6.18.15+deb13-amd64: take";
    assert!(said.contains(others), "{said}");
}

#[test]
fn a_suites_kernel_is_known_by_its_name_and_is_not_the_default() {
    let site = Site::new();
    offer_split(&site, "7.2.13+deb14-amd64");
    site.offer(
        "linux-image-amd64",
        "linux-image-7.2.13+deb14-amd64",
        |_| {},
    );
    let packages = fs::read_to_string(site.path("archive/Packages")).unwrap();
    let empty = "Package: none\nVersion: 1\nArchitecture: amd64\n\n";
    site.offer_suites("bookworm", &[("bookworm", empty), ("sid", &packages)]);
    put(
        &site.path("cache/kernels/6.1.0-9-amd64/boot/vmlinuz-6.1.0-9-amd64"),
        &bzimage("6.1.0-9-amd64"),
    );
    tree(
        &site.path("cache/kernels/6.1.0-9-amd64/lib/modules/6.1.0-9-amd64"),
        "6.1.0-9-amd64",
    );
    let said = site.fetch("sid");
    assert!(
        said.contains("asking sid") && said.contains("got: 7.2.13+deb14-amd64"),
        "{said}"
    );
    let cache = site.path("cache");
    assert_eq!(suites(&cache, "7.2.13+deb14-amd64"), ["sid"]);
    assert_eq!(suites(&cache, "6.1.0-9-amd64"), Vec::<String>::new());
    let default = fs::read_link(cache.join("default-kernel")).unwrap();
    assert_eq!(default, Path::new("kernels/6.1.0-9-amd64"));
    assert!(is_name("sid", &cache) && is_name("6.1", &cache) && !is_name("vmlinux", &cache));

    // Cached: no archive is needed any more, until its folder is removed.
    fs::rename(site.path("archive"), site.path("away")).unwrap();
    let said = site.fetch("sid");
    assert!(
        said.contains("got: 7.2.13+deb14-amd64") && !said.contains("said:"),
        "{said}"
    );
    fs::remove_dir_all(cache.join("kernels/7.2.13+deb14-amd64")).unwrap();
    assert!(site.fetch("sid").contains("error: "));
    assert!(site.fetch("../sid").contains("is neither a kernel version"));
}

#[test]
fn a_suite_without_a_kernel_or_that_is_not_there_is_told() {
    let site = Site::new();
    site.offer_suites(
        "bookworm",
        &[(
            "bookworm",
            "Package: none\nVersion: 1\nArchitecture: amd64\n\n",
        )],
    );
    let said = site.fetch("bookworm");
    assert!(
        said.contains("error: bookworm has no package with a generic kernel"),
        "{said}"
    );
    assert!(site.fetch("rawhide").contains("rawhide"), "{said}");
}

#[test]
fn a_version_means_its_newest_generic_release() {
    let site = Site::new();
    for release in ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.1-amd64"] {
        site.offer_debian(release);
    }
    for flavour in ["6.1.0-99-cloud-amd64", "6.1.0-99-rt-amd64"] {
        site.offer_debian(flavour);
    }
    site.offer(
        "linux-image-6.1-amd64",
        "linux-image-6.1.0-56-amd64",
        |_| {},
    );
    assert!(site.fetch("6.1").contains("got: 6.1.0-56-amd64"));
    // apt itself would take these for patterns and download all that match.
    site.offer_debian("6.1.0-56-amd64-dbg");
    let said = site.fetch("6.1.0-9");
    assert!(
        said.contains("downloading linux-image-6.1.0-9-amd64 (")
            && said.contains("got: 6.1.0-9-amd64"),
        "{said}"
    );
    assert!(
        site.fetch("6.1.0-5")
            .contains("error: apt offers no kernel 6.1.0-5 but")
    );
    assert!(
        site.fetch("6.1.0-99-cloud-amd64")
            .contains("got: 6.1.0-99-cloud-amd64")
    );

    let said = site.fetch("7.0");
    assert!(
        said.contains("error: apt offers no kernel 7.0 but 6.12.1-amd64, 6.1.0-56-amd64"),
        "{said}"
    );
    assert!(
        site.fetch("-oDir=/")
            .contains("is neither a kernel version")
    );
}

#[test]
fn what_apt_says_is_shown_and_nothing_stays() {
    let site = Site::new();
    site.offer_debian("6.1.0-9-amd64");
    fs::remove_file(site.path("archive/linux-image-6.1.0-9-amd64.deb")).unwrap();
    let said = site.fetch("6.1");
    assert!(
        said.contains("apt-get -q download linux-image-6.1.0-9-amd64` failed"),
        "{said}"
    );
    assert!(said.contains("Failed to stat"), "{said}");
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn a_source_that_cannot_be_reached_is_shown() {
    let site = Site::new();
    put(
        &site.path("sources.list"),
        b"deb http://127.0.0.1:9/nowhere ./\n",
    );
    let said = site.fetch("");
    assert!(
        said.contains("apt-get -q update` failed") && said.contains("Check the network"),
        "{said}"
    );
    assert!(said.contains("127.0.0.1:9"), "{said}");
}

#[test]
fn a_package_that_is_not_the_one_listed_is_refused() {
    let site = Site::new();
    site.offer_debian("6.1.0-9-amd64");
    let deb = site.path("archive/linux-image-6.1.0-9-amd64.deb");
    let mut bytes = fs::read(&deb).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    put(&deb, &bytes);
    let said = site.fetch("6.1");
    // apt 2 goes on to say "Hash Sum mismatch", apt 3 "Undetermined Error".
    assert!(
        said.contains("error: `apt-get -q download linux-image-6.1.0-9-amd64` failed"),
        "{said}"
    );
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn a_package_that_is_no_kernel_is_refused() {
    let site = Site::new();
    site.offer("linux-image-6.1.0-9-amd64", "", |root| {
        put(&root.join("boot/vmlinuz-6.1.0-9-amd64"), b"MZ");
        tree(&root.join("lib/modules/6.1.0-9-amd64"), "6.1.0-9-amd64");
    });
    let said = site.fetch("6.1");
    assert!(said.contains("an EFI program"), "{said}");
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn an_error_without_apt_names_the_option() {
    let site = Site::new();
    let said = said(
        site.command("")
            .env("PATH", site.path("archive"))
            .output()
            .unwrap(),
    );
    assert!(
        said.contains("is not installed") && said.contains("--kernel"),
        "{said}"
    );
}

#[test]
fn two_fetches_at_once_and_the_remains_of_a_third_do_no_harm() {
    let site = Site::new();
    site.offer_debian("6.1.0-9-amd64");
    put(
        &site.path("cache/kernels/.fetch-killed/ready/boot/vmlinuz"),
        b"half",
    );
    // A kernel that breaks off, as no rename of ours leaves it, is fetched again.
    put(
        &site.path("cache/kernels/6.1.0-9-amd64/boot/vmlinuz-6.1.0-9-amd64"),
        b"half",
    );
    let spawn = || {
        site.command("6.1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [spawn(), spawn()].map(|child| said(child.wait_with_output().unwrap()));
    assert!(
        both.iter().all(|said| said.contains("got: 6.1.0-9-amd64")),
        "{both:?}"
    );
    assert_eq!(
        both.iter()
            .filter(|said| said.contains("unpacking"))
            .count(),
        1,
        "{both:?}"
    );
    assert_eq!(site.cached(), [".lock", "6.1.0-9-amd64"]);
}

#[test]
fn a_killed_fetch_leaves_nothing_that_is_taken_for_a_kernel() {
    let site = Site::new();
    site.offer_debian("6.1.0-9-amd64");
    // dpkg-deb that never ends: the fetch is killed in the middle of unpacking.
    let slow = site.path("bin/dpkg-deb");
    put(&slow, b"#!/bin/sh\nexec sleep 2\n");
    fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        site.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let mut child = site
        .command("6.1")
        .env("PATH", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("unpacking") {
        line.clear();
        assert_ne!(io::BufRead::read_line(&mut said, &mut line).unwrap(), 0);
    }
    std::thread::sleep(Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(site.cached().iter().any(|name| name.starts_with(".fetch-")));
    assert_eq!(cached(&site.path("cache")), FoundKernels::default());

    assert!(site.fetch("6.1").contains("got: 6.1.0-9-amd64"));
    assert_eq!(site.cached(), [".lock", "6.1.0-9-amd64"]);
}
