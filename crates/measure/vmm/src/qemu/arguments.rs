//! A QEMU's command line, read.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmtax_model::samples::ApicFeatures;
use vmtax_model::words_without_secrets;

/// Properties of `-cpu` that decide how interrupts end.
pub(crate) const PV_EOI: &str = "kvm-pv-eoi";
pub(crate) const X2APIC: &str = "x2apic";
/// Room for the paths of a JSON object's fields, bytes: each has the names of those that it is in.
const MAX_KEYS: usize = 64 << 20;
/// Options of QEMU that have no argument.
const FLAGS: [&str; 48] = [
    "S",
    "alt-grab",
    "async-teardown",
    "audio-help",
    "ctrl-grab",
    "curses",
    "daemonize",
    "enable-fips",
    "enable-kvm",
    "enable-sync-profile",
    "full-screen",
    "h",
    "help",
    "jitdump",
    "localtime",
    "mem-prealloc",
    "no-acpi",
    "no-fd-bootchk",
    "no-frame",
    "no-hpet",
    "no-kvm",
    "no-kvm-irqchip",
    "no-kvm-pit",
    "no-kvm-pit-reinjection",
    "no-quit",
    "no-reboot",
    "no-shutdown",
    "no-user-config",
    "nodefaults",
    "nodefconfig",
    "nographic",
    "nouserconfig",
    "old-param",
    "only-migratable",
    "perfmap",
    "portrait",
    "preconfig",
    "s",
    "sdl",
    "semihosting",
    "singlestep",
    "snapshot",
    "tdf",
    "usb",
    "version",
    "win2k-hack",
    "xen-attach",
    "xen-domid-restrict",
];
/// Levels of a guest's CPU topology, as `-smp` names them.
const TOPOLOGY: [&str; 8] = [
    "drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads",
];
/// Options of a dynamic loader that have an argument. Source: ld.so(8).
const LOADER_OPTIONS: [&str; 7] = [
    "--argv0",
    "--audit",
    "--glibc-hwcaps-mask",
    "--glibc-hwcaps-prepend",
    "--inhibit-rpath",
    "--library-path",
    "--preload",
];
/// Backends of network cards that end in a tap.
const TAPS: [&str; 2] = ["tap", "bridge"];
/// QEMU's default for most machine types, bytes.
const DEFAULT_MEMORY: u64 = 128 << 20;

/// The arguments of a process, the first its program; without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Reads the arguments of a process; empty where there is no such process.
    pub fn of(pid: i32) -> Arguments {
        let all = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        all.split(|b| *b == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The options in order, without their dashes, with the argument of each; an image that has no option is that of `-hda`.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let words = self.behind_program().iter().map(String::as_str);
        let mut words = words.filter(|word| !word.is_empty()).peekable();
        std::iter::from_fn(move || {
            let word = words.next()?;
            let Some(option) = word.strip_prefix('-') else {
                return Some(("hda", word));
            };
            let option = option.trim_start_matches('-');
            let has_value = |next: &&str| has_argument(option) && !next.starts_with('-');
            Some((option, words.next_if(has_value).unwrap_or_default()))
        })
    }

    /// Returns true where QEMU prints what it has and ends, without a guest: `-version`, `-device help`, `-cpu ?`,
    /// `-device virtio-blk-pci,help`.
    pub fn ask_for_help(&self) -> bool {
        let is_help = |value: &str| value.split(',').any(|part| ["help", "?"].contains(&part));
        // Values in which a word of somebody's own may stand.
        const FREE: [&str; 4] = ["append", "name", "smbios", "fw_cfg"];
        self.options().any(|(option, value)| {
            ["h", "help", "version"].contains(&option)
                || (!FREE.contains(&option) && is_help(value))
        })
    }

    /// The program that was started: the first word; of a dynamic loader the program that it was given.
    pub fn program(&self) -> Option<&Path> {
        self.0.get(self.program_position()?).map(Path::new)
    }

    /// The words behind the program.
    pub fn behind_program(&self) -> &[String] {
        let position = self.program_position();
        position
            .and_then(|at| self.0.get(at + 1..))
            .unwrap_or_default()
    }

    /// Position of the program, which a dynamic loader may have been given behind options of its own.
    fn program_position(&self) -> Option<usize> {
        let first = self.0.first()?;
        if !is_loader(Path::new(first)) {
            return Some(0);
        }
        let is_program = |pair: &[String]| {
            !pair[1].starts_with('-') && !LOADER_OPTIONS.contains(&pair[0].as_str())
        };
        let loaded = self.0.windows(2).position(is_program);
        loaded.map(|at| at + 1)
    }

    /// The properties of each `option`, in order.
    pub fn properties<'a>(&'a self, option: &'a str) -> impl Iterator<Item = Properties> + 'a {
        self.options()
            .filter(move |(name, _)| *name == option)
            .map(|(_, value)| Properties::parse(value))
    }

    /// The guest's name: `-name NAME,…` or `-name guest=NAME,…`.
    pub fn name(&self) -> Option<String> {
        self.properties("name")
            .last()
            .and_then(|name| name.first("guest").map(str::to_owned))
    }

    /// The guest's UUID: `-uuid`.
    pub fn uuid(&self) -> Option<&str> {
        self.options()
            .filter(|(name, _)| *name == "uuid")
            .map(|(_, value)| value)
            .last()
    }

    /// The machine type, without its properties: `-machine TYPE,…`, `-M type=TYPE`.
    pub fn machine_type(&self) -> Option<String> {
        let given = self
            .options()
            .filter(|(name, _)| ["machine", "M"].contains(name));
        given
            .filter_map(|(_, value)| Some(Properties::parse(value).first("type")?.to_owned()))
            .last()
    }

    /// The guest's memory, bytes: `-m SIZE,…` or `-m size=SIZE,…`, in MiB without a suffix, QEMU's default without it; with the
    /// DIMMs that it starts with.
    pub fn memory_bytes(&self) -> u64 {
        let given = self.properties("m").last();
        let initial = given
            .and_then(|memory| size(memory.first("size")?, 1 << 20))
            .unwrap_or(DEFAULT_MEMORY);
        let objects = self.by_id("object");
        let plugged = |device: Properties| match device.first("driver")? {
            "pc-dimm" => size(objects.get(device.get("memdev")?)?.get("size")?, 1),
            driver if driver.starts_with("virtio-mem") => size(device.get("requested-size")?, 1),
            _ => None,
        };
        let plugged = self.properties("device").filter_map(plugged);
        plugged.fold(initial, u64::saturating_add)
    }

    /// The accelerators that are named, in order: `-accel kvm`, `-machine …,accel=kvm:tcg`.
    pub fn accelerators(&self) -> impl Iterator<Item = String> {
        let accelerators = self
            .properties("accel")
            .filter_map(|accel| accel.first("accel").map(str::to_owned));
        let of_machine = |option| {
            self.properties(option)
                .filter_map(|machine| machine.get("accel").map(str::to_owned))
        };
        accelerators
            .chain(of_machine("machine"))
            .chain(of_machine("M"))
    }

    /// Returns true if KVM is switched on by `-enable-kvm`.
    pub fn enables_kvm(&self) -> bool {
        self.options().any(|(option, _)| option == "enable-kvm")
    }

    /// Returns true if KVM runs the guest: `-accel kvm`, `-enable-kvm`, `-machine …,accel=kvm`; `None` without any.
    pub fn is_kvm(&self) -> Option<bool> {
        let given = self.accelerators().next();
        // "kvm:tcg": the first that works.
        given.map_or(self.enables_kvm().then_some(true), |given| {
            match given.as_str() {
                "kvm" => Some(true),
                "tcg" => Some(false),
                _ => None,
            }
        })
    }

    /// Features of the local APIC of a guest of KVM, by `-cpu`. QEMU switches both features on for each CPU model
    /// (`kvm_default_props` in its `target/i386/kvm/kvm-cpu.c`); PV EOI goes with KVM's signature, which `kvm=off` hides.
    pub fn apic_features(&self) -> ApicFeatures {
        let cpu = self.properties("cpu").last().unwrap_or_default();
        let has_signature = cpu.flag("kvm").unwrap_or(true);
        let pv_eoi = has_signature && cpu.flag(PV_EOI).unwrap_or(true);
        ApicFeatures {
            pv_eoi: Some(pv_eoi),
            x2apic: Some(cpu.flag(X2APIC).unwrap_or(true)),
        }
    }

    /// The path of a character device's socket or file.
    pub fn chardev_path(&self, id: &str) -> Option<PathBuf> {
        let mut all = self
            .properties("chardev")
            .filter(|chardev| chardev.get("id") == Some(id));
        all.find_map(|chardev| chardev.get("path").map(PathBuf::from))
    }

    /// The properties of each `option` by their IDs; of several with one ID the first.
    pub fn by_id(&self, option: &str) -> BTreeMap<String, Properties> {
        let mut all = BTreeMap::new();
        for properties in self.properties(option) {
            let id = properties.get("id").map(str::to_owned);
            if let Some(id) = id {
                all.entry(id).or_insert(properties);
            }
        }
        all
    }

    /// The properties of the first `option` that has one of this value.
    pub fn with(&self, option: &str, key: &str, value: &str) -> Option<Properties> {
        self.properties(option)
            .find(|properties| properties.get(key) == Some(value))
    }

    /// The backends of network cards beside taps: ID and type.
    pub fn backends_without_tap(&self) -> Vec<(String, String)> {
        let options = ["netdev", "nic"]
            .into_iter()
            .flat_map(|option| self.properties(option));
        let backend = |properties: Properties| {
            let kind = properties.first("type")?.to_owned();
            let id = properties.get("id").unwrap_or("without an ID").to_owned();
            (!TAPS.contains(&kind.as_str()) && kind != "none").then_some((id, kind))
        };
        options.filter_map(backend).collect()
    }

    /// The guest's vCPUs: `-smp N,…` or `-smp cpus=N,…`; without it `maxcpus`, else the product of the topology, as QEMU's
    /// `machine_parse_smp_config` computes it; with those that are plugged in as devices.
    pub fn vcpus(&self) -> usize {
        let smp = self.properties("smp").last().unwrap_or_default();
        let number = |text: &str| text.parse::<usize>().ok().filter(|count| *count > 0);
        let given = smp.first("cpus").or(smp.get("maxcpus")).and_then(number);
        let levels = TOPOLOGY.iter().filter_map(|level| number(smp.get(level)?));
        let initial = given.unwrap_or_else(|| levels.fold(1, usize::saturating_mul));
        let plugged = self.properties("device").filter(|device| {
            let driver = device.first("driver").unwrap_or_default();
            driver.ends_with("-x86_64-cpu") || driver.ends_with("-i386-cpu")
        });
        initial.saturating_add(plugged.count())
    }

    #[cfg(test)]
    pub fn from_line(line: &str) -> Arguments {
        Arguments(line.split(' ').map(str::to_owned).collect())
    }
}

impl FromIterator<String> for Arguments {
    fn from_iter<T: IntoIterator<Item = String>>(all: T) -> Arguments {
        let all: Vec<String> = all.into_iter().collect();
        Arguments(words_without_secrets(&all))
    }
}

/// `KEY=VALUE,…`, or a JSON object: keys with their values, in order. What has no key has an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(Vec<(String, String)>);

impl Properties {
    /// Reads the argument behind an option.
    pub fn parse(argument: &str) -> Properties {
        Properties::of_json(argument).unwrap_or_else(|| {
            let mut all = Properties::default();
            for property in separated(argument) {
                let (key, value) = property.split_once('=').unwrap_or(("", &property));
                all.push(key, value);
            }
            all
        })
    }

    /// Reads a JSON object: `{"a":{"b":1}}` is `a.b=1`; `None` for any other text, and where all paths together have more than 64 MiB.
    pub fn of_json(text: &str) -> Option<Properties> {
        let value: Value = serde_json::from_str(text).ok()?;
        let mut all = Properties::default();
        let mut room = MAX_KEYS;
        all.flatten("", value.as_object()?, &mut room)?;
        Some(all)
    }

    /// Adds a property, which overrides those of its name.
    pub fn push(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.push((key.into(), value.into()));
    }

    /// Gives the property that comes first its name, which may be left out.
    pub fn with_first(mut self, key: &str) -> Properties {
        let first = self.0.first_mut().filter(|(name, _)| name.is_empty());
        first.into_iter().for_each(|(name, _)| key.clone_into(name));
        self
    }

    /// A property's value; of several the last, as in QEMU.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut all = self.0.iter().rev();
        all.find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// The value of the property whose name may be left out, where it comes first.
    pub fn first(&self, key: &str) -> Option<&str> {
        self.get(key).or_else(|| {
            self.0
                .first()
                .filter(|(name, _)| name.is_empty())
                .map(|(_, value)| value.as_str())
        })
    }

    /// A feature of `-cpu`, also with underscores in its name. As in QEMU, `-NAME` overrides `+NAME`, and that `NAME=on`, of
    /// which the last counts.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let is_name = |other: &str| other.replace('_', "-") == name;
        let has = |sign| {
            let mut unnamed = self.0.iter().filter(|(key, _)| key.is_empty());
            unnamed.any(|(_, value)| value.strip_prefix(sign).is_some_and(is_name))
        };
        match (has('-'), has('+')) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => self
                .0
                .iter()
                .rev()
                .find(|(key, _)| is_name(key))
                .and_then(|(_, value)| is_on(value)),
        }
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Adds the fields of an object by their paths; `None` where these need more bytes than there is room.
    fn flatten(
        &mut self,
        prefix: &str,
        fields: &Map<String, Value>,
        room: &mut usize,
    ) -> Option<()> {
        for (name, value) in fields {
            let path = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}.{name}")
            };
            *room = room.checked_sub(path.len())?;
            match value {
                Value::Object(fields) => self.flatten(&path, fields, room)?,
                Value::String(text) => self.push(path, text),
                other => self.push(path, other.to_string()),
            }
        }
        Some(())
    }
}

/// Returns true if an option of QEMU, without its dashes, has an argument.
pub fn has_argument(option: &str) -> bool {
    !FLAGS.contains(&option)
}

/// The parts between commas, of which two stand for one that is part of a value.
fn separated(argument: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = argument.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ',' && letters.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else {
            parts
                .last_mut()
                .into_iter()
                .for_each(|last| last.push(letter));
        }
    }
    parts
}

/// The value of a switch.
pub fn is_on(value: &str) -> Option<bool> {
    match value {
        "on" | "true" | "yes" => Some(true),
        "off" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// A size in bytes, rounded to whole ones: a bare number of `unit` bytes, or with a suffix; also with a fraction, as `1.5G`.
pub fn size(text: &str, unit: u64) -> Option<u64> {
    let named = |suffix: char| {
        "BKMGTPE"
            .find(suffix.to_ascii_uppercase())
            .map(|place| 1 << (10 * place))
    };
    let (number, unit) = match text.char_indices().next_back()? {
        (_, '0'..='9') => (text, unit),
        (at, suffix) => (&text[..at], named(suffix)?),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = is_number.then(|| format!("0.{fraction}").parse::<f64>().ok())??;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add((fraction * unit as f64).round() as u64)
}

/// Returns true for a dynamic loader: `ld-linux-x86-64.so.2`, `ld-musl-x86_64.so.1`.
pub(super) fn is_loader(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("ld-") || name == "ld.so")
}

/// A file that a process names, by a path that leads there from here.
pub fn path_of(pid: i32, path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(below) => PathBuf::from(format!("/proc/{pid}/root")).join(below),
        Err(_) => PathBuf::from(format!("/proc/{pid}/cwd")).join(path),
    }
}

/// A value as a property has it: a comma would begin another, so QEMU wants it doubled.
pub fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn properties_are_read_in_either_syntax() {
        let all = Properties::parse("guest,,1,debug-threads=on,file=/a,,b=c");
        assert_eq!(all.first("guest"), Some("guest,1"));
        assert_eq!(
            (all.get("debug-threads"), all.get("file")),
            (Some("on"), Some("/a,b=c"))
        );
        let json = Properties::parse(r#"{"driver":"raw","cache":{"direct":true},"file":"f,1"}"#);
        assert_eq!(
            (json.get("cache.direct"), json.get("file")),
            (Some("true"), Some("f,1"))
        );
        assert_eq!(json.first("driver"), Some("raw"));
        let twice = Properties::parse("virtio-blk-pci,id=a,id=b").with_first("driver");
        assert_eq!(
            (twice.get("driver"), twice.get("id")),
            (Some("virtio-blk-pci"), Some("b"))
        );
    }

    #[test]
    fn backends_that_are_no_taps_are_named() {
        let line = r#"q -netdev tap,id=a,fd=3 -netdev {"type":"user","id":"b"} -nic none -nic user -netdev bridge,id=c"#;
        let named = |(id, kind): (&str, &str)| (id.to_owned(), kind.to_owned());
        let expected = [("b", "user"), ("without an ID", "user")].map(named);
        assert_eq!(Arguments::from_line(line).backends_without_tap(), expected);
    }

    #[test]
    fn names_and_vcpus_have_two_forms() {
        let arguments_of = |line| Arguments::from_line(line);
        assert_eq!(
            arguments_of("qemu -name a,debug-threads=on --smp 4")
                .name()
                .as_deref(),
            Some("a")
        );
        assert_eq!(
            arguments_of("qemu --name debug-threads=on,guest=b")
                .name()
                .as_deref(),
            Some("b")
        );
        let through_loader =
            arguments_of("/l/ld-linux-x86-64.so.2 --library-path /l /b/qemu-x -hda /a");
        let options: Vec<(&str, &str)> = through_loader.options().collect();
        assert_eq!(options, [("hda", "/a")]);
        let vcpus = |line| arguments_of(line).vcpus();
        assert_eq!(vcpus("qemu -smp cores=4,threads=2,sockets=1"), 8);
        assert_eq!(vcpus("qemu -smp sockets=2,maxcpus=6"), 6);
        assert_eq!(vcpus("qemu -smp 2,cores=4,maxcpus=8"), 2);
        assert_eq!(arguments_of("qemu -smp cpus=3,sockets=1").vcpus(), 3);
        assert_eq!(
            (
                arguments_of("qemu -smp").vcpus(),
                arguments_of("qemu").name()
            ),
            (1, None)
        );
    }

    #[test]
    fn a_flag_has_no_argument_and_an_image_may_have_no_option() {
        let arguments = Arguments::from_line("q -no-hpet -rtc base=utc --snapshot /a.raw -S");
        let all: Vec<(&str, &str)> = arguments.options().collect();
        let expected = [
            ("no-hpet", ""),
            ("rtc", "base=utc"),
            ("snapshot", ""),
            ("hda", "/a.raw"),
            ("S", ""),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_qemu_that_prints_what_it_has_runs_no_guest() {
        let asks = |line: &str| Arguments::from_line(line).ask_for_help();
        for line in [
            "qemu -device help",
            "qemu -machine none -cpu ?",
            "qemu -nodefaults -device virtio-blk-pci,help",
            "qemu --version",
            "qemu -M help",
        ] {
            assert!(asks(line), "{line}");
        }
        for line in [
            "qemu -name help -m 1G",
            "qemu -append quiet,help -M q35",
            "qemu -machine none -S",
            "qemu -drive file=/srv/help.raw,if=virtio",
            "qemu -hda /srv/help/disk",
        ] {
            assert!(!asks(line), "{line}");
        }
    }

    #[test]
    fn the_accelerator_has_three_forms() {
        let is_kvm = |line| Arguments::from_line(line).is_kvm();
        assert_eq!(
            (
                is_kvm("q -accel kvm"),
                is_kvm("q -accel tcg,thread=multi"),
                is_kvm("q")
            ),
            (Some(true), Some(false), None)
        );
        assert_eq!(
            (
                is_kvm("q -machine q35,accel=kvm"),
                is_kvm("q -enable-kvm"),
                is_kvm("q -M pc,accel=kvm:tcg")
            ),
            (Some(true), Some(true), None)
        );
    }

    #[test]
    fn features_of_the_cpu_are_on_unless_switched_off() {
        let features = |line| {
            let ApicFeatures { pv_eoi, x2apic } = Arguments::from_line(line).apic_features();
            (pv_eoi, x2apic)
        };
        let both = (Some(true), Some(true));
        assert_eq!(
            (
                features("q -cpu host"),
                features("q"),
                features("q -cpu EPYC,+x2apic,kvm_pv_eoi=on")
            ),
            (both, both, both)
        );
        assert_eq!(
            features("q -cpu host,-kvm-pv-eoi,x2apic=off"),
            (Some(false), Some(false))
        );
        assert_eq!(
            features("q -cpu host,kvm-pv-eoi=off,+kvm-pv-eoi,-x2apic,+x2apic"),
            (Some(true), Some(false))
        );
        assert_eq!(
            features("q -cpu host,kvm=off"),
            (Some(false), Some(true)),
            "without KVM's signature"
        );
    }

    #[test]
    fn memory_is_in_mebibytes_without_a_suffix() {
        let memory_mib = |line| Arguments::from_line(line).memory_bytes() >> 20;
        assert_eq!(memory_mib("qemu -m 1.5G"), 1536);
        assert_eq!(
            (size("0.5k", 1), size("1.e3", 1), size(".", 1)),
            (Some(512), None, None)
        );
        assert_eq!(
            (
                memory_mib("qemu -m 512"),
                memory_mib("qemu -m size=1048576k,slots=2,maxmem=4G"),
                memory_mib("qemu")
            ),
            (512, 1024, 128)
        );
        assert_eq!(
            (
                memory_mib("qemu -m 2g"),
                memory_mib("qemu -m 1T"),
                memory_mib("qemu -m nonsense")
            ),
            (2048, 1 << 20, 128)
        );
        assert_eq!(memory_mib("qemu -m 99999999999999999E"), 128);
    }

    proptest! {
        #[test]
        fn what_is_escaped_is_read_as_it_was(value in "[a-z,=]{0,20}") {
            let read = Properties::parse(&format!("k={}", escaped(&value)));
            prop_assert_eq!(read.get("k"), Some(value.as_str()));
        }

        #[test]
        fn any_argument_is_read(argument in ".{0,60}") {
            let _ = Properties::parse(&argument).flag("x2apic");
        }
    }
}
