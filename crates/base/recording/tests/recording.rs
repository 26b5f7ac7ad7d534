//! Recordings as they are written, killed, damaged, copied and listed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{copy, folder_of, host, plan, trials, write_run};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use vmtax_model::{Machine, WorkloadName};
use vmtax_recording::{RecordingError, RecordingsFolder, State, Writer, list, open};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schema-1")
}

/// A copy of the golden recording to damage.
fn copied() -> (tempfile::TempDir, PathBuf) {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().join("20261120T120000Z-golden");
    copy(&golden(), &folder);
    (runs, folder)
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} not in {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn what_is_written_is_read_back() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path());
    let recording = open(&folder).unwrap();
    assert_eq!(recording.plan, plan());
    assert_eq!(recording.host, host());
    assert_eq!(recording.manifest.command, ["vmtax", "run", "golden.toml"]);
    assert!(recording.manifest.ended.is_some());
    assert_eq!(recording.damaged, Vec::<String>::new());
    let written = trials();
    assert_eq!(recording.trials.len(), written.len());
    for (read, written) in recording.trials.iter().zip(&written) {
        // Equal to the bit, except the histograms' bookkeeping of the exact largest value.
        let operations = |t: &vmtax_model::TrialRecord| {
            t.result().map(|r| r.operations.clone()).unwrap_or_default()
        };
        for (a, b) in operations(read).iter().zip(&operations(written)) {
            assert_eq!(a.name, b.name);
            assert_eq!(a.latency.summary(), b.latency.summary());
            assert_eq!(
                a.latency.buckets().collect::<Vec<_>>(),
                b.latency.buckets().collect::<Vec<_>>()
            );
        }
        assert_eq!(format!("{:?}", bare(read)), format!("{:?}", bare(written)));
    }
    // Nothing unfinished lies about.
    for number in 0..written.len() {
        for entry in fs::read_dir(folder.join(format!("trials/{number:04}"))).unwrap() {
            assert_ne!(entry.unwrap().path().extension().unwrap(), "part");
        }
    }
}

/// The record without its distributions.
fn bare(record: &vmtax_model::TrialRecord) -> vmtax_model::TrialRecord {
    let mut record = record.clone();
    if let vmtax_model::Outcome::Done { result } = &mut record.outcome {
        result.operations.clear();
    }
    record
}

#[test]
fn the_golden_recording_opens() {
    let recording = open(&golden()).unwrap();
    assert_eq!(recording.damaged, Vec::<String>::new());
    assert_eq!(recording.trials.len(), 24);
    assert_eq!(recording.plan, plan());
    let getpid = recording.trials[1]
        .result()
        .unwrap()
        .summary("getpid")
        .unwrap();
    assert_eq!(getpid.count, 400);
}

#[test]
#[ignore = "makes the golden recording of a new schema"]
fn by_hand_make_golden() {
    // Today's version could not be told from a former one's otherwise.
    assert!(
        !golden().exists(),
        "there is one of this schema: it stays as it was written"
    );
    let runs = tempfile::tempdir().unwrap();
    copy(&write_run(runs.path()), &golden());
}

#[test]
fn a_kill_loses_only_the_trial_under_way() {
    let runs = tempfile::tempdir().unwrap();
    let writer = Writer::create(&folder_of(runs.path()), &plan(), &host(), &[], "0.1.0").unwrap();
    let records = trials();
    writer.write(&records[0]).unwrap();
    // Dropped without `finish`, as a kill -9 leaves it: the second trial has a console, a log, half a trial.json.
    let second = writer.trial_files(1).unwrap().folder().to_owned();
    fs::write(second.join("console.log"), "boot…").unwrap();
    fs::write(second.join("ops.hlog"), "#half").unwrap();
    fs::write(writer.folder().join("unfinished.part"), "{\"schema\":1").unwrap();
    let folder = writer.folder().to_owned();
    drop(writer);
    let recording = open(&folder).unwrap();
    assert_eq!((recording.trials.len(), recording.damaged.len()), (1, 0));
    assert_eq!(recording.manifest.ended, None);
    let listing = &list(runs.path()).unwrap()[0];
    assert_eq!(
        (listing.trials_done, listing.trials_planned, &listing.state),
        (1, 24, &State::Unfinished)
    );
    assert_eq!(listing.machines, [Machine::NATIVE, Machine::TCG]);
    assert_eq!(
        listing.workloads,
        [WorkloadName::Cpu, WorkloadName::Syscalls]
    );
}

#[test]
fn other_users_may_not_read_a_recording() {
    let place = tempfile::tempdir().unwrap();
    let runs = place.path().join("new/runs");
    let writer = Writer::create(&folder_of(&runs), &plan(), &host(), &[], "0.1.0").unwrap();
    let named =
        Writer::create_at(&place.path().join("named"), &plan(), &host(), &[], "0.1.0").unwrap();
    for folder in [&runs, writer.folder(), named.folder()] {
        assert_eq!(
            fs::metadata(folder).unwrap().permissions().mode() & 0o777,
            0o700,
            "{}",
            folder.display()
        );
    }
}

#[test]
fn only_recordings_that_no_process_writes_are_swept() {
    let place = tempfile::tempdir().unwrap();
    let runs = folder_of(&place.path().join("runs"));
    let writer = |_| Writer::create(&runs, &plan(), &host(), &[], "0.1.0").unwrap();
    let [in_use, left] = [0, 1].map(writer);
    let unfinished = |writer: &Writer| writer.folder().join("unfinished.part");
    [&in_use, &left]
        .iter()
        .for_each(|writer| fs::write(unfinished(writer), "{").unwrap());
    let (used, gone) = (unfinished(&in_use), unfinished(&left));
    drop(left);
    // A folder that another has put there as a link.
    let victim = place.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("unfinished.part"), "kept").unwrap();
    symlink(&victim, runs.path().join("20250101T000000Z-link")).unwrap();
    let mut swept = 0;
    runs.sweep(|_| swept += 1);
    assert!(used.exists() && !gone.exists() && victim.join("unfinished.part").exists());
    assert_eq!(swept, 1);
}

#[test]
#[ignore = "needs root"]
fn root_does_not_use_a_folder_that_another_user_can_change() {
    let place = tempfile::tempdir().unwrap();
    let (above, runs) = (place.path().join("above"), place.path().join("above/runs"));
    fs::create_dir(&above).unwrap();
    let refused = |result: Result<RecordingsFolder, RecordingError>, why: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("--dir"), "{error}");
    };
    chown(&above, Some(65534), None).unwrap();
    refused(
        RecordingsFolder::create(&runs),
        "above belongs to user 65534",
    );
    assert!(!runs.exists(), "made in a folder of another user");
    let named = Writer::create_at(&above.join("named"), &plan(), &host(), &[], "0.1.0");
    assert!(
        matches!(named, Err(RecordingError::Untrusted { .. })),
        "{named:?}"
    );
    chown(&above, Some(0), None).unwrap();
    RecordingsFolder::create(&runs).unwrap();
    chown(&runs, Some(65534), None).unwrap();
    refused(RecordingsFolder::open(&runs), "runs belongs to user 65534");
    refused(
        RecordingsFolder::create(&runs),
        "runs belongs to user 65534",
    );
    // Recordings of another user in a folder of root's are not swept.
    chown(&runs, Some(0), None).unwrap();
    let theirs = runs.join("20250101T000000Z-theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(65534), None).unwrap();
    RecordingsFolder::open(&runs)
        .unwrap()
        .sweep(|_| panic!("swept a folder of another user"));
}

#[test]
fn runs_of_the_same_second_do_not_collide() {
    let runs = tempfile::tempdir().unwrap();
    let folders: Vec<_> = (0..3)
        .map(|_| {
            Writer::create(&folder_of(runs.path()), &plan(), &host(), &[], "0.1.0")
                .unwrap()
                .folder()
                .to_owned()
        })
        .collect();
    assert!(folders.iter().all(|f| open(f).is_ok()));
    assert!(
        folders
            .iter()
            .all(|f| folders.iter().filter(|o| *o == f).count() == 1),
        "{folders:?}"
    );
    let name = folders[0].file_name().unwrap().to_str().unwrap();
    assert_eq!(
        (name.len(), &name[8..9], &name[15..]),
        (23, "T", "Z-golden"),
        "{name}"
    );
}

#[test]
fn an_unwritable_folder_is_named() {
    let runs = tempfile::tempdir().unwrap();
    let file = runs.path().join("a-file");
    fs::write(&file, "").unwrap();
    let error = RecordingsFolder::create(&file.join("runs"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a-file/runs") && error.contains("choose a directory"),
        "{error}"
    );
    let mut bad = plan();
    bad.name = "../up".into();
    assert!(Writer::create(&folder_of(runs.path()), &bad, &host(), &[], "0.1.0").is_err());
}

#[test]
fn a_figure_that_is_no_number_is_refused() {
    let runs = tempfile::tempdir().unwrap();
    let writer = Writer::create(&folder_of(runs.path()), &plan(), &host(), &[], "0.1.0").unwrap();
    let mut record = trials().remove(0);
    if let vmtax_model::Outcome::Done { result } = &mut record.outcome {
        result.measures[0].value = f64::NAN;
    }
    let error = writer.write(&record).unwrap_err().to_string();
    assert!(
        error.contains("trial 0") && error.contains("finite"),
        "{error}"
    );
    assert!(open(writer.folder()).unwrap().trials.is_empty());
}

#[test]
fn names_that_are_no_tags_survive() {
    let runs = tempfile::tempdir().unwrap();
    let writer = Writer::create(&folder_of(runs.path()), &plan(), &host(), &[], "0.1.0").unwrap();
    let mut record = trials().remove(0);
    if let vmtax_model::Outcome::Done { result } = &mut record.outcome {
        result.operations[0].name = "a, b\n#c".into();
    }
    writer.write(&record).unwrap();
    let recording = open(writer.folder()).unwrap();
    assert_eq!(
        recording.trials[0].result().unwrap().operations[0].name,
        "a, b\n#c"
    );
}

#[test]
fn a_damaged_trial_is_listed_and_the_rest_opens() {
    let (_runs, folder) = copied();
    let trial = |n: u32, file: &str| folder.join(format!("trials/{n:04}/{file}"));
    let cut = fs::read(trial(0, "trial.json")).unwrap();
    fs::write(trial(0, "trial.json"), &cut[..cut.len() / 2]).unwrap();
    let log = fs::read(trial(1, "ops.hlog")).unwrap();
    fs::write(trial(1, "ops.hlog"), &log[..log.len() - 20]).unwrap();
    fs::remove_file(trial(2, "ops.hlog")).unwrap();
    fs::remove_file(trial(3, "trial.json")).unwrap();
    fs::copy(trial(5, "trial.json"), trial(4, "trial.json")).unwrap();
    edit(&trial(6, "trial.json"), "\"schema\": 1", "\"schema\": 2");
    edit(&trial(7, "trial.json"), "\"number\": 7", "\"number\": 8");
    edit(&trial(8, "trial.json"), "\"round\": 2", "\"round\": 6");
    edit(&trial(9, "trial.json"), "\"count\": 400", "\"count\": 401");
    let recording = open(&folder).unwrap();
    assert_eq!(recording.trials.len(), 15);
    assert_eq!(recording.damaged.len(), 9, "{:#?}", recording.damaged);
    let says = |n: u32, what: &str| {
        let line = recording
            .damaged
            .iter()
            .find(|line| line.starts_with(&format!("trial {n:04}")))
            .unwrap();
        assert!(line.contains(what), "{line}");
    };
    says(0, "trial.json");
    says(1, "cut off");
    says(2, "missing");
    says(3, "no trial.json");
    says(4, "trial.json lists 2");
    says(6, "update vmtax");
    says(7, "number 8");
    says(8, "round 6 of 6");
    says(9, "not the one");
}

#[test]
fn foreign_and_newer_folders_say_what_to_do() {
    let (runs, folder) = copied();
    let message = |folder: &Path| open(folder).unwrap_err().to_string();
    assert!(message(Path::new("/nowhere")).contains("vmtax list"));
    assert!(message(runs.path()).contains("run.json is missing"));
    edit(&folder.join("run.json"), "\"schema\": 1", "\"schema\": 7");
    assert!(
        message(&folder).contains("update vmtax"),
        "{}",
        message(&folder)
    );
    edit(&folder.join("run.json"), "\"schema\": 7", "\"schema\": 1");
    edit(&folder.join("plan.toml"), "rounds", "repeats");
    assert!(message(&folder).contains("repeats"), "{}", message(&folder));
    edit(&folder.join("plan.toml"), "repeats", "rounds");
    fs::write(folder.join("host.json"), vec![b' '; 5 << 20]).unwrap();
    assert!(
        message(&folder).contains("larger than"),
        "{}",
        message(&folder)
    );
    fs::remove_file(folder.join("host.json")).unwrap();
    fs::create_dir(folder.join("host.json")).unwrap();
    assert!(
        message(&folder).contains("not a regular file"),
        "{}",
        message(&folder)
    );
    fs::remove_dir(folder.join("host.json")).unwrap();
    assert!(
        message(&folder).contains("host.json is missing"),
        "{}",
        message(&folder)
    );
}

#[test]
fn what_was_killed_while_it_began_is_unfinished_and_no_damage() {
    let (runs, folder) = copied();
    fs::remove_file(folder.join("run.json")).unwrap();
    let state = || list(runs.path()).unwrap().remove(0).state;
    assert!(matches!(state(), State::Damaged { .. }), "it has trials");
    fs::remove_dir_all(folder.join("trials")).unwrap();
    // In the order in which they are written.
    for file in ["host.json", "unfinished.part"] {
        assert_eq!(state(), State::Unfinished);
        let said = open(&folder).unwrap_err().to_string();
        assert!(
            said.contains("before its first trial") && said.contains("delete it"),
            "{said}"
        );
        let _ = fs::remove_file(folder.join(file));
    }
}

#[test]
fn a_file_that_cannot_be_written_leaves_no_part_of_it() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().join("run");
    let writer = Writer::create_at(&folder, &plan(), &host(), &[], "1.0").unwrap();
    fs::create_dir_all(folder.join("trials/0000/trial.json")).unwrap();
    assert!(matches!(
        writer.write(&trials()[0]),
        Err(RecordingError::Write { .. })
    ));
    assert!(!folder.join("unfinished.part").exists());
}

#[test]
fn the_list_shows_good_and_damaged() {
    let (runs, folder) = copied();
    fs::create_dir(runs.path().join("of someone else")).unwrap();
    let broken = runs.path().join("20261120T130000Z-broken");
    copy(&folder, &broken);
    fs::write(broken.join("run.json"), "{").unwrap();
    let listings = list(runs.path()).unwrap();
    assert_eq!(listings.len(), 2, "{listings:?}");
    assert!(matches!(&listings[0].state, State::Damaged { reason } if reason.contains("run.json")));
    assert_eq!(listings[0].name, "20261120T130000Z-broken");
    assert_eq!(
        (listings[1].name.as_str(), &listings[1].state),
        ("golden", &State::Finished)
    );
    assert_eq!(
        (listings[1].trials_done, listings[1].trials_planned),
        (24, 24)
    );
    assert!(matches!(
        list(Path::new("/nowhere")),
        Err(RecordingError::NoFolder(_))
    ));
}

#[test]
fn the_list_goes_by_the_time_of_the_run_not_by_the_name_of_its_folder() {
    let (runs, folder) = copied();
    let later = runs.path().join("1-later");
    copy(&folder, &later);
    edit(
        &later.join("run.json"),
        "\"started\": \"2026",
        "\"started\": \"2027",
    );
    let listed: Vec<PathBuf> = list(runs.path())
        .unwrap()
        .into_iter()
        .map(|listing| listing.folder)
        .collect();
    assert_eq!(listed, [folder, later]);
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    const FILES: [&str; 6] = [
        "run.json",
        "plan.toml",
        "host.json",
        "trials/0001/trial.json",
        "trials/0001/ops.hlog",
        "trials/0023/trial.json",
    ];

    #[derive(Debug, Clone)]
    enum Damage {
        Cut(usize),
        Set(usize, u8),
        Insert(usize, Vec<u8>),
        Replace(Vec<u8>),
    }

    fn damage() -> impl Strategy<Value = Damage> {
        prop_oneof![
            any::<usize>().prop_map(Damage::Cut),
            (any::<usize>(), any::<u8>()).prop_map(|(at, b)| Damage::Set(at, b)),
            (
                any::<usize>(),
                proptest::collection::vec(any::<u8>(), 1..20)
            )
                .prop_map(|(at, b)| Damage::Insert(at, b)),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Damage::Replace),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]
        #[test]
        fn no_bytes_make_it_panic(edits in proptest::collection::vec((0..FILES.len(), damage()), 1..4)) {
            let (runs, folder) = copied();
            for (file, damage) in edits {
                let path = folder.join(FILES[file]);
                let mut bytes = fs::read(&path).unwrap();
                let len = bytes.len().max(1);
                match damage {
                    Damage::Cut(at) => bytes.truncate(at % len),
                    Damage::Set(at, b) if !bytes.is_empty() => bytes[at % len] = b,
                    Damage::Set(..) => {}
                    Damage::Insert(at, new) => {
                        let at = at % (bytes.len() + 1);
                        bytes.splice(at..at, new);
                    }
                    Damage::Replace(new) => bytes = new,
                }
                fs::write(&path, bytes).unwrap();
            }
            match open(&folder) {
                Ok(recording) => prop_assert!(recording.trials.len() + recording.damaged.len() == 24),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
            prop_assert_eq!(list(runs.path()).unwrap().len(), 1);
        }
    }
}
