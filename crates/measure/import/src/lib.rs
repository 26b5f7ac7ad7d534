//! Traces that other tools recorded, as a recording: the same files that vmtax's own observers write, which the same analyses
//! read.
//!
//! [`import`] opens each file by what it begins with, decides whose events it has, and writes the VM's exits and requests as
//! far as the files hold them. What they do not hold is named.

mod error;
mod exits;
mod perf_threads;
mod source;
mod survey;
mod vm;

pub use error::ImportError;

use serde::Serialize;
use source::SourceFile;
use std::path::PathBuf;
use survey::{Survey, survey};
use vm::TracedVm;
use vmtax_model::samples::ProfileFacts;
use vmtax_model::{ImportFacts, ImportedFile, Missing, SCHEMA, TraceSide, files};
use vmtax_recording::TrialFiles;

/// What to import.
#[derive(Debug, Clone, Default)]
pub struct ImportSettings {
    /// The files.
    pub files: Vec<PathBuf>,
    /// QEMU's process, or one of its vCPU threads, where there are several VMs.
    pub pid: Option<i32>,
    /// Rate of the time stamp counter, for files whose clock counts its ticks and that do not say it.
    pub tsc_mhz: Option<f64>,
}

/// A file with what it holds.
struct Surveyed {
    file: SourceFile,
    survey: Survey,
    side: TraceSide,
}

/// Files that were opened and have something to analyze.
pub struct Import {
    files: Vec<Surveyed>,
    settings: ImportSettings,
}

impl Import {
    /// Opens the files and reads each once.
    ///
    /// # Errors
    /// [`ImportError`] with the file that cannot be read, or where none has anything to analyze.
    pub fn open(settings: ImportSettings) -> Result<Import, ImportError> {
        let surveyed = |path: &PathBuf| {
            let file = SourceFile::open(path)?;
            let survey = survey(&file)?;
            let side = if file.is_of_qemu() { TraceSide::Qemu } else { TraceSide::Host };
            Ok(Surveyed { file, survey, side })
        };
        let files: Vec<Surveyed> = settings.files.iter().map(surveyed).collect::<Result<_, ImportError>>()?;
        if let Some(first) = files.first().filter(|_| files.iter().all(|file| file.survey.vcpus.is_empty())) {
            return Err(ImportError::Nothing { path: first.file.path.clone() });
        }
        Ok(Import { files, settings })
    }

    /// Writes what the files hold into the folder of a trial.
    ///
    /// # Errors
    /// [`ImportError`] where a file cannot be read, its clock has no known scale, or the folder cannot be written.
    pub fn store(&self, trial: &mut TrialFiles) -> Result<(), ImportError> {
        let mut missing = Vec::new();
        // Of several with events of KVM, the one with most.
        let of_kvm = self
            .of_side(TraceSide::Host)
            .max_by_key(|file| file.survey.vcpus.values().map(|vcpu| vcpu.events).sum::<u64>());
        if let Some(host) = of_kvm {
            self.store_exits(host, trial)?;
        }
        missing.extend(self.files.iter().flat_map(Surveyed::missing));
        let facts = ImportFacts {
            schema: SCHEMA,
            files: self.files.iter().map(Surveyed::facts).collect(),
            clocks: Vec::new(),
            missing,
        };
        store(trial, files::IMPORT, &facts)
    }

    fn of_side(&self, side: TraceSide) -> impl Iterator<Item = &Surveyed> {
        self.files.iter().filter(move |file| file.side == side)
    }

    fn store_exits(&self, host: &Surveyed, trial: &mut TrialFiles) -> Result<(), ImportError> {
        let Surveyed { file, survey, .. } = host;
        let Some(TracedVm { facts, mut missing }) = TracedVm::choose(file, survey, self.settings.pid)? else {
            return Ok(());
        };
        let counts = exits::count(file, survey, &facts, file.mhz(self.settings.tsc_mhz)?)?;
        missing.extend(exits::missing(file, survey));
        store(trial, files::EXITS, &counts)?;
        let pid = facts.pid;
        let path = Some(file.path.display().to_string());
        let observed = ProfileFacts { pid, program: String::new(), file: path, vm: Some(facts), missing };
        store(trial, files::OBSERVED, &observed)
    }
}

impl Surveyed {
    fn facts(&self) -> ImportedFile {
        let counts = &self.survey.counts;
        ImportedFile {
            file: self.file.path.display().to_string(),
            format: self.file.format().to_owned(),
            side: self.side,
            clock: self.file.clock().to_owned(),
            events: counts.events,
            lost: counts.lost,
            unknown: counts.unknown,
        }
    }

    /// What of the file could not be read.
    fn missing(&self) -> Vec<Missing> {
        let path = self.file.path.display();
        let counts = &self.survey.counts;
        let mut missing = Vec::new();
        let mut add = |count: u64, what: &str, why: &str, fix: &str| {
            if count > 0 {
                let why = format!("{count} {why}");
                missing.push(Missing { what: format!("{what} of {path}"), why, fix: fix.to_owned() });
            }
        };
        let again = "copy the file again, or record it again";
        add(counts.damaged_pages, "parts", "pages or records are invalid or cut off", again);
        add(counts.short, "some events", "records do not fit their format", again);
        add(
            counts.losses,
            "some events",
            "times events were lost",
            "record with larger buffers (`trace-cmd record -b`)",
        );
        add(counts.backwards + counts.leaps, "the order of events", "events are out of order or far ahead", again);
        add(self.survey.unreadable.len() as u64, "some events", "tracepoints have other fields than are known", "");
        missing
    }
}

fn store(trial: &mut TrialFiles, name: &'static str, value: &impl Serialize) -> Result<(), ImportError> {
    let bytes = serde_json::to_vec(value).map_err(|e| ImportError::Unstorable { what: name, reason: e.to_string() })?;
    Ok(trial.append(name, &bytes)?)
}
