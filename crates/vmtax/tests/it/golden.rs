//! Reports, help and errors of the program, compared whole with files: pages/.

#[path = "../../../present/report/tests/it/snapshot.rs"]
mod snapshot;

use crate::common::{Place, Running, copy};
use crate::language::help_pages;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/pages")
        .join(name)
}

#[test]
fn reports_of_golden_recordings() {
    let place = Place::new();
    let mut pages = BTreeMap::new();
    for recording in fs::read_dir(directory("../../../../base/recording/tests/golden"))
        .unwrap()
        .flatten()
    {
        let name = recording.file_name().into_string().unwrap();
        copy(&recording.path(), &place.path(&name));
        for (format, words) in [
            ("txt", ""),
            ("details.txt", "--details"),
            ("md", "--format md"),
            ("details.md", "--format md --details"),
            ("json", "--json"),
        ] {
            let report = place.vmtax("report").words(words).arg(&name).succeeds();
            assert_eq!(report.stderr, "");
            let lines = report.stdout.lines().count();
            assert!(format != "md" || lines <= 40, "{name}: {lines} lines");
            let page = if format == "json" {
                snapshot::rounded(&report.stdout)
            } else {
                report.stdout
            };
            pages.insert(format!("{name}.{format}"), page);
        }
    }
    snapshot::compare(&directory("reports"), &pages);
}

#[test]
fn help() {
    let page = |(command, help): (String, String)| {
        assert!(
            help.contains("\nExamples:\n") || help.contains("\nCommands:\n"),
            "{command}"
        );
        let name = command.trim_end_matches("--help").trim();
        (
            name.strip_prefix("vmtax ")
                .unwrap_or(name)
                .replace(' ', "-")
                + ".txt",
            help,
        )
    };
    snapshot::compare(
        &directory("help"),
        &help_pages(&[]).into_iter().map(page).collect(),
    );
}

/// The command lines are those of the page: a line `$ vmtax …` that is added to it is run.
fn errors(name: &str, place: &Place) {
    let expected = fs::read_to_string(directory("errors").join(name)).unwrap();
    let lines: Vec<&str> = expected
        .lines()
        .filter_map(|line| line.strip_prefix("$ vmtax "))
        .collect();
    let mut page = String::new();
    for lines in lines.chunks(4) {
        let running: Vec<_> = lines
            .iter()
            .map(|line| {
                let start = place.vmtax(line).env("COLUMNS", "100");
                // A directory that the kernel refuses to make shows when it is made, after QEMU was asked.
                let start = match line.contains("--dir /proc") {
                    true => start,
                    false => start.env("PATH", path_with_asked_qemu(place)),
                };
                start.start(60)
            })
            .collect();
        for (line, outcome) in lines.iter().zip(running.into_iter().map(Running::outcome)) {
            let status = outcome.status.unwrap();
            page += &format!(
                "$ vmtax {line}\n{}{}exit status {status}\n\n",
                outcome.stdout, outcome.stderr
            );
        }
    }
    assert!(!place.runs().exists(), "a recording of nothing");
    let page = page.replace(place.path("").to_str().unwrap(), "DIR/");
    snapshot::compare(&directory("errors"), &[(name.to_owned(), page)].into());
}

/// A PATH in which the first QEMU is one that notes that it was asked for more than its version, if the place has it:
/// [`note_asked_qemu`].
fn path_with_asked_qemu(place: &Place) -> String {
    let path = env::var("PATH").unwrap();
    format!("{}:{path}", place.path("asked-qemu").display())
}

fn note_asked_qemu(place: &Place) {
    let asked = place.path("asked");
    let body = format!(
        "case $1 in --version) echo QEMU emulator version 6.0.0 ;; *) echo x >> {} ;; esac",
        asked.display()
    );
    place.script("asked-qemu/qemu-system-x86_64", &body);
    // What follows would pass, too, if no QEMU was ever asked.
    let doctor = place.vmtax("doctor");
    doctor.env("PATH", path_with_asked_qemu(place)).succeeds();
    assert!(asked.exists(), "doctor asks each QEMU");
    fs::remove_file(asked).unwrap();
}

/// Asking takes 0.3 s, and more on a loaded host; an error that the command line alone shows needs 10 ms.
fn no_qemu_was_asked(place: &Place) {
    assert!(
        !place.path("asked").exists(),
        "a QEMU was asked before the arguments were judged"
    );
}

#[test]
fn errors_of_command_lines() {
    let place = Place::new();
    place.put("file", "");
    place.put("junk/holiday.jpg", b"\xff\xd8");
    note_asked_qemu(&place);
    errors("command-lines.txt", &place);
    for words in [
        "diagnose",
        "tune --vm",
        "layers --vm",
        "exits --vm",
        "profile --vm",
        "top",
    ] {
        let words = format!("{words} no-such-vm");
        let start = place
            .vmtax(&words)
            .env("PATH", path_with_asked_qemu(&place));
        start.fails(&[]); // whether no VM has this name or none runs here depends on the host
    }
    for (words, reason) in [
        ("run --qemu 99", "no QEMU 99 was fetched or built"),
        ("run --qemu none", "none: no such file"),
        ("run disk --machine tcg --qemu none", "none: no such file"),
        ("tune disk --qemu none", "none: no such file"),
        ("layers --kernel none", "none: No such file"),
        ("exec --kernel none -- true", "none: No such file"),
        ("exits --qemu junk", "junk: is not a regular file"),
        (
            "compare --machine tcg --qemu file --qemu none -- disk",
            "file: not executable",
        ),
        (
            "compare qemu=none aio=threads -- disk",
            "none: no such file",
        ),
        ("profile disk --kernel none", "none: No such file"),
        ("run disk --firmware junk/none", "junk/none cannot be read"),
        ("share --tree none", "none cannot be shared"),
        ("run --cpus 1000", "1000 were asked for"),
        ("tune disk --dir file", "Not a directory"),
    ] {
        let start = place.vmtax(words).env("PATH", path_with_asked_qemu(&place));
        let outcome = start.outcome();
        assert!(outcome.stderr.contains(reason), "{words}: {outcome}");
    }
    no_qemu_was_asked(&place);
}

#[test]
fn errors_of_plans() {
    let place = Place::new();
    place.put("bytes.toml", b"\xff\xfe");
    let plan = "rounds = 1\nmachines = [\"native\"]\n[[workload]]\nname = \"cpu\"\n";
    for (name, from, to) in [
        ("good", "", ""),
        ("empty", plan, ""),
        ("no-toml", "rounds", "]["),
        ("unknown-field", "[[", "repeats = 3\n[["),
        ("unknown-workload", "cpu", "cpo"),
        (
            "unknown-option",
            "\"cpu\"",
            "\"cpu\"\noptions = { prime = 3 }",
        ),
        ("unknown-machine", "native", "vax"),
        ("no-rounds", "= 1", "= 0"),
        ("no-number", "= 1", "= \"one\""),
        ("newer", "rounds", "schema = 999\nrounds"),
    ] {
        place.put(&format!("{name}.toml"), plan.replace(from, to));
    }
    errors("plans.txt", &place);
}

#[test]
fn errors_of_qemus_and_kernels() {
    let place = Place::new();
    place.put("folder/file", "");
    place.script("old", "echo 'QEMU emulator version 2.10.1(Debian)'");
    place.script("other", "echo cat 9.1");
    place.script("broken", "exit 1");
    place.put("empty", "");
    place.put("text", "I am a text.\n".repeat(1000));
    let mut arm64 = vec![0; 4096];
    arm64[56..60].copy_from_slice(b"ARM\x64");
    place.put("arm64", arm64);
    errors("qemus-and-kernels.txt", &place);
}

#[test]
fn reviews_of_what_people_paste() {
    let place = Place::new();
    for text in fs::read_dir(directory("review")).unwrap().flatten() {
        let content = fs::read(text.path()).unwrap();
        place.put(text.file_name().to_str().unwrap(), content);
    }
    errors("reviews.txt", &place);
}
