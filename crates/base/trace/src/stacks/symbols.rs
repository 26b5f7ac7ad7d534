//! Functions by address: named by a program's tables of symbols, named or not in the sorted table of its `.eh_frame_hdr`,
//! which stripping leaves, and those of the kernel in /proc/kallsyms.

use std::cmp::Reverse;
use std::ffi::CStr;
use std::ops::Range;

/// A function's name in a table of symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Where it begins, as linked.
    pub at: u64,
    /// Bytes; 0 where the table does not say.
    pub size: u64,
    /// Name of the function as the linker knows it.
    pub name: &'a str,
}

/// Named functions by address.
#[derive(Debug, Default)]
pub struct CodeSymbols {
    /// As the linker wrote them: tens of thousands of names are not copied out.
    text: Vec<u8>,
    all: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    at: u64,
    size: u64,
    name: Range<usize>,
}

impl CodeSymbols {
    /// Takes in a table: where functions begin, their bytes, and where their names begin in the table's text.
    pub fn add(&mut self, text: &[u8], functions: impl Iterator<Item = (u64, u64, usize)>) {
        let base = self.text.len();
        self.text.extend_from_slice(text);
        self.all.extend(functions.filter_map(|(at, size, begin)| {
            let name = CStr::from_bytes_until_nul(text.get(begin..)?)
                .ok()?
                .to_str()
                .ok()?;
            (!name.is_empty()).then_some(Entry {
                at,
                size,
                name: base + begin..base + begin + name.len(),
            })
        }));
        let text = &self.text;
        // Of several names for one address, the longest function's first, then as the alphabet has them.
        let key = |entry: &Entry| (entry.at, Reverse(entry.size));
        self.all.sort_by(|a, b| {
            key(a)
                .cmp(&key(b))
                .then_with(|| text[a.name.clone()].cmp(&text[b.name.clone()]))
        });
        self.all.dedup_by_key(|entry| entry.at);
    }

    /// Returns true if no function is known.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The one that begins nearest to an address, at it or before.
    pub fn before(&self, at: u64) -> Option<Symbol<'_>> {
        self.get(self.behind(at).checked_sub(1)?)
    }

    /// The first that begins behind an address.
    pub fn after(&self, at: u64) -> Option<Symbol<'_>> {
        self.get(self.behind(at))
    }

    fn behind(&self, at: u64) -> usize {
        self.all.partition_point(|entry| entry.at <= at)
    }

    fn get(&self, number: usize) -> Option<Symbol<'_>> {
        let Entry { at, size, name } = self.all.get(number)?;
        Some(Symbol {
            at: *at,
            size: *size,
            name: std::str::from_utf8(&self.text[name.clone()]).ok()?,
        })
    }
}

/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`, the only form that linkers write the table in.
const TABLE_FORM: u8 = 0x3b;

/// The forms that linkers write: the frames' address is relative to where it is, the count is a number.
const FORMS: [u8; 4] = [1, 0x1b, 0x03, TABLE_FORM];

/// Returns true if `.eh_frame_hdr`, linked to `base`, is a table that unwinding can trust: each row's frame lies
/// behind the frames' begin. Gimli subtracts one from the other unchecked.
pub(super) fn is_table(header: &[u8], base: u64) -> bool {
    let frames = address(base.wrapping_add(4), header, 4).filter(|_| header.starts_with(&FORMS));
    frames.zip(header.get(12..)).is_some_and(|(frames, rows)| {
        rows.chunks_exact(8)
            .all(|row| address(base, row, 4) >= Some(frames))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(i32::from_le_bytes(*word))
}

/// The address that a word has relative to `base`.
fn address(base: u64, bytes: &[u8], at: usize) -> Option<u64> {
    Some(base.wrapping_add_signed(word(bytes, at)?.into()))
}

/// Where the functions of a program begin, as linked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<u64>);

impl Ranges {
    /// Reads `.eh_frame_hdr`, linked to `base`; empty where it is of another form.
    pub fn read(header: &[u8], base: u64) -> Ranges {
        Ranges::table(header, base).unwrap_or_default()
    }

    fn table(header: &[u8], base: u64) -> Option<Ranges> {
        let [1, frame_form, count_form, TABLE_FORM, ..] = *header else {
            return None;
        };
        // The pointer to .eh_frame is passed over; it and the count are of four bytes.
        (matches!(frame_form & 0xf, 0x3 | 0xb) && matches!(count_form & 0xf, 0x3 | 0xb))
            .then_some(())?;
        let count = usize::try_from(word(header, 8)?).ok()?;
        let rows = header.get(12..)?.chunks_exact(8).take(count);
        let mut starts: Vec<u64> = rows.filter_map(|row| address(base, row, 0)).collect();
        starts.sort_unstable(); // it is, unless it is damaged
        Some(Ranges(starts))
    }

    /// The function that `address` lies in, or after.
    pub fn start_of(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|&start| start <= address);
        after.checked_sub(1).map(|at| self.0[at])
    }

    /// Returns the number of functions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no function is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The kernel's functions by address; empty where it hides them.
#[derive(Debug, Default)]
pub struct Kernel {
    /// As the kernel wrote it: a hundred thousand names are not copied out.
    text: String,
    /// Addresses, and where in the text the names are; sorted.
    symbols: Vec<(u64, Range<usize>)>,
    /// Where modules lie; sorted.
    modules: Vec<Range<u64>>,
    /// Where the kernel itself ends, with what it needs only to begin and to end.
    end: Option<u64>,
}

/// Symbol that the linker puts behind the kernel's own functions.
const END: &str = "_etext";

impl Kernel {
    /// Reads the functions of this host's kernel.
    pub fn read() -> Kernel {
        let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
        Kernel::parse(
            std::fs::read_to_string("/proc/kallsyms").unwrap_or_default(),
            &modules,
        )
    }

    /// This host's, if it is the one that was recorded: the same build, and its first function at the same place, which
    /// changes when it starts again.
    pub fn recorded(build_id: Option<&[u8]>, first: Option<u64>) -> Kernel {
        let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
        let is_here =
            |id: &[u8]| !id.is_empty() && notes.windows(id.len()).any(|window| window == id);
        let Some(first) = first.filter(|_| build_id.is_some_and(is_here)) else {
            return Kernel::default();
        };
        let kernel = Kernel::read();
        let in_place = kernel
            .symbols
            .binary_search_by_key(&first, |(address, _)| *address)
            .is_ok();
        if in_place { kernel } else { Kernel::default() }
    }

    fn parse(text: String, modules: &str) -> Kernel {
        let place = |name: &str| {
            let at = name.as_ptr() as usize - text.as_ptr() as usize;
            at..at + name.len()
        };
        let symbols = text
            .lines()
            .filter_map(kallsyms_line)
            .map(|(at, name)| (at, place(name)));
        let mut symbols: Vec<(u64, Range<usize>)> = symbols.collect();
        symbols.sort_by_key(|(at, _)| *at);
        symbols.dedup_by_key(|(at, _)| *at);
        let end = text
            .find(" _end\n")
            .and_then(|name| text[..name].rsplit('\n').next()?.split(' ').next());
        let end = end
            .and_then(|at| u64::from_str_radix(at, 16).ok())
            .filter(|&at| at != 0);
        let mut modules: Vec<Range<u64>> = modules.lines().filter_map(module_range).collect();
        modules.sort_by_key(|range| range.start);
        Kernel {
            text,
            symbols,
            modules,
            end,
        }
    }

    /// Returns true if the kernel's functions have names here.
    pub fn is_named(&self) -> bool {
        !self.symbols.is_empty()
    }

    /// The name of the function at an address. What lies behind the kernel's own functions and outside its modules, as
    /// what it made itself while it ran, is nobody's.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|(at, _)| *at <= address);
        let (at, name) = &self.symbols[after.checked_sub(1)?];
        let name = &self.text[name.clone()];
        let before = self.modules.partition_point(|range| range.start <= *at);
        let module = before
            .checked_sub(1)
            .map(|number| &self.modules[number])
            .filter(|range| range.contains(at));
        let own = self.end.is_some_and(|end| *at < end && end <= address);
        let inside = module.is_none_or(|range| range.contains(&address)) && !own;
        (inside && name != END).then_some(name)
    }
}

/// "ext4 983040 2 - Live 0xffffffffc0a00000": where a module lies; nothing where the kernel hides it.
fn module_range(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_ascii_whitespace();
    let size: u64 = words.nth(1)?.parse().ok()?;
    let at = words
        .find_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .filter(|&at| at != 0)?;
    Some(at..at.checked_add(size)?)
}

/// Reads a line of /proc/kallsyms, `ffffffff81285600 t irqfd_inject`: a function's address and name; `None` for data, and for an address
/// that is hidden.
pub fn kallsyms_line(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let at = u64::from_str_radix(words.next()?, 16)
        .ok()
        .filter(|&at| at != 0)?; // 0 where it is hidden
    matches!(words.next()?, "t" | "T" | "w" | "W").then_some(())?;
    Some((at, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_name_of_an_address_and_its_neighbors() {
        let mut symbols = CodeSymbols::default();
        symbols.add(
            b"\0alias\0longer\0\xff\0",
            [(16, 0, 1), (16, 8, 7), (32, 8, 14), (48, 8, 0), (64, 8, 99)].into_iter(),
        );
        symbols.add(b"\0exported\0", [(64, 0, 1), (16, 4, 1)].into_iter());
        let names = |symbol: Option<Symbol<'static>>| symbol.map(|symbol| symbol.name);
        let symbols: &'static CodeSymbols = Box::leak(Box::new(symbols));
        assert_eq!(
            [15, 16, 63, 64].map(|at| names(symbols.before(at))),
            [None, Some("longer"), Some("longer"), Some("exported")]
        );
        assert_eq!(
            [15, 16, 64].map(|at| names(symbols.after(at))),
            [Some("longer"), Some("exported"), None]
        );
    }

    #[test]
    fn the_function_around_an_address() {
        let mut header = vec![1, 0x1b, 0x03, 0x3b];
        for word in [0i32, 2, -16, 0, 32, 0] {
            header.extend(word.to_le_bytes());
        }
        let ranges = Ranges::read(&header, 0x1000);
        assert_eq!(ranges.len(), 2);
        assert_eq!(
            [0xfef, 0xff0, 0x101f, 0x1020, 0x2000].map(|a| ranges.start_of(a)),
            [None, Some(0xff0), Some(0xff0), Some(0x1020), Some(0x1020)]
        );
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, base: u64, at: u64) {
            Ranges::read(&bytes, base).start_of(at);
            let mut header = vec![1, 0x1b, 0x03, 0x3b];
            header.extend(bytes);
            Ranges::read(&header, base).start_of(at);
        }
    }

    #[test]
    fn functions_of_kernel_and_modules() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t do_x\nffffffff81000180 d data\nffffffff81002000 T _etext\n\
                    ffffffffc0000000 t kvm_run\t[kvm]\nffffffffc0009000 t bpf_prog_1\t[bpf]\n";
        let kernel = Kernel::parse(
            text.to_owned(),
            "kvm 4096 1 - Live 0xffffffffc0000000\nx 1 0 - Live 0x0\n",
        );
        assert_eq!(kernel.name(0xffff_ffff_8100_0190), Some("do_x"));
        assert_eq!(kernel.name(0xffff_ffff_c000_0010), Some("kvm_run"));
        assert_eq!(kernel.name(0xffff_ffff_c000_9010), Some("bpf_prog_1"));
        // Behind the kernel, and behind a module.
        assert_eq!(kernel.name(0xffff_ffff_8100_2010), None);
        assert_eq!(kernel.name(0xffff_ffff_c000_1000), None);
        // Behind the kernel's end, where its last function is one that it needs only to end.
        let text = "ffffffff81000000 T _text\nffffffff81002000 T _etext\nffffffff81003000 t x_exit\nffffffff81004000 B _end\n";
        let kernel = Kernel::parse(text.to_owned(), "");
        assert_eq!(
            [0xffff_ffff_8100_3010, 0xffff_ffff_c000_0000].map(|at| kernel.name(at)),
            [Some("x_exit"), None]
        );
        let hidden = Kernel::parse("0000000000000000 T _text\n".to_owned(), "");
        assert!(!hidden.is_named());
        assert_eq!(hidden.name(0xffff_ffff_8100_0190), None);
    }
}
