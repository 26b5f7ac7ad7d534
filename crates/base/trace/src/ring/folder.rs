//! A folder with the raw trace of one kernel.

use super::Input;
use super::page::PageLayout;
use super::stats::{self, CpuStats};
use crate::file::{text, unreadable};
use crate::{Events, Formats, TraceError};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Where the events' formats lie.
const FORMATS: &str = "formats";

/// A trace saved from tracefs: raw pages, and the format files needed to read them.
///
/// ```text
/// header_page                 events/header_page
/// clock                       the clock's name, such as x86-tsc
/// formats/SYSTEM.EVENT        events/SYSTEM/EVENT/format
/// INSTANCE.cpuN.raw           per_cpu/cpuN/trace_pipe_raw of an instance of tracefs
/// stats                       lines INSTANCE.cpuN, each followed by per_cpu/cpuN/stats; may be missing
/// ```
#[derive(Debug)]
pub struct Folder {
    clock: String,
    layout: PageLayout,
    formats: Formats,
    inputs: Vec<RawFile>,
    stats: Vec<CpuStats>,
}

/// One file of raw pages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawFile {
    /// The instance of tracefs that it is from.
    pub instance: String,
    /// Number of the CPU that wrote it.
    pub cpu: u32,
    /// Path of the file.
    pub path: PathBuf,
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    /// [`TraceError`] when it has no raw pages, or a format file is missing or invalid.
    pub fn open(path: &Path) -> Result<Folder, TraceError> {
        let mut inputs = raw_files(path)?;
        if inputs.is_empty() {
            return Err(TraceError::NoPages {
                path: path.to_owned(),
            });
        }
        inputs.sort();

        let header = path.join("header_page");
        let layout = PageLayout::parse(&text(&header)?).map_err(|reason| TraceError::Damaged {
            path: header,
            reason,
        })?;
        let stats = match text(&path.join("stats")) {
            Ok(text) => stats::parse(&text),
            Err(TraceError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Vec::new()
            }
            Err(e) => return Err(e),
        };
        let clock = text(&path.join("clock"))?.trim().to_owned();
        Ok(Folder {
            clock,
            layout,
            formats: formats(&path.join(FORMATS))?,
            inputs,
            stats,
        })
    }

    /// The name of the clock that [`crate::Event::ticks`] is read from.
    pub fn clock(&self) -> &str {
        &self.clock
    }

    /// The kinds of events.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The files of raw pages; [`crate::Event::input`] counts them from 0.
    pub fn inputs(&self) -> &[RawFile] {
        &self.inputs
    }

    /// Losses that the kernel counted; empty when the folder has no stats.
    pub fn stats(&self) -> &[CpuStats] {
        &self.stats
    }

    /// All events, from the first.
    ///
    /// # Errors
    /// [`TraceError::Read`] when a file cannot be read.
    pub fn events(&self) -> Result<Events<'_>, TraceError> {
        let opened = self.inputs.iter().map(|raw| {
            let file = File::open(&raw.path).map_err(|source| unreadable(&raw.path, source))?;
            Ok(Input {
                path: raw.path.clone(),
                cpu: raw.cpu,
                layout: self.layout,
                pages: Box::new(file),
            })
        });
        Events::pages(&self.formats, opened.collect::<Result<_, _>>()?)
    }
}

fn raw_files(folder: &Path) -> Result<Vec<RawFile>, TraceError> {
    let mut files = Vec::new();
    for (name, path) in listed(folder)? {
        let Some((instance, cpu)) = name.strip_suffix(".raw").and_then(stats::instance_and_cpu)
        else {
            continue;
        };
        files.push(RawFile {
            instance: instance.to_owned(),
            cpu,
            path,
        });
    }
    Ok(files)
}

fn formats(folder: &Path) -> Result<Formats, TraceError> {
    let mut formats = Formats::default();
    for (name, path) in listed(folder)? {
        let Some((system, _)) = name.split_once('.') else {
            continue;
        };
        formats
            .add(system, &text(&path)?)
            .map_err(|reason| TraceError::Damaged { path, reason })?;
    }
    Ok(formats)
}

/// The names in a folder that are text, with their paths, in order.
fn listed(folder: &Path) -> Result<Vec<(String, PathBuf)>, TraceError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|source| unreadable(folder, source))?;
    let mut named: Vec<_> = entries
        .iter()
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.path())))
        .collect();
    named.sort();
    Ok(named)
}
