//! Against the real apt, with an archive of our own on this disk: no network. That what is fetched runs, is a test of the
//! binary.

use super::*;
use crate::testing::{UNSIGNED, suite};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use vmtax_model::testing::skipped;

/// A machine's apt with its sources, and a cache.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    /// The archive's suite is called sid, and has these packages: name, version, what it depends on.
    fn new(packages: &[(&str, &str, &str)]) -> Site {
        let site = Site {
            dir: tempfile::tempdir().unwrap(),
        };
        let path = site.dir.path().display().to_string();
        site.put(
            "sources.list",
            &format!("deb copy:{path}/archive sid main\n"),
        );
        site.put(
            "apt.conf",
            &format!(
                "Dir::Etc::sourcelist \"{path}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::State::lists \"{path}/lists\";\nDir::State::status \"/dev/null\";\n{UNSIGNED}"
            ),
        );
        site.put("lists/partial/.keep", "");
        let list: String = packages
            .iter()
            .map(|(name, version, depends)| paragraph(name, version, depends))
            .collect();
        suite(&site.path("archive"), "sid", &list);
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
            .args([
                "--exact",
                "qemu::fetch::tests::fetches_in_a_process_of_its_own",
                "--ignored",
                "--nocapture",
            ])
            .env("APT_CONFIG", self.path("apt.conf"))
            .env("VMTAX_TEST_CACHE", self.path("cache"))
            .env("VMTAX_TEST_WANTED", wanted)
            .stdin(Stdio::null());
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command
    }

    /// Returns the output of the fetch, stdout and stderr.
    fn fetch(&self, wanted: &str, path: Option<&Path>) -> String {
        let output = self.command(wanted, path).output().unwrap();
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    }

    /// Returns the names of what is in the cache, hidden files included.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/qemus"))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }
}

fn paragraph(name: &str, version: &str, depends: &str) -> String {
    let depends = if depends.is_empty() {
        String::new()
    } else {
        format!("Depends: {depends}\n")
    };
    let section = if name.starts_with("lib") {
        "libs"
    } else {
        "misc"
    };
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
    let Some(cache) = std::env::var_os("VMTAX_TEST_CACHE") else {
        return;
    };
    let wanted = std::env::var("VMTAX_TEST_WANTED").unwrap();
    if let Some(source) = wanted.strip_prefix("build ") {
        let recipe = crate::qemu::Recipe {
            source: source.into(),
            patches: vec![],
            configure: vec![],
        };
        match crate::qemu::build(&recipe, Path::new(&cache), &mut |line| {
            println!("said: {line}")
        }) {
            Ok(qemu) => println!("got: {qemu:?}"),
            Err(error) => println!("error: {error}"),
        }
        return;
    }
    match fetch(&wanted, Path::new(&cache), &mut |line| {
        println!("said: {line}")
    }) {
        Ok(qemu) => println!("got: {qemu:?}"),
        Err(error) => println!("error: {error}"),
    }
}

const QEMU: [(&str, &str, &str); 7] = [
    (
        "qemu-system-x86",
        "1:11.1.2+ds-3",
        "libaio1t64 (>= 0.3), seabios | none, qemu-system-common",
    ),
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
    assert!(
        said.contains("downloading QEMU of sid with its libraries, 6 packages (18 MB)"),
        "{said}"
    );
    // The files themselves are not there.
    assert!(
        said.contains("error: `apt-get -q download")
            && said.contains("qemu-system-x86=1:11.1.2+ds-3"),
        "{said}"
    );
    assert!(said.contains("use your own QEMU"), "{said}");
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn an_unknown_version_is_an_error_with_the_known_ones() {
    let site = Site::new(&QEMU);
    let said = site.fetch("11.2", None);
    for part in [
        "asking bookworm-backports",
        "11.2; available: 5.2 (bullseye), 7.2 (bookworm)",
        "11.1.2 (sid)",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // Suites that this archive lacks do not prevent the one that it has.
    let said = site.fetch("11.1", None);
    assert!(said.contains("downloading QEMU of sid"), "{said}");
}

#[test]
fn a_suite_without_a_qemu_or_that_is_not_there_is_told() {
    let site = Site::new(&QEMU[1..]);
    let said = site.fetch("sid", None);
    assert!(
        said.contains("error: sid has no package qemu-system-x86"),
        "{said}"
    );
    // Unsigned suites are not looked into, as on every real machine.
    site.put(
        "apt.conf",
        &fs::read_to_string(site.path("apt.conf"))
            .unwrap()
            .replace("true", "false"),
    );
    let said = site.fetch("duke", None);
    assert!(said.contains("has no suite duke"), "{said}");
    let said = site.fetch("sid", None);
    assert!(
        said.contains("error: ") && said.contains("is not signed"),
        "{said}"
    );
    assert_eq!(site.cached(), [".lock"]);
}

#[test]
fn invalid_names_and_systems_without_apt_are_errors() {
    let site = Site::new(&QEMU);
    for word in ["", "-oDir=/", "../sid", "5.2*", "Trixie"] {
        assert!(
            site.fetch(word, None).contains("is neither a QEMU version"),
            "{word}"
        );
    }
    let said = site.fetch("sid", Some(&site.path("archive")));
    assert!(
        said.contains("apt-get is not installed") && said.contains("--qemu"),
        "{said}"
    );
    site.put("sources.list", "deb copy:/nowhere nodistro main\n");
    assert!(
        site.fetch("sid", None)
            .contains("have no archive of Debian or Ubuntu")
    );
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
    fs::set_permissions(
        site.path("bin/apt-get"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path = PathBuf::from(format!("{}:{real}", site.path("bin").display()));
    let mut child = site
        .command("sid", Some(&path))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("downloading") {
        line.clear();
        assert_ne!(
            std::io::BufRead::read_line(&mut said, &mut line).unwrap(),
            0
        );
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        site.cached().iter().any(|name| name.starts_with(".fetch-")),
        "{:?}",
        site.cached()
    );
    assert_eq!(crate::qemu::find(&site.path("cache")), []);
    assert!(site.fetch("sid", None).contains("downloading"));
    assert_eq!(site.cached(), [".lock"]);
}

/// A source package in the archive: what stands for QEMU's source, as Debian packs it.
fn add_source(site: &Site) {
    use std::os::unix::fs::PermissionsExt;
    let shell = |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(site.dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let makefile = "'qemu-system-x86_64:\\n\\tcp %s/says.sh $@ && chmod +x $@\\n'";
    site.put(
        "qemu-11.1/configure",
        &format!("#!/bin/sh\nprintf {makefile} \"$(dirname \"$0\")\" >Makefile\n"),
    );
    site.put(
        "qemu-11.1/says.sh",
        "#!/bin/sh\necho QEMU emulator version 11.1.2\n",
    );
    site.put("qemu-11.1/debian/source/format", "3.0 (native)\n");
    fs::set_permissions(
        site.path("qemu-11.1/configure"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let control = "Format: 3.0 (native)\nSource: qemu\nBinary: qemu-system-x86\nArchitecture: any\nVersion: 11.1\n\
                   Maintainer: n <n@n>\n";
    let sums = |path: &str, name: &str| {
        let line = |tool: &str| shell(&format!("{tool} {path} | cut -d' ' -f1"));
        let size = shell(&format!("stat -c %s {path}"));
        (
            format!(" {} {size} {name}\n", line("sha256sum")),
            format!(" {} {size} {name}\n", line("md5sum")),
        )
    };
    shell("mkdir -p archive/pool && tar -cJf archive/pool/qemu_11.1.tar.xz qemu-11.1");
    let (tar, tar_md5) = sums("archive/pool/qemu_11.1.tar.xz", "qemu_11.1.tar.xz");
    site.put(
        "archive/pool/qemu_11.1.dsc",
        &format!("{control}Checksums-Sha256:\n{tar}Files:\n{tar_md5}"),
    );
    let (dsc, dsc_md5) = sums("archive/pool/qemu_11.1.dsc", "qemu_11.1.dsc");
    let entry = control.replace("Source: qemu\n", "Package: qemu\n");
    let entry = format!(
        "{entry}Directory: pool\nChecksums-Sha256:\n{tar}{dsc}Files:\n{tar_md5}{dsc_md5}\n"
    );
    site.put("archive/dists/sid/main/source/Sources", &entry);
    let (sources, _) = sums(
        "archive/dists/sid/main/source/Sources",
        "main/source/Sources",
    );
    let release = fs::read_to_string(site.path("archive/dists/sid/Release")).unwrap();
    site.put("archive/dists/sid/Release", &(release + &sources));
}

#[test]
fn a_suites_source_is_fetched_and_built() {
    if !["dpkg-source", "make", "xz"]
        .iter()
        .all(|p| crate::qemu::build::find_program(p).is_some())
    {
        return skipped("dpkg-source, make or xz is not here");
    }
    let site = Site::new(&QEMU);
    add_source(&site);
    let said = site.fetch("build sid", None);
    assert!(
        said.contains("downloading QEMU's source from sid"),
        "{said}"
    );
    assert!(
        said.contains("got: Fetched { version: \"11.1.2\", suite: \"built\""),
        "{said}"
    );
    let recipe = fs::read_to_string(site.path("cache/qemus/11.1.2-built/recipe")).unwrap();
    assert!(recipe.starts_with("sid 11.1\n"), "{recipe}");
    // What it was built in is gone, and it is not built again; nor where its version is asked for.
    assert_eq!(
        fs::read_dir(site.path("cache/builds")).unwrap().count(),
        1,
        "all but the lock"
    );
    for wanted in ["build sid", "build 11.1"] {
        let again = site.fetch(wanted, None);
        assert!(
            again.contains("said: built before") && again.contains("got: "),
            "{again}"
        );
    }
}

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
        error.contains("QEMU of sid does not start on this host (") && error.contains("not found"),
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
