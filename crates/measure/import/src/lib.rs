//! Traces that other tools recorded, as a recording: the same files that vmtax's own observers write, which the same analyses
//! read.
//!
//! [`Import::open`] opens each file by what it begins with and decides whose events it has; [`Import::store`] writes the VM's
//! exits and requests as far as the files hold them. What they do not hold is named.
//!
//! [`AddedGuest`] adds the file of `vmtax agent observe` to the recording of its VM.

mod error;
mod folder;
mod guest_file;
mod requests;
mod source;
mod survey;
mod vm;

pub use error::ImportError;
pub use guest_file::{AddedGuest, read_guest_file};

use requests::{Sides, StoredRequests};
use source::SourceFile;
use std::path::{Path, PathBuf};
use survey::Surveyed;
use vm::TracedVm;
use vmtax_model::samples::ProfileFacts;
use vmtax_model::{ImportFacts, SCHEMA, TraceSide, VmFacts, files};
use vmtax_recording::TrialFiles;

/// Files to import, and how to read them.
#[derive(Debug, Clone, Default)]
pub struct ImportSettings {
    /// Paths of the files.
    pub files: Vec<PathBuf>,
    /// QEMU's process, or one of its vCPU threads, where there are several VMs.
    pub pid: Option<i32>,
    /// The file of the guest's kernel, where the files do not tell.
    pub guest: Option<PathBuf>,
    /// Rate of the time stamp counter, for files whose clock counts its ticks and that do not say it.
    pub tsc_mhz: Option<f64>,
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
        let surveyed = |path| Surveyed::read(SourceFile::open(path)?);
        let files: Result<Vec<Surveyed>, ImportError> =
            settings.files.iter().map(|path| surveyed(path)).collect();
        let mut files = files?;
        survey::assign_sides(&mut files, settings.guest.as_deref())?;
        Ok(Import { files, settings })
    }

    /// Writes what the files hold into the folder of a trial.
    ///
    /// # Errors
    /// [`ImportError`] where a file cannot be read, its clock has no known scale, or the folder cannot be written.
    pub fn store(&self, trial: &mut TrialFiles) -> Result<(), ImportError> {
        // Of several of the host's kernel, the one with most events of KVM.
        let host = self
            .of_side(TraceSide::Host)
            .max_by_key(|file| file.kvm_events());
        let vm = host
            .map(|host| self.store_exits(host, trial))
            .transpose()?
            .flatten();
        let vm = vm.unwrap_or_else(|| self.unknown_vm());
        let qemu = self
            .of_side(TraceSide::Qemu)
            .filter(|file| !file.survey.threads.is_empty())
            .collect();
        let unknown = || self.of_side(TraceSide::Unknown);
        let sides = Sides {
            host,
            qemu,
            guest: self.of_side(TraceSide::Guest).chain(unknown()).next(),
        };
        let StoredRequests {
            clocks,
            mut missing,
        } = sides.store(vm, self.settings.tsc_mhz, trial)?;
        let is_host = |file: &&Surveyed| host.is_some_and(|host| std::ptr::eq(host, *file));
        missing.extend(
            self.of_side(TraceSide::Host)
                .filter(|file| !is_host(file))
                .map(Surveyed::unused),
        );
        missing.extend(unknown().map(Surveyed::unknown_kernel));
        missing.extend(self.files.iter().flat_map(Surveyed::missing));
        let files = self.files.iter().map(Surveyed::facts).collect();
        let facts = ImportFacts {
            schema: SCHEMA,
            files,
            clocks,
            missing,
        };
        Ok(trial.store(files::IMPORT, &facts)?)
    }

    /// A VM of which no trace of the host's kernel tells.
    fn unknown_vm(&self) -> VmFacts {
        let first = self.files.first();
        let path = first.map_or(Path::new(""), |first| &first.file.path);
        let is_of_vm = self.of_side(TraceSide::Unknown).next().is_none();
        VmFacts {
            name: is_of_vm.then(|| format!("VM of {}", path.display())),
            ..VmFacts::unknown(0)
        }
    }

    fn of_side(&self, side: TraceSide) -> impl Iterator<Item = &Surveyed> {
        self.files.iter().filter(move |file| file.side == side)
    }

    /// Counts the exits in a trace of the host's kernel; gives their VM.
    fn store_exits(
        &self,
        host: &Surveyed,
        trial: &mut TrialFiles,
    ) -> Result<Option<VmFacts>, ImportError> {
        let Surveyed { file, survey, .. } = host;
        let Some(TracedVm { facts, mut missing }) =
            TracedVm::choose(file, survey, self.settings.pid)?
        else {
            return Ok(None);
        };
        let counts = vm::count_exits(file, survey, &facts, file.mhz(self.settings.tsc_mhz)?)?;
        missing.extend(vm::missing_exits(file, survey));
        trial.store(files::EXITS, &counts)?;
        let observed = ProfileFacts {
            pid: facts.pid,
            file: Some(file.path.display().to_string()),
            vm: Some(facts.clone()),
            missing,
            ..ProfileFacts::default()
        };
        trial.store(files::OBSERVED, &observed)?;
        Ok(Some(facts))
    }
}
