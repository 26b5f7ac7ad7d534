//! What is needed of an ELF file: where its code was linked to, how to unwind it, what its functions are called.

use crate::ranges::Ranges;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadRef, SymbolKind};
use std::ops::Range;
use std::sync::Arc;

/// No section of a program that exists is larger.
const LARGEST_SECTION: u64 = 1 << 30;

/// Bytes of a section, shared by all that unwind with it.
pub type Bytes = Arc<[u8]>;

/// A section's place and content.
#[derive(Debug, Clone)]
pub struct Section {
    /// Where it is linked to.
    pub at: Range<u64>,
    /// What it holds.
    pub bytes: Bytes,
}

/// A function's name in a table of symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Where it begins, as linked.
    pub at: u64,
    /// Bytes; 0 where the table does not say.
    pub size: u64,
    /// Its name as the linker knows it.
    pub name: String,
}

/// One program or library.
#[derive(Debug, Default)]
pub struct Elf {
    /// Its build-id; empty where it has none.
    pub build_id: Vec<u8>,
    /// Pieces that are loaded: offset in the file, bytes in the file, address.
    pub loads: Vec<(u64, u64, u64)>,
    /// `.text`.
    pub text: Option<Range<u64>>,
    /// `.got`.
    pub got: Option<Range<u64>>,
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Section>,
    /// Where its functions begin, from `.eh_frame_hdr`.
    pub ranges: Ranges,
    /// Named functions by address.
    pub symbols: Vec<Symbol>,
    /// Whether the table with all functions is there, not only that of the exported ones.
    pub unstripped: bool,
    /// Where the JIT interface of debuggers begins (`__jit_debug_descriptor`).
    pub jit: Option<u64>,
}

impl Elf {
    /// Reads a file.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read<'data, R: ReadRef<'data>>(data: R) -> Result<Elf, String> {
        let file = ElfFile64::<Endianness, R>::parse(data).map_err(|e| e.to_string())?;
        let mut elf = Elf { build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(), ..Elf::default() };
        let endian = file.endian();
        for header in file.elf_program_headers() {
            if header.p_type(endian) == object::elf::PT_LOAD {
                elf.loads.push((header.p_offset(endian), header.p_filesz(endian), header.p_vaddr(endian)));
            }
        }
        let range = |name| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let section = |name| {
            let section = file.section_by_name(name)?;
            let content = if section.size() <= LARGEST_SECTION { section.data().ok()? } else { return None };
            Some(Section { at: range(name)?, bytes: content.into() })
        };
        elf.text = range(".text");
        elf.got = range(".got");
        elf.eh_frame = section(".eh_frame").filter(|s| !s.bytes.is_empty());
        elf.eh_frame_hdr = section(".eh_frame_hdr").filter(|s| !s.bytes.is_empty());
        if let Some(header) = &elf.eh_frame_hdr {
            elf.ranges = Ranges::read(&header.bytes, header.at.start);
        }
        elf.symbols = file.symbols().filter_map(function).collect();
        elf.unstripped = !elf.symbols.is_empty();
        elf.symbols.extend(file.dynamic_symbols().filter_map(function));
        sort(&mut elf.symbols);
        let all = file.symbols().chain(file.dynamic_symbols());
        elf.jit =
            all.filter(|s| s.name() == Ok("__jit_debug_descriptor") && s.address() != 0).map(|s| s.address()).next();
        Ok(elf)
    }

    /// The linked address of what is at `offset` in the file.
    pub fn linked(&self, offset: u64) -> Option<u64> {
        let load = self.loads.iter().find(|(at, size, _)| (*at..at.saturating_add(*size)).contains(&offset));
        // A mapping begins at a page, the piece it is of may begin inside that.
        let load = load.or_else(|| {
            self.loads.iter().find(|(at, size, _)| (at & !0xfff..at.saturating_add(*size)).contains(&offset))
        });
        load.map(|(at, _, address)| address.wrapping_add(offset).wrapping_sub(*at))
    }

    /// Whether both have the same functions at the same places: builds of the same, one of them stripped.
    pub fn same_layout(&self, other: &Elf) -> bool {
        self.text.is_some() && self.text == other.text && !self.ranges.is_empty() && self.ranges == other.ranges
    }
}

/// By address; of several names for one, the longest function's first, then as the alphabet has them.
fn sort(symbols: &mut Vec<Symbol>) {
    symbols.sort_by(|a, b| (a.at, std::cmp::Reverse(a.size), &a.name).cmp(&(b.at, std::cmp::Reverse(b.size), &b.name)));
    symbols.dedup_by_key(|symbol| symbol.at);
}

fn function<'data>(symbol: impl ObjectSymbol<'data>) -> Option<Symbol> {
    let is_code = symbol.kind() == SymbolKind::Text && symbol.is_definition();
    let name = symbol.name().ok().filter(|name| !name.is_empty())?;
    is_code.then(|| Symbol { at: symbol.address(), size: symbol.size(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_program_is_understood() {
        let elf = Elf::read(&own()[..]).unwrap();
        assert!(elf.unstripped && elf.ranges.len() > 100);
        let main = elf.symbols.iter().find(|s| s.name == "main").unwrap();
        assert!(elf.text.clone().unwrap().contains(&main.at));
        assert_eq!(elf.ranges.start_of(main.at + 1), Some(main.at));
        assert!(elf.same_layout(&elf));
        assert!(!elf.same_layout(&Elf::default()));
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
}
