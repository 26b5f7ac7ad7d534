//! Recordings of several hosts as one dataset, and what DuckDB, Polars, pandas and PyArrow read in it.

use crate::common::{Place, files_below, json};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::testing::python_with;

/// Names with what a path or a URL would mean otherwise.
const HOSTS: [&str; 6] = ["db-1", "a b/c=d%20é", "..", "007", "[x]*", "slow"];

/// A small recording of this host.
fn recording(place: &Place) -> PathBuf {
    place.run("cpu max-prime=1500 time=0.1 --machine native --rounds 2").succeeds();
    place.recording()
}

/// The recording as one of another host and day, its figures multiplied.
fn copy(place: &Place, recording: &Path, host: &str, started: &str, factor: f64) -> PathBuf {
    let copy = place.path(&format!("copies/{}", fs::read_dir(place.path("copies")).map_or(0, Iterator::count)));
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
        place.put(copy.join(file.strip_prefix(recording).unwrap()).to_str().unwrap(), bytes);
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
    files_below(folder).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn exporting_again_changes_nothing_and_a_damaged_recording_keeps_no_other_out() {
    let place = Place::new();
    let recording = recording(&place);
    let export = |dataset: &str| place.vmtax("export --dataset").arg(dataset).arg("no-recording").arg(&recording);
    export("dataset").fails(&["there is no folder no-recording", "1 of 2 recordings, 2 files written, 0 unchanged"]);
    let before = contents(&place.path("dataset"));
    assert_eq!(before.len(), 2, "{:?}", before.keys());
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let host = format!("/host={name}/");
    assert!(!is_plain || before.keys().all(|path| path.to_string_lossy().contains(&host)), "{:?}", before.keys());

    let written = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let times: Vec<_> = before.keys().map(written).collect();
    fs::rename(&recording, place.path("renamed")).unwrap();
    place.vmtax("export renamed --dataset dataset").succeeds().says("0 files written, 2 unchanged");
    assert_eq!(contents(&place.path("dataset")), before);
    assert_eq!(before.keys().map(written).collect::<Vec<_>>(), times);

    place.vmtax("export renamed --dataset hashed --hash-host").succeeds();
    for path in files_below(&place.path("hashed")) {
        let host = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let hash = host.strip_prefix("host=").unwrap();
        assert!(hash.len() == 16 || hash == "__HIVE_DEFAULT_PARTITION__", "{host}");
    }
    place.vmtax("export renamed --hash-host").fails(&["--dataset"]);
    place.vmtax("export renamed renamed --parquet a.parquet").fails(&["name one"]);
}

#[test]
fn the_queries_of_the_page_find_what_is_planted() {
    let Some(python) = python_with("duckdb, polars, pandas, pyarrow") else { return };
    let place = Place::new();
    let recording = recording(&place);
    for (host, i) in HOSTS.iter().zip(0..) {
        let factor = if *host == "slow" { 0.5 } else { 1.0 + 0.001 * f64::from(i) };
        // Without a machine ID only the second in which it began distinguishes the runs.
        let copy = copy(&place, &recording, host, &format!("2026-11-25T12:00:0{i}Z"), factor);
        set_microcode(&copy, if *host == "slow" { "0x1" } else { "0x2" });
    }
    // The first was twice as fast two weeks ago.
    copy(&place, &recording, HOSTS[0], "2026-11-11T12:00:00Z", 2.0);
    let export =
        place.vmtax("export --dataset dataset").words(&(0..7).map(|i| format!("copies/{i} ")).collect::<String>());
    export.succeeds().says("7 of 7 recordings, 14 files written");
    let pages = [include_str!("../../../../docs/dataset.md"), include_str!("../../../../docs/fleet.md")];
    place.put("page.md", pages.concat());
    place.put("queries.py", QUERIES);
    fs::create_dir(place.path("compact")).unwrap();
    let answer = json(&place.program(python).arg("queries.py").succeeds().stdout);
    let rows = |heading: &str| answer["answers"][heading].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
    let outliers = rows("Which hosts are outliers among those with the same CPU?");
    // The median of the host that drifts is that of both its runs.
    assert!(outliers.len() == 2 && outliers[0][0] == "slow" && outliers[1][0] == HOSTS[0], "{outliers:?}");
    let drifts = rows("Which figures drift?");
    assert!(!drifts.is_empty() && drifts.iter().all(|row| row[0] == HOSTS[0] && row[3] == 0.5), "{drifts:?}");
    let facts = rows("Which fact explains outliers, metric by metric?");
    let of_slow = |row: &&Value| row[2] == "host_cpu_microcode" && row[3] == "0x1";
    assert!(facts.iter().find(of_slow).is_some_and(|row| row[5].as_f64().unwrap() < 0.6), "{facts:?}");
    assert_eq!(rows("Compaction"), [json!([answer["rows"]["duckdb"]])]);
    let mut hosts = HOSTS.to_vec();
    hosts.sort_unstable();
    for engine in ["duckdb", "polars", "pyarrow", "pandas"] {
        assert_eq!(answer["hosts"][engine], json!(hosts), "{engine}");
        assert_eq!(answer["rows"][engine], answer["rows"]["duckdb"], "{engine}");
    }
}

/// Runs the page's queries; prints their rows by heading, and what each engine reads of `figures`.
const QUERIES: &str = r##"
import datetime, duckdb, json, re
import pandas, polars, pyarrow.dataset as ds, pyarrow as pa
page = open('page.md', encoding='utf-8').read()
database = duckdb.connect()
answers = {}
for heading, block in re.findall(r"^#+ ([^\n]*)\n(?:(?!^#).)*?^```sql\n(.*?)^```", page, re.M | re.S):
    for sql in re.split(r";\n", block):
        if not sql.strip() or 'comparisons' in sql:
            continue
        rows = database.sql(sql)
        answers[heading] = [list(row) for row in rows.fetchall()] if rows is not None else []
all = 'dataset/figures/**/*.parquet'
duck = database.sql("select host, value from figures").fetchall()
lazy = polars.scan_parquet(all, hive_partitioning=True).select('host', 'value').collect()
flavor = ds.partitioning(pa.schema([('schema', pa.int32()), ('date', pa.date32()), ('host', pa.string())]), flavor='hive')
arrow = ds.dataset('dataset/figures', partitioning=flavor).to_table(columns=['host', 'value'])
frame = pandas.read_parquet('dataset/figures', partitioning=flavor)
read = {'duckdb': [host for host, _ in duck], 'polars': lazy['host'].to_list(), 'pyarrow': arrow['host'].to_pylist(),
        'pandas': frame['host'].tolist()}
print(json.dumps({'answers': answers, 'rows': {k: len(v) for k, v in read.items()},
                  'hosts': {k: sorted(set(map(str, v))) for k, v in read.items()}}, default=str))
"##;

#[test]
fn fleet_names_the_slow_host_and_what_it_could_not_read() {
    let place = Place::new();
    let recording = recording(&place);
    let mut copies = String::new();
    for host in 0..8 {
        for run in 0..4 {
            // A rate: half of it is twice the cost.
            let level = if host == 3 { 0.5 } else { 1.0 + 0.001 * f64::from(host) };
            let factor = level * (1.0 + 0.0001 * f64::from(run));
            let started = format!("2026-11-2{run}T12:00:0{host}Z");
            let name = if host == 3 { "slow\u{1b}[2J".to_owned() } else { format!("host-{host}") };
            let copy = copy(&place, &recording, &name, &started, factor);
            set_microcode(&copy, if host == 3 { "0x1" } else { "0x2" });
            copies += &format!("{} ", copy.display());
        }
    }
    place.vmtax("export --dataset dataset").words(&copies).succeeds().says("32 of 32 recordings");
    let found = json(&place.vmtax("fleet dataset --json").succeeds().stdout);
    let outliers: Vec<&Value> =
        found["hosts"].as_array().unwrap().iter().filter(|h| h["verdict"] != "typical").collect();
    assert!(outliers.len() == 1 && outliers[0]["host"] == "slow\u{1b}[2J", "{found}");
    assert_eq!(outliers[0]["verdict"], "slower");
    assert!((outliers[0]["ratio"]["median"].as_f64().unwrap() - 2.0).abs() < 0.05, "{found}");
    // Its only fact explains it, and one host in eight does not prove it.
    let fact = &found["facts"][0];
    assert!(fact["fact"] == "host_cpu_microcode" && fact["explained"]["median"].as_f64().unwrap() > 0.9, "{found}");
    assert!(fact["p"].as_f64().unwrap() > 0.05 && found["facts"].as_array().unwrap().len() == 1, "{found}");

    // A truncated file is named, the host keeps its other runs; the page is written.
    let file = files_below(&place.path("dataset/figures")).into_iter().find(|f| f.to_string_lossy().contains("host-5"));
    fs::OpenOptions::new().write(true).open(file.unwrap()).unwrap().set_len(100).unwrap();
    let said = |command: &str| {
        let text = place.vmtax(command).succeeds().stdout;
        assert!(!text.contains('\u{1b}'), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = said("fleet dataset -o fleet.html");
    assert!(text.starts_with("1 of 8 hosts is slower than others of their model by"), "{text}");
    assert!(
        text.contains("No recorded fact is shown to explain it") && text.contains("1 files cannot be read"),
        "{text}"
    );
    let page = fs::read_to_string(place.path("fleet.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("host_cpu_microcode") && !page.contains('\u{1b}'));
    assert!(said("fleet dataset --class no_such_fact").contains("have no fact no_such_fact"));
    place.vmtax("fleet copies").fails(&["has no table figures"]);
}
