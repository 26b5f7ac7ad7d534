//! `vmtax scale` and `vmtax reproduce` as people use them.

use crate::common::Place;
use std::fs;

#[test]
fn a_range_is_measured_and_shown_again_from_its_files() {
    let place = Place::new();
    let words =
        "scale threads.threads threads.time=0.02 --range 1..4 --machine native --rounds 3 --dir";
    place
        .vmtax(words)
        .arg(place.runs())
        .succeeds()
        .shows("Growth with threads.threads")
        .shows("threads event rate, mean");
    assert_eq!(place.trials(), 9);
    let recording = place.recording();
    let page = fs::read_to_string(recording.join("report.html")).unwrap();
    assert!(page.contains("Growth curves") && page.contains("class=\"law\""));
    let json = place
        .vmtax("report --json")
        .arg(&recording)
        .succeeds()
        .stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        report["plan"]["range"]["steps"],
        serde_json::json!([1, 2, 4])
    );
    assert_eq!(
        report["findings"]["growths"][0]["steps"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    place.nothing_is_left();
}

#[test]
fn all_sizes_are_measured_in_one_boot_in_ascending_order() {
    let place = Place::new();
    let words = "scale threads.threads threads.time=0.02 --range 1,2,4 --one-boot --machine native --rounds 3 --budget 60 --dir";
    place
        .vmtax(words)
        .arg(place.runs())
        .succeeds()
        .shows("in ascending order, which is not randomized");
    assert_eq!(place.trials(), 9);
    let recording = place.recording();
    let turns = fs::read_dir(recording.join("turns")).unwrap().count();
    assert_eq!(turns, 3, "a boot for each round");
    let json = place
        .vmtax("report --json")
        .arg(&recording)
        .succeeds()
        .stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["plan"]["range"]["one_boot"], serde_json::json!(true));
    let sizes: Vec<u64> = report["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["step"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [1, 2, 4, 1, 2, 4, 1, 2, 4]);
    place
        .vmtax("scale guest.cpus threads --range 1,2,4 --one-boot")
        .fails(&["cannot grow while the guest runs"]);
    place.nothing_is_left();
}

#[test]
fn what_is_no_range_is_refused_with_the_reason() {
    let place = Place::new();
    for (words, why) in [
        ("scale threads.threads --range 8..1", "does not rise"),
        ("scale threads.threads --range 4", "give 3 to 64"),
        ("scale threads.threads --range 1,4,2", "does not rise"),
        ("scale threads.nothing --range 1..4", "no option 'nothing'"),
        ("scale disk.depth --range 1..64", "disk.depth=64"),
        ("scale guest.cpus --range 1..4", "name what runs"),
        ("scale threads.threads", "nothing grows"),
    ] {
        place.vmtax(words).fails(&[why]);
    }
}

#[test]
fn sizes_that_a_budget_does_not_allow_are_left_out_and_named() {
    let place = Place::new();
    let words = "scale threads.threads threads.time=0.3 --range 1,2,4,8,16 --machine native --rounds 8 --budget 6 --dir";
    let outcome = place.vmtax(words).arg(place.runs()).succeeds();
    let left_out = "threads.threads 8, 16: left out, six rounds would exceed the budget of 6 s";
    assert!(outcome.stderr.contains(left_out), "{}", outcome.stderr);
    outcome.shows(left_out);
    let json = place
        .vmtax("report --json")
        .arg(place.recording())
        .succeeds()
        .stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let range = &report["plan"]["range"];
    assert_eq!(
        [&range["steps"], &range["left_out"]],
        [&serde_json::json!([1, 2, 4]), &serde_json::json!([8, 16])]
    );
    // Three sizes are measured for an interval, whatever they take; the rounds after that have no time left.
    assert!((18..24).contains(&place.trials()), "{}", place.trials());
}

#[test]
fn a_step_that_the_machine_refuses_is_named_and_the_rest_runs() {
    let place = Place::new();
    let words = "scale guest.cpus syscalls syscalls.only=getpid syscalls.time=0.01 --range 1,2,1000 --machine native --rounds 2 --dir";
    let outcome = place.vmtax(words).arg(place.runs()).fails(&["1000"]);
    outcome.shows("guest.cpus=1000 on native");
    assert_eq!(place.trials(), 6);
}

#[test]
fn published_results_are_listed_and_shown() {
    let place = Place::new();
    place
        .vmtax("reproduce list")
        .succeeds()
        .shows("9p-fids")
        .shows("sysbench-five");
    place
        .vmtax("reproduce show 9p-fids")
        .succeeds()
        .shows("278,000")
        .shows("[range]");
    place
        .vmtax("reproduce nothing")
        .fails(&["there is no published result 'nothing'"]);
}
