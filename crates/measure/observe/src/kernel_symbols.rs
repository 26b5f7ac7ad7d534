//! Addresses of the kernel's functions, for filters of events.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Returns the address of a function of the kernel or its modules; `None` for one that it does not have, and where
/// `kernel.kptr_restrict` hides addresses from this user.
pub fn function_address(name: &str) -> Option<u64> {
    address_in(BufReader::new(File::open("/proc/kallsyms").ok()?), name)
}

/// Reads lines of `ffffffff81285600 t irqfd_inject`, with the module's name behind where there is one.
fn address_in(symbols: impl BufRead, name: &str) -> Option<u64> {
    let mut lines = symbols.lines().map_while(Result::ok);
    let address = lines.find_map(|line| {
        let mut words = line.split_whitespace();
        let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
        (symbol == name).then(|| u64::from_str_radix(address, 16).ok())?
    })?;
    (address != 0).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_an_address_unless_it_is_hidden() {
        let address = |symbols: &str| address_in(symbols.as_bytes(), "irqfd_inject");
        let others = "ffffffff812855f0 t __pfx_irqfd_inject\n";
        assert_eq!(address(others), None);
        let own = format!("{others}ffffffffc1285600 t irqfd_inject\t[kvm]\n");
        assert_eq!(address(&own), Some(0xffff_ffff_c128_5600));
        assert_eq!(address("0000000000000000 t irqfd_inject [kvm]\n"), None);
    }
}
