//! The history that every run is added to, and what is shown of it; recordings of several hosts as one dataset, and which of them
//! `fleet` names.

use crate::common::{Place, files_below, json};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

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
        .shows("2 runs, too few to find a change (8 needed)")
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

/// A small recording of this host.
pub(crate) fn recording(place: &Place) -> PathBuf {
    place
        .run("cpu max-prime=1500 time=0.1 --machine native --rounds 2")
        .succeeds();
    place.recording()
}

/// The recording as one of another host and day, its figures multiplied.
fn copy(place: &Place, recording: &Path, host: &str, started: &str, factor: f64) -> PathBuf {
    let copy = place.path(&format!(
        "copies/{}",
        fs::read_dir(place.path("copies")).map_or(0, Iterator::count)
    ));
    for file in files_below(recording) {
        let mut bytes = fs::read(&file).unwrap();
        let edit: Option<&dyn Fn(&mut Value)> = match file.file_name().unwrap().to_str().unwrap() {
            "host.json" => Some(&|all| all["identity"] = json!({ "name": host, "id": null })),
            "run.json" => Some(&|all| all["started"] = started.into()),
            "trial.json" => Some(&|all| {
                for measure in all["result"]["measures"].as_array_mut().unwrap() {
                    measure["value"] = (measure["value"].as_f64().unwrap() * factor).into();
                }
            }),
            _ => None,
        };
        if let Some(edit) = edit {
            let mut all = json(std::str::from_utf8(&bytes).unwrap());
            edit(&mut all);
            bytes = all.to_string().into_bytes();
        }
        place.put(
            copy.join(file.strip_prefix(recording).unwrap())
                .to_str()
                .unwrap(),
            bytes,
        );
    }
    copy
}

/// Gives the host of a recording this microcode.
fn set_microcode(recording: &Path, microcode: &str) {
    let path = recording.join("host.json");
    let mut all = json(&fs::read_to_string(&path).unwrap());
    all["cpu"]["microcode"] = microcode.into();
    fs::write(path, all.to_string()).unwrap();
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files_below(folder)
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn exporting_again_changes_nothing_and_a_damaged_recording_keeps_no_other_out() {
    let place = Place::new();
    let recording = recording(&place);
    let export = |dataset: &str| {
        place
            .vmtax("export --dataset")
            .arg(dataset)
            .arg("no-recording")
            .arg(&recording)
    };
    export("dataset").fails(&[
        "there is no directory no-recording",
        "1 of 2 recordings, 2 files written, 0 unchanged",
    ]);
    let before = contents(&place.path("dataset"));
    assert_eq!(before.len(), 2, "{:?}", before.keys());
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let is_plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let host = format!("/host={name}/");
    assert!(
        !is_plain
            || before
                .keys()
                .all(|path| path.to_string_lossy().contains(&host)),
        "{:?}",
        before.keys()
    );

    let written = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let times: Vec<_> = before.keys().map(written).collect();
    fs::rename(&recording, place.path("renamed")).unwrap();
    place
        .vmtax("export renamed --dataset dataset")
        .succeeds()
        .says("0 files written, 2 unchanged");
    assert_eq!(contents(&place.path("dataset")), before);
    assert_eq!(before.keys().map(written).collect::<Vec<_>>(), times);

    place
        .vmtax("export renamed --dataset hashed --hash-host")
        .succeeds();
    for path in files_below(&place.path("hashed")) {
        let host = path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        let hash = host.strip_prefix("host=").unwrap();
        assert!(
            hash.len() == 16 || hash == "__HIVE_DEFAULT_PARTITION__",
            "{host}"
        );
    }
    place
        .vmtax("export renamed --hash-host")
        .fails(&["--dataset"]);
    place
        .vmtax("export renamed renamed --parquet a.parquet")
        .fails(&["name one"]);
}

#[test]
fn history_has_the_runs_of_a_dataset_once() {
    let place = Place::new();
    let recording = recording(&place);
    let runs = [("db-1", 1.0), ("db-2", 2.0), ("db-2", 2.0)];
    let copies = runs.iter().zip(0..).map(|((host, factor), day)| {
        copy(
            &place,
            &recording,
            host,
            &format!("2026-11-2{day}T12:00:00Z"),
            *factor,
        )
        .display()
        .to_string()
    });
    let all = [vec![recording.display().to_string()], copies.collect()].concat();
    place
        .vmtax("export --dataset dataset")
        .words(&all.join(" "))
        .succeeds()
        .says("4 of 4 recordings");
    let import = |words: &str| place.vmtax("import --dataset dataset").words(words);
    // The run that was recorded here is known by its recording.
    let dir = place.runs().display().to_string();
    import(&format!("--dir {dir}"))
        .succeeds()
        .shows("3 runs added, 1 already known")
        .shows("vmtax history --dir");
    import(&format!("--dir {dir}"))
        .succeeds()
        .shows("0 runs added, 4 already known");
    import("--host db-2 --dir other")
        .succeeds()
        .shows("2 runs added, 0 already known");
    let figures = |dir: &str| {
        let history = json(
            &place
                .vmtax("history cpu.events --json --dir")
                .arg(dir)
                .succeeds()
                .stdout,
        );
        let series = history["series"].as_array().unwrap().clone();
        assert_eq!(series.len(), 1, "{history}");
        series[0]["figures"].as_array().unwrap().clone()
    };
    let here = figures(&dir);
    let figures_of_host = |host: &str| {
        here.iter()
            .filter(|f| f["facts"]["host"] == host)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (
            here.len(),
            figures_of_host("db-1").len(),
            figures_of_host("db-2").len()
        ),
        (4, 1, 2),
        "{here:?}"
    );
    // The figure of the recording itself is the last: both runs have the same conditions.
    let recorded = here
        .iter()
        .find(|figure| figure["run"]["recorded"] == true)
        .unwrap();
    assert_eq!(
        (
            &figures_of_host("db-1")[0]["value"],
            &figures_of_host("db-1")[0]["n"]
        ),
        (&recorded["value"], &recorded["n"])
    );
    assert_eq!(
        figures_of_host("db-1")[0]["facts"]["host kernel"],
        recorded["facts"]["host kernel"]
    );
    let factor = figures_of_host("db-2")[0]["value"]["median"]
        .as_f64()
        .unwrap()
        / recorded["value"]["median"].as_f64().unwrap();
    assert!((factor - 2.0).abs() < 1e-9, "{factor}");
    assert_eq!(figures("other").len(), 2);
    import("--host db-3").fails(&["no runs of host db-3; hosts in it: "]);
    import("a.dat").fails(&["--dataset"]);
    place.vmtax("import").fails(&["FILE"]);
}

/// Makes `dataset`: four runs of each of eight hosts, of which the fourth takes twice the time.
pub(crate) fn put_dataset_with_a_slow_host(place: &Place, recording: &Path) {
    let mut copies = String::new();
    for host in 0..8 {
        for run in 0..4 {
            // A rate: half of it is twice the cost.
            let level = if host == 3 {
                0.5
            } else {
                1.0 + 0.001 * f64::from(host)
            };
            let factor = level * (1.0 + 0.0001 * f64::from(run));
            let started = format!("2026-11-2{run}T12:00:0{host}Z");
            let name = if host == 3 {
                "slow\u{1b}[2J".to_owned()
            } else {
                format!("host-{host}")
            };
            let copy = copy(place, recording, &name, &started, factor);
            set_microcode(&copy, if host == 3 { "0x1" } else { "0x2" });
            copies += &format!("{} ", copy.display());
        }
    }
    place
        .vmtax("export --dataset dataset")
        .words(&copies)
        .succeeds()
        .says("32 of 32 recordings");
}

/// Adds 14 runs of a host to the history in `runs`, one a day, of which the last seven take half as long again.
pub(crate) fn put_history_with_a_change(place: &Place, recording: &Path) {
    let mut copies = String::new();
    for run in 0..14 {
        let factor = if run < 7 { 1.0 } else { 0.67 } * (1.0 + 0.001 * f64::from(run % 3));
        let started = format!("2026-11-{}T12:00:00Z", run + 10);
        let copy = copy(place, recording, "host", &started, factor);
        copies += &format!("{} ", copy.display());
    }
    let exported = place.vmtax("export --dataset past").words(&copies);
    exported.succeeds().says("14 of 14 recordings");
    let imported = place.vmtax("import --dataset past --dir runs");
    imported.succeeds();
}

#[test]
fn fleet_names_the_slow_host_and_what_it_could_not_read() {
    let place = Place::new();
    put_dataset_with_a_slow_host(&place, &recording(&place));
    let found = json(&place.vmtax("fleet dataset --json").succeeds().stdout);
    let outliers: Vec<&Value> = found["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|h| h["verdict"] != "typical")
        .collect();
    assert!(
        outliers.len() == 1 && outliers[0]["host"] == "slow\u{1b}[2J",
        "{found}"
    );
    assert_eq!(outliers[0]["verdict"], "slower");
    assert!(
        (outliers[0]["ratio"]["median"].as_f64().unwrap() - 2.0).abs() < 0.05,
        "{found}"
    );
    // Its only fact explains it, and one host in eight does not prove it.
    let fact = &found["facts"][0];
    assert!(
        fact["fact"] == "host_cpu_microcode" && fact["explained"]["median"].as_f64().unwrap() > 0.9,
        "{found}"
    );
    assert!(
        fact["p"].as_f64().unwrap() > 0.05 && found["facts"].as_array().unwrap().len() == 1,
        "{found}"
    );

    // A truncated file is named, the host keeps its other runs; the page is written.
    let file = files_below(&place.path("dataset/figures"))
        .into_iter()
        .find(|f| f.to_string_lossy().contains("host-5"));
    fs::OpenOptions::new()
        .write(true)
        .open(file.unwrap())
        .unwrap()
        .set_len(100)
        .unwrap();
    let said = |command: &str| {
        let text = place.vmtax(command).succeeds().stdout;
        assert!(!text.contains('\u{1b}'), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = said("fleet dataset -o fleet.html");
    assert!(
        text.starts_with("1 of 8 hosts is slower than others of their model by"),
        "{text}"
    );
    assert!(
        text.contains("No recorded host property (fact) explains it")
            && text.contains("1 file that cannot be read"),
        "{text}"
    );
    let page = fs::read_to_string(place.path("fleet.html")).unwrap();
    assert!(
        page.contains("<svg") && page.contains("host_cpu_microcode") && !page.contains('\u{1b}')
    );
    assert!(said("fleet dataset --class no_such_fact").contains("left out: no fact no_such_fact"));
    place.vmtax("fleet copies").fails(&["has no table figures"]);
}
