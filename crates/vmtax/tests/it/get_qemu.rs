//! QEMUs beside the system's own: fetched from the distribution's archive, named, run.

use crate::common::{Place, binary, is_root, json, skipped};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// An older QEMU that the distribution's archive has: its version and its suite.
fn older() -> (&'static str, &'static str) {
    let release = fs::read_to_string("/etc/os-release").unwrap();
    if release.contains("ID=ubuntu") {
        ("6.2", "jammy")
    } else {
        ("5.2", "bullseye")
    }
}

/// Returns the path of the older QEMU in the user's cache, as for kernels; it is fetched if it is not there.
fn fetched() -> &'static Path {
    static QEMU: LazyLock<PathBuf> = LazyLock::new(|| {
        let place = Place::new();
        let got = place
            .vmtax("get qemu")
            .arg(older().0)
            .start(600)
            .outcome()
            .exits(0);
        let path = got.stdout.trim().rsplit("  ").next().unwrap();
        assert!(Path::new(path).is_file(), "{got}");
        path.into()
    });
    &QEMU
}

#[test]
fn it_runs_guests_under_its_versions_name() {
    let (version, _) = older();
    let path = fetched();
    let place = Place::new();
    place
        .run("--machine tcg cpu --rounds 1 --duration 0.2 --qemu")
        .arg(version)
        .succeeds();
    let read = |name: &str| fs::read_to_string(place.recording().join(name)).unwrap();
    let host = json(&read("host.json"));
    assert_eq!(host["qemu"][0]["path"], path.to_str().unwrap());
    let said = host["qemu"][0]["version"].as_str().unwrap();
    assert!(said.starts_with(&format!("{version}.")), "{said}");
    // The real program was checked, not the script around it.
    assert!(
        host["qemu"][0]["exported_functions"].as_u64().unwrap() > 1000,
        "{}",
        host["qemu"][0]
    );
    // A plan with the name in it runs wherever such a QEMU was fetched.
    assert!(
        read("plan.toml").contains(&format!("qemu = \"{version}\"")),
        "{}",
        read("plan.toml")
    );
}

#[test]
fn its_suite_and_its_folder_name_it_too() {
    let (_, suite) = older();
    let path = fetched();
    let place = Place::new();
    let folder = path
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    for name in [suite, folder] {
        let doctor = json(
            &place
                .vmtax("doctor --json --qemu")
                .arg(name)
                .succeeds()
                .stdout,
        );
        assert_eq!(doctor["qemu"][0]["path"], path.to_str().unwrap(), "{name}");
        // It has its devices, with none of the installed QEMU's modules in its way.
        let checks = doctor["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["id"] == "qemu").unwrap();
        assert_eq!(check["state"], "ok", "{check}");
    }
    // Unnamed it comes after the system's own.
    let doctor = json(&place.vmtax("doctor --json").succeeds().stdout);
    let all: Vec<&str> = doctor["qemu"]
        .as_array()
        .unwrap()
        .iter()
        .map(|qemu| qemu["path"].as_str().unwrap())
        .collect();
    assert!(
        all.iter().position(|p| Path::new(p) == path).unwrap() > 0,
        "{all:?}"
    );
    let list = place.vmtax("get").succeeds().stdout;
    assert!(
        list.ends_with(&place.vmtax("get qemu").succeeds().stdout),
        "{list}"
    );
    let line = list
        .lines()
        .find(|line| line.contains(path.to_str().unwrap()))
        .unwrap();
    assert!(line.contains(suite) && line.contains(" MB  "), "{list}");
}

#[test]
fn what_was_not_fetched_is_told_with_the_step_that_fetches_it() {
    fetched();
    let place = Place::new();
    let here = [older().1, "fetch it with `vmtax get qemu 99.9`"];
    place.run("--machine tcg cpu --qemu 99.9").fails(&here);
    place.vmtax("layers --machine tcg --qemu 99.9").fails(&here);
    place
        .vmtax("get qemu ../5.2")
        .fails(&["is neither a QEMU version"]);
    assert!(!place.runs().exists());
}

#[test]
fn a_version_that_no_suite_has_is_told_with_those_there_are() {
    let (version, suite) = older();
    let place = Place::new();
    let got = place
        .vmtax("get qemu 99.9")
        .env("XDG_CACHE_HOME", place.path("cache"))
        .start(300)
        .outcome()
        .exits(2);
    got.says("no queried suite has QEMU 99.9")
        .says(&format!("{version} ({suite})"));
    let place = Place::new();
    let got = place
        .vmtax("get qemu etch")
        .env("XDG_CACHE_HOME", place.path("cache"))
        .outcome()
        .exits(2);
    got.says("has no suite etch");
}

#[test]
fn without_a_network_nothing_is_left() {
    let place = Place::new();
    // Not as root there, who could not become the user of apt's own.
    let alone = if is_root() { "-n" } else { "-cn" };
    if place
        .program("unshare")
        .words(alone)
        .arg("true")
        .outcome()
        .status
        != Some(0)
    {
        skipped("this system lets nobody leave its network");
        return;
    }
    let vmtax = place
        .program("unshare")
        .words(alone)
        .arg(binary())
        .words("get qemu");
    let got = vmtax
        .arg(older().1)
        .env("XDG_CACHE_HOME", place.path("cache"))
        .start(300)
        .outcome()
        .exits(2);
    got.says("apt-get -q update` failed")
        .says("Check the network");
    let left: Vec<_> = fs::read_dir(place.path("cache/vmtax/qemus"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn one_that_is_built_is_listed_and_one_that_is_not_is_told() {
    let place = Place::new();
    let cache = |words: &str| {
        place
            .vmtax(words)
            .env("XDG_CACHE_HOME", place.path("cache"))
    };
    let tree = place.path("tree");
    place.put(
        "tree/says.sh",
        "#!/bin/sh\necho QEMU emulator version 9.9.1\n",
    );
    let configure = place.script(
        "tree/configure",
        "printf 'qemu-system-x86_64:\\n\\tcp %s/says.sh $@ && chmod +x $@\\n' \"$(dirname \"$0\")\" >Makefile",
    );
    let built = cache("build qemu")
        .arg(&tree)
        .arg("--configure")
        .arg("--enable-a --enable-b")
        .succeeds();
    built
        .says("building on")
        .shows("9.9.1  built-tree-enable-a-enable-b  ");
    cache("get qemu")
        .succeeds()
        .shows("9.9.1  built-tree-enable-a-enable-b  ");
    cache("run --machine tcg cpu --qemu built-other")
        .fails(&["built-tree-enable-a-enable-b", "`vmtax build qemu`"]);

    fs::write(
        configure,
        "#!/bin/sh\necho 'ERROR: Python 2 is too new' >&2\nexit 1\n",
    )
    .unwrap();
    cache("build qemu")
        .arg(&tree)
        .fails(&["configure failed:", "ERROR: Python 2", "build.log"]);
    cache("build qemu nothing/here").fails(&["its configure is not there"]);
    cache("build qemu 7.2 --patch nothing.patch").fails(&["nothing.patch", "9p-list"]);
}
