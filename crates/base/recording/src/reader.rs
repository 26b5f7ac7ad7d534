//! Reading a recording back, and the list of those in a folder. Nothing in its files is trusted: they may be cut off,
//! damaged, or a stranger's.

use crate::file::{read_bounded, read_json};
use crate::recording::{HOST, MANIFEST, Manifest, PLAN, TRIAL, TRIALS, read_trial, trial_folder};
use crate::{Recording, RecordingError};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::{
    HostFacts, Machine, Plan, PlanError, TrialRecord, WorkloadName, words_without_secrets,
};

/// None of our own comes near.
const LARGEST_FILE: u64 = 4 << 20;

/// Opens a recording. A trial that was under way when the run was cut off does not count; one that cannot be read is
/// listed in [`Recording::damaged`].
///
/// # Errors
/// [`RecordingError`] when the folder is none of ours, was written by a newer vmtax, or what all trials share is damaged.
pub fn open(folder: &Path) -> Result<Recording, RecordingError> {
    let (manifest, plan, host) = open_head(folder)?;
    let (mut trials, mut damaged) = (Vec::new(), Vec::new());
    // What observes what is there already runs no trials: their folder holds its artifacts.
    let numbers = if plan.is_attached() {
        Vec::new()
    } else {
        trial_numbers(folder)?
    };
    for &number in &numbers {
        let name = trial_folder(number);
        match read_trial(&folder.join(TRIALS).join(&name)) {
            Ok(Some(record)) => match misfit(&record, number, &plan) {
                None => trials.push(record),
                Some(why) => damaged.push(format!(
                    "trial {name} does not belong to this recording: {why}"
                )),
            },
            // The last one of a run that was cut off was under way.
            Ok(None) if manifest.ended.is_none() && Some(&number) == numbers.last() => {}
            Ok(None) => damaged.push(format!("trial {name} has no trial.json")),
            Err(error) => damaged.push(format!("trial {name}: {error}")),
        }
    }
    Ok(Recording {
        folder: folder.to_owned(),
        manifest,
        plan,
        host,
        trials,
        damaged,
    })
}

/// Reads the files that all trials share: `run.json`, `plan.toml`, `host.json`.
pub(crate) fn open_head(folder: &Path) -> Result<(Manifest, Plan, HostFacts), RecordingError> {
    if !folder.is_dir() {
        return Err(RecordingError::NoFolder(folder.to_owned()));
    }
    let foreign = |missing| RecordingError::Foreign {
        folder: folder.to_owned(),
        missing,
    };
    let path = folder.join(PLAN);
    let manifest: Option<Manifest> = read_json(&folder.join(MANIFEST), LARGEST_FILE)?;
    let Some(manifest) = manifest else {
        // It is written last.
        let has_trials = || trial_numbers(folder).is_ok_and(|numbers| !numbers.is_empty());
        return Err(match !path.is_file() || has_trials() {
            true => foreign(MANIFEST),
            false => RecordingError::NotBegun(folder.to_owned()),
        });
    };
    let bytes = read_bounded(&path, LARGEST_FILE)?.ok_or_else(|| foreign(PLAN))?;
    let plan = String::from_utf8(bytes)
        .map_err(|e| PlanError::Syntax(e.to_string()))
        .and_then(|text| Plan::from_toml(&text))
        .map_err(|source| RecordingError::Plan { path, source })?;
    let host = read_json(&folder.join(HOST), LARGEST_FILE)?.ok_or_else(|| foreign(HOST))?;
    // Older versions stored secrets.
    let command = words_without_secrets(&manifest.command);
    let manifest = Manifest {
        command,
        ..manifest
    };
    Ok((manifest, plan.without_secrets(), host))
}

/// The numbers of the trials' folders, in order; what else lies there is none of ours.
pub(crate) fn trial_numbers(folder: &Path) -> Result<Vec<u32>, RecordingError> {
    let path = folder.join(TRIALS);
    let fail = RecordingError::read(&path);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(RecordingError::Foreign {
                folder: folder.to_owned(),
                missing: TRIALS,
            });
        }
        Err(e) => return Err(fail(e)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(&fail)?.file_name();
        let name = name.to_string_lossy();
        let number = name.parse::<u32>().ok();
        numbers.extend(number.filter(|n| trial_folder(*n) == name));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Why a record is not the plan's trial of that number; `None` when it is.
fn misfit(record: &TrialRecord, number: u32, plan: &Plan) -> Option<String> {
    if record.number != number {
        return Some(format!("it is number {}", record.number));
    }
    if record.round >= plan.rounds_with_observation() {
        return Some(format!("round {} of {}", record.round, plan.rounds));
    }
    if !plan.machines.contains(&record.machine) {
        return Some(format!("the plan has no machine {}", record.machine));
    }
    if record.machine.is_guest() && !plan.variants.iter().any(|v| v.name == record.variant) {
        let variant = record.variant.escape_default();
        return Some(format!("the plan has no variant '{variant}'"));
    }
    let has_size = |size| (0..plan.steps()).any(|step| plan.size(step) == Some(size));
    if record.step.is_some_and(|size| !has_size(size)) {
        return Some("the plan's range has no such step".to_owned());
    }
    let workload = record.workload.name;
    if !plan.workloads.iter().any(|known| known.name == workload) {
        return Some(format!("the plan has no workload {workload}"));
    }
    None
}

/// State of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// It came to its end.
    Finished,
    /// It was cut off, or is still under way.
    #[default]
    Unfinished,
    /// It cannot be opened.
    Damaged {
        /// Why, and what to do.
        reason: String,
    },
}

/// A line of `vmtax list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The recording's folder.
    pub folder: PathBuf,
    /// When it began, RFC 3339; `None` when damaged, or cut off before that was written.
    pub started: Option<String>,
    /// The plan's name; the folder's where that is not known.
    pub name: String,
    /// The plan's study; empty where it is not known.
    pub study: String,
    /// The version of QEMU of its guests, or the file that the plan names.
    pub qemu: Option<String>,
    /// The release of its guests' kernel, or the file that the plan names.
    pub kernel: Option<String>,
    /// The plan's rounds.
    pub rounds: u32,
    /// The plan's machines.
    pub machines: Vec<Machine>,
    /// The plan's workloads.
    pub workloads: Vec<WorkloadName>,
    /// Trials that are stored, whatever their outcome.
    pub trials_done: u64,
    /// Trials that the plan means.
    pub trials_planned: u64,
    /// State of the recording.
    #[serde(flatten)]
    pub state: State,
}

/// The recordings in a folder, oldest first, before them damaged ones. Folders that hold nothing of vmtax are passed over.
///
/// # Errors
/// [`RecordingError::NoFolder`] or [`RecordingError::Read`] when the folder itself cannot be read.
pub fn list(runs: &Path) -> Result<Vec<Listing>, RecordingError> {
    let fail = RecordingError::read_folder(runs);
    let mut listings = Vec::new();
    for entry in fs::read_dir(runs).map_err(&fail)? {
        let folder = entry.map_err(&fail)?.path();
        let mut files = [MANIFEST, PLAN, HOST, TRIALS].into_iter();
        if files.any(|file| folder.join(file).exists()) {
            listings.push(listing(folder));
        }
    }
    // By time, not by name: a folder may be named by its user. Damaged ones have no time.
    listings.sort_by(|a, b| (&a.started, &a.folder).cmp(&(&b.started, &b.folder)));
    Ok(listings)
}

fn listing(folder: PathBuf) -> Listing {
    readable(&folder).unwrap_or_else(|error| {
        let name = folder.file_name().unwrap_or_default();
        Listing {
            name: name.to_string_lossy().into_owned(),
            state: match error {
                RecordingError::NotBegun(_) => State::Unfinished,
                error => State::Damaged {
                    reason: error.to_string(),
                },
            },
            folder,
            ..Listing::default()
        }
    })
}

/// The line of a recording that can be opened.
fn readable(folder: &Path) -> Result<Listing, RecordingError> {
    let (manifest, plan, host) = open_head(folder)?;
    let trials = folder.join(TRIALS);
    let is_done = |number: &u32| trials.join(trial_folder(*number)).join(TRIAL).exists();
    let done = trial_numbers(folder)?.into_iter().filter(is_done).count();
    let guest = plan.machines.iter().any(|m| m.is_guest());
    let linux = plan.machines.iter().any(|m| m.is_linux_guest());
    let named = |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string());
    let qemu = named(&plan.guest.qemu).or(host.qemu.first().map(|q| q.version.clone()));
    let kernel = named(&plan.guest.kernel).or(host.kernels.first().map(|k| k.release.clone()));
    Ok(Listing {
        folder: folder.to_owned(),
        started: Some(manifest.started),
        trials_done: done as u64,
        trials_planned: plan.trials(),
        study: plan.study.name().to_owned(),
        qemu: qemu.filter(|_| guest),
        kernel: kernel.filter(|_| linux),
        rounds: plan.rounds,
        name: plan.name,
        machines: plan.machines,
        workloads: plan.workloads.into_iter().map(|w| w.name).collect(),
        state: match manifest.ended {
            Some(_) => State::Finished,
            None => State::Unfinished,
        },
    })
}
