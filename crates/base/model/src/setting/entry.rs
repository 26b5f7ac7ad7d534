//! An entry: what is known of a setting.

use crate::ChangeCost;
use serde::{Deserialize, Serialize};

/// The source of an effect that nobody has published a figure of.
pub const NO_FIGURE: &str = "no published figure";

/// A setting, or a family of settings that differ in their name alone.
///
/// `NAME` in a text stands for the setting's name, `VALUE` for its value, `FILE` for the kernel's file; other words in
/// capitals are the VM's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Key of the setting in a variant of a plan. One that ends with a dot begins the keys of a family (`throttling.`); the empty
    /// one fits every property of the measured device that has no entry.
    pub key: &'static str,
    /// The part of a VM, its guest or its host that has it.
    pub part: SettingPart,
    /// Where a person applies it.
    pub place: SettingPlace,
    /// Value in effect where nobody sets it.
    pub unset: Unset,
    /// Least cost of applying it.
    pub cost: ChangeCost,
    /// First QEMU that has it: major, minor.
    pub since: (u32, u32),
    /// The kernel's own value of a file of the host, for an undo where nobody has read the value; empty where that differs
    /// between hosts.
    pub usual: &'static str,
    /// The argument, command or word that applies it.
    pub line: &'static str,
    /// The command or file that shows the value in effect.
    pub read_back: &'static str,
    /// Command or step that undoes it.
    pub undo: &'static str,
    /// libvirt's form of it.
    pub libvirt: Libvirt,
    /// Harm of going back to [`Setting::unset`]; empty where there is none.
    pub trap: &'static str,
    /// Published figure of going back, with its source.
    pub source: &'static str,
    /// Values that are written in another way than the others.
    pub values: &'static [SpecialValue],
}

/// The part of a VM, its guest or its host that has a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingPart {
    /// The kind of device by which the guest has the measured disk.
    Bus,
    /// A property of the measured disk's or network card's device; on virtio-scsi of one of two.
    Device(ScsiDevice),
    /// QEMU's cache mode, which is three switches of device and block nodes.
    Cache,
    /// The disk's iothread: that it has one.
    Iothread,
    /// A property of the disk's iothread.
    IothreadProperty,
    /// The block node of the image's file.
    FileNode,
    /// The block node of the image's format, or that it has another format.
    FormatNode,
    /// The block nodes of format and file alike.
    AllNodes,
    /// An option of the image's creation.
    Image,
    /// A limit of the disk's throttle group.
    Throttle,
    /// A property of the network card's backend.
    Netdev,
    /// The guest as a whole, or one of its properties.
    Guest,
    /// The way by which the guest has a tree of files.
    Share,
    /// The backend of the measured network card.
    Backend,
    /// A file of the guest's kernel, which its agent may set to one of these values.
    GuestFile(&'static [&'static str]),
    /// A file of the guest's kernel, which its agent may set to a number up to this one.
    GuestNumber(u32),
    /// A file of the host's kernel; `*` in its path stands for every CPU.
    HostFile {
        /// Path of the file.
        path: &'static str,
        /// Who may set it.
        by: SetBy,
    },
}

/// Who may set a file of the host, from the most trusted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetBy {
    /// A person alone.
    Person,
    /// Also a comparison, while a guest runs.
    Comparison,
    /// Also `vmtax tune --vm`.
    Tune,
}

/// The device of a disk on virtio-scsi that has a property which on virtio-blk is the disk's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScsiDevice {
    /// The controller, under the same name.
    Controller,
    /// The controller, under this name.
    ControllerAs(&'static str),
    /// The disk.
    Disk,
}

/// Value of a setting that nobody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unset {
    /// This value.
    Is(&'static str),
    /// The number of vCPUs.
    PerCpu,
    /// Nothing that can be written: the setting is left out.
    LeftOut,
    /// Unknown: it has to be something.
    Choice,
}

/// libvirt's form of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libvirt {
    /// None: QEMU's own argument.
    QemuArgument,
    /// None, as it is no part of a domain.
    NoDomain,
    /// An attribute of the disk's `<driver>`.
    Driver(&'static str),
    /// An attribute of the disk's `<driver>`, on virtio-scsi of the controller's.
    DriverOrController(&'static str),
    /// An attribute of the iothread's `<poll>`.
    Poll(&'static str),
    /// An attribute of `<iothread>`.
    IothreadAttribute(&'static str),
    /// The size in `<metadata_cache>`, bytes.
    MetadataCache,
    /// An element or a step, in Markdown.
    Element(&'static str),
}

/// A value that is written in another way than the others of its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialValue {
    /// Value of the setting.
    pub value: &'static str,
    /// As [`Setting::since`]; that of the setting where it is older.
    pub since: (u32, u32),
    /// As [`Setting::line`]; empty for the setting's own.
    pub line: &'static str,
    /// libvirt's form of it.
    pub libvirt: Libvirt,
}

/// A property of a device that has no entry, from which the entries differ.
pub(super) const OTHER: Setting = Setting {
    key: "",
    part: SettingPart::Device(ScsiDevice::Controller),
    place: SettingPlace::QemuArgument,
    unset: Unset::LeftOut,
    cost: ChangeCost::Replug,
    since: (1, 0),
    usual: "",
    line: "-device virtio-…-pci,…,NAME=VALUE",
    read_back: "qom-get of the device's NAME",
    undo: "leave NAME= out",
    libvirt: Libvirt::QemuArgument,
    trap: "",
    source: NO_FIGURE,
    values: &[],
};

/// Where a setting is applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingPlace {
    /// Nowhere: a person does something.
    #[default]
    #[strum(serialize = "instruction")]
    Instruction,
    /// An argument of QEMU's command line, or a property within one.
    #[strum(serialize = "QEMU argument")]
    QemuArgument,
    /// A command to QEMU's monitor.
    #[strum(serialize = "QMP command")]
    Qmp,
    /// An element of the domain's description.
    #[strum(serialize = "libvirt XML")]
    LibvirtXml,
    /// The guest kernel's command line.
    #[strum(serialize = "guest kernel command line")]
    GuestCommandLine,
    /// A file below the guest's /sys.
    #[strum(serialize = "guest sysfs")]
    GuestSysfs,
    /// A file below the host's /sys or /proc/sys, parameters of modules among them.
    #[strum(serialize = "host sysfs")]
    HostSysfs,
    /// The host kernel's command line.
    #[strum(serialize = "host kernel command line")]
    HostCommandLine,
    /// A file of a control group.
    #[strum(serialize = "cgroup")]
    Cgroup,
    /// The CPUs on which a thread may run.
    #[strum(serialize = "CPU affinity")]
    Affinity,
    /// An option of vmtax, or a command of it that measures more.
    #[strum(serialize = "vmtax")]
    Vmtax,
}

impl Setting {
    /// Beginning of an attribute of the measured disk's request queue in a guest with a kernel (`/sys/block/DISK/queue`):
    /// `block-queue.read_ahead_kb=4096`.
    pub const BLOCK_QUEUE: &str = "block-queue.";
    /// Beginning of a single argument of the guest's kernel: `kernel-arg.idle=poll`.
    pub const KERNEL_ARG: &str = "kernel-arg.";

    /// Returns true if the entry is of all settings whose key it begins.
    pub fn is_family(&self) -> bool {
        self.key.ends_with('.')
    }

    /// The part that has it with this value: `discard` is a switch of virtio-blk and a mode of block nodes.
    pub fn part_with(&self, value: &str) -> SettingPart {
        if self.key == "discard" && ["on", "off"].contains(&value) {
            OTHER.part
        } else {
            self.part
        }
    }

    /// The first QEMU, major and minor, that has it with this value.
    pub fn since(&self, value: &str) -> (u32, u32) {
        let special = self.special(value).map_or((0, 0), |special| special.since);
        special.max(self.since)
    }

    /// The value in effect where nobody sets it, of a guest with so many vCPUs; `None` where that cannot be written.
    pub fn unset_value(&self, cpus: u32) -> Option<String> {
        match self.unset {
            Unset::Is(value) => Some(value.to_owned()),
            Unset::PerCpu => Some(cpus.to_string()),
            Unset::LeftOut | Unset::Choice => None,
        }
    }

    /// The path of the host kernel's file; `None` for a setting that is elsewhere.
    pub const fn host_file(&self) -> Option<&'static str> {
        match self.part {
            SettingPart::HostFile { path, .. } => Some(path),
            _ => None,
        }
    }

    /// libvirt's form of it with this value.
    pub fn libvirt(&self, value: &str) -> Libvirt {
        self.special(value)
            .map_or(self.libvirt, |special| special.libvirt)
    }

    fn special(&self, value: &str) -> Option<&'static SpecialValue> {
        self.values.iter().find(|special| special.value == value)
    }
}

impl Libvirt {
    /// The attribute of the disk's `<driver>`, or of its controller's; `None` for another form.
    pub fn driver_attribute(self) -> Option<&'static str> {
        match self {
            Libvirt::Driver(name) | Libvirt::DriverOrController(name) => Some(name),
            _ => None,
        }
    }
}

impl SettingPart {
    /// Returns true if it is a file of the guest's kernel that its agent may set to this value.
    pub(super) fn takes_in_guest(self, value: &str) -> bool {
        match self {
            SettingPart::GuestFile(known) => known.contains(&value),
            SettingPart::GuestNumber(most) => {
                value.parse::<u32>().is_ok_and(|number| number <= most)
            }
            _ => false,
        }
    }

    /// Returns true for a part of the measured disk or network card, or of what is behind it.
    pub fn is_of_device(self) -> bool {
        use SettingPart::{
            AllNodes, Bus, Cache, Device, FileNode, FormatNode, Image, Iothread, IothreadProperty,
            Netdev, Throttle,
        };
        matches!(
            self,
            Bus | Device(_)
                | Cache
                | Iothread
                | IothreadProperty
                | FileNode
                | FormatNode
                | AllNodes
                | Image
                | Throttle
                | Netdev
        )
    }
}

/// Compares two texts in a constant.
pub(crate) const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
