//! The kernel's functions, from /proc/kallsyms.

use std::ops::Range;

/// The kernel's functions by address; empty where it hides them.
#[derive(Debug, Default)]
pub struct Kernel {
    /// As the kernel wrote it: a hundred thousand names are not copied out.
    text: String,
    /// Addresses, and where in the text the names are; sorted.
    symbols: Vec<(u64, Range<usize>)>,
}

impl Kernel {
    /// This host's.
    pub fn read() -> Kernel {
        Kernel::parse(std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// This host's, if it is the one that was recorded: the same build, and its first function at the same place, which
    /// changes when it starts anew.
    pub fn recorded(build_id: Option<&[u8]>, first: Option<u64>) -> Kernel {
        let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
        let is_here = |id: &[u8]| !id.is_empty() && notes.windows(id.len()).any(|window| window == id);
        let Some(first) = first.filter(|_| build_id.is_some_and(is_here)) else { return Kernel::default() };
        let kernel = Kernel::read();
        let in_place = kernel.symbols.binary_search_by_key(&first, |(address, _)| *address).is_ok();
        if in_place { kernel } else { Kernel::default() }
    }

    fn parse(text: String) -> Kernel {
        let place = |name: &str| {
            let at = name.as_ptr() as usize - text.as_ptr() as usize;
            at..at + name.len()
        };
        let symbols = text.lines().filter_map(line).map(|(at, name)| (at, place(name)));
        let mut symbols: Vec<(u64, Range<usize>)> = symbols.collect();
        symbols.sort_by_key(|(at, _)| *at);
        symbols.dedup_by_key(|(at, _)| *at);
        Kernel { text, symbols }
    }

    /// Whether its functions have names here.
    pub fn is_named(&self) -> bool {
        !self.symbols.is_empty()
    }

    /// The name of the function at an address; the address itself where there is none.
    pub fn name(&self, address: u64) -> String {
        let after = self.symbols.partition_point(|(at, _)| *at <= address);
        match after.checked_sub(1) {
            Some(at) => self.text[self.symbols[at].1.clone()].to_owned(),
            None => format!("kernel:{address:#x}"),
        }
    }
}

fn line(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let at = u64::from_str_radix(words.next()?, 16).ok().filter(|&at| at != 0)?; // 0 where it is hidden
    matches!(words.next()?, "t" | "T" | "w" | "W").then_some(())?;
    Some((at, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_kernel_and_modules() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t do_x\nffffffff81000180 d data\nffffffffc0000000 t kvm_run\t[kvm]\n";
        let kernel = Kernel::parse(text.to_owned());
        assert_eq!(kernel.name(0xffff_ffff_8100_0190), "do_x");
        assert_eq!(kernel.name(0xffff_ffff_c000_0010), "kvm_run");
        let hidden = Kernel::parse("0000000000000000 T _text\n".to_owned());
        assert!(!hidden.is_named());
        assert_eq!(hidden.name(0xffff_ffff_8100_0190), "kernel:0xffffffff81000190");
    }
}
