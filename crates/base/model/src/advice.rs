//! Remedies of known costs, as data.

use crate::{ChangeCost, Setting, SettingPlace};
use serde::{Deserialize, Serialize};

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
    /// A remedy of its own, with each word of `values` replaced by the text beside it, then `NAME`, `VALUE`, `FILE` and `LINE` by its
    /// own setting, value, file to read back and line. `VM` in the action is a word, not a name.
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
pub(crate) fn filled(
    text: &str,
    is_name: &dyn Fn(&str) -> bool,
    values: &[(&str, String)],
) -> String {
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
