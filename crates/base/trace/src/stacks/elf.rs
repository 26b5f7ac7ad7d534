//! Parts of an ELF file that profiles need: where its code was linked to, how to unwind it, what its functions are
//! called. Only regular files are opened, and of one no more is read than it can honestly hold: they are others'.

use crate::stacks::symbols::{self, CodeSymbols, Ranges};
use object::elf::{FileHeader64, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT};
use object::read::elf::{ElfFile64, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, Object, ObjectSection, ReadCache, ReadRef};
use rustix::fs::{Mode, OFlags, open};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The symbol through which a program registers generated code with debuggers.
const JIT: &[u8] = b"__jit_debug_descriptor";

type Parsed<'data, R> = ElfFile64<'data, Endianness, R>;
type SymbolTable<'data, R> = object::read::elf::SymbolTable<'data, FileHeader64<Endianness>, R>;

/// Bytes of a section, shared by all that unwind with it.
pub type Bytes = Arc<[u8]>;

/// A section's place and content.
#[derive(Debug, Clone)]
pub struct Section {
    /// Where it is linked to.
    pub at: Range<u64>,
    /// Content of the section.
    pub bytes: Bytes,
}

/// One program or library.
#[derive(Debug, Default)]
pub struct Elf {
    /// Build-id of the file; empty where it has none.
    pub build_id: Vec<u8>,
    /// Pieces that are loaded as code: offset in the file, bytes in the file, address.
    pub loads: Vec<(u64, u64, u64)>,
    /// Linked addresses of the section `.text`.
    pub text: Option<Range<u64>>,
    /// Linked addresses of the section `.got`.
    pub got: Option<Range<u64>>,
    /// Section `.eh_frame`: the unwind information.
    pub eh_frame: Option<Section>,
    /// Section `.eh_frame_hdr`: the sorted table of functions in `.eh_frame`.
    pub eh_frame_hdr: Option<Section>,
    /// Where its functions begin, from `.eh_frame_hdr`.
    pub ranges: Ranges,
    /// Named functions by address.
    pub symbols: CodeSymbols,
    /// True if the table with all functions is there, not only the exported ones'.
    pub unstripped: bool,
    /// Where the JIT interface of debuggers begins (`__jit_debug_descriptor`).
    pub jit: Option<u64>,
}

impl Elf {
    /// Reads a file's tables without keeping the file.
    ///
    /// # Errors
    /// Why it cannot be read, or is not a valid ELF file.
    pub fn open(path: &Path) -> Result<Elf, String> {
        let file = open_regular(path).map_err(|e| e.to_string())?;
        let left = Cell::new(budget(&file).map_err(|e| e.to_string())?);
        Elf::read(Bounded {
            data: &ReadCache::new(file),
            left: &left,
        })
    }

    /// Reads the tables in the content of a file.
    ///
    /// # Errors
    /// Why it is not a valid ELF file.
    pub fn read<'data, R: ReadRef<'data>>(data: R) -> Result<Elf, String> {
        let file = Parsed::parse(data).map_err(|e| e.to_string())?;
        let mut elf = Elf {
            build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
            ..Elf::default()
        };
        let endian = file.endian();
        for header in file.elf_program_headers() {
            if header.p_type(endian) == object::elf::PT_LOAD
                && header.p_flags(endian) & object::elf::PF_X != 0
            {
                elf.loads.push((
                    header.p_offset(endian),
                    header.p_filesz(endian),
                    header.p_vaddr(endian),
                ));
            }
        }
        let range = |name| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some(Section {
                at: range(name)?,
                bytes: section.data().ok()?.into(),
            })
        };
        elf.text = range(".text");
        elf.got = range(".got");
        elf.eh_frame = section(".eh_frame").filter(|s| !s.bytes.is_empty());
        elf.eh_frame_hdr =
            section(".eh_frame_hdr").filter(|s| symbols::is_table(&s.bytes, s.at.start));
        if let Some(header) = &elf.eh_frame_hdr {
            elf.ranges = Ranges::read(&header.bytes, header.at.start);
        }
        elf.take(&file, file.elf_symbol_table());
        elf.unstripped = !elf.symbols.is_empty();
        elf.take(&file, file.elf_dynamic_symbol_table());
        Ok(elf)
    }

    /// Takes in what a table of symbols names.
    fn take<'data, R: ReadRef<'data>>(
        &mut self,
        file: &Parsed<'data, R>,
        table: &SymbolTable<'data, R>,
    ) {
        let endian = file.endian();
        let strings = file.elf_section_table().section(table.string_section());
        let Ok(names) = strings.and_then(|section| section.data(endian, file.data())) else {
            return;
        };
        let functions = table.iter().filter_map(|symbol| {
            let is_code = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
                && symbol.st_shndx(endian) != SHN_UNDEF;
            is_code.then(|| {
                (
                    symbol.st_value(endian),
                    symbol.st_size(endian),
                    symbol.st_name(endian) as usize,
                )
            })
        });
        self.symbols.add(names, functions);
        let is_jit = |name: &[u8]| {
            name.strip_prefix(JIT)
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        let jit = table.iter().find(|symbol| {
            symbol.st_value(endian) != 0
                && symbol.st_type() == STT_OBJECT
                && names
                    .get(symbol.st_name(endian) as usize..)
                    .is_some_and(is_jit)
        });
        self.jit = self.jit.or(jit.map(|symbol| symbol.st_value(endian)));
    }

    /// The linked address of the code that is at `offset` in the file. Mappings begin at a page, the pieces that they are of
    /// may begin inside it, where another piece ends that is no code and linked elsewhere.
    pub fn linked(&self, offset: u64) -> Option<u64> {
        let holds = |at: u64, size: u64| (at & !0xfff..at.saturating_add(size)).contains(&offset);
        let load = self.loads.iter().find(|(at, size, _)| holds(*at, *size));
        load.map(|(at, _, address)| address.wrapping_add(offset).wrapping_sub(*at))
    }

    /// Returns true if both have the same functions at the same places: builds of one program, one of them stripped.
    pub fn same_layout(&self, other: &Elf) -> bool {
        self.text.is_some()
            && self.text == other.text
            && !self.ranges.is_empty()
            && self.ranges == other.ranges
    }
}

/// No section of a program that exists is larger, bytes.
const MAX_SECTION: u64 = 256 << 20;
/// All that is read of one program, bytes.
const MAX_READ: u64 = 1 << 30;
/// A block of `st_blocks`, bytes.
const BLOCK: u64 = 512;
/// A file system that compresses stores a program in so much less than it holds. A sparse file holds far more.
const MAX_COMPRESSION: u64 = 16;

/// Opens a regular file. To open anything else can hang (a pipe) or act (a watchdog device), so it is not opened to find
/// out what it is.
///
/// # Errors
/// Where it is another kind of file, or the kernel refuses.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // What was examined, whatever is at its path by now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(
        format!("/proc/self/fd/{}", found.as_raw_fd()),
        flags,
        Mode::empty(),
    )?
    .into())
}

/// Returns the number of bytes of a file that may be read at most.
fn budget(file: &File) -> io::Result<u64> {
    let facts = file.metadata()?;
    // Some file systems count no blocks.
    let stored = if facts.blocks() == 0 {
        facts.size()
    } else {
        facts.blocks().saturating_mul(BLOCK)
    };
    Ok(stored.saturating_mul(MAX_COMPRESSION).min(MAX_READ))
}

/// A program's bytes, of which the parser may ask for so much and no more.
#[derive(Debug, Clone, Copy)]
struct Bounded<'a> {
    data: &'a ReadCache<File>,
    /// Bytes that may still be read.
    left: &'a Cell<u64>,
}

impl Bounded<'_> {
    fn take(self, size: u64) -> Result<(), ()> {
        let left = self
            .left
            .get()
            .checked_sub(size)
            .filter(|_| size <= MAX_SECTION)
            .ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        self.data.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let found = self.data.read_bytes_at_until(range, delimiter)?;
        self.take(found.len() as u64)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_program_is_understood() {
        let elf = Elf::read(&own()[..]).unwrap();
        assert!(elf.unstripped && elf.ranges.len() > 100);
        let text = elf.text.clone().unwrap();
        let first = elf.symbols.after(text.start).unwrap();
        assert!(text.contains(&first.at) && elf.symbols.before(first.at + 1) == Some(first));
        assert!(elf.same_layout(&elf));
        assert!(!elf.same_layout(&Elf::default()));
    }

    #[test]
    fn code_of_this_program_is_where_its_mapping_says() {
        let elf = Elf::read(&own()[..]).unwrap();
        let function = this_program_is_understood as fn() as usize as u64;
        let maps =
            crate::stacks::files::parse_maps(&std::fs::read_to_string("/proc/self/maps").unwrap());
        let mapping = maps
            .iter()
            .find(|m| (m.start..m.end).contains(&function))
            .unwrap();
        let at = function - mapping.start + elf.linked(mapping.offset).unwrap();
        let symbol = elf.symbols.before(at).unwrap();
        assert_eq!((symbol.at, elf.ranges.start_of(at + 1)), (at, Some(at)));
        assert!(
            symbol.name.contains("this_program_is_understood"),
            "{symbol:?}"
        );
    }

    #[test]
    fn a_page_that_two_pieces_share_is_code() {
        // As linkers of today lay out: what is no code ends in the page of the file that code begins in.
        let elf = Elf {
            loads: vec![(0x5df40, 0x1000, 0x5ef40)],
            ..Elf::default()
        };
        assert_eq!(
            (
                elf.linked(0x5d000),
                elf.linked(0x5e000),
                elf.linked(0x5c000)
            ),
            (Some(0x5e000), Some(0x5f000), None)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn damage_is_no_panic(at in 0usize..4096, value: u8, cut in 0usize..100_000) {
            static OWN: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(own);
            let mut bytes = OWN[..OWN.len().min(200_000)].to_vec();
            bytes[at] = value;
            let _ = Elf::read(&bytes[..bytes.len() - cut]);
            let _ = Elf::read(&bytes[cut..]);
        }
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_hangs() {
        let place = tempfile::tempdir().unwrap();
        let (pipe, link) = (place.path().join("pipe"), place.path().join("link"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let begin = Instant::now();
        for path in [&pipe, &link, Path::new("/dev/zero"), place.path()] {
            assert!(
                Elf::open(path).unwrap_err().contains("not a regular file"),
                "{}",
                path.display()
            );
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(Elf::open(&std::env::current_exe().unwrap()).is_ok_and(|elf| elf.unstripped));
    }

    #[test]
    fn a_section_of_a_sparse_file_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sparse");
        // Its strings are said to be 200 MiB, of which none are stored: a string table's size is at 32 of its header.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let u64_at = |at: usize| u64::from_le_bytes(own[at..at + 8].try_into().unwrap());
        let (headers, size) = (
            u64_at(40) as usize,
            usize::from(u16::from_le_bytes([own[58], own[59]])),
        );
        let count = usize::from(u16::from_le_bytes([own[60], own[61]]));
        let is = |kind: u32, at: &usize| own[at + 4..at + 8] == kind.to_le_bytes();
        let symbols = (0..count)
            .map(|n| headers + n * size)
            .find(|at| is(2, at))
            .unwrap();
        let linked =
            u32::from_le_bytes(own[symbols + 40..symbols + 44].try_into().unwrap()) as usize;
        let strings = headers + linked * size;
        for (said, compressed) in [(200_u64 << 20, false), (2 << 30, true)] {
            // Only what the headers need is stored; in the second, all is, but no section is that large.
            let file = fs::File::create(&path).unwrap();
            let stored = if compressed { &own[..] } else { &own[..4096] };
            file.write_all_at(stored, 0).unwrap();
            file.write_all_at(&own[headers..headers + count * size], headers as u64)
                .unwrap();
            let end = own.len() as u64;
            file.write_all_at(&end.to_le_bytes(), (strings + 24) as u64)
                .unwrap();
            file.write_all_at(&said.to_le_bytes(), (strings + 32) as u64)
                .unwrap();
            file.set_len(end + said).unwrap();
            // It has none of the names that are said to be there.
            assert!(
                Elf::open(&path).map_or(true, |elf| !elf.unstripped),
                "{said} bytes were read"
            );
        }
    }
}
