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
    let mut next = read::u64(file)?;

    let (mut places, mut buffers, mut of_file) =
        ([None; 3], Vec::<Vec<u8>>::new(), Options::default());
    let mut names = None;
    for n in 0.. {
        if next == 0 {
            break;
        }
        if n == MAX_SECTIONS || buffers.iter().map(Vec::len).sum::<usize>() > MAX_BUFFERS {
            return Err(wrong("its options are not terminated"));
        }
        let section = section(file, next, 0, codec)?;
        let mut options = section.as_slice();
        next = 0;
        while !options.is_empty() {
            let id = read::u16(&mut options)?;
            let length = read::u32(&mut options)? as usize;
            let (mut data, rest) = options
                .split_at_checked(length)
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            options = rest;
            match id {
                options::DONE => {
                    next = read::u64(&mut data)?;
                    break;
                }
                options::BUFFER => buffers.push(data.to_vec()),
                HEADER_INFO..=EVENT_FORMATS => {
                    places[usize::from(id - HEADER_INFO)] = Some(read::u64(&mut data)?)
                }
                CMDLINES => names = Some(read::u64(&mut data)?),
                _ => of_file.take(id, data)?,
            }
        }
    }

    let mut found = |id: u16, what: &str| {
        let place = places[usize::from(id - HEADER_INFO)]
            .ok_or_else(|| wrong(&format!("it has no {what}")))?;
        section(file, place, id, codec)
    };
    let layout = head::layout(&mut found(HEADER_INFO, "header of pages")?.as_slice())?;
    let mut formats = Formats::default();
    head::ftrace_formats(
        &mut found(FTRACE_FORMATS, "formats of ftrace")?.as_slice(),
        &mut formats,
    )?;
    head::event_formats(
        &mut found(EVENT_FORMATS, "formats of events")?.as_slice(),
        &mut formats,
    )?;

    let mut parts = Vec::new();
    for data in &buffers {
        let (clock_of_buffer, of_buffer) = buffer(file, data, layout, codec)?;
        // Each buffer has its own; that of the file is of the top one, which may be empty.
        if !of_buffer.is_empty() && !clock_of_buffer.is_empty() {
            of_file.clock = Some(clock_of_buffer);
        }
        parts.extend(of_buffer);
    }
    if parts.is_empty() {
        return Err(wrong("it has no raw pages"));
    }
    let threads = match names {
        Some(at) => {
            let stored = section(file, at, CMDLINES, codec)?;
            options::threads(&read::sized(&mut stored.as_slice())?)
        }
        None => TracedThreads::new(),
    };
    Ok(Head {
        options: of_file,
        formats,
        threads,
        parts,
    })
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
