//! Version 7: sections, found from options; each may be compressed.

use super::compress::Codec;
use super::head::{self, CpuPages, Head};
use super::options::{self, Options};
use crate::import::read::{self, string, wrong};
use crate::{Formats, PageLayout, TracedThreads};
use std::io::{self, Read, Seek, SeekFrom};

/// Options that name the place of a section, which has the same number.
const HEADER_INFO: u16 = 16;
const FTRACE_FORMATS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const CMDLINES: u16 = 21;
/// Sections of options lead to one another; trace-cmd writes three or four.
const MAX_SECTIONS: usize = 100;
/// Of the options that tell where pages are, bytes: thousands of CPUs take less than one MiB.
const MAX_BUFFERS: usize = 16 << 20;
const COMPRESSED: u16 = 1;

pub(super) fn head(file: &mut (impl Read + Seek)) -> io::Result<Head> {
    let codec = Codec::named(&string(file)?)?;
    let _version = string(file)?;
    let first = read::u64(file)?;

    let mut directory = Directory::read(file, first, codec)?;
    let header = directory.required(file, HEADER_INFO, "header of pages")?;
    let layout = head::layout(&mut header.as_slice())?;
    let formats = directory.formats(file)?;
    let parts = directory.parts(file, layout)?;
    let threads = directory.threads(file)?;
    Ok(Head {
        options: directory.of_file,
        formats,
        threads,
        parts,
    })
}

/// The contents of a file's sections of options: where its other sections and its buffers are.
struct Directory {
    codec: Option<Codec>,
    /// Places of the sections from [`HEADER_INFO`] to [`EVENT_FORMATS`].
    places: [Option<u64>; 3],
    /// The option of each buffer.
    buffers: Vec<Vec<u8>>,
    /// Place of the section with the names of threads.
    names: Option<u64>,
    of_file: Options,
}

impl Directory {
    /// Reads the sections of options, the first of which is at `first`.
    fn read(
        file: &mut (impl Read + Seek),
        first: u64,
        codec: Option<Codec>,
    ) -> io::Result<Directory> {
        let mut directory = Directory {
            codec,
            places: [None; 3],
            buffers: Vec::new(),
            names: None,
            of_file: Options::default(),
        };
        let mut next = first;
        for n in 0.. {
            if next == 0 {
                break;
            }
            let of_buffers = directory.buffers.iter().map(Vec::len).sum::<usize>();
            if n == MAX_SECTIONS || of_buffers > MAX_BUFFERS {
                return Err(wrong("its options are not terminated"));
            }
            let section = section(file, next, 0, codec)?;
            next = directory.take(&section)?;
        }
        Ok(directory)
    }

    /// Takes the options of one section and returns the place of the next one; 0 where there is none.
    fn take(&mut self, mut options: &[u8]) -> io::Result<u64> {
        while !options.is_empty() {
            let id = read::u16(&mut options)?;
            let length = read::u32(&mut options)? as usize;
            let (mut data, rest) = options
                .split_at_checked(length)
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            options = rest;
            match id {
                options::DONE => return read::u64(&mut data),
                options::BUFFER => self.buffers.push(data.to_vec()),
                HEADER_INFO..=EVENT_FORMATS => {
                    self.places[usize::from(id - HEADER_INFO)] = Some(read::u64(&mut data)?)
                }
                CMDLINES => self.names = Some(read::u64(&mut data)?),
                _ => self.of_file.take(id, data)?,
            }
        }
        Ok(0)
    }

    /// Reads the content of a section that every file has.
    fn required(&self, file: &mut (impl Read + Seek), id: u16, what: &str) -> io::Result<Vec<u8>> {
        let place = self.places[usize::from(id - HEADER_INFO)]
            .ok_or_else(|| wrong(&format!("it has no {what}")))?;
        section(file, place, id, self.codec)
    }

    /// Reads the formats of all events.
    fn formats(&self, file: &mut (impl Read + Seek)) -> io::Result<Formats> {
        let mut formats = Formats::default();
        let of_ftrace = self.required(file, FTRACE_FORMATS, "formats of ftrace")?;
        head::ftrace_formats(&mut of_ftrace.as_slice(), &mut formats)?;
        let of_events = self.required(file, EVENT_FORMATS, "formats of events")?;
        head::event_formats(&mut of_events.as_slice(), &mut formats)?;
        Ok(formats)
    }

    /// Reads where the pages of all buffers are, and takes the clock of the top one for that of the file.
    fn parts(
        &mut self,
        file: &mut (impl Read + Seek),
        layout: PageLayout,
    ) -> io::Result<Vec<CpuPages>> {
        let mut parts = Vec::new();
        for data in &self.buffers {
            let (clock_of_buffer, of_buffer) = buffer(file, data, layout, self.codec)?;
            // Each buffer has its own; that of the file is of the top one, which may be empty.
            if !of_buffer.is_empty() && !clock_of_buffer.is_empty() {
                self.of_file.clock = Some(clock_of_buffer);
            }
            parts.extend(of_buffer);
        }
        if parts.is_empty() {
            return Err(wrong("it has no raw pages"));
        }
        Ok(parts)
    }

    /// Reads the names of threads; none where the file has no section of them.
    fn threads(&self, file: &mut (impl Read + Seek)) -> io::Result<TracedThreads> {
        let Some(at) = self.names else {
            return Ok(TracedThreads::new());
        };
        let stored = section(file, at, CMDLINES, self.codec)?;
        Ok(options::threads(&read::sized(&mut stored.as_slice())?))
    }
}

/// Reads the head of a section and returns its flags and the length of its content, bytes; the content follows.
fn section_flags(file: &mut (impl Read + Seek), at: u64, id: u16) -> io::Result<(u16, u64)> {
    file.seek(SeekFrom::Start(at))?;
    let found = read::u16(file)?;
    if found != id {
        return Err(wrong(&format!(
            "expected section {id} at {at}, found {found}"
        )));
    }
    let flags = read::u16(file)?;
    let _description = read::u32(file)?;
    Ok((flags, read::u64(file)?))
}

/// The content of a section.
fn section(
    file: &mut (impl Read + Seek),
    at: u64,
    id: u16,
    codec: Option<Codec>,
) -> io::Result<Vec<u8>> {
    let (flags, length) = section_flags(file, at, id)?;
    if flags & COMPRESSED == 0 {
        return read::exactly(file, length);
    }
    codec.ok_or_else(undeclared)?.block(file)
}

/// The option of a buffer: its clock, and its CPUs' data.
fn buffer(
    file: &mut (impl Read + Seek),
    mut data: &[u8],
    layout: PageLayout,
    codec: Option<Codec>,
) -> io::Result<(String, Vec<CpuPages>)> {
    const EACH: usize = 20;
    let at = read::u64(&mut data)?;
    let instance = string(&mut data)?;
    let clock = string(&mut data)?;
    // The first files of this version have no page size; only their length tells.
    let layout = match data.len() % EACH {
        4 => layout,
        _ => layout
            .with_size(read::u32(&mut data)? as usize)
            .ok_or_else(|| wrong("invalid page size"))?,
    };
    let (flags, _) = section_flags(file, at, options::BUFFER)?;
    let codec = if flags & COMPRESSED == 0 {
        None
    } else {
        Some(codec.ok_or_else(undeclared)?)
    };
    let mut parts = Vec::new();
    for _ in 0..read::u32(&mut data)? {
        let cpu = read::u32(&mut data)?;
        let (offset, bytes) = (read::u64(&mut data)?, read::u64(&mut data)?);
        if bytes > 0 {
            parts.push(CpuPages {
                instance: instance.clone(),
                cpu,
                offset,
                bytes,
                layout,
                codec,
            });
        }
    }
    Ok((clock, parts))
}

fn undeclared() -> io::Error {
    wrong("compressed section, but no compression is declared")
}
