//! `vmtax tune` of a guest that is booted for it: the planted setting is found and kept, what has no effect is not, and what is
//! handed over is what a QEMU takes.

use crate::common::{Place, Start, is_root, json, kvm_guest_options, skipped};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use vmtax_model::testing::KvmGuest;

fn row<'a>(found: &'a Value, name: &str) -> &'a Value {
    let rows = found["candidates"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {found:#}"))
}

pub(crate) fn kept(found: &Value) -> Vec<&str> {
    let rows = found["candidates"].as_array().unwrap().iter();
    rows.filter(|row| row["verdict"] == "keep")
        .map(|row| row["name"].as_str().unwrap())
        .collect()
}

/// The lines of a handed-over file that are no comments, for this disk.
fn arguments(folder: &Path, disk: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("tuned/qemu.args")).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let words = lines.flat_map(|line| {
        line.split_once(' ')
            .map(|(option, value)| [option, value])
            .unwrap()
    });
    words
        .map(|word| {
            word.replace("DISK", &disk.display().to_string())
                .replace("FORMAT", "raw")
        })
        .collect()
}

/// Checks that a QEMU starts with these arguments.
fn starts(place: &Place, arguments: &[String]) {
    let quit = fs::File::open(place.put("quit", "quit\n")).unwrap();
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-M",
        "q35",
        "-nodefaults",
        "-display",
        "none",
        "-S",
        "-monitor",
        "stdio",
    ])
    .args(arguments);
    let output = qemu.stdin(quit).output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_limit_is_found_and_removed_and_what_else_is_kept_is_faster() {
    let place = Place::new();
    fs::create_dir(place.path("runs")).unwrap();
    let words = "tune --machine micro-tcg --from throttling.iops-total=400 --json --output out -- disk count=120 time=0";
    let outcome = place.vmtax(words).start(300).outcome().exits(0);
    let outcome = outcome
        .says(" changes against the baseline")
        .says("confirmation of without throttling.iops-total");
    let found = json(&outcome.stdout)["findings"].clone();
    let kept = kept(&found);
    assert!(kept.contains(&"without throttling.iops-total"), "{found:#}");
    // Another change may be faster here, too (io_uring for threads), but none is kept that fresh boots do not confirm.
    for name in kept {
        let interval = &row(&found, name)["confirmation"]["ratio"]["interval"];
        assert!(
            interval["high"].as_f64().is_some_and(|high| high < 1.0),
            "{name}: {found:#}"
        );
    }
    let high = found["total"]["ratio"]["interval"]["high"]
        .as_f64()
        .unwrap();
    assert!(high < 0.95, "{:#}", found["total"]);
    let (before, after) = (
        found["before"].as_f64().unwrap(),
        found["after"].as_f64().unwrap(),
    );
    assert!(before < 800.0 && after > 1.5 * before, "{before} {after}");
    // On boots that the screening never had.
    let parts = json(&outcome.stdout)["plan"]["tune-guest"]["part"]
        .as_array()
        .unwrap()
        .clone();
    let first_round = |phase: &str| {
        parts.iter().find(|part| part["phase"] == phase).unwrap()["first-round"].as_u64()
    };
    assert!(first_round("confirmation") >= Some(3), "{parts:?}");
    let report = place.vmtax("report out").succeeds();
    report
        .shows("disk IOPS")
        .shows("without throttling.iops-total")
        .shows("tuned/qemu.args");
    let folder = place.path("out");
    assert!(
        fs::read_to_string(folder.join("report.html"))
            .unwrap()
            .contains("(medians)")
    );
    let disk = place.put("disk.raw", vec![0; 1 << 20]);
    let words = arguments(&folder, &disk);
    assert!(
        words.join(" ").contains("cache=") && !words.join(" ").contains("throttling"),
        "{words:?}"
    );
    starts(&place, &words);
    assert!(
        fs::read_to_string(folder.join("tuned/libvirt.xml"))
            .unwrap()
            .contains("Remove <iotune>")
    );
    let undo = fs::read_to_string(folder.join("tuned/UNDO.md")).unwrap();
    assert!(
        undo.contains("| `throttling.iops-total=0` | `throttling.iops-total=400` |"),
        "{undo}"
    );
    place.vmtax("list --dir .").succeeds().shows("tune-guest");
    // What it kept is remembered, though it lies elsewhere.
    let history = json(&place.vmtax("history disk.iops --json").succeeds().stdout);
    let run = &history["series"][0]["figures"][0]["run"];
    assert_eq!(
        run["folder"],
        folder.canonicalize().unwrap().display().to_string(),
        "{history:#}"
    );
    assert_eq!(run["recorded"], true, "{run:#}");
    place.nothing_is_left();
}

#[test]
fn the_layer_that_moved_with_what_is_kept_is_traced_in_a_recording_of_its_own() {
    let place = Place::new();
    // The limit alone can be removed live.
    let words = "tune --machine micro-tcg --allow live --from throttling.iops-total=40 --layers -- disk count=20 time=0";
    let outcome = place.vmtax(words).start(300).outcome().exits(0);
    match is_root() {
        true => outcome.says("layers: QEMU "),
        false => outcome.says("layers: "),
    };
    place.vmtax("list").succeeds().shows("tune-layers");
    place
        .vmtax("tune --layers -- cpu")
        .fails(&["--layers", "disk"]);
    place.nothing_is_left();
}

/// The machine on which that kernel's guest boots fastest.
const MICROVM: &str = "--machine-type microvm,pcie=on,rtc=on,acpi=on --memory 512M";

/// The words of that kernel's guest.
fn guest<'a>(start: Start<'a>, guest: &KvmGuest) -> Start<'a> {
    start
        .words("--machine kvm --kernel")
        .arg(&guest.kernel)
        .words(&kvm_guest_options())
}

#[test]
fn a_cache_that_writes_through_is_found_by_a_plan_and_its_remedy_handed_over() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let start = guest(place.vmtax("tune"), &kernel).words(MICROVM);
    let plan = start
        .words("--from cache=writethrough --slice 0.2 --dry-run -- disk rw=randwrite")
        .succeeds()
        .stdout;
    let mut plan: toml::Table = plan.parse().unwrap();
    // The planted one alone, for the time's sake.
    let tune = plan["tune-guest"].as_table_mut().unwrap();
    let few = |one: &toml::Value| one["name"].as_str() == Some("cache=writeback");
    tune["candidate"].as_array_mut().unwrap().retain(few);
    let plan = place.put("plan.toml", toml::to_string(&plan).unwrap());
    let outcome = place
        .vmtax("run --json --output out")
        .arg(&plan)
        .start(300)
        .outcome()
        .exits(0);
    let found = json(&outcome.stdout)["findings"].clone();
    if found["before"].as_f64().is_none()
        && row(&found, "cache=writeback")["verdict"] == "inconclusive"
    {
        return skipped("writes are not slower here for being flushed");
    }
    assert_eq!(kept(&found), ["cache=writeback"], "{found:#}");
    assert!(
        found["total"]["ratio"]["interval"]["high"]
            .as_f64()
            .unwrap()
            < 1.0,
        "{:#}",
        found["total"]
    );
    let folder = place.path("out");
    let words = arguments(&folder, &place.put("disk.raw", vec![0; 1 << 20])).join(" ");
    assert!(words.contains("aio=threads,cache=writeback"), "{words}");
    assert!(
        fs::read_to_string(folder.join("tuned/libvirt.xml"))
            .unwrap()
            .contains("cache='writeback'")
    );
    // A finished tuning's plan tunes again.
    let again = place
        .vmtax("run --dry-run")
        .arg(folder.join("plan.toml"))
        .succeeds();
    again.shows("[tune-guest]");
}

/// Tunes a guest for which settings are planted, with the remedy as the only candidate, and gives what was found.
fn proved(place: &Place, kernel: &KvmGuest, words: &str, remedy: &str) -> Value {
    let plan = guest(place.vmtax("tune"), kernel)
        .words(MICROVM)
        .words("--slice 0.2 --dry-run")
        .words(words)
        .succeeds()
        .stdout;
    let mut plan: toml::Table = plan.parse().unwrap();
    let tune = plan["tune-guest"].as_table_mut().unwrap();
    tune["candidate"]
        .as_array_mut()
        .unwrap()
        .retain(|one| one["name"].as_str() == Some(remedy));
    let plan = place.put("plan.toml", toml::to_string(&plan).unwrap());
    let outcome = place
        .vmtax("run --json --output out")
        .arg(&plan)
        .start(300)
        .outcome()
        .exits(0);
    let found = json(&outcome.stdout)["findings"].clone();
    assert_eq!(kept(&found), [remedy], "{found:#}");
    // Below 1 as a whole: how far below depends on what else this host does.
    assert!(
        found["total"]["ratio"]["interval"]["high"]
            .as_f64()
            .unwrap()
            < 1.0,
        "{found:#}"
    );
    found
}

#[test]
fn a_user_network_is_found_and_a_tap_handed_over() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    if !is_root() {
        return skipped("a tap takes root");
    }
    let place = Place::new();
    proved(
        &place,
        &kernel,
        "--from backend=user -- net-stream",
        "backend=tap",
    );
    let text = fs::read_to_string(place.path("out/tuned/guest.md")).unwrap();
    assert!(
        text.contains("| `backend=tap` | `-netdev tap,") && text.contains("| `backend=user` |"),
        "{text}"
    );
    // Nothing of a disk was measured.
    assert!(!place.path("out/tuned/qemu.args").exists());
    place
        .vmtax("report out")
        .succeeds()
        .shows("backend=tap")
        .shows("tuned/guest.md");
    place.nothing_is_left();
}

#[test]
fn small_messages_of_9p_are_found() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let words = "--from share.cache=loose --from share.msize=8192 --metric tree.large-cold -- tree";
    let found = proved(&place, &kernel, words, "share.msize=512000");
    assert_eq!(found["metric"], "tree.large-cold");
    let text = fs::read_to_string(place.path("out/tuned/guest.md")).unwrap();
    assert!(
        text.contains("mount option in the guest: `msize=512000`"),
        "{text}"
    );
    place.nothing_is_left();
}

#[test]
fn a_command_whose_reads_are_not_read_ahead_is_found_in_parts_of_one_tuning() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let script = "dd if=/dev/zero of=file bs=1M count=16 conv=fsync; echo 3 >/proc/sys/vm/drop_caches; dd if=file of=/dev/null bs=4k\n";
    let script = place.put("read.sh", script);
    let words = format!(
        "--from block-queue.read_ahead_kb=0 -- exec sh {}",
        script.display()
    );
    let found = proved(
        &place,
        &kernel,
        &words,
        "without block-queue.read_ahead_kb=0",
    );
    assert_eq!(found["metric"], "exec.wall");
    place.nothing_is_left();
}

#[test]
fn a_doorbell_that_ends_in_qemu_is_found() {
    let Some(kernel) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    proved(
        &place,
        &kernel,
        "--from ioeventfd=off -- disk rw=randread depth=32",
        "ioeventfd=on",
    );
    let words = arguments(&place.path("out"), &place.put("disk.raw", vec![0; 1 << 20])).join(" ");
    assert!(words.contains("ioeventfd=on"), "{words}");
    place.nothing_is_left();
}

#[test]
fn wrong_words_are_said_in_one_line() {
    let place = Place::new();
    place
        .vmtax("tune -- cpu disk")
        .fails(&["one workload or a command"]);
    place
        .vmtax("tune -- syscalls")
        .fails(&["--metric", "syscalls.getpid"]);
    place
        .vmtax("tune --metric disk.iops -- cpu")
        .fails(&["disk.iops", "cpu.events"]);
    place
        .vmtax("tune --from host.thp=never -- memory")
        .fails(&["host.thp", "--allow"]);
    place
        .vmtax("tune --allow restart --vm 1")
        .fails(&["--allow", "--vm"]);
    place
        .vmtax("tune --metric x --vm 1")
        .fails(&["'x'", "latency"]);
    place.vmtax("tune -- exec").fails(&["name the command"]);
    place
        .vmtax("tune --from cache -- disk")
        .fails(&["KEY=VALUE"]);
    place
        .vmtax("tune --from cpus=2 -- disk")
        .fails(&["--from", "cpus"]);
    place
        .vmtax("tune --machine native -- disk")
        .fails(&["one guest"]);
    place
        .vmtax("tune --rounds 3 -- disk")
        .fails(&["--duration"]);
    place.vmtax("tune --apply -- disk").fails(&["--vm"]);
    place.vmtax("tune --vm 1 -- disk").fails(&["--vm"]);
    assert!(!place.path("runs").exists());
}
