//! A recording in memory, and where on disk it keeps what; one trial on disk: `trial.json` for the figures, `ops.hlog`
//! for the distributions. Read back, as is the list of recordings in a folder, without trust in any file: they may be cut off,
//! damaged, or a stranger's.

use crate::RecordingError;
use crate::file::{TrialFiles, read_bounded, read_json, to_json, write_whole};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use vmtax_model::{
    HostFacts, KernelFacts, Latency, LatencySummary, Machine, Operation, Outcome, Plan, PlanError,
    TrialRecord, WorkloadName, words_without_secrets,
};

/// Bytes of an observer's file of JSON, at most; vmtax writes far smaller ones.
const LARGEST_ARTIFACT: u64 = 64 << 20;

/// A recording, read back whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Folder of the recording.
    pub folder: PathBuf,
    /// Content of `run.json`.
    pub manifest: Manifest,
    /// Content of `plan.toml`.
    pub plan: Plan,
    /// Content of `host.json`.
    pub host: HostFacts,
    /// `trials/NNNN/trial.json` with their `ops.hlog`, in order.
    pub trials: Vec<TrialRecord>,
    /// Trials that cannot be read, with the reason: the rest still counts.
    pub damaged: Vec<String>,
}

impl Recording {
    /// The folder of a trial: its raw traces are there.
    pub fn trial_folder(&self, number: u32) -> PathBuf {
        self.folder.join(TRIALS).join(trial_folder(number))
    }

    /// Takes files that are added to a trial afterwards.
    pub fn trial_files(&self, number: u32) -> TrialFiles {
        TrialFiles::new(&self.folder, self.trial_folder(number))
    }

    /// A file of JSON that an observer left in the folder of a trial.
    ///
    /// # Errors
    /// [`RecordingError`] when it is missing, damaged or of a newer version.
    pub fn artifact<T: DeserializeOwned>(
        &self,
        trial: u32,
        name: &str,
    ) -> Result<T, RecordingError> {
        let path = self.trial_folder(trial).join(name);
        read_json(&path, LARGEST_ARTIFACT)?
            .ok_or_else(|| RecordingError::damaged(&path, "the file is missing"))
    }
}

pub(crate) const MANIFEST: &str = "run.json";

pub(crate) const PLAN: &str = "plan.toml";

pub(crate) const HOST: &str = "host.json";

pub(crate) const TRIALS: &str = "trials";

pub(crate) const TRIAL: &str = "trial.json";

pub(crate) const LATENCIES: &str = "ops.hlog";

/// The folder name of a trial: at least four digits.
pub(crate) fn trial_folder(number: u32) -> String {
    format!("{number:04}")
}

/// `run.json`: what made the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`vmtax_model::SCHEMA`] of the writer.
    pub schema: u32,
    /// The version of vmtax that wrote it.
    pub vmtax: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started: String,
    /// When it ended; `None` when it was cut off.
    pub ended: Option<String>,
    /// The kernels that its guests boot, a variant's each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelFacts>,
}

const LARGEST_TRIAL: u64 = 4 << 20;
const LARGEST_LOG: u64 = 16 << 20;

/// An operation in `trial.json`: the summary in place of the histogram.
#[derive(Serialize, Deserialize)]
struct StoredOperation {
    name: String,
    /// `None` when it never happened.
    latency: Option<LatencySummary>,
}

/// `trial.json`'s operations stand where the record's own would.
const OPERATIONS: &str = "/result/operations";

/// Writes both files of a trial into its folder in the recording; the trial counts from the moment `trial.json` is there.
pub(crate) fn write_trial(
    recording: &Path,
    folder: &Path,
    record: &TrialRecord,
) -> Result<(), RecordingError> {
    let what = format!("trial {}", record.number);
    let unstorable = |reason: String| RecordingError::unstorable(&what, reason);
    let (bare, operations) = split(record);
    let mut value = serde_json::to_value(&bare).map_err(|e| unstorable(e.to_string()))?;
    // JSON turns a NaN or an infinity into null; better refused now than found unreadable later.
    serde_json::from_value::<TrialRecord>(value.clone()).map_err(|_| {
        unstorable(
            "a figure in it is not a finite number; report this as a fault of vmtax".to_owned(),
        )
    })?;
    if let Some(slot) = value.pointer_mut(OPERATIONS) {
        let stored = operations.iter().map(|o| StoredOperation {
            name: o.name.clone(),
            latency: o.latency.summary(),
        });
        *slot = serde_json::to_value(stored.collect::<Vec<_>>())
            .map_err(|e| unstorable(e.to_string()))?;
        let log = log_of(record, &operations).map_err(unstorable)?;
        write_whole(recording, &folder.join(LATENCIES), &log)?;
    }
    write_whole(recording, &folder.join(TRIAL), &to_json(&what, &value)?)
}

/// Reads a trial back; `None` when it has no `trial.json`.
pub(crate) fn read_trial(folder: &Path) -> Result<Option<TrialRecord>, RecordingError> {
    let path = folder.join(TRIAL);
    let damaged = |e: serde_json::Error| RecordingError::damaged(&path, e);
    let Some(mut value) = read_json::<Value>(&path, LARGEST_TRIAL)? else {
        return Ok(None);
    };
    let mut stored: Vec<StoredOperation> = Vec::new();
    if let Some(slot) = value.pointer_mut(OPERATIONS) {
        stored = serde_json::from_value(slot.take()).map_err(damaged)?;
        *slot = Value::Array(Vec::new());
    }
    let mut record: TrialRecord = serde_json::from_value(value).map_err(damaged)?;
    if let Outcome::Done { result } = &mut record.outcome {
        result.operations = read_log(&folder.join(LATENCIES), stored)?;
    }
    Ok(Some(record))
}

/// The record without its distributions, and these.
fn split(record: &TrialRecord) -> (TrialRecord, Vec<Operation>) {
    let mut bare = record.clone();
    let operations = match &mut bare.outcome {
        Outcome::Done { result } => std::mem::take(&mut result.operations),
        Outcome::Failed { .. } | Outcome::Interrupted => Vec::new(),
    };
    (bare, operations)
}

/// The operations as an HdrHistogram interval log (format 1.3), which HdrHistogram's own tools read.
fn log_of(record: &TrialRecord, operations: &[Operation]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut header = IntervalLogWriterBuilder::new();
    header
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&format!(
            "vmtax: {} on {}, round {}",
            record.workload.name, record.machine, record.round
        ))
        .add_comment("latencies and the interval's maximum in nanoseconds; a tag is an operation");
    if let Ok(started) = record.started.parse::<jiff::Timestamp>() {
        header
            .with_start_time(SystemTime::from(started))
            .with_base_time(SystemTime::from(started));
    }
    let mut log = header
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|e| e.to_string())?;
    let total = record.result().map_or(0.0, |r| r.total_s);
    let duration = Duration::try_from_secs_f64(total).unwrap_or_default();
    for operation in operations {
        let tag = tag_of(&operation.name);
        log.write_histogram(
            operation.latency.histogram(),
            Duration::ZERO,
            duration,
            Tag::new(&tag),
        )
        .map_err(|e| format!("{e:?}"))?;
    }
    Ok(bytes)
}

/// The operations that `trial.json` lists, with their distributions from the log: line by line in the same order, tag
/// and count checked, so that a log of another trial does not pass.
fn read_log(path: &Path, stored: Vec<StoredOperation>) -> Result<Vec<Operation>, RecordingError> {
    let damaged = |reason: String| RecordingError::damaged(path, reason);
    let bytes =
        read_bounded(path, LARGEST_LOG)?.ok_or_else(|| damaged("it is missing".to_owned()))?;
    let mut lines = Vec::new();
    // Line by line: given the whole, the parser looks for a number's end through all of it, for every line.
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        match IntervalLogIterator::new(line).next() {
            Some(Ok(LogEntry::Interval(interval))) => lines.push(interval),
            Some(Ok(LogEntry::StartTime(_) | LogEntry::BaseTime(_))) | None => {}
            Some(Err(_)) => {
                return Err(damaged(
                    "a line is cut off or is no interval of HdrHistogram".to_owned(),
                ));
            }
        }
    }
    if lines.len() != stored.len() {
        return Err(damaged(format!(
            "{} operations where {TRIAL} lists {}",
            lines.len(),
            stored.len()
        )));
    }
    let mut operations = Vec::with_capacity(stored.len());
    for (
        line,
        StoredOperation {
            name,
            latency: summary,
        },
    ) in lines.iter().zip(stored)
    {
        let latency =
            Latency::from_text(line.encoded_histogram()).map_err(|e| damaged(e.to_string()))?;
        let tag = line.tag().map_or("", |t| t.as_str());
        if tag != tag_of(&name) || latency.count() != summary.map_or(0, |s| s.count) {
            return Err(damaged(format!(
                "operation '{}' is not the one in {TRIAL}",
                tag.escape_default()
            )));
        }
        operations.push(Operation { name, latency });
    }
    Ok(operations)
}

/// An operation's name as a tag, which may hold no comma, blank or line end.
fn tag_of(name: &str) -> String {
    name.replace([',', ' ', '\r', '\n'], "_")
}

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
