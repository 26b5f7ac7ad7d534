//! The guest of a plan, and on which of the host's CPUs its threads run.

use super::{PlanError, range};
use crate::{Setting, SettingPart};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The guest that a plan's `kvm` and `tcg` machines are; `native` gets the same number of CPUs and the same memory, the
/// micro-guest its disk, QEMU and QEMU arguments alone. As TOML, with the defaults of the first four:
///
/// ```toml
/// [guest]
/// cpus = 1
/// memory-mib = 1024
/// machine-type = "q35"
/// cpu-model = "host"            # under TCG: max
/// firmware = "qboot.rom"
/// kernel = "vmlinux"
/// kernel-args = "mitigations=off"
/// qemu-args = ["-device", "virtio-rng-pci"]
/// pinning = "split"             # or one-cpu, none
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Guest {
    /// Number of vCPUs, 1 to 1024.
    pub cpus: u32,
    /// Memory of the guest, MiB: 128 to 16,777,216 (16 TiB).
    pub memory_mib: u32,
    /// Virtio disks without I/O, besides those of the workloads.
    #[serde(skip_serializing_if = "is_zero")]
    pub disks: u32,
    /// Memory regions without use, each behind a PCI device.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_regions: u32,
    /// Timeout of a boot, s.
    pub boot_timeout_s: u32,
    /// The QEMU: a path, or the version or suite of a fetched one; the best one found when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu: Option<PathBuf>,
    /// The kernel: a bzImage, an ELF vmlinux with a PVH note, or the release of a fetched one; the first one found when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// The folder with the kernel's modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<PathBuf>,
    /// Kernel command-line arguments after vmtax's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_args: Option<String>,
    /// The CPU model with its features, as for QEMU's `-cpu`; `host` under KVM and `max` under TCG when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// The machine type with its properties, as for QEMU's `-machine`; `q35` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// The firmware, as for QEMU's `-bios`: a file, or the name of one in QEMU's data folder; that of the machine type when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<PathBuf>,
    /// QEMU arguments after vmtax's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub qemu_args: Vec<String>,
    /// Single properties, by [`Guest::PROPERTIES`]: `accel.tb-size` → `512`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Where its threads run on the host; `split` in comparisons and `none` elsewhere when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinning: Option<Pinning>,
}

impl Default for Guest {
    fn default() -> Self {
        Guest {
            cpus: 1,
            memory_mib: 1024,
            disks: 0,
            memory_regions: 0,
            boot_timeout_s: 60,
            qemu: None,
            kernel: None,
            modules: None,
            kernel_args: None,
            cpu_model: None,
            machine_type: None,
            firmware: None,
            qemu_args: Vec::new(),
            properties: BTreeMap::new(),
            pinning: None,
        }
    }
}

impl Guest {
    /// QEMU's machine type where none is set.
    pub const MACHINE_TYPE: &str = "q35";
    /// Devices without use: 120 root ports of a q35, eight functions to a port.
    pub const MAX_DEVICES: u32 = 960;
    /// The kernel takes 2048 bytes, vmtax's own arguments included.
    const MAX_KERNEL_ARGS: usize = 1900;
    const MAX_LEN: usize = 1024;
    const MAX_QEMU_ARGS: u32 = 256;

    /// Beginnings of settings that are one property of many: `cpu-flag.x2apic=off` of QEMU's `-cpu`, `accel.tb-size=512`
    /// of `-accel`, `memory-backend.prealloc=on` of the guest's memory (a `memory-backend-ram`; a `memory-backend-memfd`
    /// with `hugetlb=on`),
    /// [`Setting::BLOCK_QUEUE`].
    pub const PROPERTIES: [&str; 4] = [
        "cpu-flag.",
        "accel.",
        "memory-backend.",
        Setting::BLOCK_QUEUE,
    ];

    /// Returns true if a variant's setting is of the guest as a whole.
    pub fn has_setting(key: &str) -> bool {
        Setting::of(key).part == SettingPart::Guest
    }

    /// The properties of one kind, without their `prefix` of [`Guest::PROPERTIES`].
    pub fn properties_of(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.properties
            .iter()
            .filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_str())))
    }

    /// Attributes of the measured disk's request queue, by name ([`Setting::BLOCK_QUEUE`]).
    pub fn block_queue(&self) -> BTreeMap<String, String> {
        self.properties_of(Setting::BLOCK_QUEUE)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// As [`Guest::properties_of`], as QEMU takes them behind a name: `,tb-size=512`.
    pub fn qemu_properties(&self, prefix: &str) -> String {
        self.properties_of(prefix)
            .map(|(key, value)| format!(",{key}={}", value.replace(',', ",,")))
            .collect()
    }

    /// This guest with those of the settings that are [`Guest::has_setting`]: a kernel brings its own modules, arguments come
    /// after those that are there.
    ///
    /// # Errors
    /// A message: a size that is not a number, modules without a kernel.
    pub(crate) fn with(&self, settings: &BTreeMap<String, String>) -> Result<Guest, String> {
        let mut guest = self.clone();
        let more_args = |guest: &mut Guest, text: &str| {
            let own = guest.kernel_args.take();
            guest.kernel_args = Some(own.map_or(text.to_owned(), |own| format!("{own} {text}")));
        };
        for (key, text) in settings {
            let number = || {
                text.parse()
                    .map_err(|_| format!("{key} is '{text}': give a number"))
            };
            let file = || Some(PathBuf::from(text));
            match key.as_str() {
                "cpus" => guest.cpus = number()?,
                "memory-mib" => guest.memory_mib = number()?,
                "disks" => guest.disks = number()?,
                "memory-regions" => guest.memory_regions = number()?,
                "qemu" => guest.qemu = file(),
                "kernel" => {
                    (guest.kernel, guest.modules) =
                        (file(), settings.get("modules").map(PathBuf::from))
                }
                "modules" if settings.contains_key("kernel") => {}
                "modules" => return Err("modules is given without kernel: give both".to_owned()),
                "kernel-args" => more_args(&mut guest, text),
                "cpu-model" => guest.cpu_model = Some(text.clone()),
                "machine-type" => guest.machine_type = Some(text.clone()),
                "firmware" => guest.firmware = file(),
                "qemu-args" => guest
                    .qemu_args
                    .extend(text.split_whitespace().map(str::to_owned)),
                "pinning" => guest.pinning = Some(text.parse()?),
                key => {
                    if let Some(name) = key.strip_prefix(Setting::KERNEL_ARG) {
                        more_args(&mut guest, &format!("{name}={text}"));
                    } else if Guest::has_setting(key) {
                        guest.properties.insert(key.to_owned(), text.clone());
                    }
                }
            }
        }
        Ok(guest)
    }

    /// Checks that the values are in range and go together.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        self.check_ranges()?;
        let refused = |what: &str| Err(PlanError::Invalid(what.to_owned()));
        if self.pinning == Some(Pinning::OneCpu) && self.cpus != 1 {
            return refused(
                "guest.pinning puts several vCPUs on one CPU, where they wait for each other: give one vCPU",
            );
        }
        if self.modules.is_some() && self.kernel.is_none() {
            return refused("guest.modules is given without guest.kernel: give both");
        }
        if let Some(args) = &self.kernel_args {
            text("guest.kernel-args", args, Guest::MAX_KERNEL_ARGS)?;
        }
        self.check_models()?;
        self.check_properties()?;
        let mut properties = self.machine_type.iter().flat_map(|m| m.split(','));
        if properties.any(|property| property.starts_with("accel=")) {
            return refused(
                "guest.machine-type sets accel: leave that to the plan's machines (kvm, tcg)",
            );
        }
        self.check_qemu_args()
    }

    /// Checks that each number is in its range.
    fn check_ranges(&self) -> Result<(), PlanError> {
        range("guest.boot-timeout-s", self.boot_timeout_s, 1, 3600)?;
        range("guest.cpus", self.cpus, 1, 1024)?;
        range("guest.memory-mib", self.memory_mib, 128, 16 * 1024 * 1024)?;
        let (devices, arguments) = (self.devices(), self.qemu_args.len() as u32);
        let both = "guest.disks and guest.memory-regions";
        range(both, devices, 0, Guest::MAX_DEVICES)?;
        range(
            "guest.qemu-args (how many)",
            arguments,
            0,
            Guest::MAX_QEMU_ARGS,
        )
    }

    /// Checks that the CPU model and the machine type are names with properties.
    fn check_models(&self) -> Result<(), PlanError> {
        for (name, known, value) in [
            ("guest.cpu-model", "-cpu help", &self.cpu_model),
            ("guest.machine-type", "-machine help", &self.machine_type),
        ] {
            let Some(value) = value else { continue };
            text(name, value, Guest::MAX_LEN)?;
            if value.contains(char::is_whitespace) || value.starts_with(['-', ',']) {
                return Err(PlanError::Invalid(format!(
                    "{name} is '{}': give a name and its properties without blanks, NAME,KEY=VALUE; \
                     `qemu-system-x86_64 {known}` lists the names",
                    value.escape_default()
                )));
            }
        }
        Ok(())
    }

    /// Checks the names and values of the single properties.
    fn check_properties(&self) -> Result<(), PlanError> {
        for (key, value) in &self.properties {
            let mut names = Guest::PROPERTIES
                .iter()
                .filter_map(|prefix| key.strip_prefix(prefix));
            let name = names.next().unwrap_or_default();
            text(&format!("guest.properties: {key}"), value, Guest::MAX_LEN)?;
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(is_plain) {
                return Err(PlanError::Invalid(format!(
                    "guest.properties: '{}' is no property: give {}NAME",
                    key.escape_default(),
                    Guest::PROPERTIES.join("NAME, ")
                )));
            }
        }
        Ok(())
    }

    /// Checks that the QEMU arguments are plain text and begin with an option.
    fn check_qemu_args(&self) -> Result<(), PlanError> {
        self.qemu_args
            .iter()
            .try_for_each(|arg| text("an argument of guest.qemu-args", arg, Guest::MAX_LEN))?;
        match self.qemu_args.first() {
            Some(first) if !first.starts_with('-') => Err(PlanError::Invalid(format!(
                "guest.qemu-args begins with '{}', which is no option: give each option and its value as an argument, as \
                 in -device and virtio-rng-pci",
                first.escape_default()
            ))),
            _ => Ok(()),
        }
    }

    /// Devices without use.
    pub fn devices(&self) -> u32 {
        self.disks.saturating_add(self.memory_regions)
    }

    /// Timeout of a boot.
    pub fn boot_timeout(&self) -> Duration {
        Duration::from_secs(self.boot_timeout_s.into())
    }
}

fn text(what: &str, value: &str, max: usize) -> Result<(), PlanError> {
    match value.trim().is_empty() || value.len() > max || value.chars().any(char::is_control) {
        true => Err(PlanError::Invalid(format!(
            "{what} is empty, longer than {max} bytes or has control characters: '{}'",
            value.chars().take(80).collect::<String>().escape_default()
        ))),
        false => Ok(()),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Placement of a guest's threads on the host's CPUs; a native trial then has the CPUs of the vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::VariantArray, strum::VariantNames, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Pinning {
    /// Where the host's scheduler puts them.
    None,
    /// Each vCPU has a dedicated host CPU, each iothread too while two are left; QEMU's other threads share the rest.
    Split,
    /// All of QEMU's threads share one host CPU.
    OneCpu,
}

impl Pinning {
    /// Every way, as it is written in plans and options.
    pub const NAMES: &[&str] = <Pinning as strum::VariantNames>::VARIANTS;
}

impl std::str::FromStr for Pinning {
    type Err = String;
    fn from_str(name: &str) -> Result<Pinning, String> {
        let mut all = <Pinning as strum::VariantArray>::VARIANTS.iter().copied();
        all.find(|pinning| <&str>::from(pinning) == name)
            .ok_or_else(|| {
                format!(
                    "pinning is '{}': give {}",
                    name.escape_default(),
                    Pinning::NAMES.join(", ")
                )
            })
    }
}

/// The host CPUs that a trial's threads were pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedCpus {
    /// One of each vCPU; natively of the workload.
    pub vcpus: Vec<u32>,
    /// Host CPUs of QEMU's other threads; the CPUs of the vCPUs where they share one.
    pub others: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_variant_sets_any_field_by_its_name() {
        let usual = Guest {
            kernel_args: Some("a=1".to_owned()),
            modules: Some("m".into()),
            ..Guest::default()
        };
        let value = |key: &str| match key {
            "pinning" => "split",
            key if key.ends_with("args") => "-b c",
            _ => "7",
        };
        let values = |key: &'static str| (key, value(key));
        let of_guest =
            |setting: &&Setting| setting.part == SettingPart::Guest && !setting.key.contains('.');
        let keys = Setting::all().filter(of_guest).map(|setting| setting.key);
        let all: Vec<(&str, &str)> = keys.map(values).collect();
        let guest = usual.with(&set(&all)).unwrap();
        let seven = || Some(PathBuf::from("7"));
        let expected = Guest {
            cpus: 7,
            memory_mib: 7,
            disks: 7,
            memory_regions: 7,
            boot_timeout_s: usual.boot_timeout_s,
            qemu: seven(),
            kernel: seven(),
            modules: seven(),
            kernel_args: Some("a=1 -b c".to_owned()),
            cpu_model: Some("7".to_owned()),
            machine_type: Some("7".to_owned()),
            firmware: seven(),
            qemu_args: vec!["-b".to_owned(), "c".to_owned()],
            properties: BTreeMap::new(),
            pinning: Some(Pinning::Split),
        };
        assert_eq!(guest, expected);
        let other_kernel = usual.with(&set(&[("kernel", "7")])).unwrap();
        assert_eq!(other_kernel.modules, None, "those of another kernel");
        assert!(
            usual.with(&set(&[("modules", "x")])).is_err()
                && usual.with(&set(&[("cpus", "some")])).is_err()
        );
    }

    #[test]
    fn a_variant_sets_single_properties_and_kernel_arguments() {
        let usual = Guest {
            kernel_args: Some("a=1".to_owned()),
            ..Guest::default()
        };
        let words = [
            ("accel.tb-size", "8"),
            ("accel.thread", "single"),
            ("cpu-flag.x2apic", "off"),
            ("kernel-arg.idle", "poll"),
        ];
        let guest = usual.with(&set(&words)).unwrap();
        assert_eq!(guest.kernel_args.as_deref(), Some("a=1 idle=poll"));
        let properties_of = |prefix| guest.qemu_properties(prefix);
        assert_eq!(
            [
                properties_of("accel."),
                properties_of("cpu-flag."),
                properties_of("memory-backend.")
            ],
            [",tb-size=8,thread=single", ",x2apic=off", ""]
        );
        assert_eq!(guest.check(), Ok(()));
        assert!(
            words.iter().all(|(key, _)| Guest::has_setting(key)) && !Guest::has_setting("cache")
        );
        let odd = usual
            .with(&set(&[("cpu-flag.a,b", "on")]))
            .unwrap()
            .check()
            .unwrap_err()
            .to_string();
        assert!(odd.contains("cpu-flag.a,b"), "{odd}");
    }

    #[test]
    fn what_no_qemu_takes_is_refused() {
        let refused = |key: &str, value: &str| {
            let error = Guest::default()
                .with(&set(&[(key, value)]))
                .unwrap()
                .check()
                .unwrap_err()
                .to_string();
            assert!(error.contains(key), "{error}");
        };
        refused("cpu-model", "host -x2apic");
        refused("cpu-model", " ");
        refused("machine-type", "-machine");
        refused("machine-type", "q35,accel=tcg");
        refused("kernel-args", "a\nb");
        refused("kernel-args", &"x".repeat(2000));
        refused("qemu-args", "virtio-rng-pci");
        let shared = Guest {
            cpus: 2,
            pinning: Some(Pinning::OneCpu),
            ..Guest::default()
        };
        assert!(shared.check().unwrap_err().to_string().contains("pinning"));
        let good = [
            ("cpu-model", "host,-x2apic"),
            ("machine-type", "microvm,pcie=on"),
            ("qemu-args", "-device x"),
        ];
        assert_eq!(Guest::default().with(&set(&good)).unwrap().check(), Ok(()));
    }

    #[test]
    fn names_are_those_of_plans() {
        for (name, pinning) in Pinning::NAMES
            .iter()
            .copied()
            .zip(<Pinning as strum::VariantArray>::VARIANTS)
        {
            assert_eq!(
                (name.parse(), serde_json::to_value(pinning).unwrap()),
                (Ok(*pinning), name.into())
            );
        }
        assert!("apart".parse::<Pinning>().unwrap_err().contains("one-cpu"));
    }
}
