//! Host settings that a comparison changes for one slot: set, read back, restored.

use crate::MachineError;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use vmtax_host::value_in_effect;
use vmtax_model::{SetBy, Setting, SettingPart, Variant};

/// The kernel's file for a setting that a comparison may vary, by its name without `host.`; `*` stands for every CPU.
fn file_of(name: &str) -> Option<&'static str> {
    let is_named = |setting: &&Setting| setting.key.strip_prefix(Variant::OF_HOST) == Some(name);
    compared().find(is_named)?.host_file()
}

/// Settings of the host that a comparison may vary.
fn compared() -> impl Iterator<Item = &'static Setting> {
    Setting::all().filter(|setting| {
        matches!(setting.part, SettingPart::HostFile { by, .. } if by >= SetBy::Comparison)
    })
}

/// Why a setting, by name without `host.`, is no change on this host; `None` where it is one.
pub fn host_setting_fault(name: &str, value: &str) -> Option<&'static str> {
    setting_fault(Path::new("/"), name, value)
}

fn setting_fault(root: &Path, name: &str, value: &str) -> Option<&'static str> {
    let files = files(root, file_of(name).unwrap_or_default());
    // Root may open a file of sysfs that nobody may write; the kernel refuses what is written.
    let is_writable = |file: &PathBuf| {
        file.metadata()
            .is_ok_and(|about| about.permissions().mode() & 0o222 != 0)
    };
    match files.iter().find(|file| !is_writable(file)) {
        None if files.is_empty() => Some("this host does not have it"),
        Some(_) => Some("read-only on this host's kernel"),
        None => files
            .iter()
            .all(|file| value_in_effect(file).is_ok_and(|now| now == value))
            .then_some("it is the host's setting already"),
    }
}

/// Changed settings. Restored on drop, without reporting errors.
#[derive(Debug, Default)]
pub struct HostSettings {
    /// The files, with what they held.
    changed: Vec<(PathBuf, String)>,
}

impl HostSettings {
    /// Sets these, by name without `host.`, and reads each back.
    ///
    /// # Errors
    /// [`MachineError::HostSetting`] for a name that is not known, a setting that this host does not have, may not be
    /// written, or does not take the value; what was changed by then is restored.
    pub fn set(wanted: &BTreeMap<&str, &str>) -> Result<HostSettings, MachineError> {
        HostSettings::set_below(Path::new("/"), wanted)
    }

    fn set_below(root: &Path, wanted: &BTreeMap<&str, &str>) -> Result<HostSettings, MachineError> {
        let mut settings = HostSettings::default();
        for (name, value) in wanted {
            let fault = |why: String| MachineError::HostSetting {
                name: (*name).to_owned(),
                why,
            };
            let Some(pattern) = file_of(name) else {
                let all: Vec<&str> = compared().map(|setting| setting.key).collect();
                return Err(fault(format!(
                    "unknown host setting: choose from {}",
                    all.join(", ")
                )));
            };
            let files = files(root, pattern);
            if files.is_empty() {
                return Err(fault(format!(
                    "this host has no {pattern}: leave the setting out"
                )));
            }
            for file in files {
                settings.set_file(file, value).map_err(fault)?;
            }
        }
        Ok(settings)
    }

    /// Sets the value in a file and reads it back; the error is the reason why that failed.
    fn set_file(&mut self, file: PathBuf, value: &str) -> Result<(), String> {
        let read = || value_in_effect(&file).map_err(|e| format!("{}: {e}", file.display()));
        let before = read()?;
        if before == value {
            return Ok(());
        }
        // Before it is tried: what is half set is restored too.
        self.changed.push((file.clone(), before));
        fs::write(&file, value).map_err(|e| {
            let hint = if e.kind() == std::io::ErrorKind::PermissionDenied {
                " (run as root)"
            } else {
                ""
            };
            format!("writing {value} to {} failed: {e}{hint}", file.display())
        })?;
        let now = read()?;
        if now == value {
            Ok(())
        } else {
            Err(format!(
                "{} is {now} after {value} was written",
                file.display()
            ))
        }
    }

    /// Returns the files to be written, with their contents, if this program is killed.
    pub fn before(&self) -> Vec<(PathBuf, String)> {
        self.changed.clone()
    }

    /// Restores all settings.
    ///
    /// # Errors
    /// [`MachineError::NotRestored`] with the commands that restore them.
    pub fn restore(mut self) -> Result<(), MachineError> {
        match self.restore_all().as_slice() {
            [] => Ok(()),
            left => Err(MachineError::NotRestored {
                commands: left.join("; "),
            }),
        }
    }

    /// The commands for what could not be restored.
    fn restore_all(&mut self) -> Vec<String> {
        let failed = |(file, before): (PathBuf, String)| {
            let done = fs::write(&file, &before)
                .and_then(|()| value_in_effect(&file))
                .is_ok_and(|now| now == before);
            (!done).then(|| format!("echo {before} > {}", file.display()))
        };
        self.changed.drain(..).rev().filter_map(failed).collect()
    }
}

impl Drop for HostSettings {
    fn drop(&mut self) {
        self.restore_all();
    }
}

/// The files that a pattern with at most one `*` names.
fn files(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let Some((before, after)) = pattern.split_once('*') else {
        return Some(below(pattern))
            .filter(|file| file.exists())
            .into_iter()
            .collect();
    };
    (0..4096)
        .map(|n| below(&format!("{before}{n}{after}")))
        .filter(|file| file.exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, held: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(name.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, held).unwrap();
        (root, file)
    }

    #[test]
    fn a_setting_is_set_and_put_back() {
        let (root, file) = place(file_of("halt-poll-ns").unwrap(), "200000\n");
        let settings =
            HostSettings::set_below(root.path(), &BTreeMap::from([("halt-poll-ns", "0")])).unwrap();
        assert_eq!(value_in_effect(&file).unwrap(), "0");
        assert_eq!(settings.before(), [(file.clone(), "200000".to_owned())]);
        settings.restore().unwrap();
        assert_eq!(value_in_effect(&file).unwrap(), "200000");
        // Also where nobody asks for it.
        drop(
            HostSettings::set_below(root.path(), &BTreeMap::from([("halt-poll-ns", "7")])).unwrap(),
        );
        assert_eq!(value_in_effect(&file).unwrap(), "200000");
    }

    #[test]
    fn what_does_not_take_effect_is_refused_and_put_back() {
        // A plain file keeps the word; the kernel's would keep all three with other brackets.
        let (root, file) = place(file_of("thp").unwrap(), "always [madvise] never\n");
        assert_eq!(value_in_effect(&file).unwrap(), "madvise");
        let unknown = HostSettings::set_below(
            root.path(),
            &BTreeMap::from([("thp", "never"), ("turbo", "off")]),
        );
        assert!(unknown.unwrap_err().to_string().contains("host.thp"));
        assert_eq!(value_in_effect(&file).unwrap(), "madvise");
        let missing =
            HostSettings::set_below(root.path(), &BTreeMap::from([("governor", "performance")]));
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("leave the setting out")
        );
    }

    #[test]
    fn a_setting_that_is_no_change_is_known_before_a_guest_boots() {
        let (root, file) = place(file_of("halt-poll-ns").unwrap(), "200000\n");
        let fault = |name, value| setting_fault(root.path(), name, value);
        assert_eq!(fault("halt-poll-ns", "0"), None);
        assert!(fault("halt-poll-ns", "200000").unwrap().contains("already"));
        assert!(fault("thp", "always").unwrap().contains("does not have it"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(fault("halt-poll-ns", "0").unwrap().contains("read-only"));
    }

    #[test]
    fn what_cannot_be_put_back_is_said_with_the_command() {
        let (root, file) = place(file_of("halt-poll-ns").unwrap(), "200000");
        let settings =
            HostSettings::set_below(root.path(), &BTreeMap::from([("halt-poll-ns", "0")])).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let error = settings.restore().unwrap_err().to_string();
        assert!(
            error.contains(&format!("echo 200000 > {}", file.display())),
            "{error}"
        );
    }
}
