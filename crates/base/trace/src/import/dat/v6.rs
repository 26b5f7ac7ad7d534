//! Version 6: everything in one order.

use super::head::{self, CpuPages, Head};
use super::options::{self, Options};
use crate::import::read::{self, string, wrong};
use crate::{Formats, PageLayout};
use std::io::{self, Read, Seek, SeekFrom};

/// More than any Linux has.
const MAX_CPUS: u32 = 1 << 16;
/// `local global counter …` is shorter.
const MAX_CLOCK_TEXT: u64 = 4096;

pub(super) fn head(file: &mut (impl Read + Seek)) -> io::Result<Head> {
    let layout = head::layout(file)?;
    let mut formats = Formats::default();
    head::ftrace_formats(file, &mut formats)?;
    head::event_formats(file, &mut formats)?;
    // Names of functions, and of trace_printk formats.
    for _ in 0..2 {
        let length = u64::from(read::u32(file)?);
        read::skip(file, length)?;
    }
    let threads = options::threads(&read::sized(file)?);
    let cpus = read::u32(file)?;
    if cpus > MAX_CPUS {
        return Err(wrong(&format!("invalid number of CPUs: {cpus}")));
    }
    let mut buffers = Vec::new();
    let mut options = Options::default();
    let mut parts = table(file, "", cpus, layout, &mut |id, data| match id {
        // Where an instance's own table is, and its name.
        options::BUFFER => {
            let mut data = data;
            buffers.push((read::u64(&mut data)?, string(&mut data)?));
            Ok(())
        }
        _ => options.take(id, data),
    })?;
    if options.clock.is_none() {
        options.clock = clock_behind(file, &parts)?;
    }
    for (offset, name) in buffers {
        file.seek(SeekFrom::Start(offset))?;
        parts.extend(table(file, &name, cpus, layout, &mut |_, _| Ok(()))?);
        if parts.len() > MAX_CPUS as usize {
            return Err(wrong("too many CPUs in its instances"));
        }
    }
    Ok(Head {
        options,
        formats,
        threads,
        parts,
    })
}

/// The options of a buffer, and where each CPU's data are.
fn table(
    file: &mut (impl Read + Seek),
    instance: &str,
    cpus: u32,
    layout: PageLayout,
    option: &mut dyn FnMut(u16, &[u8]) -> io::Result<()>,
) -> io::Result<Vec<CpuPages>> {
    loop {
        match &read::bytes::<10>(file)? {
            b"options  \0" => loop {
                let id = read::u16(file)?;
                if id == options::DONE {
                    break;
                }
                let length = read::u32(file)?;
                option(id, &read::exactly(file, u64::from(length))?)?;
            },
            b"flyrecord\0" => break,
            b"latency  \0" => return Err(wrong("it contains text instead of raw pages")),
            _ => return Err(wrong("it does not list its pages")),
        }
    }
    let mut parts = Vec::new();
    for cpu in 0..cpus {
        let (offset, bytes) = (read::u64(file)?, read::u64(file)?);
        if bytes > 0 {
            parts.push(CpuPages {
                instance: instance.to_owned(),
                cpu,
                offset,
                bytes,
                layout,
                codec: None,
            });
        }
    }
    Ok(parts)
}

/// Newer files have the clock behind the table, where older ones have nothing or the pages.
fn clock_behind(file: &mut (impl Read + Seek), parts: &[CpuPages]) -> io::Result<Option<String>> {
    let here = file.stream_position()?;
    let pages = parts
        .iter()
        .map(|part| part.offset)
        .min()
        .unwrap_or(u64::MAX);
    if here.saturating_add(8) > pages {
        return Ok(None);
    }
    let found =
        read::u64(file).and_then(
            |length| match length <= MAX_CLOCK_TEXT.min(pages - here - 8) {
                true => read::exactly(file, length),
                false => Ok(Vec::new()),
            },
        );
    match found {
        Ok(text) => Ok(options::clock(&String::from_utf8_lossy(&text))),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}
