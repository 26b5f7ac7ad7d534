//! Faults while vmtax runs: each is reported with its fix, loses nothing, and leaves nothing. [`Place`] checks the
//! last in each test.

use crate::common::{
    Place, Running, Signal, binary, fake_qemu, fast_guest, json, kernel, send, trials, wrapped_qemu,
};
use std::fs;
use std::time::Duration;

/// A trial that is soon over, then one that lasts long enough to be disturbed.
const SHORT_THEN_LONG: &str =
    "cpu cpu.time=0.05 threads threads.threads=2 threads.time=40 --rounds 1";

fn qemu_pid(place: &Place) -> Option<u32> {
    place
        .processes()
        .into_iter()
        .find(|p| p.is_qemu())
        .map(|p| p.pid)
}

#[test]
fn a_killed_qemu_costs_its_trials_and_no_others() {
    let place = Place::new();
    let (machine, guest) = fast_guest();
    let plan = format!(
        "cpu cpu.time=0.05 threads threads.threads=2 threads.time=3 --rounds 2 --json {guest}"
    );
    let mut run = place.run(&plan).start(90).until_trials(1);
    let qemu = run.until("a QEMU", qemu_pid);
    send(qemu, Signal::KILL);
    let outcome = run
        .outcome()
        .exits(2)
        .says(&format!("{machine} ended while running threads"));
    let outcome = outcome.says("status 137").says("out of memory");
    let report = json(&outcome.stdout);
    let ends: Vec<&str> = trials(&report)
        .iter()
        .map(|t| t["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        ends,
        ["done", "failed", "done", "done"],
        "the next round goes on"
    );
    let error = trials(&report)[1]["error"].as_str().unwrap();
    assert!(error.contains("ended while running threads"), "{error}");
    place.vmtax("report").arg(place.recording()).succeeds();
}

#[test]
fn a_killed_controller_takes_its_guest_along_and_what_it_recorded_is_there() {
    let place = Place::new();
    let mut run = place
        .run(SHORT_THEN_LONG)
        .words(&fast_guest().1)
        .start(60)
        .until_trials(1);
    run.until("a QEMU", qemu_pid);
    kill_and_look(run, &place);
}

#[test]
fn a_killed_controller_takes_its_native_agent_along_and_what_it_recorded_is_there() {
    let place = Place::new();
    let mut run = place
        .run(SHORT_THEN_LONG)
        .words("--machine native")
        .start(60)
        .until_trials(1);
    run.until("a workload", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.contains("agent run threads"))
    });
    kill_and_look(run, &place);
}

fn kill_and_look(run: Running<'_>, place: &Place) {
    assert!(place.recording().join("scratch").exists());
    run.signal(Signal::KILL);
    assert_eq!(run.outcome().status, None);
    place.nothing_is_left();
    let folder = place.recording();
    let report = json(&place.vmtax("report --json").arg(&folder).succeeds().stdout);
    assert_eq!(trials(&report).len(), 1);
    assert_eq!(trials(&report)[0]["outcome"], "done");
    place
        .vmtax("report")
        .arg(&folder)
        .succeeds()
        .shows("cpu event rate");
    place
        .vmtax("list")
        .succeeds()
        .shows("1 of 2 trials · unfinished");
}

#[test]
fn a_controller_killed_while_it_makes_disks_leaves_nothing() {
    let place = Place::new();
    let mut run = place.run("disk --rounds 1 --machine native").start(60);
    run.until("the disk", |place| {
        let runs = fs::read_dir(place.runs()).ok()?.flatten();
        runs.map(|run| run.path().join("scratch/disk.raw"))
            .find(|disk| disk.exists())
    });
    run.signal(Signal::KILL);
    run.outcome();
    place.nothing_is_left();
}

/// Killed before its watchdog asked for its parent, which is another process then: that does not end.
#[test]
fn a_watchdog_whose_controller_has_ended_already_does_not_wait() {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let began = std::time::Instant::now();
    let line = format!(
        "exec \"$0\" watchdog '{{\"controller\":{}}}' 3</dev/null",
        ended.id()
    );
    let status = std::process::Command::new("sh")
        .args(["-c", &line, binary()])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(137));
    assert!(
        began.elapsed() < std::time::Duration::from_secs(4),
        "it waited for {:?}",
        began.elapsed()
    );
}

#[test]
#[ignore = "needs root"]
fn a_killed_watchdog_of_a_native_agent_leaves_no_control_group() {
    let place = Place::new();
    let mut run = place
        .run(SHORT_THEN_LONG)
        .words("--machine native")
        .start(60)
        .until_trials(1);
    let watchdog = run.until("its watchdog", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.contains("watchdog") && p.command.contains("agent serve"))
    });
    assert_eq!(
        place.groups().is_empty(),
        !std::path::Path::new("/sys/fs/cgroup/memory").exists()
    );
    send(watchdog.pid, Signal::KILL);
    run.outcome().exits(2);
    place.nothing_is_left();
}

#[test]
fn a_qemu_that_is_asked_for_its_version_ends_with_the_controller() {
    let place = Place::new();
    let qemu = place.script("qemu", "exec sleep 60");
    let mut run = place
        .run("cpu --machine tcg --rounds 1 --qemu")
        .arg(qemu)
        .start(60);
    run.until("the QEMU", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.starts_with("sleep 60"))
    });
    run.signal(Signal::KILL);
    run.outcome();
    place.nothing_is_left();
}

/// The watchdog's parent-death signal does not reach what the agent starts: that has one of its own.
#[test]
fn a_workload_ends_with_its_controller_and_watchdogs() {
    let place = Place::new();
    let mut run = place
        .run(SHORT_THEN_LONG)
        .words("--machine native")
        .start(60)
        .until_trials(1);
    run.until("a workload", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.contains("agent run threads"))
    });
    // Else it would see its agent end, and the watchdogs would see it end.
    run.signal(Signal::STOP);
    let watchdogs: Vec<_> = place
        .processes()
        .into_iter()
        .filter(|p| p.command.contains("vmtax watchdog"))
        .collect();
    assert!(watchdogs.len() >= 2, "{watchdogs:?}");
    watchdogs
        .iter()
        .for_each(|watchdog| send(watchdog.pid, Signal::KILL));
    run.signal(Signal::KILL);
    run.outcome();
    let left = place.processes_left();
    assert!(left.is_empty(), "{left:?}");
    // Nobody was left to remove it: the next run does.
    assert!(place.recording().join("scratch").exists());
    place
        .run("cpu cpu.time=0.05 --machine native --rounds 1")
        .succeeds();
    place.nothing_is_left();
}

#[test]
fn limits_of_the_process_are_said_with_what_raises_them() {
    let place = Place::new();
    let limited = |limit: &str, plan: &str| {
        let run = format!(
            "{limit}; exec {} run --machine native --rounds 1 {plan}",
            binary()
        );
        place.program("sh").arg("-c").arg(run).outcome()
    };
    limited("ulimit -f 1000", "disk")
        .exits(2)
        .says("File too large")
        .says("ulimit -f unlimited");
    limited("ulimit -n 14", "cpu cpu.time=0.05")
        .exits(2)
        .says("Too many open files")
        .says("ulimit -n");
}

/// A disk that cannot be written is as full as /dev/full.
#[test]
fn output_that_cannot_be_written_is_an_error_with_a_fix() {
    let place = Place::new();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    place.put("runs/note", "");
    let outcome = place.vmtax("list").stdout(full).outcome().exits(2);
    outcome
        .says("writing to standard output")
        .says("No space left")
        .says("free space there");
}

/// Threads of root are not limited in number.
#[test]
#[ignore = "needs root"]
fn without_more_threads_the_host_is_probed_all_the_same() {
    let place = Place::new();
    let doctor = place
        .vmtax_as_ordinary_user("doctor --json")
        .env("HOME", place.path("home"));
    let before = json(&doctor.succeeds().stdout);
    // A user of its own, so that no other test takes part in the limit; of processes and threads one: this.
    let limited = place
        .program("prlimit")
        .words("--nproc=1 setpriv --reuid=64999 --regid=64999 --clear-groups --");
    let limited = limited
        .arg(place.path("vmtax"))
        .words("doctor --json")
        .env("HOME", place.path("home"))
        .outcome();
    let after = json(&limited.exits(0).stdout);
    assert_eq!(
        after["checks"].as_array().unwrap().len(),
        before["checks"].as_array().unwrap().len()
    );
}

/// Threads of root are not limited in number.
#[test]
#[ignore = "needs root"]
fn without_more_threads_an_import_says_what_allows_them() {
    let place = Place::new();
    place.vmtax_as_ordinary_user("--version").succeeds();
    place.put(
        "perf.data",
        include_bytes!("../../../analyze/profile/tests/data/tiny.perf.data"),
    );
    let limited = place
        .program("prlimit")
        .words("--nproc=1 setpriv --reuid=64998 --regid=64998 --clear-groups --");
    let import = limited
        .arg(place.path("vmtax"))
        .words("profile import perf.data --output out");
    import.fails(&["failed to start a thread", "ulimit -u"]);
}

#[test]
fn what_a_controller_killed_early_left_is_swept_by_the_next_run() {
    let place = Place::new();
    place.put("runs/20260101T000000Z-old/unfinished.part", "{");
    place.put("runs/20260101T000000Z-old/scratch/disk.raw", "left");
    place
        .run("cpu cpu.time=0.05 --machine native --rounds 1")
        .succeeds();
    assert_eq!(
        fs::read_dir(place.path("runs/20260101T000000Z-old"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn an_interrupt_ends_the_trial_and_keeps_the_others() {
    for machine in ["--machine native", &fast_guest().1] {
        for signal in [Signal::INT, Signal::TERM] {
            let place = Place::new();
            let run = place
                .run(SHORT_THEN_LONG)
                .words(machine)
                .start(60)
                .until_trials(1);
            run.signal(signal);
            let folder = place.recording().display().to_string();
            let outcome = run
                .outcome()
                .exits(130)
                .says("interrupted")
                .says(&folder)
                .shows("cpu event rate");
            assert!(outcome.took < Duration::from_secs(30), "{outcome}");
            place.nothing_is_left();
            let report = json(&place.vmtax("report --json").arg(&folder).succeeds().stdout);
            let ends: Vec<&str> = trials(&report)
                .iter()
                .map(|t| t["outcome"].as_str().unwrap())
                .collect();
            assert_eq!(ends, ["done", "interrupted"]);
            place.vmtax("list").succeeds().shows("unfinished");
        }
    }
}

#[test]
fn an_interrupt_while_a_guest_comes_up_ends_that() {
    let place = Place::new();
    let qemu = fake_qemu(&place, "sleep 60");
    let mut run = place
        .run("cpu --machine tcg --rounds 3 --qemu")
        .arg(qemu)
        .start(60);
    run.until("the QEMU", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.starts_with("sleep 60"))
    });
    run.signal(Signal::INT);
    run.outcome().exits(130).says("interrupted");
}

#[test]
fn an_interrupt_before_a_profile_has_a_result_is_no_damage() {
    let place = Place::new();
    let mut run = place
        .vmtax(&format!("profile {} -- disk", fast_guest().1))
        .start(60);
    run.until("the guest", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.is_qemu() && p.command.contains("-no-reboot"))
    });
    run.signal(Signal::INT);
    run.outcome().exits(130).says("interrupted");
    place.nothing_is_left();
}

#[test]
fn a_guest_that_hangs_is_given_up_at_the_deadline() {
    let place = Place::new();
    let qemu = fake_qemu(
        &place,
        "echo 'Booting, and then no more' >&5; sleep 60 & wait",
    );
    let run = place
        .run("cpu --machine tcg --rounds 1 --boot-timeout 2 --qemu")
        .arg(qemu);
    let said = [
        "the agent on tcg did not respond",
        "within 2 s",
        "Booting, and then no more",
        "console.log",
        "--boot-timeout",
    ];
    let outcome = run.fails(&said);
    assert!(outcome.took < Duration::from_secs(20), "{outcome}");
}

#[test]
fn a_trial_that_does_not_end_is_given_up_at_the_deadline() {
    let place = Place::new();
    let run = place.run("cpu cpu.time=50 --machine native --rounds 1 --timeout 1");
    run.fails(&["cpu on native had no result after 1 s", "--timeout"]);
}

#[test]
fn a_panicking_guest_is_quoted() {
    let place = Place::new();
    let qemu = wrapped_qemu(
        &place,
        "-append 'console=ttyS0 panic=-1 rdinit=/none root=/dev/none'",
    );
    let run = place.run("cpu --machine tcg --rounds 1 --qemu").arg(qemu);
    run.fails(&[
        "panicked",
        "Kernel panic - not syncing",
        "  | ",
        "console.log",
        "--memory",
    ]);
}

#[test]
fn a_guest_that_ends_without_a_word_is_an_error_with_a_fix() {
    let place = Place::new();
    let qemu = fake_qemu(&place, "exit 0");
    let run = place.run("cpu --machine tcg --rounds 1 --qemu").arg(qemu);
    run.fails(&[
        "tcg failed to boot",
        "ended while booting (exit status 0)",
        "console.log",
        "--memory",
    ]);
    place
        .run("cpu --machine tcg --memory 8")
        .fails(&["guest.memory-mib is 8", "128"]);
}

#[test]
fn a_report_of_layers_without_a_result_names_the_first_failure() {
    let place = Place::new();
    let qemu = fake_qemu(&place, "exit 0");
    let run = place
        .vmtax("layers --machine tcg --rounds 1 count=20 --dir")
        .arg(place.runs())
        .arg("--qemu")
        .arg(qemu);
    run.fails(&["ended while booting"]);
    let report = place.vmtax("report").arg(place.recording());
    report.fails(&["no traced trial has a result", "tcg ended while booting"]);
}

#[test]
fn what_qemu_refuses_is_quoted() {
    let place = Place::new();
    let qemu = wrapped_qemu(&place, "-device no-such-device");
    let run = place.run("cpu --machine tcg --rounds 1 --qemu").arg(qemu);
    run.fails(&[
        "QEMU ended before the guest booted",
        "no-such-device",
        "qemu.log",
    ]);
}

#[test]
fn a_qemu_that_prints_without_end_fills_neither_disk_nor_memory() {
    let place = Place::new();
    let qemu = fake_qemu(&place, "yes | head -c 1000000000; exit 1");
    // A line of its output took 28 times its length in memory.
    let start = place
        .program("prlimit")
        .arg("--as=2147483648")
        .arg(binary())
        .words("run --dir");
    let start = start
        .arg(place.runs())
        .words("cpu --machine tcg --rounds 1 --qemu")
        .arg(qemu);
    let outcome = start
        .start(150)
        .outcome()
        .exits(2)
        .says("QEMU ended before the guest booted");
    outcome.says("this log exceeds 16 MiB");
    let logs = crate::common::files_below(&place.runs());
    let log = logs.iter().find(|path| path.ends_with("qemu.log")).unwrap();
    assert!(log.metadata().unwrap().len() < 17 << 20);
}

#[test]
fn a_guest_that_stood_still_is_named_and_its_trial_does_not_count() {
    let place = Place::new();
    let plan = "cpu cpu.time=0.05 threads threads.threads=2 threads.time=12 --rounds 1 --boot-timeout 150 --json";
    let mut run = place
        .run(plan)
        .words(&fast_guest().1)
        .start(300)
        .until_trials(1);
    let qemu = run.until("a QEMU", qemu_pid);
    std::thread::sleep(Duration::from_secs(2));
    send(qemu, Signal::STOP);
    std::thread::sleep(Duration::from_secs(20));
    send(qemu, Signal::CONT);
    let report = json(&run.outcome().exits(0).stdout);
    let warnings = |trial: usize| trials(&report)[trial]["warnings"].to_string();
    assert!(!warnings(0).contains("stood-still"), "{}", warnings(0));
    assert!(warnings(1).contains("stood-still"), "{}", warnings(1));
    let rows = report["findings"]["rows"].as_array().unwrap();
    let counted = |metric: &str| {
        let row = rows.iter().find(|row| row["metric"] == metric);
        row.is_some_and(|row| row["machines"].to_string().contains("median"))
    };
    assert!(
        counted("cpu.events") && !counted("threads.events"),
        "{rows:?}"
    );
    place
        .vmtax("report")
        .arg(place.recording())
        .succeeds()
        .shows("stood still for");
}

#[test]
fn an_agent_that_sends_nonsense_is_not_believed() {
    for (bytes, said) in [
        (
            r"VMTX\002\000\377\377\377\377\000\000\000\000",
            "4294967295 bytes",
        ),
        (
            r"VMTX\002\000\002\000\000\000\000\000\000\000{}",
            "checksum",
        ),
        (
            r"VMTX\011\000\000\000\000\000\000\000\000\000",
            "protocol 9",
        ),
    ] {
        let place = Place::new();
        let qemu = fake_qemu(&place, &format!("printf '{bytes}' >&4; sleep 60"));
        let run = place.run("cpu --machine tcg --rounds 1 --qemu").arg(qemu);
        run.fails(&["tcg sent an invalid message", said]);
    }
}

#[test]
fn an_agent_that_answers_before_it_was_asked_is_not_believed() {
    let reply = vmtax_wire::Reply::Failed {
        error: "before any request".to_owned(),
    };
    let place = Place::new();
    let frame = place.put("frame", vmtax_wire::encode(&reply).unwrap());
    let qemu = fake_qemu(&place, &format!("cat {} >&4; sleep 60", frame.display()));
    place
        .run("cpu --machine tcg --rounds 1 --qemu")
        .arg(qemu)
        .fails(&["invalid message", "before the greeting"]);
}

#[test]
fn a_message_that_is_cut_is_no_message() {
    let place = Place::new();
    // Cut, and the stream stays open: the deadline ends it. Cut, and the stream ends: so does the wait.
    let cut = r"printf 'VMTX\002\000\100\000\000\000\001\002\003\004{' >&4";
    let waiting = fake_qemu(&place, &format!("{cut}; sleep 60"));
    let run = place
        .run("cpu --machine tcg --rounds 1 --boot-timeout 1 --qemu")
        .arg(waiting);
    run.fails(&["the agent on tcg did not respond", "within 1 s"]);
    let ending = fake_qemu(&place, &format!("{cut}; echo 'it broke' >&2; exit 3"));
    let run = place.run("cpu --machine tcg --rounds 1 --qemu").arg(ending);
    run.fails(&["exit status 3", "it broke"]);
}

#[test]
fn noise_without_end_is_not_waited_out() {
    let place = Place::new();
    let qemu = fake_qemu(&place, "cat /dev/zero >&4 & cat /dev/zero >&5 & wait");
    let run = place
        .run("cpu --machine tcg --rounds 1 --boot-timeout 2 --qemu")
        .arg(qemu);
    let outcome = run.fails(&["the agent on tcg did not respond"]);
    assert!(outcome.took < Duration::from_secs(30), "{outcome}");
}

#[test]
fn an_ordinary_user_measures_a_guest_with_a_kernel_of_their_own() {
    let place = Place::new();
    let kernel = kernel().copy(&place, &[]);
    let plan =
        "run cpu syscalls cpu.time=0.05 syscalls.time=0.002 --machine native,tcg --rounds 1 --json";
    let run = place
        .vmtax_as_ordinary_user(plan)
        .words(&kernel.options())
        .env("HOME", place.path("home"));
    let report = json(&run.start(90).outcome().exits(0).stdout);
    assert_eq!(trials(&report).len(), 4);
    for trial in trials(&report) {
        assert_eq!(trial["outcome"], "done", "{trial}");
    }
}
