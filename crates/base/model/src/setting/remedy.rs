//! A setting as a remedy, as a line for people, as a live change.

use super::entry::{Setting, SettingPart, SettingPlace, SpecialValue, is_same};
use crate::advice::filled;
use crate::{CLOCK_SOURCE_FILE, ChangeCost, LiveSetting, Remedy, SettingValue, is_disk_name};

impl Setting {
    /// Returns the remedy that gives the setting this value.
    pub const fn remedy(&self, value: &'static str, action: &'static str) -> Remedy<&'static str> {
        let cost = match self.cost {
            // A disk from which the guest runs cannot be unplugged.
            ChangeCost::Replug => ChangeCost::VmRestart,
            cost => cost,
        };
        Remedy {
            place: self.place,
            setting: self.key,
            value,
            action,
            line: self.line_of(value),
            cost: Some(cost),
            read_back: self.read_back,
            undo: self.undo,
        }
    }

    /// The line that applies a value, with its words in capitals.
    const fn line_of(&self, value: &str) -> &'static str {
        let mut at = 0;
        while at < self.values.len() {
            let SpecialValue {
                value: special,
                line,
                ..
            } = self.values[at];
            if is_same(special, value) && !line.is_empty() {
                return line;
            }
            at += 1;
        }
        self.line
    }

    /// Returns the line that applies a value of this key.
    pub fn line(&self, key: &str, value: &str) -> String {
        // Among properties of QEMU a comma would begin another.
        let is_property = key.contains('.') && self.place == SettingPlace::QemuArgument;
        let written = if is_property {
            value.replace(',', ",,")
        } else {
            value.to_owned()
        };
        self.filled(self.line_of(value), key, &written)
    }

    /// A text with name, value and file in place of the words that stand for them.
    pub fn filled(&self, text: &str, key: &str, value: &str) -> String {
        let policy = if value == "off" { "disable" } else { "require" };
        let words = [
            ("NAME", Setting::name(key).to_owned()),
            ("VALUE", value.to_owned()),
            ("FILE", self.host_file().unwrap_or_default().to_owned()),
            ("POLICY", policy.to_owned()),
        ];
        filled(text, &|_| true, &words)
    }

    /// Returns the change of a running VM's host that gives the setting a value; `None` where it is in no file of the host.
    pub fn live(&self, value: &str) -> Option<SettingValue> {
        let path = self.host_file()?.into();
        Some(SettingValue {
            setting: LiveSetting::HostFile { path },
            value: value.to_owned(),
        })
    }

    /// Returns true if an agent in a guest may write this value into this file of the guest's kernel.
    pub fn may_be_written_in_guest(path: &str, value: &str) -> bool {
        let of_disk = || {
            let (name, file) = path.strip_prefix("/sys/block/")?.split_once('/')?;
            is_disk_name(name).then(|| format!("/sys/block/GUEST_DISK/{file}"))
        };
        let key = if path == CLOCK_SOURCE_FILE {
            Some(path.to_owned())
        } else {
            of_disk()
        };
        let setting = key.and_then(|key| Setting::all().find(|setting| setting.key == key));
        setting.is_some_and(
            |setting| matches!(setting.part, SettingPart::GuestFile(values) if values.contain(value)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_of_the_guest_are_set_to_known_values() {
        let may_set = Setting::may_be_written_in_guest;
        assert!(
            may_set(CLOCK_SOURCE_FILE, "tsc") && may_set("/sys/block/vda/cache_type", "write back")
        );
        assert!(may_set("/sys/block/nvme0n1/queue/scheduler", "none"));
        assert!(may_set("/sys/block/sda/queue/read_ahead_kb", "128"));
        let paths = [
            "/etc/passwd",
            "/sys/block/../../etc/passwd",
            "/sys/block/vda/uevent",
            "/sys/block//cache_type",
        ];
        assert!(
            paths
                .iter()
                .all(|path| !may_set(path, "none") && !may_set(path, "write back"))
        );
        assert!(
            !may_set(CLOCK_SOURCE_FILE, "jiffies")
                && !may_set("/sys/block/vda/queue/read_ahead_kb", "1; reboot")
        );
    }
}
