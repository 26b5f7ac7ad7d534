//! `trace.dat`, the file of trace-cmd, versions 6 and 7.
//!
//! Source: `trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`, and files that trace-cmd 3.1 wrote.

mod head;
mod options;

pub use options::{TimeOffset, TimeShift, TracedGuest, TscScale};

use crate::file::{self, failed, open, unreadable, wrong};
use crate::{Events, Formats, Input, TraceError, TracedThreads};
use head::{Chunks, CpuPages, Head};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A trace that trace-cmd recorded: the same raw pages as in a [`crate::Folder`], with the formats of all events of the
/// kernel. [`crate::Event::ticks`] are as the kernel wrote them: the offsets and scales that trace-cmd keeps beside them
/// are not applied. A format that is invalid is left out, and its events are counted as unknown.
#[derive(Debug)]
pub struct Dat {
    path: PathBuf,
    head: Head,
}

const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

impl Dat {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read, or is not a whole, little-endian file of version 6 or 7 with raw pages.
    pub fn open(path: &Path) -> Result<Dat, TraceError> {
        Dat::read(BufReader::new(open(path)?), path)
    }

    /// Reads the head of a file; the pages are read from `path` later.
    fn read(mut file: impl Read + Seek, path: &Path) -> Result<Dat, TraceError> {
        Ok(Dat {
            path: path.to_owned(),
            head: read_head(&mut file).map_err(|e| failed(path, e))?,
        })
    }

    /// The name of the clock that [`crate::Event::ticks`] is read from.
    pub fn clock(&self) -> &str {
        // trace-cmd's own default.
        self.head.options.clock.as_deref().unwrap_or("local")
    }

    /// The scale of a clock that counts ticks, where the file has it.
    pub fn tsc_scale(&self) -> Option<TscScale> {
        self.head.options.tsc
    }

    /// The file's ID in its tracing session, which files of peers name.
    pub fn trace_id(&self) -> Option<u64> {
        self.head.options.trace_id
    }

    /// Returns the corrections that turn the file's time stamps into those of its hosts.
    pub fn time_shifts(&self) -> &[TimeShift] {
        &self.head.options.shifts
    }

    /// The guests that were traced with it.
    pub fn guests(&self) -> &[TracedGuest] {
        &self.head.options.guests
    }

    /// The threads that it names.
    pub fn threads(&self) -> &TracedThreads {
        &self.head.threads
    }

    /// The kinds of events.
    pub fn formats(&self) -> &Formats {
        &self.head.formats
    }

    /// The CPUs with data, of each instance; [`crate::Event::input`] counts them from 0.
    pub fn parts(&self) -> &[CpuPages] {
        &self.head.parts
    }

    /// All events, from the first.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the file cannot be read.
    pub fn events(&self) -> Result<Events<'_>, TraceError> {
        let opened = self.head.parts.iter().map(|part| {
            let mut file = open(&self.path)?;
            file.seek(SeekFrom::Start(part.offset))
                .map_err(|source| unreadable(&self.path, source))?;
            let pages: Box<dyn Read> = match part.codec {
                None => Box::new(file.take(part.bytes)),
                // These tell themselves where they end; the length beside their offset leaves four bytes out.
                Some(codec) => Box::new(Chunks::new(BufReader::new(file), codec)),
            };
            Ok(Input {
                path: self.path.clone(),
                cpu: part.cpu,
                layout: part.layout,
                pages,
            })
        });
        Events::pages(
            &self.head.formats,
            opened.collect::<Result<_, TraceError>>()?,
        )
    }
}

/// Reads the formats that perf stores as old trace-cmds did, version 0.5 or 0.6.
pub(crate) fn perf_head(mut data: &[u8]) -> io::Result<Formats> {
    let from = &mut data;
    begin(from)?;
    let _layout = head::layout(from)?;
    head::formats(from)
}

/// Reads what stands before the pages. An error of kind `InvalidData` says what is wrong with the file.
fn read_head<F: Read + Seek>(from: &mut F) -> io::Result<Head> {
    match begin(from)?.as_str() {
        "6" => head::version_6(from),
        "7" => head::version_7(from),
        other => Err(wrong(&format!(
            "unknown version {other:?}; 6 and 7 are supported"
        ))),
    }
}

/// Reads how a file begins; gives its version.
fn begin(from: &mut impl Read) -> io::Result<String> {
    if &file::bytes(from)? != MAGIC {
        return Err(wrong("not a trace.dat file"));
    }
    let version = file::string(from)?;
    let [endian, _long] = file::bytes(from)?;
    if endian != 0 {
        return Err(wrong("big-endian files are not supported"));
    }
    let _page = file::u32(from)?;
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::Dat;
    use crate::testing::{HEADER_PAGE, Page, format};
    use crate::{Entry, TraceError};
    use flate2::{Compression, write::ZlibEncoder};
    use proptest::prelude::*;
    use std::io::{Cursor, Write};

    const HEADER_EVENT: &str = "# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
";

    fn number() -> String {
        format(
            "number",
            7,
            &["field:u64 number;\toffset:8;\tsize:8;\tsigned:0;"],
        )
    }

    fn begin(version: &str) -> Vec<u8> {
        let mut file = b"\x17\x08\x44tracing".to_vec();
        file.extend(version.as_bytes());
        file.extend([0, 0, 8]);
        file.extend(4096_u32.to_le_bytes());
        file
    }

    fn sized(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    /// The three texts that both versions have.
    fn texts() -> [Vec<u8>; 3] {
        let headers = [
            b"header_page\0".as_slice(),
            &sized(HEADER_PAGE),
            b"header_event\0",
            &sized(HEADER_EVENT),
        ]
        .concat();
        let ftrace = [
            1_u32.to_le_bytes().as_slice(),
            &sized(&format("function", 1, &[])),
        ]
        .concat();
        let odd =
            "name: odd\nID: 9\nformat:\n\tfield:void (*f)(void);\toffset:8;\tsize:8;\tsigned:0;\n";
        let events = [
            1_u32.to_le_bytes().as_slice(),
            b"test\0",
            &2_u32.to_le_bytes(),
            &sized(odd),
            &sized(&number()),
        ]
        .concat();
        [headers, ftrace, events]
    }

    fn pages(stamp: u64, number: u64) -> Vec<u8> {
        [
            Page::new(stamp).number(0, number).bytes(),
            Page::new(stamp + 100).number(0, number + 1).bytes(),
        ]
        .concat()
    }

    /// A file of version 6 with two CPUs and an instance, its clock in an option or behind the table.
    fn v6(clock: bool) -> Vec<u8> {
        let mut file = begin("6");
        texts().iter().for_each(|text| file.extend(text));
        file.extend(3_u32.to_le_bytes());
        file.extend(b"sym");
        file.extend(0_u32.to_le_bytes());
        file.extend(2_u64.to_le_bytes());
        file.extend(b"ab");
        file.extend(2_u32.to_le_bytes());
        file.extend(b"options  \0");
        let buffer = file.len() + 6;
        file.extend([3, 0, 12, 0, 0, 0].iter().chain(&[0; 8]).chain(b"ins\0"));
        let clock_option: &[u8] = if clock { b"local [mono]" } else { b"" };
        file.extend(
            [4, 0, clock_option.len() as u8, 0, 0, 0]
                .iter()
                .chain(clock_option),
        );
        file.extend([0, 0]);
        file.extend(b"flyrecord\0");
        let table = file.len();
        file.extend([0; 32]);
        if !clock {
            file.extend(sized("local [boot] mono"));
        }
        file.resize(8192, 0);
        let place = |file: &mut Vec<u8>, at: usize, data: &[u8]| {
            let (begin, length) = (file.len() as u64, data.len() as u64);
            file[at..at + 8].copy_from_slice(&begin.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&length.to_le_bytes());
            file.extend(data);
        };
        place(&mut file, table, &pages(10, 1));
        place(&mut file, table + 16, &pages(20, 3));
        let instance = file.len() as u64;
        file[buffer..buffer + 8].copy_from_slice(&instance.to_le_bytes());
        file.extend(b"flyrecord\0");
        let table = file.len();
        file.extend([0; 32]);
        place(&mut file, table + 16, &pages(30, 5));
        file
    }

    /// A compressed block, or the bytes as they are.
    fn packed(compressed: bool, data: &[u8]) -> Vec<u8> {
        if !compressed {
            return data.to_vec();
        }
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(data).unwrap();
        let packed = packer.finish().unwrap();
        [
            &(packed.len() as u32).to_le_bytes(),
            &(data.len() as u32).to_le_bytes(),
            packed.as_slice(),
        ]
        .concat()
    }

    fn section(id: u16, compressed: bool, data: &[u8]) -> Vec<u8> {
        let data = packed(compressed, data);
        let mut section = [id, u16::from(compressed), 0, 0]
            .into_iter()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<_>>();
        section.extend((data.len() as u64).to_le_bytes());
        section.extend(data);
        section
    }

    fn option(id: u16, data: &[u8]) -> Vec<u8> {
        [
            &id.to_le_bytes(),
            (data.len() as u32).to_le_bytes().as_slice(),
            data,
        ]
        .concat()
    }

    /// A file of version 7 with an instance, its options in two sections.
    fn v7(compressed: bool, page_size: Option<u32>) -> Vec<u8> {
        let mut file = begin("7");
        file.extend(if compressed {
            b"zlib\x001\0".as_slice()
        } else {
            b"none\0\0"
        });
        let first = file.len();
        file.extend([0; 8]);
        let mut options = Vec::new();
        for (id, text) in (16..).zip(texts()) {
            options.extend(option(id, &(file.len() as u64).to_le_bytes()));
            file.extend(section(id, compressed, &text));
        }
        let mut places = Vec::new();
        for (name, stamp) in [("", 10), ("ins", 30)] {
            let head = file.len() as u64;
            let (half, rest) = (pages(stamp, stamp), pages(stamp + 200, stamp + 2));
            let data = match compressed {
                false => [half, rest].concat(),
                true => [
                    2_u32.to_le_bytes().to_vec(),
                    packed(true, &half),
                    packed(true, &rest),
                ]
                .concat(),
            };
            let mut buffer = [&head.to_le_bytes(), name.as_bytes(), b"\0mono\0"].concat();
            buffer.extend(page_size.into_iter().flat_map(u32::to_le_bytes));
            buffer.extend(2_u32.to_le_bytes());
            for (cpu, place) in [(1_u32, (head + 16, data.len() as u64)), (5, (0, 0))] {
                buffer.extend(cpu.to_le_bytes());
                buffer.extend([place.0, place.1].into_iter().flat_map(u64::to_le_bytes));
            }
            places.extend(option(3, &buffer));
            let mut head = section(3, false, &data);
            head[2] = u8::from(compressed);
            file.extend(head);
        }
        let second = file.len() as u64;
        places.extend(option(99, b"unknown"));
        places.extend(option(0, &0_u64.to_le_bytes()));
        file.extend(section(0, compressed, &places));
        let begin = file.len() as u64;
        options.extend(option(0, &second.to_le_bytes()));
        file.extend(section(0, false, &options));
        file[first..first + 8].copy_from_slice(&begin.to_le_bytes());
        file
    }

    /// Time, CPU, input and number of each event.
    fn read(file: &[u8]) -> Result<Vec<(u64, u32, u32, u64)>, TraceError> {
        let stored = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(stored.path(), file).unwrap();
        let dat = Dat::open(stored.path())?;
        let mut events = dat.events()?;
        let mut got = Vec::new();
        while let Some(entry) = events.next()? {
            let Entry::Event(event) = entry else { continue };
            // Damage may have given it another field.
            let number = dat
                .formats()
                .field(event.id, "number")
                .and_then(|field| field.unsigned(event.data));
            got.push((
                event.ticks,
                event.cpu,
                event.input,
                number.unwrap_or(u64::MAX),
            ));
        }
        Ok(got)
    }

    #[test]
    fn version_6_with_an_instance() {
        let expected = [
            (10, 0, 0, 1),
            (20, 1, 1, 3),
            (30, 1, 2, 5),
            (110, 0, 0, 2),
            (120, 1, 1, 4),
            (130, 1, 2, 6),
        ];
        for clock in [true, false] {
            assert_eq!(read(&v6(clock)).unwrap(), expected);
            let dat = Dat::read(Cursor::new(v6(clock)), "t".as_ref()).unwrap();
            assert_eq!(dat.clock(), if clock { "mono" } else { "boot" });
            let instances: Vec<_> = dat
                .parts()
                .iter()
                .map(|part| (part.instance.as_str(), part.cpu))
                .collect();
            assert_eq!(instances, [("", 0), ("", 1), ("ins", 1)]);
            // The odd one is left out.
            assert_eq!(
                dat.formats().iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
                [1, 7]
            );
        }
    }

    #[test]
    fn version_7_as_it_is_and_compressed() {
        let times = [10, 30, 110, 130, 210, 230, 310, 330];
        for (compressed, page_size) in [
            (false, None),
            (false, Some(4096)),
            (true, None),
            (true, Some(4096)),
        ] {
            let file = v7(compressed, page_size);
            let got = read(&file).unwrap();
            assert_eq!(
                got.iter().map(|event| event.0).collect::<Vec<_>>(),
                times,
                "{compressed} {page_size:?}"
            );
            assert!(got.iter().all(|event| event.1 == 1));
            let dat = Dat::read(Cursor::new(file), "t".as_ref()).unwrap();
            assert_eq!(dat.clock(), "mono");
            assert_eq!(
                dat.parts()
                    .iter()
                    .map(|part| part.instance.as_str())
                    .collect::<Vec<_>>(),
                ["", "ins"]
            );
        }
        // Pages of two KiB: each half of ours is one, and the second half is empty, so it begins with no sense.
        assert!(read(&v7(false, Some(8))).is_err());
        assert!(read(&v7(false, Some(u32::MAX))).is_err());
    }

    #[test]
    fn invalid_files_are_errors_that_name_the_problem() {
        let says = |file: &[u8], expected: &str| {
            let error = Dat::read(Cursor::new(file), "the.dat".as_ref())
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("the.dat ") && error.contains(expected),
                "{error}"
            );
        };
        let replaced = |file: &[u8], from: &[u8], to: &[u8]| {
            let at = file
                .windows(from.len())
                .position(|window| window == from)
                .expect("it is there");
            [&file[..at], to, &file[at + from.len()..]].concat()
        };
        says(b"", "truncated");
        says(b"0123456789", "not a trace.dat file");
        says(&begin("5"), "version \"5\"");
        says(
            &replaced(&v6(true), b"tracing6\0\0", b"tracing6\0\x01"),
            "big-endian",
        );
        says(
            &replaced(&v6(true), b"header_page", b"header_pago"),
            "no header_page",
        );
        says(
            &replaced(&v6(true), b"27 bits", b"26 bits"),
            "unknown event header",
        );
        says(
            &replaced(&v6(true), b"size:4080", b"size:0000"),
            "unknown layout",
        );
        says(
            &replaced(&v6(true), b"flyrecord", b"latency  "),
            "instead of raw pages",
        );
        says(
            &replaced(&v6(true), b"flyrecord", b"flyrecorr"),
            "does not list its pages",
        );
        says(&replaced(&v7(true, None), b"zlib", b"lzma"), "lzma");
        says(
            &replaced(&v7(true, None), b"zlib", b"none"),
            "no compression is declared",
        );
        says(&replaced(&v7(true, None), b"zlib", b"zstd"), "damaged");
    }

    #[test]
    fn a_damaged_chunk_is_an_error() {
        let mut file = v7(true, None);
        let stored = tempfile::NamedTempFile::new().unwrap();
        let chunk = packed(true, &pages(30, 30));
        let at = file
            .windows(chunk.len())
            .position(|window| window == chunk)
            .unwrap();
        file[at + 12] ^= 0xff;
        std::fs::write(stored.path(), &file).unwrap();
        let dat = Dat::open(stored.path()).unwrap();
        let error = dat.events().map(|_| ()).unwrap_err();
        assert!(matches!(error, TraceError::Damaged { .. }), "{error}");
    }

    #[test]
    fn options_that_lead_in_a_circle_end() {
        let mut file = begin("7");
        file.extend(b"none\0\0");
        let at = file.len() as u64 + 8;
        file.extend(at.to_le_bytes());
        file.extend(section(0, false, &option(0, &at.to_le_bytes())));
        let error = Dat::read(Cursor::new(file), "t".as_ref())
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("not terminated"), "{error}");
    }

    proptest! {
        #[test]
        fn any_change_is_survived(which in 0..4usize, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), cut in any::<prop::sample::Index>()) {
            let mut file = vec![v6(true), v6(false), v7(false, None), v7(true, Some(4096))].swap_remove(which);
            for (at, with) in changes {
                let at = at.index(file.len());
                file[at] = with;
            }
            file.truncate(cut.index(file.len() * 2 + 1));
            let _ = read(&file);
        }
    }
}
