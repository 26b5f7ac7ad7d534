//! The kernel's functions, from /proc/kallsyms.

use std::ops::Range;

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
            .filter_map(line)
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
        let mut modules: Vec<Range<u64>> = modules.lines().filter_map(module).collect();
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
fn module(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_ascii_whitespace();
    let size: u64 = words.nth(1)?.parse().ok()?;
    let at = words
        .find_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .filter(|&at| at != 0)?;
    Some(at..at.checked_add(size)?)
}

fn line(line: &str) -> Option<(u64, &str)> {
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
