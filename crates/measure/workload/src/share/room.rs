//! Room that a workload on a shared tree takes, so that it can be seen to beforehand.

use super::names;
use crate::options::Values;
use crate::{WorkloadError, check};
use vmtax_model::{WorkloadName, WorkloadSpec};

/// A file takes whole pages, and its name part of one.
const PAGE: u64 = 4096;
const NAME: u64 = 64;
/// Files that `fids` makes even if the tree has enough.
const FIDS_OWN: u64 = 500;
/// What a name held open takes of its kernel's memory: inode, name, open file.
const HELD: u64 = 2048;

/// Bytes and files that a workload makes at most in a tree that has so many files.
///
/// # Errors
/// As [`check`].
pub fn written(spec: &WorkloadSpec, tree_files: u64) -> Result<(u64, u64), WorkloadError> {
    let full = check(spec)?;
    let number = |option: &str| Values(&full).number(option);
    Ok(match full.name {
        WorkloadName::Bonnie => {
            let files = number("files")?;
            let each = NAME + number("file-size")?.next_multiple_of(PAGE);
            (number("size")?.saturating_add(files.saturating_mul(each)), files + 3)
        }
        WorkloadName::Fids => {
            let count = number("count")?;
            let files = count.saturating_sub(tree_files).max(FIDS_OWN.min(count));
            (files * NAME, files + files / 1000 + 2)
        }
        WorkloadName::Names => {
            let (files, depth) = (number("files")?, number("depth")?);
            // Attributes that an inode has no room for take a page.
            let hung = if number("xattrs")? > 0 { files.min(names::OWN) * PAGE } else { 0 };
            (files * NAME + depth * PAGE + hung, files + depth + 2)
        }
        // Its files have a name and little else.
        WorkloadName::Meaning => (1 << 20, 100),
        _ => (0, 0),
    })
}

/// Bytes of memory that a workload holds in the kernel on which it runs, by names that it holds open.
///
/// # Errors
/// As [`check`].
pub fn held_bytes(spec: &WorkloadSpec) -> Result<u64, WorkloadError> {
    let full = check(spec)?;
    let values = Values(&full);
    let holds = full.name == WorkloadName::Fids && values.text("how") == "held";
    Ok(if holds { values.number("count")?.saturating_mul(HELD) } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_says_how_much() {
        let bonnie = WorkloadSpec::new(WorkloadName::Bonnie).with("size", "10M").with("files", 10).with("file-size", 1);
        assert_eq!(written(&bonnie, 0).unwrap(), ((10 << 20) + 10 * (PAGE + NAME), 13));
        let fids = WorkloadSpec::new(WorkloadName::Fids).with("count", 40_000);
        assert_eq!(written(&fids, 0).unwrap().1, 40_042);
        assert_eq!(written(&fids, 39_990).unwrap().1, 502);
        assert_eq!(written(&WorkloadSpec::new(WorkloadName::Tree), 0).unwrap(), (0, 0));
        let names = WorkloadSpec::new(WorkloadName::Names).with("files", 1000).with("depth", 10).with("xattrs", 1);
        assert_eq!(written(&names, 0).unwrap(), (1000 * NAME + 10 * PAGE + 100 * PAGE, 1012));
        assert_eq!(held_bytes(&fids).unwrap(), 0);
        assert_eq!(held_bytes(&fids.with("how", "held")).unwrap(), 40_000 * HELD);
    }
}
