//! List of the recordings in a folder.

use crate::error::RecordingError;
use crate::layout::{HOST, MANIFEST, PLAN, TRIAL, TRIALS, trial_folder};
use crate::reader::{open_head, trial_numbers};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::{Machine, WorkloadName};

/// State of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// It came to its end.
    Finished,
    /// It was cut off, or is still under way.
    Unfinished,
    /// It cannot be opened.
    Damaged {
        /// Why, and what to do.
        reason: String,
    },
}

/// A line of `vmtax list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    let fail = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            RecordingError::NoFolder(runs.to_owned())
        }
        _ => RecordingError::Read {
            path: runs.to_owned(),
            source,
        },
    };
    let mut listings = Vec::new();
    for entry in fs::read_dir(runs).map_err(fail)? {
        let folder = entry.map_err(fail)?.path();
        if [MANIFEST, PLAN, HOST, TRIALS]
            .iter()
            .any(|file| folder.join(file).exists())
        {
            listings.push(listing(folder));
        }
    }
    // By time, not by name: a folder may be named by its user. Damaged ones have no time.
    listings.sort_by(|a, b| (&a.started, &a.folder).cmp(&(&b.started, &b.folder)));
    Ok(listings)
}

fn listing(folder: PathBuf) -> Listing {
    match open_head(&folder).and_then(|head| trial_numbers(&folder).map(|numbers| (head, numbers)))
    {
        Ok(((manifest, plan, host), numbers)) => {
            let guest = plan.machines.iter().any(|m| m.is_guest());
            let linux = plan.machines.iter().any(|m| m.is_linux_guest());
            let named =
                |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string());
            let trials = folder.join(TRIALS);
            let done = numbers
                .iter()
                .filter(|n| trials.join(trial_folder(**n)).join(TRIAL).exists())
                .count();
            Listing {
                started: Some(manifest.started),
                trials_done: done as u64,
                trials_planned: plan.trials(),
                study: plan.study.name().to_owned(),
                qemu: named(&plan.guest.qemu)
                    .or(host.qemu.first().map(|q| q.version.clone()))
                    .filter(|_| guest),
                kernel: named(&plan.guest.kernel)
                    .or(host.kernels.first().map(|k| k.release.clone()))
                    .filter(|_| linux),
                rounds: plan.rounds,
                name: plan.name,
                machines: plan.machines,
                workloads: plan.workloads.into_iter().map(|w| w.name).collect(),
                state: if manifest.ended.is_some() {
                    State::Finished
                } else {
                    State::Unfinished
                },
                folder,
            }
        }
        Err(error) => Listing {
            started: None,
            name: folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            study: String::new(),
            qemu: None,
            kernel: None,
            rounds: 0,
            machines: Vec::new(),
            workloads: Vec::new(),
            trials_done: 0,
            trials_planned: 0,
            state: match error {
                RecordingError::NotBegun(_) => State::Unfinished,
                error => State::Damaged {
                    reason: error.to_string(),
                },
            },
            folder,
        },
    }
}
