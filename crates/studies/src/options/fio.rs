//! The option `--fio`: jobs that somebody pasted, as a workload.

use super::OptionsError;
use clap::Args;
use std::io::Read;
use std::path::Path;
use vmtax_model::WorkloadSpec;
use vmtax_vm::DISK_BYTES;
use vmtax_workload::{FioPaste, INSTALL_FIO, WorkloadError, fio_work};

/// A longer file is no job.
const MAX_BYTES: u64 = 1 << 20;

/// Jobs of fio in place of a workload.
#[derive(Debug, Args)]
pub(crate) struct FioOptions {
    /// Measure with the host's fio: a job file, or a fio command line in quotes. Its filename is replaced by the test guest's disk; an
    /// option that names a file, device or program is refused
    #[arg(long, value_name = "FILE|CMD", conflicts_with = "vm")]
    fio: Option<String>,
    /// Run only this job of the fio job file
    #[arg(long, value_name = "NAME", requires = "fio")]
    section: Option<String>,
}

/// The workload that the jobs are.
pub(crate) struct FioJobs {
    /// Workload `fio` with the jobs.
    pub workload: WorkloadSpec,
    /// Differences from what was pasted, one line each.
    pub notes: Vec<String>,
    /// True if a job has a rate.
    pub is_rated: bool,
}

impl FioOptions {
    /// Returns true if jobs were given.
    pub fn is_given(&self) -> bool {
        self.fio.is_some()
    }

    /// Reads the jobs, each of which runs for `time_s`; `None` where none were given.
    ///
    /// # Errors
    /// [`OptionsError`] where they cannot be read, have an option that is not run, or this host has no fio.
    pub fn work(&self, time_s: f64) -> Result<Option<FioJobs>, OptionsError> {
        let Some(given) = &self.fio else {
            return Ok(None);
        };
        let path = Path::new(given);
        // A path cannot be longer.
        let text = match given.len() < 4096 && path.exists() {
            true => text_of(path)?,
            false if given.split_whitespace().count() > 1 || given.starts_with("--") => {
                given.clone()
            }
            false => {
                return OptionsError::usage(format!(
                    "--fio '{}' is no file: give a job file, or a command line as --fio 'fio --name=a --rw=randread'",
                    given.escape_default()
                ));
            }
        };
        let read = FioPaste::read(&text, self.section.as_deref())
            .map_err(|e| OptionsError::from(WorkloadError::Fio(e)))?;
        if vmtax_host::find_program("fio").is_none() {
            return OptionsError::usage(format!("fio is not installed: {INSTALL_FIO}"));
        }
        let FioPaste { job, mut notes } = read;
        if !notes.iter().any(|note| note.starts_with("filename=")) {
            notes.insert(0, "filename: the measured disk".to_owned());
        }
        notes.extend(job.differences(DISK_BYTES, time_s));
        Ok(Some(FioJobs {
            workload: fio_work(&job, time_s),
            notes,
            is_rated: job.is_rated(),
        }))
    }
}

/// The text of a job file.
fn text_of(path: &Path) -> Result<String, OptionsError> {
    let failed = |e| OptionsError::file(format!("reading {}", path.display()), e);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    match text.len() as u64 > MAX_BYTES {
        false => Ok(text),
        true => OptionsError::usage(format!(
            "{} is larger than 1 MiB: no job of fio is",
            path.display()
        )),
    }
}
