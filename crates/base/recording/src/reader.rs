//! Reading a recording back. Nothing in its files is trusted: they may be cut off, damaged, or a stranger's.

use crate::error::RecordingError;
use crate::file::{read_bounded, read_json};
use crate::layout::{HOST, MANIFEST, Manifest, PLAN, TRIALS, trial_folder};
use crate::{Recording, trial};
use std::fs;
use std::io;
use std::path::Path;
use vmtax_model::{HostFacts, Plan, PlanError, TrialRecord};

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
        match trial::read(&folder.join(TRIALS).join(&name)) {
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
    let Some(manifest) = read_json(&folder.join(MANIFEST), LARGEST_FILE)? else {
        // It is written last.
        let begun =
            !path.is_file() || trial_numbers(folder).is_ok_and(|numbers| !numbers.is_empty());
        return Err(if begun {
            foreign(MANIFEST)
        } else {
            RecordingError::NotBegun(folder.to_owned())
        });
    };
    let bytes = read_bounded(&path, LARGEST_FILE)?.ok_or_else(|| foreign(PLAN))?;
    let plan = String::from_utf8(bytes)
        .map_err(|e| PlanError::Syntax(e.to_string()))
        .and_then(|text| Plan::from_toml(&text))
        .map_err(|source| RecordingError::Plan { path, source })?;
    let host = read_json(&folder.join(HOST), LARGEST_FILE)?.ok_or_else(|| foreign(HOST))?;
    Ok((manifest, plan, host))
}

/// The numbers of the trials' folders, in order; what else lies there is none of ours.
pub(crate) fn trial_numbers(folder: &Path) -> Result<Vec<u32>, RecordingError> {
    let path = folder.join(TRIALS);
    let fail = |source| RecordingError::Read {
        path: path.clone(),
        source,
    };
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
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        numbers.extend(
            name.parse::<u32>()
                .ok()
                .filter(|n| trial_folder(*n) == name),
        );
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
        return Some(format!(
            "the plan has no variant '{}'",
            record.variant.escape_default()
        ));
    }
    if record
        .step
        .is_some_and(|size| !(0..plan.steps()).any(|step| plan.size(step) == Some(size)))
    {
        return Some("the plan's range has no such step".to_owned());
    }
    if !plan
        .workloads
        .iter()
        .any(|w| w.name == record.workload.name)
    {
        return Some(format!("the plan has no workload {}", record.workload.name));
    }
    None
}
