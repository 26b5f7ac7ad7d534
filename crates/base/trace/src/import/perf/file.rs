//! The lengths in a `perf.data`, checked before the library uses them, since it allocates what they declare.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt` of Linux.

use crate::TraceError;
use crate::file::{self as read, damaged, failed, wrong};
use linux_perf_data::PerfFileReader;
use linux_perf_data::linux_perf_event_reader::RecordType;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

pub(super) type Reader = PerfFileReader<BufReader<File>>;

/// Reads the head of a file after checking all its lengths.
pub(super) fn checked(path: &Path) -> Result<Reader, TraceError> {
    let (mut file, data) = head_checked(path)?;
    records(&mut file, &data, |_, _, _| Ok(())).map_err(|e| failed(path, e))?;
    parse(path)
}

/// Checks the lengths in the head of a file; those of its records are not checked yet.
pub(super) fn head_checked(path: &Path) -> Result<(BufReader<File>, Data), TraceError> {
    let mut file = opened(path)?;
    let data = head(&mut file).map_err(|e| failed(path, e))?;
    Ok((file, data))
}

/// Reads the head of a file whose lengths are good.
pub(super) fn parse(path: &Path) -> Result<Reader, TraceError> {
    PerfFileReader::parse_file(opened(path)?).map_err(|e| damaged(path, e.to_string()))
}

fn opened(path: &Path) -> Result<BufReader<File>, TraceError> {
    let file = File::open(path).map_err(|e| failed(path, e))?;
    Ok(BufReader::with_capacity(64 << 10, file))
}

const MAGIC: &[u8; 8] = b"PERFILE2";
const SWAPPED: &[u8; 8] = b"2ELIFREP";
/// A bit of the features in the header.
const EVENT_DESC: usize = 12;
/// Kinds of records (`enum perf_user_event_type`).
const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
/// The size of the header of a file that perf wrote into a pipe: no more than magic and size.
const PIPE_HEADER: u64 = 16;
const RECORD_HEADER: u64 = 8;
/// All events that one `perf record` can have open, and more.
const MAX_EVENTS: u32 = 1 << 16;

/// Bytes of a `perf_event_attr` in its versions (`PERF_ATTR_SIZE_VER0` to `VER7`); later ones are longer. Of another size
/// the library takes what follows for something else.
const ATTR_SIZES: [u32; 8] = [64, 72, 80, 96, 104, 112, 120, 128];

/// Bytes of a sample that are read here: all that its kinds of events have in common lies before.
const SAMPLE_HEAD: usize = 64;

/// Where a part of the file is, such as its records, in bytes.
pub(super) struct Data {
    offset: u64,
    size: u64,
}

impl Data {
    fn read(file: &mut impl Read) -> io::Result<Data> {
        Ok(Data {
            offset: read::u64(file)?,
            size: read::u64(file)?,
        })
    }

    /// Reads the place of a part of a file of `length` bytes.
    fn within(length: u64, file: &mut impl Read) -> io::Result<Data> {
        let data = Data::read(file)?;
        match data.offset.checked_add(data.size) {
            Some(end) if end <= length => Ok(data),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The file may be sound, but is in a form that is not read here.
fn unsupported(form: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, form.to_owned())
}

/// Reads what is before and behind the records; an error of kind `InvalidData` says what is wrong, one of kind `Unsupported`
/// what cannot be read though nothing is.
pub(super) fn head<F: Read + Seek>(file: &mut F) -> io::Result<Data> {
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    match &read::bytes::<8>(file)? {
        MAGIC => {}
        SWAPPED => {
            return Err(unsupported(
                "big-endian files are not supported: record on x86-64",
            ));
        }
        _ => return Err(wrong("not a perf.data file")),
    }
    let (header, _attr_size) = (read::u64(file)?, read::u64(file)?);
    if header == PIPE_HEADER {
        return Err(unsupported(
            "perf.data in pipe mode is not supported: record with `perf record -o FILE`",
        ));
    }
    let _attributes = Data::read(file)?;
    let data = Data::within(length, file)?;
    let _types = Data::read(file)?;
    let mut features = [0; 4];
    for word in &mut features {
        *word = read::u64(file)?;
    }
    if header > length || data.size == 0 {
        return Err(wrong("perf record did not finish, so the file has no data"));
    }

    file.seek(SeekFrom::Start(data.offset + data.size))?;
    let mut described = None;
    for feature in (0..256).filter(|feature| features[feature / 64] & 1 << (feature % 64) != 0) {
        let place = Data::within(length, file)?;
        if feature == EVENT_DESC {
            described = Some(place);
        }
    }
    let described = described
        .ok_or_else(|| wrong("it does not describe its events, as perf does since Linux 2.6.37"))?;
    file.seek(SeekFrom::Start(described.offset))?;
    events(&mut file.take(described.size))?;
    Ok(data)
}

/// The description of the events.
fn events(from: &mut impl Read) -> io::Result<()> {
    let (events, attr_size) = (read::u32(from)?, read::u32(from)?);
    if events > MAX_EVENTS {
        return Err(wrong(&format!("invalid number of events: {events}")));
    }
    for _ in 0..events {
        let (_type, size) = (read::u32(from)?, read::u32(from)?);
        if !(ATTR_SIZES.contains(&size) || size > ATTR_SIZES[ATTR_SIZES.len() - 1])
            || size > attr_size
        {
            return Err(wrong(&format!(
                "invalid size of an event's attributes: {size}"
            )));
        }
        read::skip(from, u64::from(attr_size) - 8)?;
        let ids = read::u32(from)?;
        let name = read::u32(from)?;
        read::skip(from, u64::from(name) + 8 * u64::from(ids))?;
    }
    Ok(())
}

/// Goes over the records by their lengths, and hands over each one's kind, flags and body; of a sample only its first
/// bytes: the copies of stacks behind them are most of a file, and are not read.
pub(super) fn records<F: Read + Seek>(
    file: &mut F,
    data: &Data,
    mut each: impl FnMut(RecordType, u16, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    file.seek(SeekFrom::Start(data.offset))?;
    let mut body = [0; u16::MAX as usize];
    let mut left = data.size;
    while left > 0 {
        let (kind, misc) = (read::u32(file)?, read::u16(file)?);
        let length = u64::from(read::u16(file)?);
        left = left
            .checked_sub(length)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let rest = length
            .checked_sub(RECORD_HEADER)
            .ok_or_else(|| wrong("record without a length"))?;
        if matches!(kind, COMPRESSED | COMPRESSED2) {
            return Err(unsupported(
                "compressed records are not supported: record without `perf record -z`",
            ));
        }
        if kind == FINISHED_ROUND && rest > 0 {
            // The library would read its body as records.
            return Err(wrong("PERF_RECORD_FINISHED_ROUND with a body"));
        }
        let kind = RecordType(kind);
        let wanted = if kind == RecordType::SAMPLE {
            SAMPLE_HEAD
        } else {
            body.len()
        };
        let taken = &mut body[..wanted.min(rest as usize)];
        file.read_exact(taken)?;
        let mut over = rest - taken.len() as u64;
        if let (AUXTRACE, Some(trace)) = (kind.0, taken.first_chunk()) {
            let trace = u64::from_le_bytes(*trace);
            left = left
                .checked_sub(trace)
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            over += trace;
        }
        // All of it lies inside of the file, by `left`.
        file.seek_relative(i64::try_from(over).map_err(|_| io::ErrorKind::UnexpectedEof)?)?;
        each(kind, misc, taken)?;
    }
    Ok(())
}
