//! Changes of a running VM that is not ours, and of its host: each written down first, read back, undone.

mod guest_file;
mod host_file;
mod journal;
mod monitor;
mod thread;

pub(crate) use host_file::host_queues;
pub use journal::{Changes, Undone, undo, undo_interrupted};
pub(crate) use thread::pinned;

use crate::vm::Vm;
use vmtax_model::{LiveSetting, Setting, SettingValue};

/// Why a setting is not what it was to be.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It cannot be read or set.
    #[error("{setting}: {why}")]
    Refused {
        /// Setting that was refused.
        setting: String,
        /// Reason of the refusal.
        why: String,
    },
    /// Somebody else has set it since.
    #[error(
        "{setting} is \"{now}\" and was left so: somebody else changed it since vmtax set \"{expected}\". Change it back by hand if that was not meant"
    )]
    Theirs {
        /// Setting that somebody else changed.
        setting: String,
        /// Value that vmtax set.
        expected: String,
        /// Value that it has now.
        now: String,
    },
    /// The journal of changes cannot be written, so nothing is changed.
    #[error("{path}, which is to keep what settings were before, cannot be written: {source}. Nothing was changed; run vmtax as root", path = .path.display())]
    Journal {
        /// Path of the journal's file.
        path: std::path::PathBuf,
        /// The error of the kernel.
        source: std::io::Error,
    },
}

impl ChangeError {
    fn refused(setting: &LiveSetting, why: impl ToString) -> ChangeError {
        ChangeError::Refused {
            setting: setting.label(),
            why: why.to_string(),
        }
    }
}

/// Checks that vmtax sets a setting: a plan may come from anybody, and names no other files, objects and groups than a
/// rule would.
fn may_set(vm: &Vm, SettingValue { setting, value }: &SettingValue) -> Result<(), ChangeError> {
    let allowed = match setting {
        LiveSetting::HostFile { path } => host_file::may_set(vm, path),
        LiveSetting::GuestFile { path, .. } => Setting::may_be_written_in_guest(path, value),
        LiveSetting::QomProperty { path, property } => monitor::may_set(path, property),
        LiveSetting::Affinity { .. }
        | LiveSetting::DiskLimits { .. }
        | LiveSetting::Qcow2Cache { .. } => true,
    };
    if allowed {
        Ok(())
    } else {
        Err(ChangeError::refused(setting, "vmtax does not set this"))
    }
}

/// Returns true if a setting still exists: a control group or a thread may have ended.
fn exists(vm: &Vm, setting: &LiveSetting) -> bool {
    match setting {
        LiveSetting::HostFile { path } => path.exists(),
        LiveSetting::Affinity { tid } => thread::exists(vm, *tid),
        LiveSetting::GuestFile { .. }
        | LiveSetting::DiskLimits { .. }
        | LiveSetting::QomProperty { .. }
        | LiveSetting::Qcow2Cache { .. } => true,
    }
}

/// Reads the value of a setting; `None` for one that cannot be read.
fn read(vm: &Vm, setting: &LiveSetting) -> Result<Option<String>, ChangeError> {
    let refused = |why: String| ChangeError::refused(setting, why);
    match setting {
        LiveSetting::HostFile { path } => host_file::read(path).map(Some).map_err(refused),
        LiveSetting::GuestFile { path, .. } => {
            guest_file::read(vm, path).map(Some).map_err(refused)
        }
        LiveSetting::Affinity { tid } => thread::affinity(vm, *tid).map(Some).map_err(refused),
        LiveSetting::DiskLimits { device } => {
            monitor::limits(vm, device).map(Some).map_err(refused)
        }
        LiveSetting::QomProperty { path, property } => monitor::property(vm, path, property)
            .map(Some)
            .map_err(refused),
        LiveSetting::Qcow2Cache { .. } => Ok(None),
    }
}

/// Sets a setting and reads it back.
fn write(vm: &Vm, setting: &LiveSetting, value: &str) -> Result<(), ChangeError> {
    let refused = |why: String| ChangeError::refused(setting, why);
    match setting {
        LiveSetting::HostFile { path } => host_file::write(path, value).map_err(refused)?,
        LiveSetting::GuestFile { path, flushed } => {
            guest_file::write(vm, path, value).map_err(refused)?;
            flushed
                .as_ref()
                .map_or(Ok(()), |device| monitor::flush(vm, device))
                .map_err(refused)?;
        }
        LiveSetting::Affinity { tid } => thread::set_affinity(vm, *tid, value).map_err(refused)?,
        LiveSetting::DiskLimits { device } => {
            monitor::set_limits(vm, device, value).map_err(refused)?
        }
        LiveSetting::QomProperty { path, property } => {
            monitor::set_property(vm, path, property, value).map_err(refused)?;
        }
        LiveSetting::Qcow2Cache { device, .. } => {
            monitor::set_l2_cache(vm, device, value).map_err(refused)?
        }
    }
    match read(vm, setting)? {
        Some(now) if !is_same(&now, value) => {
            Err(refused(format!("it reads {now} after {value} was set")))
        }
        _ => Ok(()),
    }
}

/// Returns true if two texts are the same value: as JSON objects, where a missing part equals null or 0, else as they
/// are.
fn is_same(a: &str, b: &str) -> bool {
    let of =
        |text: &str| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).ok();
    let is_none = |value: &serde_json::Value| value.is_null() || *value == 0;
    match (of(a), of(b)) {
        (Some(a), Some(b)) => {
            let covers =
                |one: &serde_json::Map<_, _>,
                 other: &serde_json::Map<String, serde_json::Value>| {
                    one.iter()
                        .all(|(key, value): (&String, _)| match other.get(key) {
                            Some(known) => known == value || (is_none(known) && is_none(value)),
                            // The length of a burst is 1 where there is none.
                            None => {
                                is_none(value) || key.ends_with("length") || key.ends_with("size")
                            }
                        })
                };
            covers(&a, &b) && covers(&b, &a)
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_zero_are_none() {
        assert!(is_same(r#"{"iops":0,"bps":0,"iops_max_length":1}"#, "{}"));
        assert!(is_same(r#"{"iops":20,"bps":0}"#, r#"{"iops":20}"#));
        assert!(!is_same(r#"{"iops":20}"#, "{}") && !is_same("{}", r#"{"iops":20}"#));
        assert!(is_same("max 100000", "max 100000") && !is_same("0-1", "0"));
    }
}
