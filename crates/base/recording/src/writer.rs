//! Writing a recording, trial by trial.

use crate::error::RecordingError;
use crate::file::{to_json, write_whole};
use crate::layout::{HOST, MANIFEST, Manifest, PLAN, TRIALS, trial_folder};
use crate::{TrialFiles, trial};
use jiff::Timestamp;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::{HostFacts, Plan, SCHEMA, TrialRecord};

/// A recording under way. What it has written stays readable whatever happens to the process.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    manifest: Manifest,
}

/// Where a recording is made.
enum At<'a> {
    /// In a folder of recordings, as `<UTC time>-<plan name>`, with a number behind it when that exists.
    Runs(&'a Path),
    /// In this folder, which has to be new or empty.
    Folder(&'a Path),
}

impl Writer {
    /// Makes `runs/<UTC time>-<plan name>/`, with a number behind it when that exists, and writes everything that is
    /// known before the first trial.
    ///
    /// # Errors
    /// [`RecordingError`] when the folder cannot be made or written, or the plan has no form as TOML.
    pub fn create(
        runs: &Path,
        plan: &Plan,
        host: &HostFacts,
        command: &[String],
        vmtax_version: &str,
    ) -> Result<Writer, RecordingError> {
        Writer::begin(At::Runs(runs), plan, host, command, vmtax_version)
    }

    /// The same in a folder of that name, which has to be new or empty.
    ///
    /// # Errors
    /// As [`Writer::create`]; [`RecordingError::NotEmpty`].
    pub fn create_at(
        folder: &Path,
        plan: &Plan,
        host: &HostFacts,
        command: &[String],
        vmtax_version: &str,
    ) -> Result<Writer, RecordingError> {
        Writer::begin(At::Folder(folder), plan, host, command, vmtax_version)
    }

    fn begin(
        at: At<'_>,
        plan: &Plan,
        host: &HostFacts,
        command: &[String],
        vmtax_version: &str,
    ) -> Result<Writer, RecordingError> {
        let unstorable =
            |reason: String| RecordingError::Unstorable { what: format!("the plan '{}'", plan.name), reason };
        // It names a folder: the check that keeps '/' out of it comes before the folder does.
        plan.check().map_err(|e| unstorable(e.to_string()))?;
        let toml = plan.to_toml().map_err(|e| unstorable(e.to_string()))?;
        let started = now();
        let name = format!("{}-{}", started.strftime("%Y%m%dT%H%M%SZ"), plan.name);
        let folder = match at {
            At::Runs(runs) => make_folder(runs, &name)?,
            At::Folder(folder) => empty_folder(folder)?,
        };
        write_whole(&folder.join(PLAN), toml.as_bytes())?;
        write_whole(&folder.join(HOST), &to_json("the host's facts", host)?)?;
        let trials = folder.join(TRIALS);
        fs::create_dir(&trials).map_err(|source| RecordingError::Write { path: trials, source })?;
        let manifest = Manifest {
            schema: SCHEMA,
            vmtax: vmtax_version.to_owned(),
            command: command.to_vec(),
            started: started.to_string(),
            ended: None,
        };
        let writer = Writer { folder, manifest };
        writer.write_manifest()?;
        Ok(writer)
    }

    /// The recording's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files that come with a trial while it runs; its folder is made for them.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when it cannot be made.
    pub fn trial_files(&self, number: u32) -> Result<TrialFiles, RecordingError> {
        Ok(TrialFiles::new(self.trial_folder(number)?))
    }

    fn trial_folder(&self, number: u32) -> Result<PathBuf, RecordingError> {
        let folder = self.folder.join(TRIALS).join(trial_folder(number));
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(folder),
            Err(source) => Err(RecordingError::Write { path: folder, source }),
        }
    }

    /// Stores a trial. On return it is on the disk; a kill before leaves no trace of it that a reader would take for
    /// a result.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be written or holds a figure that is not a number.
    pub fn write(&self, record: &TrialRecord) -> Result<(), RecordingError> {
        trial::write(&self.trial_folder(record.number)?, record)
    }

    /// Marks the recording as ended: it was not cut off.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when `run.json` cannot be written.
    pub fn finish(mut self) -> Result<(), RecordingError> {
        self.manifest.ended = Some(now().to_string());
        self.write_manifest()
    }

    /// Removes the recording: there is nothing in it.
    pub fn discard(self) {
        let _ = fs::remove_dir_all(self.folder);
    }

    fn write_manifest(&self) -> Result<(), RecordingError> {
        write_whole(&self.folder.join(MANIFEST), &to_json(MANIFEST, &self.manifest)?)
    }
}

/// The time, to the second.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Makes `runs/name`, or `runs/name-2` and so on: two runs may start in the same second.
fn make_folder(runs: &Path, name: &str) -> Result<PathBuf, RecordingError> {
    fs::create_dir_all(runs).map_err(|source| RecordingError::Write { path: runs.to_owned(), source })?;
    let mut folder = runs.join(name);
    for number in 2.. {
        match fs::create_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => folder = runs.join(format!("{name}-{number}")),
            Err(source) => return Err(RecordingError::Write { path: folder, source }),
            Ok(()) => break,
        }
    }
    Ok(folder)
}

/// Makes the folder unless it is there; one that holds files is refused.
fn empty_folder(folder: &Path) -> Result<PathBuf, RecordingError> {
    let failed = |source| RecordingError::Write { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    match fs::read_dir(folder).map_err(failed)?.next() {
        Some(_) => Err(RecordingError::NotEmpty(folder.to_owned())),
        None => Ok(folder.to_owned()),
    }
}
