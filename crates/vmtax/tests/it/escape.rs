//! A guest that tries to get out of the tree that it shares, and to write where it may not: by names, by links, and by
//! messages that no kernel's client sends, to each server there is.

use crate::common::{Place, Process, Signal, escaping_qemu, is_root};
use crate::escape_nfs;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

const SECRET: &str = "nobody's business";
/// Longest time for which the guest runs, s.
const SECONDS: u64 = 200;

struct Way {
    name: &'static str,
    set: &'static str,
    /// A folder of the user's, which may only be read, and not the run's own.
    users: bool,
}

impl Way {
    fn is_nfs(&self) -> bool {
        self.set.contains("nfs")
    }
}

/// Everything below a folder, if it is there, but what changes for other reasons: name, kind, owner, mode, length, time, content.
fn all_of(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, m) = (entry.path(), entry.metadata().unwrap());
        let content = if m.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let link = fs::read_link(&path).unwrap_or_default();
        let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
        all.push(format!(
            "{path:?} {link:?} {:o} {} {} {} {times:?} {content:?}",
            m.mode(),
            m.uid(),
            m.gid(),
            m.nlink()
        ));
        if m.is_dir() {
            all.extend(all_of(&path));
        }
    }
    all.sort();
    all
}

/// Creates the files beside a tree, which must stay unchanged.
fn canaries(beside: &Path) -> [PathBuf; 2] {
    fs::write(beside.join("canary"), SECRET).unwrap();
    fs::create_dir(beside.join("beside")).unwrap();
    fs::write(beside.join("beside/secret"), SECRET).unwrap();
    [beside.join("canary"), beside.join("beside")]
}

fn state(paths: &[PathBuf; 2], outside: &Path) -> Vec<String> {
    let canary = fs::read_to_string(&paths[0]).unwrap_or_else(|e| e.to_string());
    [vec![canary], all_of(&paths[1]), all_of(outside)].concat()
}

fn below(folder: &Path, name: &str) -> Option<PathBuf> {
    crate::common::files_below(folder)
        .into_iter()
        .find(|path| path.ends_with(name))
}

/// One guest that tries all it can. What it said on its console.
fn tried(way: &Way) -> String {
    let place = Place::new();
    let outside = place.path("outside");
    place.put("outside/secret", SECRET);
    let qemu = escaping_qemu(&place, &outside);
    let theirs = place.path("theirs/tree");
    let tree = if way.users {
        fs::create_dir_all(theirs.join("scratch")).unwrap();
        escape_nfs::prepare(&theirs);
        links(&theirs, &outside);
        format!("path = \"{}\"", theirs.display())
    } else {
        "files = 4\nbytes = 20000".to_owned()
    };
    let plan = format!(
        "rounds = 1\nmachines = ['tcg']\ntimeout-s = {SECONDS}\n[guest]\nqemu = '{}'\n[tree]\n{tree}\n[[variant]]\nname = \
         'way'\nset = {{ {} }}\n[[workload]]\nname = 'cpu'\noptions = {{ time = {SECONDS} }}\n",
        qemu.display(),
        way.set
    );
    let mut run = place
        .run("--json")
        .arg(place.put("plan.toml", plan))
        .start(SECONDS);
    // Where the host sees what is served.
    let root = run.until("a tree", |place| {
        let seen = if way.is_nfs() {
            Nfs::find(place)?.root
        } else if way.users {
            theirs.clone()
        } else {
            fs::read_dir(place.runs())
                .ok()?
                .flatten()
                .next()?
                .path()
                .join("scratch/tree")
        };
        (way.users || seen.join("large").exists()).then_some(seen)
    });
    let beside = if way.users {
        place.path("theirs")
    } else {
        place.recording().join("scratch")
    };
    if !way.users {
        escape_nfs::prepare(&root);
        links(&root, &outside);
    }
    let canaries = canaries(&beside);
    let (before, users) = (state(&canaries, &outside), all_of(&theirs));
    let said = run.until("the guest at its end", |place| {
        let console = fs::read_to_string(below(&place.runs(), "console.log")?).ok()?;
        console.contains("ESCAPE END").then_some(console)
    });
    if way.is_nfs() {
        let wrong = Nfs::find(&place)
            .unwrap()
            .tries(way, &[&canaries[0], &outside.join("secret")]);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", way.name);
    }
    assert_eq!(
        state(&canaries, &outside),
        before,
        "{}: something outside was changed\n{said}",
        way.name
    );
    let names: Vec<_> = fs::read_dir(&beside)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().contains("planted")),
        "{names:?}"
    );
    assert_eq!(
        all_of(&theirs),
        users,
        "{}: the user's tree was changed\n{said}",
        way.name
    );
    run.signal(Signal::INT);
    let _ = run.outcome();
    said
}

/// Links that lead out, made by the host.
fn links(root: &Path, outside: &Path) {
    symlink(outside, root.join("out")).unwrap();
    symlink("..", root.join("up")).unwrap();
}

/// A run's nfs-ganesha.
struct Nfs {
    process: u32,
    ports: [u16; 2],
    /// Path of the served tree, as the host sees it.
    root: PathBuf,
}

impl Nfs {
    fn find(place: &Place) -> Option<Nfs> {
        let (ports, folder) = escape_nfs::configured(
            &fs::read_to_string(below(&place.runs(), "ganesha.conf")?).ok()?,
        )?;
        let is_server = |p: &Process| {
            p.command.starts_with("/")
                && p.command.contains("ganesha.nfsd -F")
                && !p.command.contains(" jail ")
        };
        let process = place.processes().into_iter().find(is_server)?.pid;
        Some(Nfs {
            process,
            ports,
            root: format!("/proc/{process}/root{folder}").into(),
        })
    }

    /// Who takes it over finds no file system of the host's to open a handle of, and may not mount one.
    fn is_confined(&self) {
        let proc_file =
            |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.process)).unwrap();
        let mounts = proc_file("mountinfo");
        let on_disk = mounts
            .lines()
            .filter(|mount| !mount.contains(" - tmpfs "))
            .collect::<Vec<_>>();
        assert!(
            on_disk.len() == 1 && on_disk[0].contains("/dev/loop"),
            "{mounts}"
        );
        let status = proc_file("status");
        let bounding = status
            .lines()
            .find_map(|line| line.strip_prefix("CapBnd:"))
            .unwrap()
            .trim();
        let sys_admin = 1 << 21;
        assert_eq!(
            u64::from_str_radix(bounding, 16).unwrap() & sys_admin,
            0,
            "{status}"
        );
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }

    /// Sends messages of its own to the server, from the server's network namespace, and returns those that were not
    /// answered as they should.
    fn tries(self, way: &Way, outside: &[&Path]) -> Vec<String> {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.process)).unwrap();
        self.is_confined();
        let forger = escape_nfs::Forger::new(&self.root, outside);
        let (writable, is_v3) = (!way.users, way.set.contains("nfs3"));
        // A thread of its own, since it stays there.
        let tries = move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            match is_v3 {
                true => escape_nfs::tries_of_v3(self.ports, writable, &forger),
                false => escape_nfs::tries_of_v4(self.ports[0], writable, &forger),
            }
        };
        std::thread::spawn(tries).join().unwrap()
    }
}

/// A way holds: nothing outside was written (which [`tried`] sees), nothing of it was read, what leads out was refused.
fn holds(way: &Way) {
    let said = tried(way);
    let lines = |word: &str| {
        said.lines()
            .filter(|line| line.starts_with(word))
            .map(str::trim_end)
            .collect::<Vec<_>>()
    };
    assert!(!said.contains(SECRET), "{}: it was read\n{said}", way.name);
    let out: Vec<_> = lines("TRY")
        .into_iter()
        .filter(|line| !line.contains(" refused "))
        .collect();
    assert!(out.is_empty(), "{}: {out:#?}\n{said}", way.name);
    assert!(lines("RAW").is_empty(), "{}: {:#?}", way.name, lines("RAW"));
    // It could do what it may, so it was refused because it may not.
    let own = lines("OWN");
    let refused = own.iter().filter(|line| line.contains(" refused ")).count();
    let raw = if way.is_nfs() { 0 } else { 100 };
    assert!(
        own.len() > raw / 20 && lines("TRY").len() >= raw,
        "{}: {own:#?}\n{said}",
        way.name
    );
    assert_eq!(refused > 0, way.users, "{}: {own:#?}\n{said}", way.name);
    let device = lines("SEE open device").concat() + &lines("GOT").concat();
    // A mapped device is a file like others.
    let opened = device.contains("device done") && !way.set.contains("mapped");
    assert!(!opened, "{}: {device}", way.name);
}

fn both(name: &'static str, set: &'static str) {
    for users in [false, true] {
        holds(&Way { name, set, users });
    }
}

#[test]
fn no_guest_gets_out_of_a_9p_share() {
    both("9p", "share = '9p'");
}

#[test]
fn no_guest_gets_out_of_a_9p_share_with_mapped_owners() {
    both(
        "9p mapped-xattr",
        "share = '9p', 'share.security-model' = 'mapped-xattr'",
    );
}

#[test]
fn no_guest_gets_out_of_a_virtiofs_share() {
    if is_root() {
        both("virtiofs", "share = 'virtiofs'");
    }
}

#[test]
fn no_guest_gets_out_of_an_nfs_share() {
    if is_root() {
        both("nfs4", "share = 'nfs4'");
    }
}

#[test]
fn no_guest_gets_out_of_a_share_by_version_3_of_nfs() {
    if is_root() {
        both("nfs3", "share = 'nfs3'");
    }
}
