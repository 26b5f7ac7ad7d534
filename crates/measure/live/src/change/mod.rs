//! Changes of a running VM that is not ours, and of its host: each written down first, read back, undone.

mod journal;
mod places;

pub use journal::{Changes, Undone, undo, undo_interrupted};
pub(crate) use places::{host_queues, pinned};

use serde_json::{Map, Value};
use vmtax_model::{LiveSetting, Setting, SettingValue};
use vmtax_vmm::Vm;

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
        "{setting} was not restored: it is \"{now}\", but vmtax had set \"{expected}\", so somebody else changed it. If that was not intended, restore it yourself"
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
        LiveSetting::HostFile { path } => places::may_set_on_host(vm, path),
        LiveSetting::GuestFile { path, .. } => Setting::may_be_written_in_guest(path, value),
        LiveSetting::QomProperty { path, property } => places::may_set_property(path, property),
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
        LiveSetting::Affinity { tid } => places::thread_exists(vm, *tid),
        LiveSetting::GuestFile { .. }
        | LiveSetting::DiskLimits { .. }
        | LiveSetting::QomProperty { .. }
        | LiveSetting::Qcow2Cache { .. } => true,
    }
}

/// Reads the value of a setting; `None` for one that cannot be read.
fn read(vm: &Vm, setting: &LiveSetting) -> Result<Option<String>, ChangeError> {
    let value = match setting {
        LiveSetting::HostFile { path } => places::read_on_host(path),
        LiveSetting::GuestFile { path, .. } => places::read_in_guest(vm, path),
        LiveSetting::Affinity { tid } => places::affinity(vm, *tid),
        LiveSetting::DiskLimits { device } => places::limits(vm, device),
        LiveSetting::QomProperty { path, property } => places::property(vm, path, property),
        LiveSetting::Qcow2Cache { .. } => return Ok(None),
    };
    value
        .map(Some)
        .map_err(|why| ChangeError::refused(setting, why))
}

/// Sets a setting and reads it back.
fn write(vm: &Vm, setting: &LiveSetting, value: &str) -> Result<(), ChangeError> {
    let refused = |why: String| ChangeError::refused(setting, why);
    let done = match setting {
        LiveSetting::HostFile { path } => places::write_on_host(path, value),
        LiveSetting::GuestFile { path, flushed } => places::write_in_guest(vm, path, value)
            .and_then(|()| {
                let flush = |device: &String| places::flush(vm, device);
                flushed.as_ref().map_or(Ok(()), flush)
            }),
        LiveSetting::Affinity { tid } => places::set_affinity(vm, *tid, value),
        LiveSetting::DiskLimits { device } => places::set_limits(vm, device, value),
        LiveSetting::QomProperty { path, property } => {
            places::set_property(vm, path, property, value)
        }
        LiveSetting::Qcow2Cache { device, .. } => places::set_l2_cache(vm, device, value),
    };
    done.map_err(refused)?;
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
    let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let is_none = |value: &Value| value.is_null() || *value == 0;
    // The length of a burst is 1 where there is none.
    let has_default = |key: &str| key.ends_with("length") || key.ends_with("size");
    let covers = |one: &Map<String, Value>, other: &Map<String, Value>| {
        one.iter().all(|(key, value)| match other.get(key) {
            Some(known) => known == value || (is_none(known) && is_none(value)),
            None => is_none(value) || has_default(key),
        })
    };
    match (object(a), object(b)) {
        (Some(a), Some(b)) => covers(&a, &b) && covers(&b, &a),
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
