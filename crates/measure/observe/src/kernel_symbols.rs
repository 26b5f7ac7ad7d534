//! Addresses of the kernel's functions, for filters of events.

use std::fs::File;
use std::io::{BufRead, BufReader};
use vmtax_trace::stacks::kallsyms_line;

/// Returns the address of a function of the kernel or its modules; `None` for one that it does not have, and where
/// `kernel.kptr_restrict` hides addresses from this user.
pub fn function_address(name: &str) -> Option<u64> {
    address_in(BufReader::new(File::open("/proc/kallsyms").ok()?), name)
}

fn address_in(symbols: impl BufRead, name: &str) -> Option<u64> {
    let mut lines = symbols.lines().map_while(Result::ok);
    lines.find_map(|line| {
        let (address, symbol) = kallsyms_line(&line)?;
        (symbol == name).then_some(address)
    })
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
