//! What a rule found in the evidence, and the remedies, as data.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A cost that a rule found, with what takes it away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The rule's identifier, as docs/rules.md lists it.
    pub rule: String,
    /// The finding: one sentence with its figure.
    pub finding: String,
    /// What the remedies can give back at most: a share of the measured time, 0 to 1; of VM exits, their number. 0 where
    /// that is not known.
    pub gain: f64,
    /// What to do, best first.
    pub remedies: Vec<Remedy>,
    /// Who published the cost or the mechanism: a title and, behind its last colon, what it says there. Empty where the
    /// finding rests on its own figures alone.
    pub source: String,
}

impl Advice {
    /// The source's title; empty where there is none.
    pub fn source_title(&self) -> &str {
        self.source.rsplit_once(": ").map_or(&*self.source, |(title, _)| title)
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
    /// Its value.
    pub value: T,
    /// What to do, for people: an imperative phrase without a full stop.
    pub action: T,
    /// Lines to copy; empty where there are none.
    pub line: T,
    /// What applying it costs; `None` where that depends on what a person chooses.
    pub cost: Option<ChangeCost>,
    /// The command or file that shows the value in effect.
    pub read_back: T,
    /// How to undo it.
    pub undo: T,
}

impl Remedy {
    /// What a person does, in words.
    pub fn instruction(action: String) -> Remedy {
        Remedy { action, ..Remedy::default() }
    }
}

impl Remedy<&str> {
    /// A remedy of its own, with `NAME` in each text replaced by the text beside it.
    pub fn filled(&self, values: &[(&str, String)]) -> Remedy {
        let fill = |text: &str| values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        Remedy {
            place: self.place,
            setting: fill(self.setting),
            value: fill(self.value),
            action: fill(self.action),
            line: fill(self.line),
            cost: self.cost,
            read_back: fill(self.read_back),
            undo: fill(self.undo),
        }
    }
}

/// Where a setting is applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingPlace {
    /// Nowhere: a person does something.
    #[default]
    Instruction,
    /// An argument of QEMU's command line, or a property within one.
    QemuArgument,
    /// A command to QEMU's monitor.
    Qmp,
    /// An element of the domain's description.
    LibvirtXml,
    /// The guest kernel's command line.
    GuestCommandLine,
    /// A file below the guest's /sys.
    GuestSysfs,
    /// A file below the host's /sys or /proc/sys, parameters of modules among them.
    HostSysfs,
    /// The host kernel's command line.
    HostCommandLine,
    /// A file of a control group.
    Cgroup,
    /// An option of vmtax, or a command of it that measures more.
    Vmtax,
}

impl fmt::Display for SettingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingPlace::Instruction => "instruction",
            SettingPlace::QemuArgument => "QEMU argument",
            SettingPlace::Qmp => "QMP command",
            SettingPlace::LibvirtXml => "libvirt XML",
            SettingPlace::GuestCommandLine => "guest kernel command line",
            SettingPlace::GuestSysfs => "guest sysfs",
            SettingPlace::HostSysfs => "host sysfs",
            SettingPlace::HostCommandLine => "host kernel command line",
            SettingPlace::Cgroup => "cgroup",
            SettingPlace::Vmtax => "vmtax",
        })
    }
}

/// What applying a remedy costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeCost {
    /// Nothing: the VM keeps running.
    Live,
    /// A device is unplugged and plugged again.
    Replug,
    /// The guest reboots.
    GuestReboot,
    /// QEMU is started anew.
    VmRestart,
    /// A setting of the host changes, for all its VMs.
    HostSetting,
    /// The host reboots.
    HostReboot,
    /// Another measurement; nothing else changes.
    Measurement,
}

impl fmt::Display for ChangeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChangeCost::Live => "live",
            ChangeCost::Replug => "re-plug",
            ChangeCost::GuestReboot => "guest reboot",
            ChangeCost::VmRestart => "VM restart",
            ChangeCost::HostSetting => "host setting",
            ChangeCost::HostReboot => "host reboot",
            ChangeCost::Measurement => "measurement",
        })
    }
}
