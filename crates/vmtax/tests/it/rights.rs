//! Rights on the host of a guest that takes over its QEMU, and everything that remains there after a guest; and root in a folder
//! that another user prepared, to have root overwrite, remove or wait for what that user chose.

use crate::common::{Place, Process, Running, Signal, fast_guest, is_root, root_methods, send};
use crate::exec::exec;
use crate::share::{LONG, SMALL_TREE, fastest, plan};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

/// The kernel's bits of the capabilities that the tests name.
const CHOWN: u64 = 1;

const DAC_OVERRIDE: u64 = 1 << 1;

const DAC_READ_SEARCH: u64 = 1 << 2;

const FOWNER: u64 = 1 << 3;

const FSETID: u64 = 1 << 4;

const MKNOD: u64 = 1 << 27;

/// A trial that is soon over, then one during which the guest is inspected.
const SHORT: &str = "name = \"cpu\"\noptions = { time = 0.05 }";

fn qemu(place: &Place) -> Option<Process> {
    place
        .processes()
        .into_iter()
        .find(|p| p.is_qemu() && p.command.contains("-no-reboot"))
}

/// The QEMU of a booted guest has no more than these capabilities of root's.
fn check(run: &mut Running<'_>, capabilities: u64, what: &str) {
    let process = run.until("a QEMU", qemu);
    has_no_more_than(&process, capabilities, what);
    run.signal(Signal::INT);
}

fn has_no_more_than(process: &Process, capabilities: u64, what: &str) {
    for uid in process
        .status("Uid")
        .split_whitespace()
        .chain(process.status("Gid").split_whitespace())
    {
        assert_ne!(uid, "0", "{what}: {process:?}");
    }
    assert_eq!(process.status("NoNewPrivs"), "1", "{what}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let held = u64::from_str_radix(&process.status(set), 16).unwrap();
        assert_eq!(held & !capabilities, 0, "{what}: {set} {held:x}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_guests_qemu_has_no_capabilities() {
    let place = Place::new();
    let plan =
        "cpu cpu.time=0.05 threads threads.threads=2 threads.time=40 --rounds 1 --boot-timeout 150";
    let run = place.run(plan).words(&fast_guest().1);
    let mut run = run.start(400).until_trials(1);
    check(&mut run, 0, "no share");
    run.outcome().exits(130);
    let place = Place::new();
    let mut run = place
        .vmtax("exits --count 1000000 --machine micro-tcg --dir")
        .arg(place.runs())
        .start(400);
    let process = run.until("a micro-guest that runs", qemu);
    has_no_more_than(&process, 0, "micro-guest");
    run.signal(Signal::INT);
    run.outcome();
}

#[test]
#[ignore = "needs root"]
fn the_qemu_of_a_guest_with_a_share_has_what_the_share_needs() {
    let own = CHOWN | DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER | FSETID | MKNOD;
    for (set, capabilities) in [
        ("share = '9p'", own),
        ("share = '9p', 'share.readonly' = 'on'", DAC_READ_SEARCH),
        ("share = 'virtiofs'", 0),
        ("share = 'nfs4'", 0),
        ("share = 'erofs'", 0),
    ] {
        let place = Place::new();
        let workloads = format!("{SHORT}\n[[workload]]\n{}", LONG.replace("cpu", "threads"));
        let plan = place.put("plan.toml", plan(SMALL_TREE, &[("way", set)], &workloads));
        let mut run = place
            .run(&fastest(set))
            .arg(plan)
            .start(400)
            .until_trials(1);
        check(&mut run, capabilities, set);
        run.outcome().exits(130);
    }
}

#[test]
#[ignore = "needs root"]
fn the_qemu_of_a_command_has_what_its_files_need() {
    let written = CHOWN | DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER;
    for (options, capabilities) in [
        ("--root 9p", DAC_READ_SEARCH),
        ("--root 9p --scratch 64", DAC_READ_SEARCH),
        ("--root virtiofs", 0),
        ("--root virtiofs --write .", written),
        ("--root 9p --write .", written),
    ] {
        let place = Place::new();
        let out = place.path("out");
        let words = format!("{} --boot-timeout 150 {options}", fast_guest().1);
        let start = exec(&place, &words, &["sh", "-c", "echo ready; sleep 60"]);
        let mut run = start.stdout(fs::File::create(&out).unwrap()).start(400);
        run.until("the command is ready", |_| {
            fs::read_to_string(&out)
                .unwrap()
                .contains("ready")
                .then_some(())
        });
        check(&mut run, capabilities, options);
        run.outcome().exits(130);
    }
}

#[test]
fn no_set_id_file_is_left_in_a_folder_that_a_guest_writes_to() {
    for root in root_methods() {
        let place = Place::new();
        let folder = place.path("written");
        fs::create_dir(&folder).unwrap();
        let script = "cd written; cp /bin/sh s; chmod 4755 s; echo $?; cp /bin/sh g; chown 0:12 g; chmod 2755 g; chmod u+s,g+s s; \
                      mknod device c 1 3; setcap cap_setuid+ep s 2>/dev/null; python3 -c 'import os\n\
                      os.close(os.open(\"created\", os.O_CREAT | os.O_WRONLY, 0o6755))'; \
                      echo own > own; chmod 640 own; mkdir folder; mv own folder; ls folder";
        let outcome = exec(
            &place,
            &format!(
                "{} --boot-timeout 150 --root {root} --write written",
                fast_guest().1
            ),
            &["sh", "-c", script],
        );
        let outcome = outcome.start(400).outcome();
        assert_eq!(outcome.stdout, "1\nown\n", "{outcome}");
        for path in crate::common::files_below(&folder) {
            let about = path.symlink_metadata().unwrap();
            let privileged = about.mode() & 0o6000 != 0 && about.is_file();
            assert!(
                !privileged && !std::os::unix::fs::FileTypeExt::is_char_device(&about.file_type()),
                "{path:?}: {about:?}"
            );
            let capabilities = rustix::fs::lgetxattr(&path, "security.capability", &mut [0_u8; 64]);
            assert!(capabilities.is_err(), "{path:?}");
            assert_eq!(
                (about.uid(), about.gid() == 12),
                (
                    rustix::process::getuid().as_raw(),
                    is_root() && path.ends_with("g")
                ),
                "{path:?}"
            );
        }
    }
}

#[test]
fn a_killed_watchdog_takes_its_guest_along() {
    for options in ["", "share = '9p'"] {
        let place = Place::new();
        let workloads = format!("{SHORT}\n[[workload]]\n{}", LONG.replace("cpu", "threads"));
        let plan = place.put(
            "plan.toml",
            plan(SMALL_TREE, &[("way", options)], &workloads),
        );
        let mut run = place
            .run(&fastest(options))
            .arg(plan)
            .start(400)
            .until_trials(1);
        let watchdog = run.until("a watchdog", |place| {
            place
                .processes()
                .into_iter()
                .find(|p| p.command.contains(" watchdog ") && p.command.contains("-no-reboot"))
        });
        send(watchdog.pid, Signal::KILL);
        run.outcome().exits(2).says("ended while running threads");
        place.nothing_is_left();
    }
}

/// Whatever user QEMU is. The micro-guest has no agent, which would end a guest by itself.
#[test]
fn a_guest_ends_with_its_controller_and_watchdogs() {
    let shares = [
        "",
        "share = '9p'",
        "share = '9p', 'share.readonly' = 'on'",
        "share = 'virtiofs'",
        "share = 'nfs4'",
    ];
    // An ordinary user has neither ganesha nor, as a member of groups, QEMU's own virtiofsd.
    let shares = shares
        .into_iter()
        .filter(|options| is_root() || !(options.contains("nfs4") || options.contains("virtiofs")));
    for share in std::iter::once(None).chain(shares.map(Some)) {
        let place = Place::new();
        let mut run = match share {
            None => place
                .vmtax("exits --count 1000000 --machine micro-tcg --dir")
                .arg(place.runs())
                .start(400),
            Some(options) => {
                let workloads =
                    format!("{SHORT}\n[[workload]]\n{}", LONG.replace("cpu", "threads"));
                let plan = place.put(
                    "plan.toml",
                    plan(SMALL_TREE, &[("way", options)], &workloads),
                );
                place
                    .run(&fastest(options))
                    .arg(plan)
                    .start(400)
                    .until_trials(1)
            }
        };
        run.until("a QEMU", qemu);
        // Else it would see one of them end, and end the others.
        run.signal(Signal::STOP);
        let is_watchdog = |process: &Process| process.command.contains("vmtax watchdog");
        let watchdogs: Vec<_> = place.processes().into_iter().filter(is_watchdog).collect();
        assert!(watchdogs.len() >= 2, "{watchdogs:?}");
        watchdogs
            .iter()
            .for_each(|watchdog| send(watchdog.pid, Signal::KILL));
        run.signal(Signal::KILL);
        let left = place.processes_left();
        // It would hold the pipe that the outcome is read from.
        left.iter()
            .for_each(|process| send(process.pid, Signal::KILL));
        run.outcome();
        assert!(left.is_empty(), "{share:?}: {left:?}");
        // Nobody was left to remove it: the next run does.
        place
            .run("cpu cpu.time=0.05 --machine native --rounds 1")
            .succeeds();
        place.nothing_is_left();
    }
}

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
