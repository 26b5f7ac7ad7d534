//! A ledger beside made-up recordings, and everything that can become of it.

use proptest::prelude::*;
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{Machine, Metric};
use vmtax_recording::RecordingsFolder;
use vmtax_studies::history::{FILE, Ledger, LedgerError};

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

    fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    /// The i-th recording, from its i-th minute.
    fn record(&self, i: u32) -> PathBuf {
        let golden =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../base/recording/tests/golden/schema-1");
        let folder = self.path().join(format!("run-{i}"));
        copy(&golden, &folder);
        let manifest = fs::read_to_string(folder.join("run.json")).unwrap();
        let manifest = manifest.replace("T16:44:22Z", &format!("T16:{i:02}:22Z"));
        fs::write(folder.join("run.json"), manifest).unwrap();
        folder
    }

    fn caught_up(&self) -> Ledger {
        let mut ledger = Ledger::open_to_read(self.path()).unwrap();
        ledger.catch_up(self.path()).unwrap();
        ledger
    }

    fn damaged(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path())
            .unwrap()
            .map(|e| e.unwrap().path());
        entries
            .filter(|p| p.to_string_lossy().contains("damaged"))
            .collect()
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

fn folders(ledger: &Ledger) -> Vec<(String, bool)> {
    let figures = ledger
        .figures(Metric::CpuEvents, Some(Machine::NATIVE))
        .unwrap();
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
    assert_eq!(
        vmtax_studies::history::add(&runs.folder(), &runs.path().join("run-0")).unwrap(),
        [""; 0]
    );
    // Twice is once.
    vmtax_studies::history::add(&runs.folder(), &runs.path().join("run-0")).unwrap();
    let ledger = Ledger::open(&runs.folder()).unwrap();
    let list = ledger.list().unwrap();
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
    assert_eq!(entry_of(Machine::TCG).first, "2026-11-20T16:00:22Z");

    let figures = ledger.figures(Metric::CpuEvents, None).unwrap();
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
    // A recording under another name is the same run; one without an end may be under way.
    fs::rename(runs.path().join("run-2"), runs.path().join("renamed")).unwrap();
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
    let ledger = runs.caught_up();
    let expected = [("renamed", true), ("run-0", true), ("run-1", false)]
        .map(|(name, here)| (name.to_owned(), here));
    assert_eq!(folders(&ledger), expected);
    let [note] = &ledger.notes[..] else {
        panic!("{:?}", ledger.notes)
    };
    assert!(note.contains("run-5/host.json is damaged"), "{note}");
}

#[test]
fn a_damaged_one_is_moved_aside_and_made_again() {
    for (damage, in_it) in [
        (
            &(|file: &Path| {
                fs::write(file, "no database, but long enough for a look at its head").unwrap()
            }) as &dyn Fn(&Path),
            false,
        ),
        (
            &|file| {
                Connection::open(file)
                    .unwrap()
                    .execute_batch("DROP TABLE fact")
                    .unwrap()
            },
            false,
        ),
        (
            &|file| {
                Connection::open(file)
                    .unwrap()
                    .pragma_update(None, "application_id", 7)
                    .unwrap()
            },
            true,
        ),
        // Pages behind the first three: what is before them can still be read.
        (
            &|file| {
                let mut bytes = fs::read(file).unwrap();
                let end = bytes.len();
                bytes[end - 4096..].fill(0xa5);
                fs::write(file, bytes).unwrap();
            },
            true,
        ),
    ] {
        let runs = Runs::with(3);
        runs.caught_up();
        fs::remove_dir_all(runs.path().join("run-0")).unwrap();
        damage(&runs.file());
        let ledger = runs.caught_up();
        let moved = runs.damaged();
        assert_eq!(moved.len(), 1, "{moved:?}");
        let said = &ledger.notes[0];
        assert!(
            said.contains("was damaged") && said.contains("2 recordings"),
            "{said}"
        );
        assert!(said.contains(&*moved[0].to_string_lossy()), "{said}");
        let found = folders(&ledger);
        assert_eq!(
            found.contains(&("run-0".to_owned(), false)),
            in_it,
            "{found:?} {said}"
        );
        assert!(
            ["run-1", "run-2"]
                .iter()
                .all(|r| found.contains(&((*r).to_owned(), true))),
            "{found:?}"
        );
        // Once.
        assert!(runs.caught_up().notes.is_empty());
        assert_eq!(runs.damaged().len(), 1);
    }
}

#[test]
fn a_newer_one_is_left_alone() {
    let runs = Runs::with(1);
    runs.caught_up();
    Connection::open(runs.file())
        .unwrap()
        .pragma_update(None, "user_version", 2)
        .unwrap();
    let before = fs::read(runs.file()).unwrap();
    let error = vmtax_studies::history::add(&runs.folder(), &runs.record(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has version 2") && error.contains("update vmtax"),
        "{error}"
    );
    assert_eq!(fs::read(runs.file()).unwrap(), before);
    assert!(runs.damaged().is_empty());
}

#[test]
fn a_locked_one_is_waited_for_but_not_for_ever() {
    let runs = Runs::with(2);
    let file = runs.file();
    vmtax_studies::history::add(&runs.folder(), &runs.path().join("run-0")).unwrap();
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let began = std::time::Instant::now();
    let error =
        vmtax_studies::history::add(&runs.folder(), &runs.path().join("run-1")).unwrap_err();
    let waited = began.elapsed().as_secs_f64();
    assert!(matches!(error, LedgerError::Locked { .. }), "{error}");
    assert!(
        error.to_string().contains("`vmtax history --dir "),
        "{error}"
    );
    assert!((4.5..20.0).contains(&waited), "{waited}");
    // Free within the time: the run is in it.
    let waiting = std::thread::spawn({
        let folder = runs.folder();
        move || vmtax_studies::history::add(&folder, &folder.path().join("run-1"))
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), [""; 0]);
    assert_eq!(folders(&runs.caught_up()).len(), 2);
}

#[test]
fn many_write_at_once() {
    let runs = Runs::with(8);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let runs = &runs;
            scope.spawn(move || {
                vmtax_studies::history::add(&runs.folder(), &runs.path().join(format!("run-{i}")))
                    .unwrap()
            });
        }
    });
    assert_eq!(folders(&Ledger::open(&runs.folder()).unwrap()).len(), 8);
}

#[test]
fn there_is_no_ledger_without_a_folder() {
    let error = Ledger::open_to_read(Path::new("/nowhere/at/all"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no folder /nowhere/at/all"),
        "{error}"
    );
}

/// Found by mutation: a page of the table of runs leads to itself, so that reading it never ends.
#[test]
fn pages_that_lead_in_a_circle_are_not_followed_for_ever() {
    let runs = Runs::with(2);
    fs::write(runs.file(), include_bytes!("../ledger-in-a-circle.sqlite")).unwrap();
    let began = std::time::Instant::now();
    let ledger = runs.caught_up();
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    assert!(
        ledger.notes[0].contains("was damaged"),
        "{:?}",
        ledger.notes
    );
    let found = folders(&ledger);
    assert!(
        ["run-0", "run-1"]
            .iter()
            .all(|run| found.contains(&((*run).to_owned(), true))),
        "{found:?}"
    );
}

#[test]
fn what_is_no_file_is_not_opened_as_a_ledger() {
    let victim = tempfile::tempdir().unwrap();
    let made = victim.path().join("made");
    let pipe = |file: &Path| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(file)
                .status()
                .unwrap()
                .success()
        )
    };
    for put in [
        &(|file: &Path| fs::create_dir(file).unwrap()) as &dyn Fn(&Path),
        &|file| std::os::unix::fs::symlink(&made, file).unwrap(),
        // To open it would wait for ever.
        &pipe,
    ] {
        let runs = Runs::with(1);
        put(&runs.file());
        let error = Ledger::open_to_read(runs.path()).unwrap_err().to_string();
        assert!(
            error.contains(FILE) && error.contains("not a regular file"),
            "{error}"
        );
        assert!(!made.exists(), "the file of a link was made");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a few bytes of the file are turned into: it is opened or made again, and what there are recordings of is in it.
    #[test]
    fn any_damage_is_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let runs = Runs::with(1);
        runs.caught_up();
        let mut bytes = fs::read(runs.file()).unwrap();
        for (at, byte) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(runs.file(), bytes).unwrap();
        // A version or an application that is another's is an answer too.
        if let Ok(mut ledger) = Ledger::open_to_read(runs.path()) {
            let _ = ledger.catch_up(runs.path());
            let _ = ledger.list();
            let _ = ledger.figures(Metric::CpuEvents, None);
        }
    }
}
