//! Settings of the host's kernel that remedies change.

use crate::system_files::{chosen, read};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::host_setting_files;

/// The values in effect, by the file as remedies name it; without those that this host does not have.
pub(crate) fn collect() -> BTreeMap<String, String> {
    below(Path::new("/"))
}

fn below(root: &Path) -> BTreeMap<String, String> {
    let value = |pattern: &'static str| {
        let text = read(last(root.to_path_buf(), pattern.trim_start_matches('/'))?)?;
        Some((
            pattern.to_owned(),
            chosen(&text).unwrap_or(&text).to_owned(),
        ))
    };
    host_setting_files().filter_map(value).collect()
}

/// The last file that a path stands for, in the order of the numbers in the place of each `*`.
fn last(folder: PathBuf, pattern: &str) -> Option<PathBuf> {
    let (name, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    let Some(prefix) = name.strip_suffix('*') else {
        let path = folder.join(name);
        return if rest.is_empty() {
            Some(path).filter(|path| path.is_file())
        } else {
            last(path, rest)
        };
    };
    let entries = fs::read_dir(&folder).ok()?.flatten();
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .rev()
        .find_map(|number| last(folder.join(format!("{prefix}{number}")), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::testing::put;

    #[test]
    fn the_value_in_effect_is_read_and_what_the_host_lacks_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state10/disable", "1\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state9/disable", "0\n"),
            // An offline CPU.
            ("sys/devices/system/cpu/cpu1/online", "0\n"),
        ];
        for (file, text) in files {
            put(root.path(), file, text).unwrap();
        }
        let found = below(root.path());
        let value = |file: &str| found.get(file).map(String::as_str);
        assert_eq!(
            value("/sys/kernel/mm/transparent_hugepage/enabled"),
            Some("madvise")
        );
        assert_eq!(
            value("/sys/devices/system/cpu/cpu*/cpuidle/state*/disable"),
            Some("1"),
            "the deepest state"
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
