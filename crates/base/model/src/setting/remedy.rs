//! Remedies of known costs, as data; a setting as a remedy, as a line for people, as a live change.

use super::entry::{Setting, SettingPlace, SpecialValue, is_same};
use crate::{CLOCK_SOURCE_FILE, ChangeCost, LiveSetting, SettingValue, is_disk_name};
use serde::{Deserialize, Serialize};

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
        setting.is_some_and(|setting| setting.part.takes_in_guest(value))
    }
}

/// One change that takes a cost away. Everything that applying, checking and undoing it needs is here as data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy<T = String> {
    /// Where the setting is applied.
    pub place: SettingPlace,
    /// The setting. Where a variant of a plan can set it, the same key: `SETTING=VALUE` is then a side of `vmtax compare`.
    /// Empty where there is nothing to set.
    pub setting: T,
    /// Value to give to the setting.
    pub value: T,
    /// Action for people: an imperative phrase without a full stop.
    pub action: T,
    /// Lines to copy; empty where there are none.
    pub line: T,
    /// Cost of applying it; `None` where that depends on what a person chooses.
    pub cost: Option<ChangeCost>,
    /// The command or file that shows the value in effect.
    pub read_back: T,
    /// Command or step that undoes it.
    pub undo: T,
}

impl Remedy {
    /// Returns a remedy that is only an instruction in words, without a setting.
    pub fn instruction(action: String) -> Remedy {
        Remedy {
            action,
            ..Remedy::default()
        }
    }
}

impl Remedy<&str> {
    /// A remedy of its own, with each word of `values` replaced by the text beside it, then `NAME`, `VALUE`, `FILE` and
    /// `LINE` by its own setting, value, file to read back and line. `VM` in the action is a word, not a name.
    pub fn filled(&self, values: &[(&str, String)]) -> Remedy {
        let fill = |text: &str| filled(text, &|_| true, values);
        let (setting, value) = (fill(self.setting), fill(self.value));
        let name = Setting::name(&setting).to_owned();
        let mut words = values.to_vec();
        words.extend([("NAME", name), ("VALUE", value.clone())]);
        let read_back = filled(self.read_back, &|_| true, &words);
        words.push(("FILE", read_back.clone()));
        let line = filled(self.line, &|_| true, &words);
        words.push(("LINE", line.clone()));
        Remedy {
            place: self.place,
            setting,
            value,
            action: filled(self.action, &|name| name != "VM", values),
            line,
            cost: self.cost,
            read_back,
            undo: filled(self.undo, &|_| true, &words),
        }
    }
}

/// A text with each name that is a word of it replaced, in one pass: a name within a value stays.
fn filled(text: &str, is_name: &dyn Fn(&str) -> bool, values: &[(&str, String)]) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut whole, mut rest, mut begins) = (String::with_capacity(text.len()), text, true);
    while let Some(first) = rest.chars().next() {
        let named = values.iter().find(|(name, _)| {
            is_name(name)
                && rest
                    .strip_prefix(name)
                    .is_some_and(|behind| !behind.starts_with(is_word))
        });
        match named.filter(|_| begins) {
            Some((name, value)) => {
                whole.push_str(value);
                (rest, begins) = (&rest[name.len()..], false);
            }
            None => {
                whole.push(first);
                (rest, begins) = (&rest[first.len_utf8()..], !is_word(first));
            }
        }
    }
    whole
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

    #[test]
    fn a_value_that_has_a_name_in_it_stays_as_it_is() {
        let remedy = Remedy {
            action: "Give the VM CPUs",
            line: "echo 1 | tee /g/GROUP/x # virsh schedinfo VM DAEMON_GROUP",
            ..Remedy::default()
        };
        let values = [
            ("GROUP", "machine-VM01".to_owned()),
            ("VM", "PROD-VM01-GROUP".to_owned()),
        ];
        let filled = remedy.filled(&values);
        assert_eq!(
            filled.line,
            "echo 1 | tee /g/machine-VM01/x # virsh schedinfo PROD-VM01-GROUP DAEMON_GROUP"
        );
        assert_eq!(filled.action, "Give the VM CPUs");
    }
}
