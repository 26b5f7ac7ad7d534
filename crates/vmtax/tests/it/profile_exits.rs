//! VM exits of real guests of KVM: the micro-guest makes known ones, each with its cost and fix.

use crate::common::boot_guest::{BootGuest, polling_firmware, reading};
use crate::common::{Place, Running, is_root, json, skipped};
use serde_json::Value;
use std::fs::{self, File};

/// Number of times that each antipattern and each fix is executed; an order is given three times: all, one, all.
const COUNT: u64 = 500;
const EACH: u64 = 2 * COUNT + 1;
/// Lines about interrupts, at most 50 times as they take long.
const LINE_BYTES: u64 = 32 * (2 * 50 + 1);

/// Returns true if exits can be traced on this host; elsewhere the other tests here have nothing to check.
fn can_trace() -> bool {
    let can = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_ok();
    if !can {
        skipped("needs KVM");
    }
    can
}

fn found(place: &Place, words: &str) -> Value {
    let words = format!("profile --json --machine micro-kvm {words}");
    let found = json(&place.vmtax(&words).start(180).outcome().exits(0).stdout);
    assert!(!found["exits"].is_null(), "{:#}", found["missing"]);
    found
}

fn profile(place: &Place, words: &str) -> Value {
    let exits = found(place, words)["exits"].clone();
    assert_eq!(exits["lost"], 0, "{exits:#}");
    exits
}

fn count(exits: &Value, address: u64, write: bool) -> Option<(u64, &Value)> {
    let all = exits["addresses"].as_array().unwrap();
    let found = all
        .iter()
        .find(|a| a["address"] == address && a["write"] == write)?;
    Some((found["count"].as_u64().unwrap(), found))
}

fn costs(exits: &Value) -> Vec<&str> {
    exits["advice"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["rule"].as_str().unwrap())
        .collect()
}

#[test]
#[ignore = "needs root"]
fn known_exits_are_counted_at_their_devices_and_each_cost_has_its_fix() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let exits = profile(&place, &format!("-- guest-antipatterns count={COUNT}"));
    assert_eq!(exits["devices_from"], "memory-tree");
    let known = [
        (0x3f8, true, 2 * EACH + LINE_BYTES, "serial", "data"),
        (0x3fd, false, EACH + LINE_BYTES, "serial", "line status"),
        (0x3d4, true, 2 * EACH, "vga", "CRT controller"),
        (0x3d5, true, 2 * EACH, "vga", "CRT controller"),
        (0xb008, false, EACH, "acpi-tmr", "PM timer"),
        (0xfed0_00f0, false, EACH, "hpet", "main counter"),
    ];
    for (address, write, expected, device, register) in known {
        let (counted, found) =
            count(&exits, address, write).unwrap_or_else(|| panic!("no {address:#x}: {exits:#}"));
        assert_eq!(counted, expected, "{address:#x} {exits:#}");
        assert_eq!(
            (&found["device"], &found["register"]),
            (&device.into(), &register.into()),
            "{found:#}"
        );
        // All of these are QEMU's to serve, and take it some time.
        assert_eq!(found["user"].as_u64().unwrap(), expected, "{found:#}");
        assert!(
            found["mean_ns"].as_f64().is_some_and(|ns| ns > 500.0),
            "{found:#}"
        );
    }
    let all: u64 = exits["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["count"].as_u64().unwrap())
        .sum();
    assert_eq!(exits["vcpus"].as_array().unwrap().len(), 1);
    assert_eq!(
        exits["vcpus"][0]["count"].as_u64().unwrap(),
        all,
        "{exits:#}"
    );
    let costs = costs(&exits);
    // The clocks are read for less than a hundredth of the time here; below they are.
    for cost in ["uart-polling", "vga-cursor", "eoi", "fast-tick"] {
        assert!(costs.contains(&cost), "no {cost} among {costs:?}");
    }
    assert!(!costs.contains(&"notify-without-ioeventfd"), "{costs:?}");
}

/// Antipatterns that exits cannot show are found by the code that the CPU executes: divisions, a lock, copies.
#[test]
#[ignore = "needs root"]
fn a_guest_of_antipatterns_has_each_named_and_one_of_fixes_has_none() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let antipatterns = found(
        &place,
        "--output antipatterns --wall-hz 49 -- guest-antipatterns form=antipattern time=1",
    );
    let named = [costs(&antipatterns["exits"]), costs(&antipatterns["code"])].concat();
    for cost in [
        "uart-polling",
        "serial-output",
        "vga-cursor",
        "fast-tick",
        "eoi",
        "pm-timer-clock",
        "hpet-clock",
        "division",
        "lock-saves-interrupts",
        "small-copies",
    ] {
        assert!(named.contains(&cost), "no {cost} among {named:?}");
    }
    let places = antipatterns["code"]["places"].as_array().unwrap();
    for instruction in ["div r15", "in al,dx"] {
        let is_done = |place: &Value| place["done"].as_str().unwrap().contains(instruction);
        assert!(
            places.iter().any(is_done),
            "{instruction} was never just done: {places:#?}"
        );
    }
    let fixes = found(
        &place,
        "--output fixes --wall-hz 49 -- guest-antipatterns form=fix time=0.5",
    );
    assert!(
        fixes["code"]["looks"].as_u64().unwrap() > 20,
        "{:#}",
        fixes["code"]
    );
    assert_eq!(
        costs(&fixes["code"]),
        Vec::<&str>::new(),
        "{:#}",
        fixes["code"]
    );
}

#[test]
#[ignore = "needs root"]
fn a_disk_whose_notifications_qemu_takes_is_a_finding_and_one_of_ioeventfds_is_none() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let plan = |ioeventfd: &str| {
        format!(
            "rounds = 1\nmachines = [\"micro-kvm\"]\n[[variant]]\nname = \"x\"\n[variant.set]\nioeventfd = \"{ioeventfd}\"\n\
             [[workload]]\nname = \"disk\"\noptions = {{ count = 2000 }}\n"
        )
    };
    for (ioeventfd, is_found) in [("off", true), ("on", false)] {
        place.put(&format!("{ioeventfd}.toml"), plan(ioeventfd));
        let exits = profile(&place, &format!("--output {ioeventfd} -- {ioeventfd}.toml"));
        let (notified, found) = count(&exits, 0xc010, true).unwrap_or_else(|| panic!("{exits:#}"));
        assert_eq!(
            (notified, &found["register"]),
            (2000, &"queue notify".into()),
            "{found:#}"
        );
        let costs = costs(&exits);
        assert_eq!(
            costs.contains(&"notify-without-ioeventfd"),
            is_found,
            "{ioeventfd}: {costs:?}"
        );
        for other in [
            "uart-polling",
            "serial-output",
            "vga-cursor",
            "pm-timer-clock",
            "hpet-clock",
            "fast-tick",
        ] {
            assert!(!costs.contains(&other), "{costs:?}");
        }
    }
}

/// A QEMU of somebody else's: firmware that checks its machine.
fn booting<'a>(place: &'a Place, more: &str) -> Running<'a> {
    let words = "-nodefaults -display none -machine pc -accel kvm -m 64 -serial null";
    let mut running = place
        .program("qemu-system-x86_64")
        .words(words)
        .words(more)
        .start(60);
    let files = format!("/proc/{}/fd", running.pid());
    running.until("a vCPU", |_| {
        let mut names = fs::read_dir(&files)
            .ok()?
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        names.find(|name| name.to_string_lossy().contains("kvm-vcpu"))
    });
    running
}

#[test]
#[ignore = "needs root"]
fn devices_of_a_foreign_qemu_have_names_from_its_monitor_or_from_their_usual_places() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let profile_of = |running: &Running<'_>, out: &str| {
        let words = format!(
            "profile --json --stop-threads --duration 1 --output {out} --pid {}",
            running.pid()
        );
        json(&place.vmtax(&words).succeeds().stdout)
    };
    for (more, from) in [
        ("-qmp unix:q.sock,server=on,wait=off", "memory-tree"),
        ("", "usual-places"),
    ] {
        let running = booting(&place, more);
        let found = profile_of(&running, from);
        let exits = &found["exits"];
        assert_eq!(exits["devices_from"], from, "{found:#}");
        let missing = found["missing"].to_string().contains("no QMP monitor");
        assert_eq!(missing, from == "usual-places", "{:#}", found["missing"]);
        // A KVM that forgets breakpoints is not asked.
        let refused = found["missing"].to_string().contains("breakpoint");
        assert_eq!(
            found["code"].is_null(),
            refused || from == "usual-places",
            "{:#}",
            found["missing"]
        );
        // Without a monitor they are debugfs' to tell, which a host may forbid.
        let counted = exits["counters"]["exits"].as_u64();
        assert!(
            from == "usual-places" || counted.is_some_and(|n| n > 0),
            "{:#}",
            exits["counters"]
        );
        drop(running);
    }
}

#[test]
fn a_process_without_a_guest_has_no_exits() {
    let place = Place::new();
    let sleeper = place.program("sleep").arg("60").start(60);
    sleeper.settled();
    let words = format!(
        "profile --json --duration 0.5 --output out --pid {}",
        sleeper.pid()
    );
    let found = json(&place.vmtax(&words).succeeds().stdout);
    let missing = found["missing"].as_array().unwrap();
    // An ordinary user may lack the scheduler's events.
    assert!(
        found["exits"].is_null() && (missing.is_empty() || !is_root()),
        "{found:#}"
    );
}

#[test]
fn the_case_of_antipatterns_has_a_verdict_for_each() {
    let place = Place::new();
    let run = place
        .vmtax("reproduce guest-antipatterns --quick --json --rounds 1 --dir")
        .arg(place.runs());
    // 1: a busy host hides a claim's small difference; each claim has its verdict all the same.
    let outcome = run.start(300).outcome();
    assert!(matches!(outcome.status, Some(0 | 1)), "{outcome}");
    let report = json(&outcome.stdout);
    let rows = report["case"]["rows"].as_array().unwrap();
    assert!(
        rows.len() > 10
            && rows
                .iter()
                .all(|row| !row["why"].as_str().unwrap().is_empty()),
        "{rows:#?}"
    );
    let machines = report["findings"]["machines"].as_array().unwrap();
    for (machine, row) in machines.iter().flat_map(|m| {
        m["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(move |row| (m, row))
    }) {
        let measured = ["before", "after"].iter().all(|form| {
            row[form]["ns"]["median"]
                .as_f64()
                .is_some_and(|ns| ns > 0.0)
        });
        assert!(
            measured || !row["why"].as_str().unwrap().is_empty(),
            "{row:#}"
        );
        let kvm = machine["machine"] == "micro-kvm";
        assert!(
            kvm || row["before"]["exits"].is_null(),
            "TCG has no exits: {row:#}"
        );
        // KVM's own counts are exact except the host's interrupts, of which a busy host has more the longer it takes.
        let spared =
            |row: &Value| Some(row["before"]["exits"].as_f64()? - row["after"]["exits"].as_f64()?);
        let exact = [
            ("uart-polling", 1.0),
            ("cursor-moves", 4.0),
            ("pm-timer-clock", 1.0),
            ("hpet-clock", 1.0),
        ];
        if let Some((_, exits)) = exact
            .iter()
            .find(|(antipattern, _)| row["antipattern"] == *antipattern)
            .filter(|_| kvm)
        {
            assert!(
                spared(row).is_none_or(|spared| (exits - 0.5..2.0 * exits + 1.0).contains(&spared)),
                "{row:#}"
            );
        }
    }
    place
        .vmtax("report")
        .arg(place.recording())
        .outcome()
        .shows("antipattern, → fix")
        .shows("claims");
}

/// A VM that somebody else started, asked for its exits alone: the most frequent is the one that its guest makes for ever.
#[test]
#[ignore = "needs root"]
fn a_running_vms_exits_are_counted_by_device_with_the_remedy() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let more = format!(
        "-serial null -bios {}",
        place.put("rom", polling_firmware()).display()
    );
    let vm = BootGuest::start(&place, "polls", "kvm", &reading([0, 0]), "", &more);
    vm.ask("cont");
    let words = format!("exits --vm {} --duration 3 --json --output out", vm.pid());
    let report = json(&place.vmtax(&words).succeeds().stdout);
    let exits = &report["findings"]["exits"];
    assert_eq!(
        (&report["findings"]["vm"]["name"], &exits["devices_from"]),
        (&"polls".into(), &"memory-tree".into())
    );
    let (reads, found) = count(exits, 0x3fd, false).unwrap_or_else(|| panic!("{exits:#}"));
    assert!(reads > 1000, "{:#}", exits["addresses"]);
    assert_eq!(
        (&found["device"], &found["register"]),
        (&"serial".into(), &"line status".into())
    );
    let sent = count(exits, 0x3f8, true).map_or(0, |(sent, _)| sent);
    assert!(
        exits["lost"] != 0 || reads.abs_diff(sent) <= 1,
        "{reads} {sent}"
    );
    assert!(costs(exits).contains(&"uart-polling"), "{:?}", costs(exits));
    let text = place.vmtax("report out").succeeds();
    text.shows("polls makes")
        // Beside other load a vCPU has exits that are no access: then accesses and exits are counted together.
        .shows(" a second")
        .shows("serial");
}
