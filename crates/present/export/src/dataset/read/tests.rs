//! Datasets as they come: whole, damaged, collected twice, of other versions.

use super::*;
use crate::dataset::Dataset;
use crate::dataset::tests::{files as contents, recording};
use jiff::civil::date;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const TODAY: Date = date(2026, 11, 27);

/// A dataset of these hosts, a run each.
fn dataset(hosts: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path(), false).unwrap();
    for host in hosts {
        let mut recording = recording(host);
        recording.host.identity.id = Some(format!("id of {host}"));
        dataset.add(&recording).unwrap();
    }
    folder
}

/// The files of a table.
fn of_table(folder: &TempDir, table: &str) -> Vec<PathBuf> {
    let names = contents(folder.path())
        .into_keys()
        .filter(|name| name.starts_with(table));
    names.map(|name| folder.path().join(name)).collect()
}

fn hosts(data: &FleetData) -> Vec<&str> {
    let mut hosts: Vec<&str> = data.runs.iter().map(|run| run.host.as_str()).collect();
    hosts.sort_unstable();
    hosts
}

fn warns(data: &FleetData, text: &str) -> bool {
    data.warnings.iter().any(|warning| warning.contains(text))
}

#[test]
fn what_was_exported_is_read_back() {
    let names = ["db-1", "a b/c=d%20é", ".."];
    let folder = dataset(&names);
    let data = read(folder.path(), TODAY).unwrap();
    assert_eq!(data.warnings, [""; 0]);
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    assert_eq!(hosts(&data), wanted);
    assert_eq!(data.figures.len(), 3 * 12);
    let run = data.runs.iter().position(|run| run.host == "db-1").unwrap();
    let facts = &data.runs[run].facts;
    assert_eq!(facts["host_cpu_microcode"], "0xa0011d5");
    assert_eq!(facts["qemu_version (tcg)"], "7.2.22");
    assert_eq!(data.runs[run].date, "2026-11-26");
    let of_run = data.figures.iter().filter(|f| f.run as usize == run);
    let tcg = of_run.filter(|f| data.series[f.series as usize].machine == "tcg");
    assert_eq!(
        tcg.map(|f| f.value).collect::<Vec<_>>(),
        [50.0, 51.0, 52.0, 53.0, 54.0, 55.0]
    );
    let series = &data.series[0];
    assert_eq!(
        (series.metric.as_str(), series.better, series.size),
        ("cpu.events", Some(Better::Higher), None)
    );
    assert!(series.settings.contains("guest.cpus"));
}

#[test]
fn a_damaged_file_is_named_and_keeps_no_other_out() {
    let folder = dataset(&["a", "b", "c"]);
    let file = of_table(&folder, "figures").remove(1);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&of_table(&folder, "facts")[2], b"no table at all").unwrap();
    let data = read(folder.path(), TODAY).unwrap();
    assert_eq!(hosts(&data), ["a", "c"]);
    assert!(
        warns(&data, "2 files that cannot be read") && warns(&data, "host=b"),
        "{:?}",
        data.warnings
    );
    assert!(data.runs.iter().any(|run| run.facts.is_empty()));
}

#[test]
fn a_page_larger_than_it_claims_is_refused() {
    let folder = dataset(&["a", "b"]);
    // 32 MiB of text in 2 KB, and the page's header says 60 bytes.
    let large = include_bytes!("../../../../../../fuzz/corpus/dataset/facts-large-page");
    let mut bytes = large[1..].to_vec();
    let claimed = |bytes: &[u8]| {
        bytes
            .windows(2)
            .position(|two| two[0] == 0x15 && two[1] & 0x80 != 0)
    };
    let at = claimed(&bytes).unwrap() + 1;
    let end = at
        + bytes[at..]
            .iter()
            .position(|byte| byte & 0x80 == 0)
            .unwrap();
    bytes[at..end].fill(0x80);
    bytes[at] |= 60;
    bytes[end] = 0;
    let file = &of_table(&folder, "facts")[0];
    fs::write(file, &bytes).unwrap();
    let data = read(folder.path(), TODAY).unwrap();
    assert!(
        warns(&data, "do not decompress to their size"),
        "{:?}",
        data.warnings
    );
    assert!(data.runs.iter().any(|run| !run.facts.is_empty()));
}

#[test]
fn a_description_whose_list_is_longer_than_itself_is_refused() {
    let folder = dataset(&["a", "b"]);
    // A list of 10^9 texts, for which the library allocates 24 GB.
    let long = include_bytes!("../../../../../../fuzz/corpus/dataset/figures-long-list");
    fs::write(&of_table(&folder, "figures")[0], &long[1..]).unwrap();
    let data = read(folder.path(), TODAY).unwrap();
    assert_eq!(hosts(&data), ["b"]);
    assert!(
        warns(&data, "the description at its end is damaged"),
        "{:?}",
        data.warnings
    );
}

#[test]
fn the_same_run_twice_counts_once() {
    let folder = dataset(&["a", "b"]);
    for table in ["figures", "facts"] {
        let copy = folder.path().join(table).join("collected/twice");
        fs::create_dir_all(&copy).unwrap();
        fs::copy(&of_table(&folder, table)[0], copy.join("x.parquet")).unwrap();
    }
    let data = read(folder.path(), TODAY).unwrap();
    assert_eq!((data.runs.len(), data.figures.len()), (2, 24));
    assert!(
        warns(&data, "12 figures of 1 run that the dataset has twice"),
        "{:?}",
        data.warnings
    );
    assert_eq!(hosts(&data), ["a", "b"]);
}

#[test]
fn other_schemas_clocks_and_files_are_counted() {
    let folder = dataset(&["a", "b"]);
    let figures = of_table(&folder, "figures");
    let move_to = |from: &Path, to: &str| {
        let to = folder.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(from, to).unwrap();
    };
    move_to(
        &figures[0],
        "figures/schema=2/date=1970-01-01/host=a/x.parquet",
    );
    move_to(
        &figures[1],
        "figures/schema=1/date=2031-01-01/host=b/x.parquet",
    );
    let table_of_facts = of_table(&folder, "facts").remove(0);
    fs::copy(table_of_facts, folder.path().join("figures/x.parquet")).unwrap();
    fs::write(folder.path().join("figures/.y.part"), b"").unwrap();
    std::os::unix::fs::symlink("..", folder.path().join("figures/circle")).unwrap();
    let fifo = folder.path().join("figures/fifo.parquet");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(fifo)
            .status()
            .unwrap()
            .success()
    );
    let data = read(folder.path(), TODAY).unwrap();
    assert_eq!(hosts(&data), ["a", "b"]);
    assert!(
        warns(&data, "1 file of a newer schema than 1"),
        "{:?}",
        data.warnings
    );
    assert!(warns(&data, "2 runs on 2 hosts"), "{:?}", data.warnings);
    assert!(
        warns(&data, "1 file that no vmtax wrote") && warns(&data, "no column metric"),
        "{:?}",
        data.warnings
    );
    assert_eq!(data.warnings.len(), 3, "{:?}", data.warnings);
}

#[test]
fn a_host_without_a_name_is_known_by_its_machine_id() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path(), false).unwrap();
    let mut older = recording("");
    older.host.identity.name = None;
    dataset.add(&older).unwrap();
    older.host.identity.id = None;
    dataset.add(&older).unwrap();
    let data = read(folder.path(), TODAY).unwrap();
    assert_eq!(hosts(&data), ["0123456789abcdef"]);
    assert!(
        warns(&data, "1 run without a known host"),
        "{:?}",
        data.warnings
    );
}

#[test]
fn a_folder_that_is_no_dataset_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = read(folder.path(), TODAY).unwrap_err().to_string();
    assert!(
        error.contains("has no table figures") && error.contains("vmtax export"),
        "{error}"
    );
    std::fs::create_dir(folder.path().join("facts")).unwrap();
    let error = read(folder.path(), TODAY).unwrap_err().to_string();
    assert!(
        error.contains("have no figures") && error.contains("vmtax run"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_became_of_a_file_the_others_are_read(
        table in 0_usize..2, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), end in any::<prop::sample::Index>()
    ) {
        let folder = dataset(&["a", "b"]);
        let file = of_table(&folder, ["figures", "facts"][table]).remove(0);
        let mut bytes = fs::read(&file).unwrap();
        for (at, byte) in &flips {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if flips.is_empty() {
            bytes.truncate(end.index(bytes.len()));
        }
        fs::write(&file, bytes).unwrap();
        let data = read(folder.path(), TODAY).unwrap();
        prop_assert!(hosts(&data).contains(&"b"), "{:?}", data.warnings);
        prop_assert!(data.figures.iter().all(|f| f.value.is_finite() && f.value > 0.0));
    }
}
