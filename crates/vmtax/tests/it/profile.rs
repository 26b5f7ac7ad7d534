//! `vmtax profile` on a program whose shares are known, and on what cannot be profiled.

use crate::common::{Place, Running, binary, is_root, json, kernel, known_program};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Shares of its thread's time that the program's functions have by construction.
pub const KNOWN: [(&str, f64); 3] = [("fifty", 0.5), ("thirty", 0.3), ("twenty", 0.2)];
/// Largest error of a share, in half intervals: five standard deviations, since other tests and their load run at the
/// same time.
const TOLERANCE: f64 = 2.5;

/// Profiles a program that runs, into the folder `out`: what `--json` printed.
pub fn profile(place: &Place, running: &Running<'_>, out: &str, words: &str) -> Value {
    let words = format!(
        "profile --json --duration 3 --hz 997 --output {out} --pid {} {words}",
        running.pid()
    );
    json(&place.vmtax(&words).succeeds().stdout)
}

fn function<'a>(found: &'a Value, name: &str) -> &'a Value {
    let all = found["functions"].as_array().unwrap();
    all.iter()
        .find(|f| f["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {all:#?}"))
}

fn is_about(seen: &Value, share: f64) -> bool {
    let [value, low, high] = ["share", "low", "high"].map(|end| seen[end].as_f64().unwrap());
    (value - share).abs() < TOLERANCE * (high - low) / 2.0
}

/// That the functions have their shares under these names.
pub fn has_known_shares(found: &Value, names: [&str; 3]) {
    for ((what, share), name) in KNOWN.iter().zip(names) {
        let seen = &function(found, name)["self"];
        assert!(
            is_about(seen, *share),
            "{what}, as {name}: {seen} is not {share}: {found:#}"
        );
    }
}

#[test]
fn known_shares_are_found_on_cpu() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let running = place.program(&program).start(60);
    running.settled();
    let found = profile(&place, &running, "out", "");
    has_known_shares(&found, KNOWN.map(|(name, _)| name));
    let caller = function(&found, "caller");
    assert!(
        caller["total"]["share"].as_f64().unwrap() > 0.9
            && caller["self"]["share"].as_f64().unwrap() < 0.05
    );
    assert!(
        found["unwound"]["share"].as_f64().unwrap() > 0.99,
        "{:#}",
        found["unwound"]
    );
    // The thread that waits was never on a CPU.
    let threads = found["threads"].as_array().unwrap();
    assert_eq!(
        threads
            .iter()
            .map(|t| t["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["burner"]
    );
    assert!(
        (0.02..1.1).contains(&threads[0]["cpu"].as_f64().unwrap()),
        "{threads:#?}"
    );
    let folded = fs::read_to_string(place.path("out/on-cpu.folded")).unwrap();
    assert!(
        folded
            .lines()
            .any(|line| line.starts_with("burner;") && line.contains(";burner;caller;fifty ")),
        "{folded}"
    );
    assert!(
        fs::read_to_string(place.path("out/on-cpu.svg"))
            .unwrap()
            .contains("fifty")
    );
    let firefox = json(&fs::read_to_string(place.path("out/firefox.json")).unwrap());
    assert!(firefox["threads"][0]["name"] == "burner", "{firefox:#}");
    // The recording alone says the same again.
    for file in ["on-cpu.svg", "profile.json", "report.html"] {
        fs::remove_file(place.path("out").join(file)).unwrap();
    }
    let again = place.vmtax("report out --json").succeeds().stdout.clone();
    assert_eq!(json(&again), found);
    place.vmtax("report out").succeeds().shows("fifty");
    assert!(!place.path("out/on-cpu.svg").exists() && !place.path("out/report.html").exists());
    let markdown = place
        .vmtax("report out --format markdown --details")
        .succeeds();
    assert!(
        markdown.stdout.starts_with("**") && markdown.stdout.contains("| fifty |"),
        "{markdown}"
    );
    place
        .vmtax("list --dir .")
        .succeeds()
        .shows("profile-known-");
    // A folder with files is not written over; two profiles make a difference.
    let once_more = format!("profile --duration 1 --output out --pid {}", running.pid());
    place
        .vmtax(&once_more)
        .fails(&["out contains files already", "--output"]);
    profile(&place, &running, "second", "");
    let outcome = place
        .vmtax("profile diff out second")
        .succeeds()
        .shows("difference.svg")
        .shows("95 % coverage together");
    assert!(!outcome.stdout.contains("Warnings"), "{outcome}");
    // Its folder says what a profile is of.
    place.put("out/profile.json", again);
    let other = fs::read_to_string(place.path("second/profile.json")).unwrap();
    place.put(
        "second/profile.json",
        other.replace("\"program\": \"known\"", "\"program\": \"other\""),
    );
    place
        .vmtax("profile diff out second")
        .succeeds()
        .shows("different programs, known and other");
    // What is gone is named.
    place.put(
        "gone.folded",
        "burner;burner;caller;thirty 600\nburner;burner;caller;twenty 400\n",
    );
    place
        .vmtax("profile diff out gone.folded --output gone.svg")
        .succeeds()
        .shows("fifty")
        .shows("0.0 %");
    assert!(
        fs::read_to_string(place.path("difference.svg"))
            .unwrap()
            .contains("fifty")
    );
}

#[test]
fn what_others_recorded_is_shown() {
    let place = Place::new();
    place.put(
        "theirs.folded",
        "burner;start;fifty 50\nburner;start;thirty_[k] 50\n",
    );
    let words = "profile import theirs.folded --json --output folded";
    let found = json(&place.vmtax(words).succeeds().stdout);
    assert!(
        found["file"] == "theirs.folded" && found["samples"] == 100,
        "{found:#}"
    );
    assert_eq!(function(&found, "fifty")["self"]["share"], 0.5);
    assert!(
        fs::read_to_string(place.path("folded/report.html"))
            .unwrap()
            .contains("theirs.folded")
    );
    assert!(
        fs::read_to_string(place.path("folded/on-cpu.svg"))
            .unwrap()
            .contains("thirty")
    );
    place
        .vmtax("profile import theirs.folded")
        .succeeds()
        .shows("theirs.folded")
        .shows("100 samples");
    place.put("none.folded", "a;b 1\nnonsense\n");
    place
        .vmtax("profile import none.folded")
        .fails(&["none.folded: line 2", "thread;function;function count"]);
    place.put("empty", "");
    place
        .vmtax("profile import empty")
        .fails(&["empty holds no samples"]);
    place.put("perf.data", "PERFILE2 and no more");
    place
        .vmtax("profile import perf.data")
        .fails(&["perf.data", "record it again"]);
    place
        .vmtax("profile import absent")
        .fails(&["absent", "perf.data file"]);
    place
        .vmtax("profile import /dev/null")
        .fails(&["/dev/null", "to a file"]);
    place.put(
        "script.txt",
        "sh 24115  2330.583147:     250000 cpu-clock:  ffffffff81360012 handle_softirqs+0x72\n",
    );
    place.put("perf.data.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
    for file in ["script.txt", "perf.data.gz"] {
        place.vmtax(&format!("profile import {file}")).fails(&[
            file,
            "neither",
            "uncompressed",
            "stackcollapse-perf.pl",
        ]);
    }
    let piped: Vec<u8> = b"PERFILE2"
        .iter()
        .copied()
        .chain(16_u64.to_le_bytes())
        .chain([0; 64])
        .collect();
    place.put("piped.data", piped);
    let outcome =
        place
            .vmtax("profile import piped.data")
            .fails(&["pipe mode", "-o FILE", "perf script"]);
    assert!(!outcome.stderr.contains("damaged"), "{outcome}");
    // What perf itself wrote, where its version is that of the kernel (Ubuntu has one perf for each).
    let record = |words: &str| place.program("perf").words(words).start(60).outcome();
    if std::process::Command::new("perf")
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
    {
        let program = known_program(&place, "known");
        record(&format!(
            "record -q -e cpu-clock:u -F 997 --call-graph dwarf,2048 -o theirs.data {} 3",
            program.display()
        ));
        let found = json(
            &place
                .vmtax("profile import theirs.data --json --output theirs")
                .succeeds()
                .stdout,
        );
        has_known_shares(&found, KNOWN.map(|(name, _)| name));
        assert!(
            found["unwound"]["share"].as_f64().unwrap() > 0.99,
            "{:#}",
            found["unwound"]
        );
        assert!(
            found["program"] == "known" && found["hz"] == 997,
            "{found:#}"
        );
        let firefox = json(&fs::read_to_string(place.path("theirs/firefox.json")).unwrap());
        assert!(
            firefox["threads"]
                .as_array()
                .unwrap()
                .iter()
                .any(|t| t["name"] == "burner"),
            "{firefox:#}"
        );
        // Not every perf is built with zstd.
        let packing = record(&format!(
            "record -q -z -e cpu-clock:u -o packed.data {} 1",
            program.display()
        ));
        if packing.status == Some(0) && !packing.stderr.contains("ompression") {
            place
                .vmtax("profile import packed.data")
                .fails(&["compressed", "-z", "perf script"]);
        }
    }
}

#[test]
fn a_stripped_program_keeps_its_functions_apart_and_takes_an_unstripped_build() {
    let place = Place::new();
    let build = known_program(&place, "build");
    let program = place.path("stripped");
    let strip = place.program("strip").arg("-o").arg(&program).arg(&build);
    strip.succeeds();
    let running = place.program(&program).start(60);
    running.settled();
    let found = profile(&place, &running, "blank", "");
    let mut shares: Vec<&Value> = own(&found, "stripped:").map(|f| &f["self"]).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share["samples"].as_u64()));
    for ((what, share), seen) in KNOWN.iter().zip(&shares) {
        assert!(is_about(seen, *share), "{what}: {shares:#?}");
    }
    assert!(own(&found, "stripped:").all(|f| f["named"] == false));
    assert!(
        found["unnamed"]
            .as_array()
            .unwrap()
            .iter()
            .any(|u| u["why"] == "stripped"),
        "{found:#}"
    );
    // By its build-id, and by its layout alone where somebody removed that.
    let found = profile(&place, &running, "named", "--symbols build");
    has_known_shares(&found, KNOWN.map(|(name, _)| name));
    place
        .program("objcopy")
        .words("--remove-section=.note.gnu.build-id build bare")
        .succeeds();
    let found = profile(&place, &running, "layout", "--symbols bare");
    has_known_shares(&found, KNOWN.map(|(name, _)| name));
    // Another program's build is none.
    fs::copy(binary(), place.path("other")).unwrap();
    let other = format!(
        "profile --duration 1 --symbols other --pid {}",
        running.pid()
    );
    place.vmtax(&other).fails(&[
        "other is not a build of a program in this process",
        "same source",
    ]);
    let none = format!(
        "profile --duration 1 --symbols stripped.c --pid {}",
        running.pid()
    );
    place.put("stripped.c", "int x;");
    place.vmtax(&none).fails(&["stripped.c", "ELF"]);
}

/// The functions whose names begin so.
fn own<'a>(found: &'a Value, prefix: &'a str) -> impl Iterator<Item = &'a Value> {
    found["functions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(move |f| f["name"].as_str().unwrap().starts_with(prefix))
}

/// As in a container: another root, other numbers of processes, and files that nobody else sees.
#[test]
#[ignore = "needs root"]
fn a_program_in_namespaces_of_its_own_is_read_through_its_root() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let inside = place.path("inside");
    fs::create_dir(&inside).unwrap();
    let (from, to) = (program.display(), inside.display());
    let script =
        format!("mount -t tmpfs none {to} && cp {from} {to}/hidden && cd / && exec {to}/hidden 50");
    let start = place
        .program("unshare")
        .words("--mount --pid --fork --kill-child sh -c")
        .arg(script);
    let mut running = start.start(60);
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    let pid = running.until("the program runs", |_| {
        let pid: u32 = fs::read_to_string(&children)
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        (fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim() == "hidden").then_some(pid)
    });
    assert!(!inside.join("hidden").exists());
    running.settled();
    let words = format!("profile --json --duration 3 --hz 997 --output out --pid {pid}");
    let found = json(&place.vmtax(&words).succeeds().stdout);
    has_known_shares(&found, KNOWN.map(|(name, _)| name));
    let module = &function(&found, "fifty")["module"];
    assert!(
        module.as_str().unwrap().ends_with("inside/hidden"),
        "{module}"
    );
}

#[test]
fn a_deleted_program_is_read_by_whoever_runs_it() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let running = place.program(&program).start(60);
    running.settled();
    // In its place lies another: its names would be wrong.
    fs::remove_file(&program).unwrap();
    fs::copy("/bin/true", &program).unwrap();
    let found = profile(&place, &running, "out", "");
    has_known_shares(&found, KNOWN.map(|(name, _)| name));
    assert!(
        function(&found, "fifty")["module"]
            .as_str()
            .is_some_and(|m| Path::new(m) == program),
        "{found:#}"
    );
}

#[test]
fn what_cannot_be_profiled_is_named_with_the_next_step() {
    let place = Place::new();
    place.vmtax("profile").fails(&["--pid", "vmtax vms"]);
    place
        .vmtax("profile --duration 0 --pid 1")
        .fails(&["--duration"]);
    let outcome = place.vmtax("profile --machine native -- cpu").fails(&[
        "native is no guest",
        "tcg",
        "--machine",
    ]);
    assert!(!outcome.stderr.contains("--machines"), "{outcome}");
    place
        .vmtax("profile --pid 2000000000")
        .fails(&["no process 2000000000", "pgrep"]);
    place
        .vmtax("profile diff a b")
        .fails(&["a", "folded stacks"]);
    let program = known_program(&place, "known");
    if is_root() {
        let running = place.program(&program).start(60);
        let words = format!("profile --pid {}", running.pid());
        place
            .vmtax_as_ordinary_user(&words)
            .fails(&["another user", "as root"]);
    }
    // One that sleeps has nothing to show on CPU; by the clock it has.
    let sleeper = place.program("sleep").arg("60").start(60);
    sleeper.settled();
    let words = format!("profile --duration 0.3 --wall-hz 0 --pid {}", sleeper.pid());
    place.vmtax(&words).fails(&["not on a CPU", "--duration"]);
    let words = format!(
        "profile --duration 1 --output sleeps --pid {}",
        sleeper.pid()
    );
    place
        .vmtax(&words)
        .succeeds()
        .shows("a timer")
        .shows("clock_nanosleep");
    // Ctrl-C ends the looking, not what it is for, as the help says.
    place
        .vmtax("profile --help")
        .succeeds()
        .shows("Ctrl-C stops sampling")
        .shows("with status 130");
    let words = format!(
        "profile --duration 50 --trace-duration 0 --output until --pid {}",
        sleeper.pid()
    );
    let mut looking = place.vmtax(&words).start(60);
    let status = format!("/proc/{}/status", looking.pid());
    looking.until("it catches SIGINT", |_| {
        let status = fs::read_to_string(&status).ok()?;
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?;
        (u64::from_str_radix(caught.trim(), 16).ok()? & 1 << 1 != 0).then_some(())
    });
    looking.settled();
    looking.signal(crate::common::Signal::INT);
    looking.outcome().exits(0).shows("until/report.html");
    // One that ends midway leaves what was seen until then.
    let running = place.program(&program).arg("8").start(60);
    running.settled();
    let words = format!(
        "profile --duration 30 --hz 997 --output out --pid {}",
        running.pid()
    );
    let outcome = place
        .vmtax(&words)
        .succeeds()
        .shows("process ended then")
        .shows("fifty");
    assert!(outcome.took.as_secs() < 25, "{outcome}");
}

#[test]
fn what_is_said_of_a_guest_is_refused_for_a_process_that_runs() {
    let place = Place::new();
    let of_a_guest = "--machine=tcg --guest-hz=9 --syscalls --share=9p --rounds=1 --qemu=7.2 --kernel=k --cpus=2 \
                      --memory=512 --seed=1 --timeout=9 --boot-timeout=9";
    for option in of_a_guest.split_whitespace() {
        let name = option.split('=').next().unwrap();
        place
            .vmtax("profile --pid 1")
            .arg(option)
            .fails(&["--pid", name, "cannot be used with"]);
    }
    place
        .vmtax("profile --share 9p --dry-run -- cpu")
        .fails(&["works in a tree", "--share"]);
    place
        .vmtax("profile --rounds 3 --dry-run -- cpu")
        .fails(&["runs a workload once", "--rounds"]);
    place
        .vmtax("profile --rounds 1 --machine tcg --dry-run -- cpu")
        .succeeds()
        .shows("rounds = 1");
    assert!(
        !place
            .vmtax("profile --help")
            .succeeds()
            .stdout
            .contains("--rounds")
    );
}

#[test]
fn a_folder_that_will_not_do_is_told_before_the_time_is_spent() {
    let place = Place::new();
    place.put("held/file", "");
    place.put("file", "");
    let sleeper = place.program("sleep").arg("60").start(60);
    let of_process = |out: &str| {
        format!(
            "profile --duration 50 --output {out} --pid {}",
            sleeper.pid()
        )
    };
    for words in [
        of_process("held"),
        "profile --machine tcg --output held -- cpu".to_owned(),
    ] {
        let outcome = place
            .vmtax(&words)
            .fails(&["held contains files already", "--output"]);
        assert!(outcome.took.as_secs() < 10, "{outcome}");
    }
    place
        .vmtax(&of_process("file/in"))
        .fails(&["cannot write file/in", "choose a directory"]);
    place
        .vmtax(&of_process("/proc/none"))
        .fails(&["/proc/none", "--output"]);
    place
        .vmtax("profile import absent --output held")
        .fails(&["held contains files already"]);
    // What was made to see whether it can be made is gone; what was there is not.
    fs::create_dir(place.path("empty")).unwrap();
    for out in ["new/folder", "empty"] {
        place
            .vmtax(&format!("profile import absent --output {out}"))
            .fails(&["absent"]);
    }
    place.vmtax("profile import absent").fails(&["absent"]);
    assert!(
        place.path("empty").exists() && !place.path("new").exists() && !place.path("runs").exists()
    );
}

#[test]
fn a_guest_of_its_own_is_looked_at_while_it_works() {
    kernel();
    let place = Place::new();
    place
        .vmtax("profile -- cpu threads")
        .fails(&["one workload once"]);
    let words = "profile --json --machine tcg --hz 499 --output out --dir runs -- disk time=3";
    let found = json(&place.vmtax(words).start(120).outcome().exits(0).stdout);
    // Distributions' QEMUs are stripped and without frame pointers.
    assert!(
        found["unwound"]["share"].as_f64().unwrap() > 0.95,
        "{:#}",
        found["unwound"]
    );
    let translated = found["translated_samples"].as_u64().unwrap();
    assert!(
        translated > 10 && found["translated_unwound"]["share"].as_f64().unwrap() > 0.9,
        "{found:#}"
    );
    let vcpu = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .any(|t| t["name"] == "vCPU 0")
    };
    assert!(
        vcpu(&found["threads"]) && vcpu(&found["wall"]["threads"]),
        "{found:#}"
    );
    let folded = fs::read_to_string(place.path("out/on-cpu.folded")).unwrap();
    let below = |line: &str| line.starts_with("vCPU 0;") && line.contains(";[translated code]_[j]");
    assert!(folded.lines().any(below), "{folded}");
}
