//! A history of made-up recordings, and everything that can become of it.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use vmtax_export::table::{Rows, text, words, write_whole};
use vmtax_model::{Machine, Metric};
use vmtax_recording::RecordingsFolder;
use vmtax_studies::history::{FOLDER, History, add};

/// A folder of recordings: copies of the golden one, each at another time.
struct Runs(tempfile::TempDir);

impl Runs {
    fn with(count: u32) -> Runs {
        let runs = Runs(tempfile::tempdir().unwrap());
        for i in 0..count {
            runs.record(i);
        }
        runs
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn folder(&self) -> RecordingsFolder {
        RecordingsFolder::open(self.path()).unwrap()
    }

    /// The files of the history, in order.
    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path().join(FOLDER).join("schema=1"));
        let mut files: Vec<_> = files
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        files
    }

    fn add(&self, i: u32) {
        let run = self.path().join(format!("run-{i}"));
        assert_eq!(add(&self.folder(), &run).unwrap(), [""; 0]);
    }

    fn history(&self) -> History {
        History::open(&self.folder()).unwrap()
    }

    /// The i-th recording, from its i-th minute.
    fn record(&self, i: u32) -> PathBuf {
        let golden =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../base/recording/tests/golden/schema-1");
        let folder = self.path().join(format!("run-{i}"));
        copy(&golden, &folder);
        let manifest = fs::read_to_string(folder.join("run.json")).unwrap();
        let manifest = manifest.replace(
            "T16:44:22Z",
            &format!("T{:02}:{:02}:22Z", 10 + i / 60, i % 60),
        );
        fs::write(folder.join("run.json"), manifest).unwrap();
        folder
    }

    fn caught_up(&self) -> History {
        let mut history = self.history();
        history.catch_up().unwrap();
        history
    }

    fn damaged(&self) -> Vec<PathBuf> {
        let mut files = self.files();
        files.retain(|path| path.to_string_lossy().contains(".damaged-"));
        files
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            _ = fs::copy(entry.path(), target).unwrap()
        }
    }
}

fn folders(history: &History) -> Vec<(String, bool)> {
    let figures = history.figures(Metric::CpuEvents, Some(Machine::NATIVE));
    let mut all: Vec<_> = figures
        .into_iter()
        .map(|(_, f)| (f.run.folder, f.run.recorded))
        .collect();
    all.sort();
    all
}

#[test]
fn a_run_is_in_it_with_figures_facts_and_conditions() {
    let runs = Runs::with(1);
    runs.add(0);
    // Twice is once.
    runs.add(0);
    let history = runs.history();
    let list = history.list();
    let entry_of = |machine| {
        list.iter()
            .find(|e| (e.metric, e.machine) == (Metric::CpuEvents, machine))
            .unwrap()
    };
    assert_eq!(
        (
            entry_of(Machine::NATIVE).runs,
            entry_of(Machine::TCG).series
        ),
        (1, 1)
    );
    assert_eq!(entry_of(Machine::TCG).first, "2026-11-20T10:00:22Z");

    let figures = history.figures(Metric::CpuEvents, None);
    assert_eq!(figures.len(), 2);
    let (key, figure) = figures
        .iter()
        .find(|(key, _)| key.machine == Machine::NATIVE)
        .unwrap();
    assert_eq!(key.host, "made-up processor, 2 CPUs");
    assert_eq!(
        (
            key.settings["max-prime"].as_str(),
            key.settings["guest.cpus"].as_str()
        ),
        ("2000", "1")
    );
    // The very figures of the analysis.
    let recording = vmtax_recording::open(&runs.path().join("run-0")).unwrap();
    let findings = vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials);
    let row = findings
        .rows
        .iter()
        .find(|r| r.metric == Metric::CpuEvents)
        .unwrap();
    let spread = row.machines[0].spread.clone().unwrap();
    assert_eq!((figure.n, figure.value.median), (spread.n, spread.median));
    assert_eq!(
        figure.value.interval.map(|i| (i.low, i.high)),
        Some((spread.min, spread.max))
    );
    assert_eq!(
        (
            figure.facts["vmtax"].as_str(),
            figure.facts["host kernel"].as_str()
        ),
        ("0.1.0", "6.1.0-made-up")
    );
    assert!(!figure.facts.contains_key("guest kernel"), "{figure:?}");
    let (_, guest) = figures
        .iter()
        .find(|(key, _)| key.machine == Machine::TCG)
        .unwrap();
    assert!(guest.facts.contains_key("guest kernel"), "{guest:?}");
}

#[test]
fn what_is_missing_is_added_and_what_was_deleted_stays() {
    let runs = Runs::with(3);
    assert_eq!(folders(&runs.caught_up()).len(), 3);
    fs::remove_dir_all(runs.path().join("run-1")).unwrap();
    // A recording under another name is the same run, and so is a copy; one without an end may be under way.
    fs::rename(runs.path().join("run-2"), runs.path().join("renamed")).unwrap();
    copy(&runs.path().join("run-0"), &runs.path().join("copied"));
    let cut = runs.record(4).join("run.json");
    fs::write(
        &cut,
        fs::read_to_string(&cut)
            .unwrap()
            .replace("\"2026-11-20T16:44:23Z\"", "null"),
    )
    .unwrap();
    fs::write(runs.record(5).join("host.json"), "{").unwrap();
    fs::create_dir(runs.path().join("something else")).unwrap();
    let history = runs.caught_up();
    let expected = [("renamed", true), ("run-0", true), ("run-1", false)]
        .map(|(name, here)| (name.to_owned(), here));
    assert_eq!(folders(&history), expected);
    let [note] = &history.notes[..] else {
        panic!("{:?}", history.notes)
    };
    assert!(note.contains("run-5/host.json is damaged"), "{note}");
    let files = runs.files();
    runs.caught_up();
    assert_eq!(runs.files(), files, "nothing was missing any more");
}

#[test]
fn a_copy_counts_once_and_two_runs_of_one_second_are_two() {
    let runs = Runs::with(1);
    copy(&runs.path().join("run-0"), &runs.path().join("run-0-copy"));
    let other = runs.path().join("run-0-other");
    copy(&runs.path().join("run-0"), &other);
    let trial = other.join("trials/0000/trial.json");
    let text = fs::read_to_string(&trial).unwrap();
    let value = text.find("\"value\": ").unwrap() + "\"value\": ".len();
    fs::write(&trial, format!("{}1{}", &text[..value], &text[value..])).unwrap();
    // As it was added, and as it is read again.
    for _ in 0..3 {
        let history = runs.caught_up();
        let figures = history.figures(Metric::CpuEvents, None);
        let folders: BTreeSet<&str> = figures.iter().map(|(_, f)| &*f.run.folder).collect();
        assert_eq!(folders.len(), 2, "{folders:?}");
        assert!(folders.contains("run-0-other"), "{folders:?}");
        assert!(
            history.list().iter().all(|entry| entry.runs == 2),
            "{:?}",
            history.list()
        );
    }
    assert_eq!(runs.files().len(), 1, "nothing was missing any more");
}

#[test]
fn a_damaged_file_is_moved_aside_and_its_runs_are_added_again() {
    let another_table = |file: &Path| {
        let mut rows = Rows::new(vec![text("run")]);
        rows.push(vec![words("run-1")]);
        write_whole(file, |file| rows.write("history", file)).unwrap();
    };
    let cut = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    };
    let flip = |file: &Path| {
        let mut bytes = fs::read(file).unwrap();
        bytes[..2000].fill(0xa5);
        fs::write(file, bytes).unwrap();
    };
    let no_table = |file: &Path| fs::write(file, "no table, but text").unwrap();
    let damages: [&dyn Fn(&Path); 4] = [&no_table, &cut, &flip, &another_table];
    for damage in damages {
        let runs = Runs::with(3);
        (0..3).for_each(|i| runs.add(i));
        for gone in ["run-0", "run-1"] {
            fs::remove_dir_all(runs.path().join(gone)).unwrap();
        }
        runs.files()[1..].iter().for_each(|file| damage(file));
        let history = runs.caught_up();
        let moved = runs.damaged();
        assert_eq!((moved.len(), history.notes.len()), (2, 2), "{moved:?}");
        for moved in moved {
            let moved = moved.display().to_string();
            let is_said = |note: &String| note.contains("was damaged") && note.contains(&moved);
            assert!(history.notes.iter().any(is_said), "{:?}", history.notes);
        }
        // The one of the file that is sound, and the one that there is a recording of.
        let expected = [("run-0", false), ("run-2", true)];
        let expected = expected.map(|(name, here)| (name.to_owned(), here));
        assert_eq!(folders(&history), expected);
        // Once.
        let history = runs.caught_up();
        assert_eq!(folders(&history), expected);
        assert!(history.notes.is_empty() && runs.damaged().len() == 2);
    }
}

#[test]
fn what_a_killed_process_left_unfinished_is_removed_later() {
    let runs = Runs::with(2);
    runs.add(0);
    let folder = runs.files()[0].parent().unwrap().to_owned();
    let (old, new) = (folder.join(".old.part"), folder.join(".new.part"));
    for path in [&old, &new] {
        fs::write(path, "half").unwrap();
    }
    let hours = Duration::from_secs(2 * 3600);
    let file = fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - hours).unwrap();
    runs.add(1);
    assert!(!old.exists() && new.exists());
}

#[test]
fn a_newer_one_is_left_alone() {
    let runs = Runs::with(1);
    fs::create_dir_all(runs.path().join(FOLDER).join("schema=2")).unwrap();
    let added = add(&runs.folder(), &runs.path().join("run-0")).unwrap_err();
    let opened = History::open(&runs.folder()).unwrap_err();
    for error in [added, opened].map(|error| error.to_string()) {
        assert!(
            error.contains("has schema 2")
                && error.contains("update vmtax, then `vmtax history --dir "),
            "{error}"
        );
    }
    assert!(runs.files().is_empty());
}

#[test]
fn small_files_are_folded_and_each_run_counts_once() {
    let runs = Runs::with(70);
    (0..64).for_each(|i| runs.add(i));
    let small = runs.files();
    assert_eq!(small.len(), 64);
    let copies: Vec<_> = small.iter().map(|file| fs::read(file).unwrap()).collect();
    (64..70).for_each(|i| runs.add(i));
    let names: Vec<_> = runs
        .files()
        .iter()
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let large = names.iter().filter(|name| name.starts_with("many-"));
    assert_eq!((large.count(), names.len()), (1, 7), "{names:?}");
    let before = runs.history().figures(Metric::CpuEvents, None);
    assert_eq!(before.len(), 2 * 70);
    // As a process leaves it that was killed before it removed them.
    for (file, content) in small.iter().zip(copies) {
        fs::write(file, content).unwrap();
    }
    assert_eq!(runs.history().figures(Metric::CpuEvents, None), before);
    runs.add(0);
    assert_eq!(runs.files().len(), 3);
    assert_eq!(runs.history().figures(Metric::CpuEvents, None), before);
}

#[test]
fn many_write_and_read_at_once() {
    const EACH: u32 = 20;
    let runs = Runs::with(8 * EACH);
    let added = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for first in (0..8).map(|writer| writer * EACH) {
            let (runs, added) = (&runs, &added);
            scope.spawn(move || {
                for i in first..first + EACH {
                    runs.add(i);
                    added.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // What was added before it is read is in it.
        while added.load(Ordering::SeqCst) < 8 * EACH {
            let least = added.load(Ordering::SeqCst) as usize;
            let history = runs.history();
            let mut found = folders(&history);
            let all = found.len();
            found.dedup();
            assert!(all == found.len() && all >= least, "{all} of {least}");
            assert!(history.notes.is_empty(), "{:?}", history.notes);
        }
    });
    assert_eq!(folders(&runs.history()).len(), 8 * EACH as usize);
    assert!(runs.files().len() < 8 * EACH as usize / 2);
}

#[test]
fn what_is_no_folder_is_not_written_into() {
    let victim = tempfile::tempdir().unwrap();
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success())
    };
    let link = |path: &Path| std::os::unix::fs::symlink(victim.path(), path).unwrap();
    let file = |path: &Path| fs::write(path, "").unwrap();
    let puts: [&dyn Fn(&Path); 3] = [&pipe, &link, &file];
    for put in puts {
        for place in [FOLDER, ".history/schema=1"] {
            let runs = Runs::with(1);
            let path = runs.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            put(&path);
            for error in [
                History::open(&runs.folder()).unwrap_err(),
                add(&runs.folder(), &runs.path().join("run-0")).unwrap_err(),
            ] {
                let error = error.to_string();
                assert!(
                    error.contains(place) && error.contains("is not a directory"),
                    "{error}"
                );
            }
        }
        // In place of a file it is passed over: to open a pipe would wait for ever.
        let runs = Runs::with(1);
        runs.add(0);
        put(&runs.files()[0].with_file_name("few-1-2-3.parquet"));
        assert_eq!(folders(&runs.history()).len(), 1);
    }
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a few bytes of the file are turned into: what there is a recording of is in the history.
    #[test]
    fn any_damage_is_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let runs = Runs::with(2);
        (0..2).for_each(|i| runs.add(i));
        let file = &runs.files()[0];
        let mut bytes = fs::read(file).unwrap();
        for (at, byte) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(file, bytes).unwrap();
        let history = runs.caught_up();
        let _ = history.list();
        let found = history.figures(Metric::CpuEvents, None);
        prop_assert!(found.iter().any(|(_, figure)| figure.run.folder == "run-1"));
        prop_assert!(found.iter().all(|(_, figure)| figure.value.median.is_finite()));
    }
}
