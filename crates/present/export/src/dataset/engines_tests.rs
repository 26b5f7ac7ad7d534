//! The queries of docs/dataset.md and docs/fleet.md in the engines that they name: on 1,000 hosts all give the same answers,
//! and they are what was planted.

use super::tests::recording;
use super::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;
use vmtax_model::testing::{python_with, skipped};
use vmtax_model::{Machine, Outcome};

const HOSTS: u32 = 1000;
/// Of each CPU model; the last one costs more than the others.
const QEMUS: [&str; 4] = ["7.2.22", "8.2.10", "8.2.10", "9.2.0"];
const OUTLIERS: &str = "Which hosts are outliers among those with the same CPU?";
const DRIFT: &str = "Which figures drift?";
const QEMU: &str = "What does each QEMU version cost?";
const FACT: &str = "Which fact explains outliers, metric by metric?";
/// Engines, by the Python module that each is, beside DuckDB.
const OTHERS: [&str; 4] = ["chdb", "pyspark", "polars", "pandas"];

/// Some have names with what a path, a pattern or a number would mean otherwise.
fn name(host: u32) -> String {
    let odd = ["a b/c=d%20é", "..", "007", "[x]*"];
    odd.get(host as usize)
        .map_or_else(|| format!("host-{host:04}"), |name| (*name).to_owned())
}

/// A third slower than others, and alone with this microcode.
fn is_slow(host: u32) -> bool {
    host % 200 == 2
}

/// A fifth slower since its kernel was updated.
fn drifts(host: u32) -> bool {
    host % 400 == 10
}

/// A tenth of the hosts was measured two weeks before, too.
fn is_measured_twice(host: u32) -> bool {
    host % 10 == 0
}

/// A run of a host: its figures are those of the host's CPU model, times what is planted, and noise of 0.5 %.
fn run(host: u32, is_late: bool, random: &mut fastrand::Rng) -> Recording {
    let mut recording = recording(&name(host));
    recording.manifest.started = if is_late {
        "2026-11-25T12:00:00Z"
    } else {
        "2026-11-11T12:00:00Z"
    }
    .to_owned();
    let facts = &mut recording.host;
    facts.identity.id = Some(format!("{host:016x}"));
    facts.cpu.model = format!("CPU {}", host % 4);
    facts.cpu.microcode = Some(if is_slow(host) { "0x1" } else { "0x2" }.to_owned());
    facts.kernel = if is_late && drifts(host) {
        "6.12.2"
    } else {
        "6.12.1"
    }
    .to_owned();
    facts.qemu[0].version = QEMUS[(host % 4) as usize].to_owned();
    let mut level = 1.0 + 0.1 * f64::from(host % 4);
    level *= if is_slow(host) { 0.75 } else { 1.0 };
    level *= if is_late && drifts(host) { 0.8 } else { 1.0 };
    for trial in &mut recording.trials {
        let Outcome::Done { result } = &mut trial.outcome else {
            continue;
        };
        let guest = if host % 4 == 3 { 0.4 } else { 0.5 };
        let of_machine = if trial.machine == Machine::NATIVE {
            1.0
        } else {
            guest
        };
        result.measures[0].value =
            1000.0 * level * of_machine * (1.0 + 0.005 * (random.f64() - 0.5));
    }
    recording
}

/// A dataset of all hosts, below this folder.
fn dataset(folder: &TempDir) {
    let dataset = Dataset::create(&folder.path().join("dataset"), false).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for host in 0..HOSTS {
        if is_measured_twice(host) {
            dataset.add(&run(host, false, &mut random)).unwrap();
        }
        dataset.add(&run(host, true, &mut random)).unwrap();
    }
}

/// Rows by folder and heading.
type Answers = BTreeMap<String, BTreeMap<String, Value>>;

fn answers(engine: &str, python: &Path, folder: &TempDir, folders: &str) -> Answers {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = |name: &str| here.join("../../../docs").join(name);
    let mut command = Command::new(python);
    command
        .arg(here.join("src/dataset/engines.py"))
        .args([engine, folders]);
    command
        .args([page("dataset.md"), page("fleet.md")])
        .current_dir(folder.path())
        .env("TMPDIR", folder.path());
    let began = Instant::now();
    let output = command.output().unwrap();
    println!("{engine}: {:.1} s", began.elapsed().as_secs_f64());
    assert!(
        output.status.success(),
        "{engine}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{engine}: {e}"))
}

/// Returns true if answers are the same: whole numbers and texts to the letter, others as far as they are rounded.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= if one.abs() < 10.0 { 0.0011 } else { 0.11 }
        }
        _ => one == other,
    }
}

fn rows<'a>(answers: &'a BTreeMap<String, Value>, heading: &str) -> Vec<Vec<&'a Value>> {
    let rows = answers[heading]
        .as_array()
        .unwrap_or_else(|| panic!("{answers:?}"));
    rows.iter()
        .map(|row| row.as_array().unwrap().iter().collect())
        .collect()
}

/// Checks that the answers contain the planted differences.
fn check(answers: &BTreeMap<String, Value>) {
    assert_eq!(
        answers["figures"].as_u64(),
        Some(u64::from(HOSTS + HOSTS / 10) * 12),
        "{answers:?}"
    );
    let named = |heading: &str, chosen: &dyn Fn(u32) -> bool| {
        let rows = rows(answers, heading);
        // Natively, and in a guest.
        let mut found: Vec<String> = rows
            .iter()
            .map(|row| row[0].as_str().unwrap().to_owned())
            .collect();
        let mut planted: Vec<String> = (0..HOSTS)
            .filter(|host| chosen(*host))
            .flat_map(|host| [name(host), name(host)])
            .collect();
        found.sort();
        planted.sort();
        assert_eq!(found, planted, "{heading}: {rows:?}");
        rows
    };
    // The median of a host that drifts is that of both its runs.
    named(OUTLIERS, &|host| is_slow(host) || drifts(host));
    for row in named(DRIFT, &drifts) {
        let ratio = row[3].as_f64().unwrap();
        assert!((0.79..0.81).contains(&ratio), "{row:?}");
        assert_eq!(
            (row[4], row[5]),
            (&"6.12.1".into(), &"6.12.2".into()),
            "{row:?}"
        );
    }
    let qemus = rows(answers, QEMU);
    assert_eq!(qemus.len(), 3, "{qemus:?}");
    for (row, (version, hosts, overhead)) in qemus.iter().zip([
        ("7.2.22", 250, 2.0),
        ("8.2.10", 500, 2.0),
        ("9.2.0", 250, 2.5),
    ]) {
        assert!(row[2] == version && row[3] == hosts, "{row:?}");
        assert!(
            (row[4].as_f64().unwrap() - overhead).abs() < 0.02,
            "{row:?}"
        );
    }
    let facts = rows(answers, FACT);
    let slow = facts
        .iter()
        .find(|row| row[2] == "host_cpu_microcode" && row[3] == "0x1" && row[1] == "native");
    let slow = slow.unwrap_or_else(|| panic!("{facts:?}"));
    assert!(
        slow[4] == 5 && (slow[5].as_f64().unwrap() - 0.75).abs() < 0.01,
        "{slow:?}"
    );
}

#[test]
fn engines_give_the_same_answers_for_1000_hosts() {
    let Some(python) = python_with("duckdb") else {
        return;
    };
    // In memory where /dev/shm can be written: each of the 3,300 files is written through to its disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let began = Instant::now();
    dataset(&folder);
    println!("written in {:.1} s", began.elapsed().as_secs_f64());
    std::fs::create_dir(folder.path().join("compact")).unwrap();
    let duckdb = answers("duckdb", &python, &folder, "dataset,compact");
    check(&duckdb["dataset"]);
    check(&duckdb["compact"]);
    let has_java = || {
        Command::new("java")
            .arg("-version")
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let engines: Vec<(&str, PathBuf)> = OTHERS
        .into_iter()
        .filter_map(|engine| {
            if engine == "pyspark" && !has_java() {
                skipped("no Java for Spark: run scripts/setup test");
                return None;
            }
            // pandas reads with pyarrow.
            Some((
                engine,
                python_with(if engine == "pandas" {
                    "pandas, pyarrow"
                } else {
                    engine
                })?,
            ))
        })
        .collect();
    for (engine, python) in engines {
        let found = answers(engine, &python, &folder, "dataset,compact");
        for (of, answers) in &found {
            for (heading, rows) in answers {
                let wanted = &duckdb[of][heading];
                assert!(
                    is_same(wanted, rows),
                    "{engine}, {of}: {heading}\nDuckDB: {wanted}\n{engine}: {rows}"
                );
            }
        }
        assert_eq!(found.len(), 2, "{engine}");
    }
}
