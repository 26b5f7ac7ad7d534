//! Writing a recording, trial by trial.

use crate::RecordingError;
use crate::file::{TrialFiles, to_json, write_whole};
use crate::folder::{RecordingsFolder, create, mark_in_use};
use crate::recording::{HOST, MANIFEST, Manifest, PLAN, TRIALS, trial_folder, write_trial};
use jiff::Timestamp;
use rustix::fd::OwnedFd;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{
    HostFacts, KernelFacts, Plan, SCHEMA, SizeRange, Study, TrialRecord, words_without_secrets,
};

/// A recording under way. What it has written stays readable whatever happens to the process.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    /// Plan that is carried out.
    plan: Plan,
    manifest: Manifest,
    /// Locked as long as this process writes in it.
    _in_use: OwnedFd,
}

impl Writer {
    /// Makes `runs/<UTC time>-<plan name>/`, with a number behind it when that exists, and writes everything that is
    /// known before the first trial, without the secrets of the plan and the command. Other users may not read it.
    ///
    /// # Errors
    /// [`RecordingError`] when the folder cannot be made or written, or the plan has no form as TOML.
    pub fn create(
        runs: &RecordingsFolder,
        plan: &Plan,
        host: &HostFacts,
        command: &[String],
        vmtax_version: &str,
    ) -> Result<Writer, RecordingError> {
        let make = |name: &str| runs.make_recording(name);
        Writer::begin(make, plan, host, command, vmtax_version)
    }

    /// Makes a recording as [`Writer::create`] does, in a folder of that name, which has to be new or empty.
    ///
    /// # Errors
    /// As [`Writer::create`]; [`RecordingError::NotEmpty`]; [`RecordingError::Untrusted`].
    pub fn create_at(
        folder: &Path,
        plan: &Plan,
        host: &HostFacts,
        command: &[String],
        vmtax_version: &str,
    ) -> Result<Writer, RecordingError> {
        let make = |_: &str| Ok((folder.to_owned(), empty_folder(folder)?));
        Writer::begin(make, plan, host, command, vmtax_version)
    }

    /// Begins a recording in the folder that `make` makes and locks, given the name `<UTC time>-<plan name>`.
    fn begin(
        make: impl FnOnce(&str) -> Result<(PathBuf, OwnedFd), RecordingError>,
        plan: &Plan,
        host: &HostFacts,
        command: &[String],
        vmtax_version: &str,
    ) -> Result<Writer, RecordingError> {
        // It names a folder: the check that keeps '/' out of it comes before the folder does.
        plan.check().map_err(|e| unstorable(plan, e))?;
        let plan = &plan.without_secrets();
        let toml = plan.to_toml().map_err(|e| unstorable(plan, e))?;
        let started = now();
        let name = format!("{}-{}", started.strftime("%Y%m%dT%H%M%SZ"), plan.name);
        let (folder, in_use) = make(&name)?;
        write_whole(&folder, &folder.join(PLAN), toml.as_bytes())?;
        write_whole(
            &folder,
            &folder.join(HOST),
            &to_json("the host's facts", host)?,
        )?;
        let trials = folder.join(TRIALS);
        fs::create_dir(&trials).map_err(RecordingError::write(&trials))?;
        let manifest = Manifest {
            schema: SCHEMA,
            vmtax: vmtax_version.to_owned(),
            command: words_without_secrets(command),
            started: started.to_string(),
            ended: None,
            kernels: Vec::new(),
        };
        let writer = Writer {
            folder,
            plan: plan.clone(),
            manifest,
            _in_use: in_use,
        };
        writer.write_manifest()?;
        Ok(writer)
    }

    /// Notes which kernels its guests boot.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when `run.json` cannot be written.
    pub fn note_kernels(&mut self, kernels: &[KernelFacts]) -> Result<(), RecordingError> {
        self.manifest.kernels = kernels.to_vec();
        self.write_manifest()
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
        Ok(TrialFiles::new(&self.folder, self.trial_folder(number)?))
    }

    fn trial_folder(&self, number: u32) -> Result<PathBuf, RecordingError> {
        let folder = self.folder.join(TRIALS).join(trial_folder(number));
        fs::create_dir_all(&folder).map_err(RecordingError::write(&folder))?;
        Ok(folder)
    }

    /// Stores a trial. On return it is on the disk; a kill before leaves no trace of it that a reader would take for
    /// a result.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be written or holds a figure that is not a number.
    pub fn write(&self, record: &TrialRecord) -> Result<(), RecordingError> {
        write_trial(&self.folder, &self.trial_folder(record.number)?, record)
    }

    /// Stores the plan that is carried out where a budget allows only the first `count` sizes of its range; gives the range
    /// without the others.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be written.
    pub fn keep_sizes(&mut self, count: usize) -> Result<Option<&SizeRange>, RecordingError> {
        if let Study::Scale(range) = &mut self.plan.study {
            range.keep(count);
        }
        self.write_plan()?;
        Ok(self.plan.range())
    }

    /// Stores the plan that was carried out where fewer rounds were enough.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be written.
    pub fn shorten(&mut self, rounds: u32) -> Result<(), RecordingError> {
        self.plan.rounds = rounds;
        self.write_plan()
    }

    /// Stores the plan of a tuning, with the parts that are measured so far.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be written.
    pub fn note_parts(&mut self, plan: &Plan) -> Result<(), RecordingError> {
        self.plan = plan.without_secrets();
        self.write_plan()
    }

    fn write_plan(&self) -> Result<(), RecordingError> {
        let toml = self.plan.to_toml().map_err(|e| unstorable(&self.plan, e))?;
        write_whole(&self.folder, &self.folder.join(PLAN), toml.as_bytes())
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
        write_whole(
            &self.folder,
            &self.folder.join(MANIFEST),
            &to_json(MANIFEST, &self.manifest)?,
        )
    }
}

fn unstorable(plan: &Plan, reason: impl ToString) -> RecordingError {
    RecordingError::unstorable(format!("the plan '{}'", plan.name), reason)
}

/// The time, to the second.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Makes the folder unless it is there; one that holds files is refused.
fn empty_folder(folder: &Path) -> Result<OwnedFd, RecordingError> {
    let opened = create(folder)?;
    let mut files = fs::read_dir(folder).map_err(RecordingError::write(folder))?;
    if files.next().is_some() {
        return Err(RecordingError::NotEmpty(folder.to_owned()));
    }
    mark_in_use(&opened);
    Ok(opened)
}
