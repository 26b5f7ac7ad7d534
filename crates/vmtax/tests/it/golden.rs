//! What the program prints, compared whole with files: pages/.

#[path = "../../../present/report/tests/it/snapshot.rs"]
mod snapshot;

use crate::common::{Place, copy, release};
use crate::language::help_pages;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/pages").join(name)
}

#[test]
fn reports_of_golden_recordings() {
    let place = Place::new();
    let mut pages = BTreeMap::new();
    for recording in fs::read_dir(directory("../../../../base/recording/tests/golden")).unwrap().flatten() {
        let name = recording.file_name().into_string().unwrap();
        copy(&recording.path(), &place.path(&name));
        for (format, words) in [("txt", ""), ("details.txt", "--details"), ("md", "--format md"), ("json", "--json")] {
            let report = place.program(release()).words("report").words(words).arg(&name).succeeds();
            assert_eq!(report.stderr, "");
            let page = if format == "json" { snapshot::rounded(&report.stdout) } else { report.stdout };
            pages.insert(format!("{name}.{format}"), page);
        }
    }
    snapshot::compare(&directory("reports"), &pages);
}

#[test]
fn help() {
    let page = |(command, help): (String, String)| {
        assert!(help.contains("\nExamples:\n"), "{command}");
        (command.trim_end_matches("--help").trim().replace(' ', "-") + ".txt", help)
    };
    snapshot::compare(&directory("help"), &help_pages(&[]).into_iter().map(page).collect());
}

/// The command lines are those of the page: a line `$ vmtax …` that is added to it is run.
#[test]
fn errors() {
    let place = Place::new();
    place.put("junk/holiday.jpg", b"\xff\xd8");
    for (name, version) in [("old", "QEMU emulator version 2.10.1(Debian)"), ("other", "cat 9.1")] {
        place.script(name, &format!("echo '{version}'"));
    }
    place.script("broken", "exit 1");
    let mut arm64 = vec![0; 4096];
    arm64[56..60].copy_from_slice(b"ARM\x64");
    place.put("arm64", arm64);
    place.put("text", "I am a text.\n".repeat(1000));
    for (name, content) in
        [("empty", &b""[..]), ("empty.toml", b""), ("bytes.toml", b"\xff\xfe"), ("no-toml.toml", b"\0\x01][")]
    {
        place.put(name, content);
    }
    let plan = "rounds = 1\nmachines = [\"native\"]\n[[workload]]\nname = \"cpu\"\n";
    for (name, from, to) in [
        ("good", "", ""),
        ("unknown-field", "[[", "repeats = 3\n[["),
        ("unknown-workload", "cpu", "cpo"),
        ("unknown-option", "\"cpu\"", "\"cpu\"\noptions = { prime = 3 }"),
        ("unknown-machine", "native", "vax"),
        ("no-rounds", "= 1", "= 0"),
        ("no-number", "= 1", "= \"one\""),
        ("newer", "rounds", "schema = 999\nrounds"),
    ] {
        place.put(&format!("{name}.toml"), plan.replace(from, to));
    }
    let expected = fs::read_to_string(directory("errors.txt")).unwrap();
    let mut page = String::new();
    for line in expected.lines().filter_map(|line| line.strip_prefix("$ vmtax ")) {
        let outcome = place.vmtax(line).env("COLUMNS", "100").outcome();
        let status = outcome.status.unwrap();
        page += &format!("$ vmtax {line}\n{}{}exit status {status}\n\n", outcome.stdout, outcome.stderr);
    }
    assert!(!place.runs().exists(), "a recording of nothing");
    let page = page.replace(place.path("").to_str().unwrap(), "DIR/");
    snapshot::compare(&directory(""), &[("errors.txt".to_owned(), page)].into());
}
