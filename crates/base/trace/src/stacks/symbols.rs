//! The functions that a program's tables name.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_of_an_address_and_its_neighbours() {
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
}
