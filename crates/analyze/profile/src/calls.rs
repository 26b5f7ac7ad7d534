//! System calls by number.

use std::collections::HashMap;
use std::sync::LazyLock;

/// `futex`.
pub const FUTEX: i64 = 202;

/// The kernel's names of system calls that people meet in stacks, by number.
pub fn system_call(number: i64) -> String {
    static NAMES: LazyLock<HashMap<i64, &str>> = LazyLock::new(|| {
        include_str!("syscalls.txt")
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(n, name)| Some((n.parse().ok()?, name)))
            .collect()
    });
    NAMES.get(&number).map_or_else(|| format!("syscall {number}"), |&name| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_or_numbers() {
        assert_eq!((system_call(202).as_str(), system_call(99_999).as_str()), ("futex", "syscall 99999"));
    }
}
