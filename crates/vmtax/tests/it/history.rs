//! The history that every run is added to, and what is shown of it.

use crate::common::{Place, files_below, json};
use std::fs;
use std::path::PathBuf;

/// A run of the bare host, in a second.
const RUN: &str = "--machine native --rounds 1 cpu cpu.max-prime=2000 cpu.time=0.05";

fn history<'a>(place: &'a Place, words: &str) -> crate::common::Start<'a> {
    place
        .vmtax("history")
        .arg("--dir")
        .arg(place.runs())
        .words(words)
}

fn files(place: &Place) -> Vec<PathBuf> {
    files_below(&place.runs().join(".history/schema=1"))
}

#[test]
fn runs_are_there_after_their_folders_are_gone() {
    let place = Place::new();
    place.run(RUN).succeeds();
    history(&place, "")
        .succeeds()
        .shows("cpu.events")
        .shows("native");
    let first = place.recording();
    fs::remove_dir_all(&first).unwrap();
    // A folder is called after its second; two of one second would be the same run.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    place.run(RUN).succeeds();
    let shown = history(&place, "cpu.events").succeeds();
    shown
        .shows("2 runs")
        .shows("○")
        .shows("No change can be found in 2 runs yet")
        .shows("max-prime=2000");

    let document = json(&history(&place, "cpu.events --json").succeeds().stdout);
    let figures = &document["series"][0]["figures"];
    assert_eq!(
        figures[0]["run"]["folder"],
        first.file_name().unwrap().to_str().unwrap()
    );
    assert_eq!(
        (
            &figures[0]["run"]["recorded"],
            &figures[1]["run"]["recorded"]
        ),
        (&false.into(), &true.into())
    );
    assert_eq!(figures[0]["facts"]["vmtax"], env!("CARGO_PKG_VERSION"));
    let listed = json(&history(&place, "--json").succeeds().stdout);
    assert_eq!(
        (&listed[0]["metric"], &listed[0]["runs"]),
        (&"cpu.events".into(), &2.into())
    );

    let page = place.path("history.html");
    history(&place, "cpu.events --output")
        .arg(&page)
        .succeeds()
        .shows("Report: ");
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.matches("class=\"gone\"").count() == 1 && page.trim_end().ends_with("</html>"),
        "{page}"
    );
    assert!(!page.contains("://"), "{page}");
}

#[test]
fn other_settings_are_another_series() {
    let place = Place::new();
    place.run(RUN).succeeds();
    place.run(&RUN.replace("2000", "3000")).succeeds();
    let shown = history(&place, "cpu.events").succeeds();
    shown
        .shows("2 series: figures of other")
        .shows("max-prime=3000");
}

#[test]
fn what_cannot_be_shown_is_said() {
    let place = Place::new();
    history(&place, "").fails(&["there is no directory"]);
    place.run(RUN).succeeds();
    history(&place, "cpu.events --machine tcg").fails(&[
        "no run in",
        "on tcg",
        "`vmtax history` lists",
    ]);
    history(&place, "--output page.html").fails(&["METRIC"]);
    history(&place, "cpu.evnets").fails(&["cpu.evnets"]);
}

#[test]
fn a_run_does_not_fail_for_its_history() {
    let place = Place::new();
    place.run(RUN).succeeds();
    let newer = place.runs().join(".history/schema=2");
    fs::create_dir(&newer).unwrap();
    place
        .run(RUN)
        .succeeds()
        .says("Warning: ")
        .says("has schema 2")
        .says("update vmtax, then `vmtax history --dir");
    history(&place, "").fails(&["has schema 2"]);
    fs::remove_dir(&newer).unwrap();
    // What was missing is there now, and what is damaged is moved aside.
    history(&place, "cpu.events").succeeds().shows("2 runs");
    fs::write(&files(&place)[0], "this is no table, and never was one").unwrap();
    history(&place, "cpu.events")
        .succeeds()
        .shows("was damaged")
        .shows(".parquet.damaged-")
        .shows("2 runs");
    let shown = history(&place, "cpu.events").succeeds();
    assert!(!shown.stdout.contains("damaged"), "{shown}");
}

#[test]
fn a_folder_that_cannot_be_written_is_read() {
    let place = Place::new();
    place.run(RUN).succeeds();
    fs::remove_dir_all(place.runs().join(".history")).unwrap();
    let runs = place.runs();
    let ordinary = || {
        place
            .vmtax_as_ordinary_user("history cpu.events --dir")
            .arg(&runs)
    };
    // Recordings are their owner's alone: others are let in by hand.
    let closed = || {
        place
            .program("chmod")
            .words("-R go+rX")
            .arg(&runs)
            .succeeds();
        fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    };
    closed();
    ordinary().succeeds().shows("1 run");
    assert!(files(&place).is_empty());
    fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.run(RUN).succeeds();
    closed();
    // One is in the history, the other is not.
    ordinary().succeeds().shows("2 runs");
    fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_history_of_a_stranger_is_shown_harmlessly() {
    let place = Place::new();
    place.run(RUN).succeeds();
    fs::remove_dir_all(place.runs().join(".history")).unwrap();
    let recording = place.recording();
    let hostile = "\u{1b}[2Jx<script>\u{202e}";
    let host = fs::read_to_string(recording.join("host.json")).unwrap();
    let mut host: serde_json::Value = serde_json::from_str(&host).unwrap();
    host["cpu"]["model"] = hostile.into();
    host["kernel"] = hostile.into();
    fs::write(recording.join("host.json"), host.to_string()).unwrap();
    fs::rename(&recording, recording.with_file_name(hostile)).unwrap();
    let page = place.path("page.html");
    let shown = history(&place, "cpu.events --output").arg(&page).succeeds();
    assert!(
        !shown.stdout.contains('\u{1b}') && !shown.stdout.contains('\u{202e}'),
        "{shown}"
    );
    assert!(shown.stdout.contains("<script>"), "{shown}");
    history(&place, "").succeeds();
    assert!(!fs::read_to_string(page).unwrap().contains("<script>"));
}
