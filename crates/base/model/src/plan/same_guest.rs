//! Commands that measure more on the guests of a plan.

use super::definition::Plan;
use super::guest::Guest;
use super::pinning::Pinning;
use super::study::Study;
use crate::{Machine, shell_line};
use std::collections::BTreeMap;
use std::path::Path;

/// The subcommands that boot guests with these options.
const BOOTING: [&str; 4] = ["exec", "layers", "profile", "run"];

impl Plan {
    /// The settings that all variants have.
    pub fn common_settings(&self) -> BTreeMap<String, String> {
        let Some((first, others)) = self.variants.split_first() else {
            return BTreeMap::new();
        };
        let shared = |(key, value): &(&String, &String)| {
            others
                .iter()
                .all(|other| other.get(key) == Some(value.as_str()))
        };
        first
            .set
            .iter()
            .filter(shared)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// A command line of vmtax with the options that make its guests those of this plan; `line` itself where it boots none.
    /// Machines that it names stay.
    pub fn on_same_guests(&self, line: &str) -> String {
        let Some((name, rest)) = line
            .strip_prefix("vmtax ")
            .map(|line| line.split_once(' ').unwrap_or((line, "")))
        else {
            return line.to_owned();
        };
        if !BOOTING.contains(&name) {
            return line.to_owned();
        }
        let own = rest.split(" -- ").next().unwrap_or_default();
        let has = |option: &str| own.split(' ').any(|word| word == option);
        let common = self.common_settings();
        let usual = if matches!(self.study, Study::Compare(_)) {
            Some(Pinning::Split)
        } else {
            None
        };
        let guest = self
            .guest
            .with(&common)
            .unwrap_or_else(|_| self.guest.clone());
        let guest = Guest {
            pinning: guest.pinning.or(usual),
            ..guest
        };
        let mut words = Vec::new();
        if !has("--machine") {
            words.extend(["--machine".to_owned(), machines(&self.machines)]);
        }
        words.extend(guest.options());
        if name == "layers" {
            let varied = |key: &str| {
                own.split(' ')
                    .any(|word| word.split('=').next() == Some(key))
            };
            let disk = crate::Variant {
                set: common,
                ..crate::Variant::default()
            }
            .disk();
            let set = disk.into_iter().filter(|(key, _)| !varied(key));
            words.extend(set.flat_map(|(key, value)| {
                [
                    "--set".to_owned(),
                    format!("{key}={}", value.replace(',', ",,")),
                ]
            }));
        }
        let parts = ["vmtax", name, &shell_line(&words), rest];
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn machines(machines: &[Machine]) -> String {
    machines
        .iter()
        .map(|machine| machine.as_str())
        .collect::<Vec<_>>()
        .join(",")
}

impl Guest {
    /// The options of a study that mean this guest. Its devices without I/O have none.
    pub fn options(&self) -> Vec<String> {
        let usual = Guest::default();
        let path = |path: &Option<std::path::PathBuf>| {
            path.as_deref().map(Path::to_string_lossy).map(String::from)
        };
        let changed = |value: u32, usual: u32| (value != usual).then(|| value.to_string());
        let seconds = changed(self.boot_timeout_s, usual.boot_timeout_s).map(|s| format!("{s}s"));
        let single = [
            ("--qemu", path(&self.qemu)),
            ("--kernel", path(&self.kernel)),
            ("--modules", path(&self.modules)),
            ("--kernel-arg", self.kernel_args.clone()),
            ("--cpu-model", self.cpu_model.clone()),
            ("--machine-type", self.machine_type.clone()),
            ("--firmware", path(&self.firmware)),
            (
                "--pinning",
                self.pinning.map(|pinning| <&str>::from(pinning).to_owned()),
            ),
            ("--cpus", changed(self.cpus, usual.cpus)),
            ("--memory", changed(self.memory_mib, usual.memory_mib)),
            ("--boot-timeout", seconds),
        ];
        let single = single
            .into_iter()
            .filter_map(|(option, value)| Some((option, value?)));
        let repeated = self
            .qemu_args
            .iter()
            .map(|argument| ("--qemu-arg", argument.clone()));
        let word = |(option, value): (&str, String)| match value.starts_with('-') {
            true => vec![format!("{option}={value}")],
            false => vec![option.to_owned(), value],
        };
        single.chain(repeated).flat_map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Variant, WorkloadName, WorkloadSpec};

    #[test]
    fn a_command_gets_the_plans_guest_and_keeps_what_it_says() {
        let work = vec![WorkloadSpec::new(WorkloadName::Disk)];
        let mut plan = Plan::new("layers", 6, vec![Machine::NATIVE, Machine::TCG], work);
        assert_eq!(
            plan.on_same_guests("vmtax layers --vary a=b,c"),
            "vmtax layers --machine native,tcg --vary a=b,c"
        );
        assert_eq!(plan.on_same_guests("vmtax doctor"), "vmtax doctor");
        assert_eq!(plan.on_same_guests("-accel kvm"), "-accel kvm");
        plan.guest.kernel_args = Some("quiet x=1".into());
        plan.guest.qemu_args = vec!["-device".into(), "virtio-rng-pci".into()];
        plan.guest.memory_mib = 512;
        let options =
            "--kernel-arg 'quiet x=1' --memory 512 --qemu-arg=-device --qemu-arg virtio-rng-pci";
        let line = plan.on_same_guests("vmtax profile --machine tcg -- cpu --kernel x");
        assert_eq!(
            line,
            format!("vmtax profile {options} --machine tcg -- cpu --kernel x")
        );
        let variant = |name: &str, aio: &str| {
            let set = [
                ("cache", "none"),
                ("aio", aio),
                ("iothread", "off"),
                ("cpus", "2"),
            ];
            let set = set.map(|(key, value)| (key.to_owned(), value.to_owned()));
            Variant {
                name: name.into(),
                set: set.into(),
            }
        };
        plan.variants = vec![variant("a", "native"), variant("b", "threads")];
        let line = plan.on_same_guests("vmtax layers --vary iothread=off,on");
        assert!(
            line.contains(" --cpus 2 ")
                && line.ends_with(" --set cache=none --vary iothread=off,on"),
            "{line}"
        );
    }
}
