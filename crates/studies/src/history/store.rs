//! The folder of a history: a small file for each run that was added, which are folded into larger ones. Files are written
//! whole, under names of their own, and never changed, so that any number of processes add to it and read it at once. Runs are
//! rows of a table in them, one for each figure.

use super::entry::{Entry, Figure};
use jiff::Timestamp;
use rustix::fs::{Access, FlockOperation, access, flock};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vmtax_export::ExportError;
use vmtax_export::table::{
    Cell, Column, Group, Problem, Rows, Texts, for_each_group, text, words, write_whole,
};
use vmtax_findings::Estimate;
use vmtax_model::Interval;
use vmtax_recording::RecordingError;

/// Name of the history in a folder of recordings. Patterns such as `runs/*/` pass over it.
pub const FOLDER: &str = ".history";
/// Schema of the files, which lie in a folder of its name.
const SCHEMA: u32 = 1;
/// Most small files, and runs of a large one.
pub(super) const MANY: usize = 64;
/// No file takes so long to write.
const LONGEST_WRITE: Duration = Duration::from_secs(3600);
/// Beginning of the name of a file with fewer runs.
const SMALL: &str = "few-";
const LARGE: &str = "many-";

/// A history cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A newer vmtax wrote it.
    #[error("{path} has schema {schema}, which this vmtax does not know, so it is not changed: update vmtax, then `vmtax history --dir {runs}` adds the missing runs",
        path = .path.display(), runs = line(.path.parent()))]
    TooNew {
        /// Folder of the history.
        path: PathBuf,
        /// Schema of files in it.
        schema: u32,
    },
    /// A link, a file, a pipe.
    #[error("{path} is not a directory: move it away, then `vmtax history --dir {runs}` makes the history again",
        path = .path.display(), runs = line(Some(.runs)))]
    NotAFolder {
        /// In place of a folder of the history.
        path: PathBuf,
        /// Folder of the recordings.
        runs: PathBuf,
    },
    /// The system does not give what is there.
    #[error("cannot read {path} ({source}): check its owner and its permissions", path = .path.display())]
    Read {
        /// The file, or its folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("the history of {folder} cannot be written ({why}): check its owner, its permissions and the free space on its disk, then \
             `vmtax history --dir {runs}` adds what is missing of its recordings", folder = .runs.display(), runs = line(Some(.runs)))]
    Write {
        /// Folder of the recordings.
        runs: PathBuf,
        /// Reason for the failure, as the system or the library gives it.
        why: String,
    },
    /// The recording has no identity.
    #[error(transparent)]
    Identity(#[from] ExportError),
    /// The folder of recordings, or one of them.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// A path as a shell takes it.
fn line(path: Option<&Path>) -> String {
    vmtax_model::shell_line(&[path.unwrap_or(Path::new(".")).display().to_string()])
}

/// The files of a history.
#[derive(Debug)]
pub struct Store {
    /// The folder of recordings.
    pub runs: PathBuf,
    files: PathBuf,
}

/// Content of the files.
#[derive(Debug, Default)]
pub struct Content {
    /// Each run once.
    pub runs: Vec<Entry>,
    /// Files that cannot be read, and why.
    pub damaged: Vec<(PathBuf, Problem)>,
}

impl Store {
    /// Opens the history of a folder of recordings; there need not be one yet.
    pub fn open(runs: &Path) -> Result<Store, HistoryError> {
        let folder = runs.join(FOLDER);
        let files = folder.join(format!("schema={SCHEMA}"));
        // A link would have files made where it leads.
        let is_other = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|m| !m.is_dir());
        if let Some(path) = [&folder, &files].into_iter().find(is_other) {
            return Err(HistoryError::NotAFolder {
                path: path.clone(),
                runs: runs.to_owned(),
            });
        }
        let schema = |path: &PathBuf| {
            path.file_name()?
                .to_str()?
                .strip_prefix("schema=")?
                .parse()
                .ok()
        };
        let newest = entries(&folder)?.iter().filter_map(schema).max();
        if let Some(schema) = newest.filter(|schema| *schema > SCHEMA) {
            return Err(HistoryError::TooNew {
                path: folder,
                schema,
            });
        }
        Ok(Store {
            runs: runs.to_owned(),
            files,
        })
    }

    /// Returns true if files can be added.
    pub fn is_writable(&self) -> bool {
        let place = if self.files.exists() {
            &self.files
        } else {
            &self.runs
        };
        access(place, Access::WRITE_OK).is_ok()
    }

    /// Reads all files.
    pub fn read(&self) -> Result<Content, HistoryError> {
        'again: loop {
            // Small ones are listed first: those that are folded meanwhile are in a large one.
            let files = [self.files(SMALL)?, self.files(LARGE)?].concat();
            let (mut content, mut texts) = (Content::default(), Texts::default());
            for path in files {
                match read_file(&path, &mut texts) {
                    Ok(runs) => content.runs.extend(runs),
                    // It was folded after it was listed, into a file that was not there yet.
                    Err(Problem::Unreadable(e)) if e.kind() == ErrorKind::NotFound => {
                        continue 'again;
                    }
                    Err(Problem::Unreadable(source)) => {
                        return Err(HistoryError::Read { path, source });
                    }
                    Err(problem) => content.damaged.push((path, problem)),
                }
            }
            self.each_once(&mut content.runs);
            return Ok(content);
        }
    }

    /// Leaves one entry of each run, and of each folder: the recording that is there, and the latest one.
    pub fn each_once(&self, runs: &mut Vec<Entry>) {
        runs.sort_by_cached_key(|run| (run.key(), !self.is_recorded(run)));
        runs.dedup_by(|other, first| other.key() == first.key());
        runs.sort_by(|a, b| (&a.folder, &b.started).cmp(&(&b.folder, &a.started)));
        runs.dedup_by(|earlier, last| earlier.folder == last.folder);
    }

    /// Returns true if the recording of a run is still there.
    pub fn is_recorded(&self, run: &Entry) -> bool {
        self.runs.join(&*run.folder).is_dir()
    }

    /// Adds runs, and folds small files where there are many. Each run is there as a whole, or not at all.
    pub fn put(&self, runs: &[Entry]) -> Result<(), HistoryError> {
        self.write(runs)?;
        self.remove_unfinished();
        if self.files(SMALL)?.len() > MANY {
            // What stays is read as it is, and folded the next time.
            let _ = self.fold();
        }
        Ok(())
    }

    fn write(&self, runs: &[Entry]) -> Result<(), HistoryError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let failed = |why: String| HistoryError::Write {
            runs: self.runs.clone(),
            why,
        };
        // Commands and their folders are in it: it is its owner's alone, as recordings are.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.files);
        made.map_err(|error| failed(error.to_string()))?;
        for runs in runs.chunks(MANY) {
            let kind = if runs.len() < MANY { SMALL } else { LARGE };
            let (now, process) = (Timestamp::now().as_nanosecond(), std::process::id());
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = self
                .files
                .join(format!("{kind}{now}-{process}-{number}.parquet"));
            let table = rows(runs);
            write_whole(&path, |file| table.write("history", file))
                .map_err(|error| failed(reason(&error)))?;
        }
        Ok(())
    }

    /// Removes the files that killed processes left unfinished.
    fn remove_unfinished(&self) {
        let is_left = |path: &PathBuf| {
            let is_unfinished = path.extension().is_some_and(|end| end == "part");
            let written = path.symlink_metadata().and_then(|file| file.modified());
            let age = written.ok().and_then(|written| written.elapsed().ok());
            is_unfinished && age.is_some_and(|age| age > LONGEST_WRITE)
        };
        let files = paths(&self.files).unwrap_or_default();
        for path in files.iter().filter(|path| is_left(path)) {
            // Another process may do the same.
            let _ = fs::remove_file(path);
        }
    }

    /// Folds the small files, unless another process does. They are removed once their runs are in place elsewhere.
    fn fold(&self) -> Result<(), HistoryError> {
        let failed = |source: io::Error| HistoryError::Read {
            path: self.files.clone(),
            source,
        };
        // Given up when the descriptor closes.
        let lock = File::open(&self.files).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let (mut runs, mut texts) = (Vec::new(), Texts::default());
        let mut files = self.files(SMALL)?;
        // A damaged one is for a reader to say.
        files.retain(|path| {
            read_file(path, &mut texts)
                .map(|of_file| runs.extend(of_file))
                .is_ok()
        });
        self.each_once(&mut runs);
        self.write(&runs)?;
        files.iter().try_for_each(fs::remove_file).map_err(failed)
    }

    /// Returns the files whose names begin with this. What is no regular file is passed over.
    fn files(&self, kind: &str) -> Result<Vec<PathBuf>, HistoryError> {
        let mut files = entries(&self.files)?;
        files.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(kind)
                && name.ends_with(".parquet")
                // One that was folded after it was listed stays: who opens it sees that it is gone.
                && path.symlink_metadata().map_or_else(
                    |error| error.kind() == ErrorKind::NotFound,
                    |file| file.is_file(),
                )
        });
        files.sort();
        Ok(files)
    }
}

/// The reason for which a file was not written, without the advice for a file that a user names.
fn reason(error: &ExportError) -> String {
    match error {
        ExportError::File { source, .. } => source.to_string(),
        ExportError::Parquet { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// Returns what is in a folder; nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, HistoryError> {
    match paths(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        paths => paths.map_err(|source| HistoryError::Read {
            path: folder.to_owned(),
            source,
        }),
    }
}

pub(super) fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Columns of texts, in the order in which [`read_group`] takes them. docs/history.md is the schema.
const TEXTS: [&str; 13] = [
    "run", "folder", "started", "plan", "cpu", "vm", "kept", "metric", "machine", "variant",
    "step", "settings", "facts",
];
/// A figure's interval.
const LIMITS: [&str; 3] = ["low", "high", "coverage"];

/// Returns the rows of runs.
fn rows(runs: &[Entry]) -> Rows {
    let mut columns: Vec<_> = TEXTS.map(text).into();
    columns.push(("rounds", Column::Int(vec![])));
    columns.push(("median", Column::Float(vec![])));
    columns.extend(LIMITS.map(|name| (name, Column::MaybeFloat(vec![]))));
    let mut rows = Rows::new(columns);
    for (run, f) in runs
        .iter()
        .flat_map(|run| run.figures.iter().map(move |f| (run, f)))
    {
        let texts = [
            &run.id,
            &run.folder,
            &run.started,
            &run.plan,
            &run.cpu,
            &run.vm,
            &run.kept,
            &f.metric,
            &f.machine,
            &f.variant,
            &f.step,
            &f.settings,
            &f.facts,
        ];
        let mut row: Vec<Cell> = texts.map(|text| words(text)).into();
        row.extend([Cell::Int(f.n), Cell::Float(f.value.median)]);
        let limits = f.value.interval.map(|i| [i.low, i.high, i.coverage]);
        row.extend((0..LIMITS.len()).map(|i| Cell::MaybeFloat(limits.map(|limits| limits[i]))));
        rows.push(row);
    }
    rows
}

/// Reads the runs of a file. Nothing in it is trusted: what is no figure is passed over.
///
/// # Errors
/// [`Problem`] of the file, from which nothing is taken then.
fn read_file(path: &Path, texts: &mut Texts) -> Result<Vec<Entry>, Problem> {
    let mut runs = Vec::new();
    for_each_group(path, |group| read_group(group, texts, &mut runs))?;
    Ok(runs)
}

fn read_group(group: &mut Group, texts: &mut Texts, runs: &mut Vec<Entry>) -> Result<(), Problem> {
    let columns = TEXTS
        .into_iter()
        .map(|name| group.needed_texts(name, texts));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rounds = group.longs("rounds")?.ok_or(Problem::Column("rounds"))?;
    let median = group.floats("median")?;
    let limits = LIMITS.into_iter().map(|name| group.floats(name));
    let limits = limits.collect::<Result<Vec<_>, _>>()?;
    for row in 0..group.rows {
        // In the order of `TEXTS`.
        let mut row_texts = columns.iter().map(|column| texts.shared(column[row]));
        let mut next = || row_texts.next().unwrap_or_default();
        let run = Entry {
            id: next(),
            folder: next(),
            started: next(),
            plan: next(),
            cpu: next(),
            vm: next(),
            kept: next(),
            figures: Vec::new(),
        };
        // Runs of one command that began in one second share the ID, as copies do.
        let is_same = |last: &Entry| last.id == run.id && last.folder == run.folder;
        if !runs.last().is_some_and(is_same) {
            runs.push(run);
        }
        let number = rounds[row].and_then(|n| u32::try_from(n).ok());
        let value =
            median[row].and_then(|median| estimate(median, [0, 1, 2].map(|i| limits[i][row])));
        if let (Some(run), Some(n), Some(value)) = (runs.last_mut(), number, value) {
            run.figures.push(Figure {
                metric: next(),
                machine: next(),
                variant: next(),
                step: next(),
                settings: next(),
                facts: next(),
                n,
                value,
            });
        }
    }
    Ok(())
}

fn estimate(median: f64, limits: [Option<f64>; 3]) -> Option<Estimate> {
    let interval = match limits {
        [Some(low), Some(high), Some(coverage)] => Some(Interval {
            low,
            high,
            coverage,
        }),
        _ => None,
    };
    let is_sound =
        median.is_finite() && interval.is_none_or(|i| i.low <= i.high && i.coverage.is_finite());
    is_sound.then_some(Estimate { median, interval })
}
