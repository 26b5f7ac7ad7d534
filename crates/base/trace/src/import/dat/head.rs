//! The head of a file, before its pages. In version 6 everything is in one order; version 7 has sections, found from
//! options, of which each may be compressed, as its pages may.

use super::options::{self, Options};
use crate::file::{self as read, self, sized, string, wrong};
use crate::{Formats, PageLayout, TracedThreads};
use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

/// `events/header_page` and `events/header_event`.
pub(super) fn layout(from: &mut impl Read) -> io::Result<PageLayout> {
    let named = |from: &mut _, name: &str| match string(from)? == name {
        true => sized(from),
        false => Err(wrong(&format!("it has no {name}"))),
    };
    let page = named(from, "header_page")?;
    let event = named(from, "header_event")?;
    let known = |line: &str| {
        event
            .lines()
            .any(|l| l.split_whitespace().collect::<String>() == line)
    };
    if ![
        "type_len:5bits",
        "time_delta:27bits",
        "padding:type==29",
        "time_extend:type==30",
    ]
    .into_iter()
    .all(known)
    {
        return Err(wrong("unknown event header"));
    }
    PageLayout::parse(&page).map_err(|reason| wrong(&reason))
}

/// The formats of all events, those of the function tracer first.
pub(super) fn formats(from: &mut impl Read) -> io::Result<Formats> {
    let mut formats = Formats::default();
    formats_of("ftrace", from, &mut formats)?;
    event_formats(from, &mut formats)?;
    Ok(formats)
}

/// The formats of all events but the function tracer's.
fn event_formats(from: &mut impl Read, formats: &mut Formats) -> io::Result<()> {
    for _ in 0..read::u32(from)? {
        let system = string(from)?;
        formats_of(&system, from, formats)?;
    }
    Ok(())
}

fn formats_of(system: &str, from: &mut impl Read, formats: &mut Formats) -> io::Result<()> {
    for _ in 0..read::u32(from)? {
        let text = sized(from)?;
        // All the events of a kernel are here; one that nobody recorded may be odd.
        let _ = formats.add(system, &text);
    }
    Ok(())
}

/// The pages of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuPages {
    /// The instance of tracefs; empty for the top one.
    pub instance: String,
    /// Number of the CPU.
    pub cpu: u32,
    /// Offset of its data in the file.
    pub(super) offset: u64,
    /// Length of its data in the file.
    pub(super) bytes: u64,
    pub(super) layout: PageLayout,
    pub(super) codec: Option<Codec>,
}

impl CpuPages {
    /// Reads the place of a CPU's pages in the file; `None` where it has none.
    fn read(
        from: &mut impl Read,
        cpu: u32,
        instance: &str,
        layout: PageLayout,
        codec: Option<Codec>,
    ) -> io::Result<Option<CpuPages>> {
        let (offset, bytes) = (read::u64(from)?, read::u64(from)?);
        Ok((bytes > 0).then(|| CpuPages {
            instance: instance.to_owned(),
            cpu,
            offset,
            bytes,
            layout,
            codec,
        }))
    }
}

/// The contents of a file's head.
#[derive(Debug)]
pub(super) struct Head {
    pub options: Options,
    pub formats: Formats,
    pub threads: TracedThreads,
    pub parts: Vec<CpuPages>,
}

/// More than any Linux has.
const MAX_CPUS: u32 = 1 << 16;
/// `local global counter …` is shorter.
const MAX_CLOCK_TEXT: u64 = 4096;

/// Reads the head of a file of version 6.
pub(super) fn version_6<F: Read + Seek>(file: &mut F) -> io::Result<Head> {
    let layout = layout(file)?;
    let formats = formats(file)?;
    // Names of functions, and of trace_printk formats.
    for _ in 0..2 {
        let length = u64::from(read::u32(file)?);
        read::skip(file, length)?;
    }
    let threads = options::threads(&sized(file)?);
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
fn table<F: Read + Seek>(
    file: &mut F,
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
        parts.extend(CpuPages::read(file, cpu, instance, layout, None)?);
    }
    Ok(parts)
}

/// Newer files have the clock behind the table, where older ones have nothing or the pages.
fn clock_behind<F: Read + Seek>(file: &mut F, parts: &[CpuPages]) -> io::Result<Option<String>> {
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

/// Reads the head of a file of version 7.
pub(super) fn version_7<F: Read + Seek>(file: &mut F) -> io::Result<Head> {
    let codec = Codec::named(&string(file)?)?;
    let _version = string(file)?;
    let first = read::u64(file)?;

    let mut directory = Directory::read(file, first, codec)?;
    let header = directory.required(file, HEADER_INFO, "header of pages")?;
    let layout = layout(&mut header.as_slice())?;
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
    fn read<F: Read + Seek>(
        file: &mut F,
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
    fn required<F: Read + Seek>(&self, file: &mut F, id: u16, what: &str) -> io::Result<Vec<u8>> {
        let place = self.places[usize::from(id - HEADER_INFO)]
            .ok_or_else(|| wrong(&format!("it has no {what}")))?;
        section(file, place, id, self.codec)
    }

    /// Reads the formats of all events.
    fn formats<F: Read + Seek>(&self, file: &mut F) -> io::Result<Formats> {
        let mut formats = Formats::default();
        let of_ftrace = self.required(file, FTRACE_FORMATS, "formats of ftrace")?;
        formats_of("ftrace", &mut of_ftrace.as_slice(), &mut formats)?;
        let of_events = self.required(file, EVENT_FORMATS, "formats of events")?;
        event_formats(&mut of_events.as_slice(), &mut formats)?;
        Ok(formats)
    }

    /// Reads where the pages of all buffers are, and takes the clock of the top one for that of the file.
    fn parts<F: Read + Seek>(
        &mut self,
        file: &mut F,
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
    fn threads<F: Read + Seek>(&self, file: &mut F) -> io::Result<TracedThreads> {
        let Some(at) = self.names else {
            return Ok(TracedThreads::new());
        };
        let stored = section(file, at, CMDLINES, self.codec)?;
        Ok(options::threads(&sized(&mut stored.as_slice())?))
    }
}

/// Reads the head of a section and returns its flags and the length of its content, bytes; the content follows.
fn section_flags<F: Read + Seek>(file: &mut F, at: u64, id: u16) -> io::Result<(u16, u64)> {
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
fn section<F: Read + Seek>(
    file: &mut F,
    at: u64,
    id: u16,
    codec: Option<Codec>,
) -> io::Result<Vec<u8>> {
    let (flags, length) = section_flags(file, at, id)?;
    match codec_of(flags, codec)? {
        None => read::exactly(file, length),
        Some(codec) => codec.block(file),
    }
}

/// The codec of a section with these flags, if it is compressed.
fn codec_of(flags: u16, codec: Option<Codec>) -> io::Result<Option<Codec>> {
    if flags & COMPRESSED != 0 && codec.is_none() {
        return Err(wrong("compressed section, but no compression is declared"));
    }
    Ok(codec.filter(|_| flags & COMPRESSED != 0))
}

/// The option of a buffer: its clock, and its CPUs' data.
fn buffer<F: Read + Seek>(
    file: &mut F,
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
    let codec = codec_of(flags, codec)?;
    let mut parts = Vec::new();
    for _ in 0..read::u32(&mut data)? {
        let cpu = read::u32(&mut data)?;
        parts.extend(CpuPages::read(&mut data, cpu, &instance, layout, codec)?);
    }
    Ok((clock, parts))
}

/// Compression method of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Zlib,
    Zstd,
}

/// The longest block, compressed or not, bytes. trace-cmd's chunks have a few pages; the names of all functions, which
/// nobody reads here, have 10 MiB.
const MAX_BLOCK: u64 = 64 << 20;
/// Begins each frame of zstd; the first trace-cmd with zstd leaves it out.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Codec {
    /// The codec of a name; `None` for none.
    pub fn named(name: &str) -> io::Result<Option<Codec>> {
        match name {
            "none" => Ok(None),
            "zlib" => Ok(Some(Codec::Zlib)),
            "zstd" => Ok(Some(Codec::Zstd)),
            other => Err(wrong(&format!(
                "unknown compression {other:?}; zstd and zlib are supported"
            ))),
        }
    }

    /// Reads a block: its compressed and its own length, 32 bits each, then the bytes.
    pub fn block(self, from: &mut impl Read) -> io::Result<Vec<u8>> {
        let compressed = u64::from(file::u32(from)?);
        let length = u64::from(file::u32(from)?);
        if length > MAX_BLOCK {
            return Err(wrong(&format!("invalid block length {length}")));
        }
        let compressed = file::exactly(from, compressed)?;
        let mut block = Vec::new();
        // One byte more shows a block that is longer than it says.
        match self {
            Codec::Zlib => ZlibDecoder::new(compressed.as_slice())
                .take(length + 1)
                .read_to_end(&mut block),
            Codec::Zstd => {
                let magic: &[u8] = if compressed.starts_with(&ZSTD_MAGIC) {
                    &[]
                } else {
                    &ZSTD_MAGIC
                };
                let framed = magic.chain(compressed.as_slice());
                let decoder = StreamingDecoder::new(framed).map_err(|e| wrong(&e.to_string()))?;
                decoder.take(length + 1).read_to_end(&mut block)
            }
        }
        .map_err(|e| wrong(&format!("damaged compressed block ({e})")))?;
        if block.len() as u64 == length {
            Ok(block)
        } else {
            Err(wrong("compressed block of another length"))
        }
    }
}

/// The pages of a CPU in compressed chunks: how many, 32 bits, then a block each.
pub(super) struct Chunks<R> {
    from: R,
    codec: Codec,
    /// Chunks to come; `None` before their number is read.
    left: Option<u32>,
    chunk: Cursor<Vec<u8>>,
}

impl<R: Read> Chunks<R> {
    pub fn new(from: R, codec: Codec) -> Chunks<R> {
        Chunks {
            from,
            codec,
            left: None,
            chunk: Cursor::default(),
        }
    }
}

impl<R: Read> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.chunk.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let left = match self.left {
                None => file::u32(&mut self.from)?,
                Some(left) => left,
            };
            self.left = Some(left);
            if left == 0 {
                return Ok(0);
            }
            self.left = Some(left - 1);
            self.chunk = Cursor::new(self.codec.block(&mut self.from)?);
        }
    }
}
