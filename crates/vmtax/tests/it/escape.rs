//! A guest that tries to get out of the tree that it shares, and to write where it may not: by names, by links, and by
//! messages that no kernel's client sends, to each server there is.

use crate::common::{Place, Signal, escaping_qemu, is_root};
use crate::escape_nfs;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

const SECRET: &str = "nobody's business";
/// How long the guest has its machine, at the most.
const SECONDS: u64 = 200;

struct Way {
    name: &'static str,
    set: &'static str,
    /// A folder of the user's, which may only be read, and not the run's own.
    users: bool,
}

/// Everything below a folder but what changes for other reasons: name, kind, owner, mode, length, time, content.
fn all_of(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, m) = (entry.path(), entry.metadata().unwrap());
        let content = if m.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
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

/// What lies beside a tree, and must stay as it is.
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
    crate::common::files_below(folder).into_iter().find(|path| path.ends_with(name))
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
        format!("path = \"{}\"", theirs.display())
    } else {
        "files = 4\nbytes = 20000".to_owned()
    };
    let plan = format!(
        "rounds = 1\nmachines = ['tcg']\ndeadline-s = {SECONDS}\n[guest]\nqemu = '{}'\n[tree]\n{tree}\n[[variant]]\nname = \
         'way'\nset = {{ {} }}\n[[workload]]\nname = 'cpu'\noptions = {{ time = {SECONDS} }}\n",
        qemu.display(),
        way.set
    );
    let mut run = place.run("--json").arg(place.put("plan.toml", plan)).start(SECONDS);
    let root = if way.users {
        theirs
    } else {
        run.until("a tree", |place| {
            let runs = fs::read_dir(place.runs()).ok()?;
            runs.flatten().map(|run| run.path().join("scratch/tree")).find(|tree| tree.join("large").exists())
        })
    };
    symlink(&outside, root.join("out")).unwrap();
    symlink("..", root.join("up")).unwrap();
    let canaries = canaries(root.parent().unwrap());
    let (before, users) = (state(&canaries, &outside), all_of(&root));
    let said = run.until("the guest at its end", |place| {
        let console = fs::read_to_string(below(&place.runs(), "console.log")?).ok()?;
        console.contains("ESCAPE END").then_some(console)
    });
    if way.set.contains("nfs4") {
        let wrong = raw_nfs(&place, !way.users);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", way.name);
    }
    assert_eq!(state(&canaries, &outside), before, "{}: something outside was changed\n{said}", way.name);
    let names: Vec<_> = fs::read_dir(root.parent().unwrap()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("planted")), "{names:?}");
    if way.users {
        assert_eq!(all_of(&root), users, "{}: the user's tree was changed\n{said}", way.name);
        for canary in &canaries {
            let _ = fs::remove_file(canary).or_else(|_| fs::remove_dir_all(canary));
        }
    }
    run.signal(Signal::INT);
    let _ = run.outcome();
    said
}

/// The same with messages of its own to the server, from where it listens.
fn raw_nfs(place: &Place, writable: bool) -> Vec<String> {
    let conf = fs::read_to_string(below(&place.runs(), "ganesha.conf").unwrap()).unwrap();
    let port = conf.split_once("NFS_Port = ").unwrap().1.split(';').next().unwrap().parse().unwrap();
    let is_server = |p: &crate::common::Process| p.command.contains("ganesha.nfsd") && !p.command.contains("watchdog");
    let server = place.processes().into_iter().find(is_server).unwrap();
    let network = fs::File::open(format!("/proc/{}/ns/net", server.pid)).unwrap();
    // A thread of its own, since it stays there.
    std::thread::spawn(move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        escape_nfs::tries(port, writable)
    })
    .join()
    .unwrap()
}

/// A way holds: nothing outside was written (which [`tried`] sees), nothing of it was read, what leads out was refused.
fn holds(way: &Way) {
    let said = tried(way);
    let lines = |word: &str| said.lines().filter(|line| line.starts_with(word)).map(str::trim_end).collect::<Vec<_>>();
    assert!(!said.contains(SECRET), "{}: it was read\n{said}", way.name);
    let out: Vec<_> = lines("TRY").into_iter().filter(|line| !line.contains(" refused ")).collect();
    assert!(out.is_empty(), "{}: {out:#?}\n{said}", way.name);
    assert!(lines("RAW").is_empty(), "{}: {:#?}", way.name, lines("RAW"));
    // It could do what it may, so it was refused because it may not.
    let own = lines("OWN");
    let refused = own.iter().filter(|line| line.contains(" refused ")).count();
    let raw = if way.set.contains("nfs4") { 0 } else { 100 };
    assert!(own.len() > raw / 20 && lines("TRY").len() >= raw, "{}: {own:#?}\n{said}", way.name);
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
    both("9p mapped-xattr", "share = '9p', 'share.security-model' = 'mapped-xattr'");
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
