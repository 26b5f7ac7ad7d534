//! A folder with the raw trace of one kernel: read, and written, so that what came in another form is read like the kernel's
//! own.

use super::{Input, MISSED, MISSED_STORED, PageLayout};
use crate::file::{damaged, open, text, unreadable};
use crate::{EventId, Events, Formats, TraceError};
use std::collections::BTreeMap;
use std::fs;
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
        let layout =
            PageLayout::parse(&text(&header)?).map_err(|reason| damaged(&header, reason))?;
        let stats = match text(&path.join("stats")) {
            Ok(text) => cpu_stats(&text),
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
            Ok(Input {
                path: raw.path.clone(),
                cpu: raw.cpu,
                layout: self.layout,
                pages: Box::new(open(&raw.path)?),
            })
        });
        Events::pages(&self.formats, opened.collect::<Result<_, TraceError>>()?)
    }
}

fn raw_files(folder: &Path) -> Result<Vec<RawFile>, TraceError> {
    let mut files = Vec::new();
    for (name, path) in listed(folder)? {
        let Some((instance, cpu)) = name.strip_suffix(".raw").and_then(instance_and_cpu) else {
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

/// Numbers of events that one CPU's buffer did not keep. Source: `tracing_stats_read` in `kernel/trace/trace.c`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// The instance of tracefs.
    pub instance: String,
    /// Number of the CPU.
    pub cpu: u32,
    /// Events overwritten before they were read.
    pub overrun: u64,
    /// Events dropped because the buffer was full.
    pub dropped: u64,
    /// Events lost because others interrupted them too often.
    pub commit_overrun: u64,
}

/// Reads lines `INSTANCE.cpuN`, each followed by that buffer's `stats`. Lines that it does not know are left out.
pub fn cpu_stats(text: &str) -> Vec<CpuStats> {
    let mut stats: Vec<CpuStats> = Vec::new();
    for line in text.lines() {
        match line.split_once(':') {
            None => {
                if let Some((instance, cpu)) = instance_and_cpu(line.trim()) {
                    stats.push(CpuStats {
                        instance: instance.to_owned(),
                        cpu,
                        ..CpuStats::default()
                    });
                }
            }
            Some((key, value)) => {
                let (Some(cpu), Ok(value)) = (stats.last_mut(), value.trim().parse()) else {
                    continue;
                };
                match key.trim() {
                    "overrun" => cpu.overrun = value,
                    "dropped events" => cpu.dropped = value,
                    "commit overrun" => cpu.commit_overrun = value,
                    _ => {}
                }
            }
        }
    }
    stats
}

/// Returns the CPU of a file of raw pages, `INSTANCE.cpuN.raw`.
pub fn cpu_of_raw_file(name: &str) -> Option<u32> {
    let (_, cpu) = instance_and_cpu(name.strip_suffix(".raw")?)?;
    Some(cpu)
}

/// The two parts of `INSTANCE.cpuN`.
fn instance_and_cpu(name: &str) -> Option<(&str, u32)> {
    let (instance, cpu) = name.rsplit_once(".cpu")?;
    Some((instance, cpu.parse().ok()?)).filter(|_| !instance.is_empty())
}

/// Bytes of a page's data, and of its header (`struct buffer_data_page`).
const DATA: usize = 4080;
const HEADER: usize = 16;
/// Room for the number of events that are missing before the page.
const NUMBER: usize = 8;
/// The longest record whose length is in its header, in words.
const MAX_WORDS: usize = 28;
/// More CPUs than these are damage.
const MAX_CPUS: usize = 2048;
/// Times of one page differ by less.
const MAX_DELTA: u64 = 1 << 27;
/// Text of `header_page`, which [`crate::PageLayout`] reads.
const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

/// Takes a piece of a file, which is appended to what the file has: its name in the folder, its bytes.
pub type Keep<'k, E> = dyn FnMut(&str, &[u8]) -> Result<(), E> + 'k;

/// A folder of raw pages in the making, as [`crate::Folder`] reads it.
#[derive(Debug, Default)]
pub struct FolderWriter {
    /// By instance and CPU.
    pages: BTreeMap<(u32, u32), Page>,
    /// Records that are too long for a page, or of more CPUs than a trace has.
    left_out: u64,
}

#[derive(Debug, Default)]
struct Page {
    stamp: u64,
    last: u64,
    data: Vec<u8>,
    missed: u64,
}

impl FolderWriter {
    /// Writes the formats of these events, and the name of the clock.
    ///
    /// # Errors
    /// Errors of `keep`.
    pub fn head<E>(
        &self,
        formats: &Formats,
        used: &[EventId],
        clock: &str,
        keep: &mut Keep<'_, E>,
    ) -> Result<(), E> {
        keep("header_page", HEADER_PAGE.as_bytes())?;
        keep("clock", clock.as_bytes())?;
        for (id, format) in formats.iter().filter(|(id, _)| used.contains(id)) {
            keep(
                &format!("formats/{}.{}", format.system, format.name),
                format.text(id).as_bytes(),
            )?;
        }
        Ok(())
    }

    /// Writes an event of one CPU; CPUs of other instances are others. A time before that of the CPU's last event
    /// becomes that.
    ///
    /// # Errors
    /// Errors of `keep`.
    pub fn event<E>(
        &mut self,
        instance: u32,
        cpu: u32,
        ticks: u64,
        record: &[u8],
        keep: &mut Keep<'_, E>,
    ) -> Result<(), E> {
        let padded = record.len().next_multiple_of(4);
        // The length of a longer record stands behind its header.
        let words = Some(padded / 4)
            .filter(|&words| words <= MAX_WORDS)
            .unwrap_or(0) as u32;
        let length = padded + if words == 0 { 8 } else { 4 };
        let fits = length <= DATA - NUMBER;
        let Some(page) = fits.then(|| self.page(instance, cpu)).flatten() else {
            self.left_out += 1;
            return Ok(());
        };
        let ticks = ticks.max(page.last);
        if page.data.len() + length > DATA - NUMBER
            || (!page.data.is_empty() && ticks - page.last >= MAX_DELTA)
        {
            page.write(instance, cpu, keep)?;
        }
        if page.data.is_empty() {
            (page.stamp, page.last) = (ticks, ticks);
        }
        let delta = (ticks - page.last) as u32;
        page.last = ticks;
        page.data
            .extend_from_slice(&(words | delta << 5).to_le_bytes());
        if words == 0 {
            page.data
                .extend_from_slice(&(padded as u32 + 4).to_le_bytes());
        }
        page.data.extend_from_slice(record);
        page.data.resize(page.data.len() + padded - record.len(), 0);
        Ok(())
    }

    /// Notes that events are missing before the CPU's next.
    ///
    /// # Errors
    /// Errors of `keep`.
    pub fn lost<E>(
        &mut self,
        instance: u32,
        cpu: u32,
        events: u64,
        keep: &mut Keep<'_, E>,
    ) -> Result<(), E> {
        let Some(page) = self.page(instance, cpu) else {
            return Ok(());
        };
        if !page.data.is_empty() {
            page.write(instance, cpu, keep)?;
        }
        page.missed = page.missed.saturating_add(events);
        Ok(())
    }

    /// Writes what is left; gives the number of records that were left out: too long for a page, or of too many CPUs.
    ///
    /// # Errors
    /// Errors of `keep`.
    pub fn finish<E>(mut self, keep: &mut Keep<'_, E>) -> Result<u64, E> {
        for ((instance, cpu), page) in &mut self.pages {
            if !page.data.is_empty() || page.missed > 0 {
                page.write(*instance, *cpu, keep)?;
            }
        }
        Ok(self.left_out)
    }

    /// The page of a CPU; `None` for one that is too many.
    fn page(&mut self, instance: u32, cpu: u32) -> Option<&mut Page> {
        let key = (instance, cpu);
        let is_free = self.pages.len() < MAX_CPUS || self.pages.contains_key(&key);
        is_free.then(|| self.pages.entry(key).or_default())
    }
}

impl Page {
    fn write<E>(&mut self, instance: u32, cpu: u32, keep: &mut Keep<'_, E>) -> Result<(), E> {
        let mut commit = self.data.len() as u64;
        let mut bytes = Vec::with_capacity(HEADER + DATA);
        if self.missed > 0 {
            commit |= MISSED | MISSED_STORED;
            self.data.extend_from_slice(&self.missed.to_le_bytes());
        }
        bytes.extend_from_slice(&self.stamp.to_le_bytes());
        bytes.extend_from_slice(&commit.to_le_bytes());
        bytes.append(&mut self.data);
        bytes.resize(HEADER + DATA, 0);
        self.missed = 0;
        keep(&format!("file{instance}.cpu{cpu}.raw"), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Collected, formats, read, record};
    use proptest::prelude::*;
    use std::convert::Infallible;

    type Files = BTreeMap<String, Vec<u8>>;

    fn kept(files: &mut Files) -> impl FnMut(&str, &[u8]) -> Result<(), Infallible> {
        |name, bytes| {
            files
                .entry(name.to_owned())
                .or_default()
                .extend_from_slice(bytes);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(events in proptest::collection::vec((0..1_u64 << 40, any::<u64>(), 0..20_u64), 1..600)) {
            let (mut writer, mut files) = (FolderWriter::default(), Files::new());
            let (mut at, mut expected) = (1, Vec::new());
            for (later, number, lost) in events {
                // Most events follow at once.
                at += if later % 3 == 0 { later } else { later % 1000 };
                if lost == 1 {
                    writer.lost(0, 0, number % 1000 + 1, &mut kept(&mut files)).unwrap();
                    expected.push(Collected::Lost(at, Some(number % 1000 + 1)));
                }
                writer.event(0, 0, at, &record(number), &mut kept(&mut files)).unwrap();
                expected.push(Collected::Number(at, number));
            }
            writer.finish(&mut kept(&mut files)).unwrap();
            let (got, counts) = read(&[&files["file0.cpu0.raw"]]);
            prop_assert_eq!(got, expected);
            prop_assert_eq!(counts.damaged_pages, 0);
        }
    }

    #[test]
    fn formats_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let mut formats = formats();
        let text = "name: all\nID: 8\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:unsigned long args[6];\toffset:24;\tsize:48;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:72;\tsize:4;\tsigned:0;
\tfield:__rel_loc char[] other;\toffset:76;\tsize:4;\tsigned:0;
\tfield:long long number;\toffset:80;\tsize:8;\tsigned:1;
\tfield:u8 rest[];\toffset:88;\tsize:0;\tsigned:0;\n";
        formats.add("test", text).unwrap();
        let (mut writer, ids) = (FolderWriter::default(), [EventId(7), EventId(8)]);
        let mut keep = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap())?;
            std::fs::write(path, bytes)
        };
        writer.head(&formats, &ids, "imported", &mut keep).unwrap();
        // It fits no page.
        writer.event(0, 3, 5, &[0; 5000], &mut keep).unwrap();
        writer.event(0, 3, 5, &record(9), &mut keep).unwrap();
        assert_eq!(writer.finish(&mut keep).unwrap(), 1);
        let read = crate::Folder::open(folder.path()).unwrap();
        assert_eq!((read.formats(), read.clock()), (&formats, "imported"));
        assert_eq!(read.inputs()[0].cpu, 3);
    }
}
