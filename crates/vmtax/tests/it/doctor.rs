//! `vmtax doctor` on this machine, whatever it is.

use crate::common::{Place, Start, binary, json};
use std::time::Duration;

#[test]
fn the_facts_are_there_as_json() {
    let place = Place::new();
    let doctor = json(&place.vmtax("doctor --json").succeeds().stdout);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(doctor["kernel"], release.trim());
    assert!(doctor["memory_mib"].as_u64().unwrap() > 0);
    // Allowed CPUs can be fewer than those online.
    let allowed = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(
        doctor["cpu"]["online"].as_u64().unwrap() >= allowed,
        "{}",
        doctor["cpu"]
    );
    let classes = [
        "hardware",
        "emulates-kernels",
        "broken",
        "absent",
        "no-permission",
    ];
    assert!(
        classes.contains(&doctor["kvm"]["class"].as_str().unwrap()),
        "{}",
        doctor["kvm"]
    );
    let checks = doctor["checks"].as_array().unwrap();
    for check in checks {
        for field in ["id", "subject", "found", "why"] {
            assert!(
                check[field].as_str().is_some_and(|text| !text.is_empty()),
                "{check}"
            );
        }
        let state = check["state"].as_str().unwrap();
        assert!(["ok", "limited", "missing"].contains(&state), "{check}");
        if state == "missing" {
            assert!(
                check["remedies"][0]["action"].is_string(),
                "missing, and nothing said to do: {check}"
            );
        }
    }
    for id in [
        "kvm",
        "qemu",
        "guest-kernel",
        "clocksource",
        "tsc",
        "tracefs",
        "uprobes",
        "perf-event",
        "huge-pages",
    ] {
        assert!(
            checks.iter().any(|check| check["id"] == id),
            "no check {id} in {checks:?}"
        );
    }
}

#[test]
fn people_get_a_line_for_each_fact() {
    let place = Place::new();
    let text = place.vmtax("doctor").succeeds().stdout;
    let facts = json(&place.vmtax("doctor --json").succeeds().stdout);
    for check in facts["checks"].as_array().unwrap() {
        assert!(
            text.contains(check["subject"].as_str().unwrap()),
            "{check}\n{text}"
        );
    }
}

#[test]
fn text_in_a_pipe_is_as_wide_as_columns_says() {
    let place = Place::new();
    let first_line = |start: Start<'_>| {
        let text = start.succeeds().stdout;
        text.lines().next().unwrap().chars().count()
    };
    let widths = ["50", "none"].map(|columns| {
        let doctor = place.vmtax("doctor").env("COLUMNS", columns);
        first_line(doctor)
    });
    assert!(
        widths[0] <= 50 && (51..=100).contains(&widths[1]),
        "{widths:?}"
    );
}

#[test]
fn it_is_quick() {
    let place = Place::new();
    // The bound is 2 s; tests run on loaded machines, benchmarks measure.
    let took = place.vmtax("doctor").succeeds().took;
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn an_ordinary_user_may_ask() {
    let place = Place::new();
    let doctor = place
        .vmtax_as_ordinary_user("doctor --json")
        .env("HOME", place.path("home"))
        .succeeds();
    assert!(
        json(&doctor.stdout)["checks"].as_array().unwrap().len() > 5,
        "{doctor}"
    );
}

/// As with `sudo -E`: whose folder it is could put anything there.
#[test]
#[ignore = "needs root"]
fn root_executes_nothing_out_of_a_cache_of_another_user() {
    let place = Place::new();
    let executed = place.path("executed");
    let qemu = "home/.cache/vmtax/qemus/5.2.0-bullseye";
    place.script(
        &format!("{qemu}/qemu-system-x86_64"),
        &format!("id -u >> {}", executed.display()),
    );
    place.put(&format!("{qemu}/root/bin/qemu-system-x86_64"), "ELF");
    let doctor = |place: &Place| {
        place
            .vmtax("doctor --json")
            .env("HOME", place.path("home"))
            .succeeds()
    };
    // Of root's own it is asked.
    doctor(&place);
    assert!(executed.exists());
    std::fs::remove_file(&executed).unwrap();
    std::os::unix::fs::chown(place.path("home"), Some(65534), None).unwrap();
    let refused = doctor(&place)
        .says("home belongs to user 65534")
        .says("XDG_CACHE_HOME");
    assert!(
        refused.stdout.contains("home belongs to user 65534"),
        "{refused}"
    );
    let qemu = place
        .vmtax("run cpu --machine tcg --rounds 1 --qemu 5.2")
        .env("HOME", place.path("home"));
    qemu.fails(&["5.2", "home belongs to user 65534"]);
    assert!(!executed.exists(), "root executed it");
}

#[test]
fn without_home_and_path_it_still_answers() {
    let place = Place::new();
    let bare = place
        .program("env")
        .arg("-i")
        .arg(binary())
        .words("doctor --json")
        .succeeds();
    json(&bare.stdout);
}

#[test]
fn a_named_qemu_that_is_none_is_said_to_be_none() {
    let place = Place::new();
    let text = place.vmtax("doctor --qemu /nonexistent/qemu").succeeds();
    text.shows("/nonexistent/qemu")
        .shows("apt-get install qemu-system-x86");
}
