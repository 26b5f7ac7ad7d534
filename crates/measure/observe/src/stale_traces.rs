//! Removes what a killed vmtax left in tracefs.

use crate::process::is_ending;
use crate::tracefs::{self, PREFIX};
use crate::uprobe::{self, List};
use std::fs;
use std::path::Path;

/// Removes the tracefs instances and probes of vmtax processes that are no more. Anything else, of a living vmtax or of
/// others, is left alone. Nothing to do where there is no tracefs or no permission.
pub fn remove_stale_traces() {
    if let Ok(root) = tracefs::tracefs() {
        sweep_in(&root);
    }
}

fn sweep_in(root: &Path) {
    let names = fs::read_dir(root.join("instances"))
        .into_iter()
        .flatten()
        .flatten();
    let names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    for name in names {
        if name
            .strip_prefix(PREFIX)
            .and_then(process)
            .is_some_and(is_gone)
        {
            tracefs::remove(&root.join("instances").join(name));
        }
    }
    // Those that an instance still listens to cannot be removed, so instances go first.
    for list in List::ALL {
        for group in list.groups(root) {
            if group
                .strip_prefix(uprobe::PREFIX)
                .and_then(process)
                .is_some_and(is_gone)
            {
                list.undefine(root, &group);
            }
        }
    }
}

/// The process at the beginning of the rest of a name: `123-0-bound`, `123_0`.
fn process(rest: &str) -> Option<i32> {
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[end..].starts_with(['-', '_']).then_some(())?;
    rest[..end].parse().ok()
}

fn is_gone(process: i32) -> bool {
    process > 0 && is_ending(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_have_a_process() {
        assert_eq!(process("123-0-bound"), Some(123));
        assert_eq!(process("123_0"), Some(123));
        for other in [
            "",
            "123",
            "-1-bound",
            "abc-1",
            "12x-0",
            "99999999999-0",
            "123/0",
        ] {
            assert_eq!(process(other), None, "{other}");
        }
        assert!(!is_gone(1) && !is_gone(std::process::id() as i32) && !is_gone(0));
        assert!(is_gone(i32::MAX));
    }
}
