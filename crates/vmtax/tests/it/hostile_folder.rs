//! Root runs in a folder that another user prepared, to have root overwrite, remove or wait for what that user chose.

use crate::common::Place;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

const NOBODY: Option<u32> = Some(65534);
/// A run of the bare host, in a second.
const RUN: &str = "run cpu cpu.time=0.05 --machine native --rounds 1";
const OLD: &str = "20250101T000000Z-old";

/// Files that only root may change.
struct Victim(PathBuf);

impl Victim {
    fn new(place: &Place) -> Victim {
        place.put("victim/scratch/data/file", "precious");
        place.put("victim/scratch/lock", "");
        place.put("victim/crontab", "precious");
        Victim(place.path("victim"))
    }

    fn is_untouched(&self) {
        for file in ["scratch/data/file", "crontab"] {
            assert_eq!(
                fs::read_to_string(self.0.join(file)).unwrap(),
                "precious",
                "{file}"
            );
        }
        assert_eq!(
            fs::read_dir(&self.0).unwrap().count(),
            2,
            "a file was made for a link"
        );
    }
}

fn make_pipe(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path)
            .status()
            .unwrap()
            .success()
    );
}

/// A way in which a folder of recordings is prepared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trap {
    PipeAsLock,
    LinkAsRecording,
    LinkAsScratch,
    LinkAsHistory,
    PipeAsHistory,
}

const TRAPS: [Trap; 5] = [
    Trap::PipeAsLock,
    Trap::LinkAsRecording,
    Trap::LinkAsScratch,
    Trap::LinkAsHistory,
    Trap::PipeAsHistory,
];

impl Trap {
    /// Sets it in a folder that is nobody's.
    fn set(self, runs: &Path, Victim(victim): &Victim) {
        let (old, history) = (runs.join(OLD), runs.join(".history"));
        fs::create_dir(runs).unwrap();
        match self {
            Trap::PipeAsLock => make_pipe(&old.join("scratch/lock")),
            Trap::LinkAsRecording => symlink(victim, old).unwrap(),
            Trap::LinkAsScratch => {
                fs::create_dir(&old).unwrap();
                symlink(victim.join("scratch"), old.join("scratch")).unwrap();
            }
            Trap::LinkAsHistory => symlink(victim, history).unwrap(),
            Trap::PipeAsHistory => make_pipe(&history),
        }
        chown(runs, NOBODY, NOBODY).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn root_refuses_a_folder_of_another_user() {
    for trap in TRAPS {
        let place = Place::new();
        let victim = Victim::new(&place);
        trap.set(&place.runs(), &victim);
        let before = fs::read_dir(place.runs()).unwrap().count();
        place
            .vmtax(RUN)
            .fails(&["runs belongs to user 65534", "--dir"]);
        place
            .vmtax("history")
            .fails(&["runs belongs to user 65534", "--dir"]);
        victim.is_untouched();
        assert_eq!(
            fs::read_dir(place.runs()).unwrap().count(),
            before,
            "something was made"
        );
        fs::remove_dir_all(place.runs()).unwrap();
    }
}

/// Also without a refusal, as in the folder of the user who called sudo, what is swept and opened is what it seems to be.
#[test]
#[ignore = "needs root"]
fn root_is_not_led_out_of_a_folder_that_it_uses() {
    for trap in TRAPS {
        let place = Place::new();
        let victim = Victim::new(&place);
        trap.set(&place.runs(), &victim);
        let outcome = place
            .vmtax(RUN)
            .env("SUDO_UID", "65534")
            .start(30)
            .outcome()
            .exits(0);
        victim.is_untouched();
        match trap {
            Trap::PipeAsLock | Trap::LinkAsScratch => {
                assert!(
                    !place.runs().join(OLD).join("scratch").exists(),
                    "{trap:?} stays"
                );
            }
            Trap::LinkAsHistory | Trap::PipeAsHistory => {
                drop(outcome.says(".history is not a directory"))
            }
            Trap::LinkAsRecording => {}
        }
        let _ = fs::remove_file(place.runs().join(OLD));
    }
}

/// Who owns a folder above could put another in the place of the run's, with links for the files that root writes.
#[test]
#[ignore = "needs root"]
fn root_writes_nothing_below_a_folder_of_another_user() {
    let place = Place::new();
    let victim = Victim::new(&place);
    let theirs = place.path("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, NOBODY, NOBODY).unwrap();
    let runs = theirs.join("runs");
    place
        .vmtax(RUN)
        .arg("--dir")
        .arg(&runs)
        .fails(&["theirs belongs to user 65534", "--dir"]);
    place
        .vmtax(RUN)
        .arg("--output")
        .arg(theirs.join("run"))
        .fails(&["theirs belongs to user 65534", "--output"]);
    // A link of theirs to a folder of root's.
    symlink(&victim.0, &runs).unwrap();
    std::os::unix::fs::lchown(&runs, NOBODY, NOBODY).unwrap();
    place
        .vmtax(RUN)
        .arg("--dir")
        .arg(&runs)
        .fails(&["theirs belongs to user 65534"]);
    victim.is_untouched();
    // The user who called sudo may do as root whatever vmtax does.
    fs::remove_file(&runs).unwrap();
    place
        .vmtax(RUN)
        .arg("--dir")
        .arg(&runs)
        .env("SUDO_UID", "65534")
        .succeeds();
    place
        .vmtax(RUN)
        .arg("--dir")
        .arg(&runs)
        .env("SUDO_UID", "1000")
        .fails(&["theirs belongs to user 65534"]);
}

#[test]
fn a_pipe_in_a_recording_is_not_waited_for() {
    let place = Place::new();
    place.vmtax(RUN).succeeds();
    let headline = place.recording().join("headline.txt");
    fs::remove_file(&headline).unwrap();
    make_pipe(&headline);
    place
        .vmtax("list")
        .start(30)
        .outcome()
        .exits(0)
        .shows("native");
}
