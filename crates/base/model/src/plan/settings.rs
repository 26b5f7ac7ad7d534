//! Settings of a plan's trials: those with which a trial was made, those in which variants differ, and the options that make
//! the guests of another command the same.

use super::definition::Plan;
use super::guest::{Guest, Pinning};
use super::schedule::SharedBoot;
use super::study::Study;
use super::variant::Variant;
use crate::{Machine, Setting, Tree, TrialRecord, shell_line};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The subcommands that boot guests with the options of [`Guest::options`].
const BOOTING: [&str; 4] = ["exec", "layers", "profile", "run"];

impl Plan {
    /// The variant of a guest's trial.
    pub fn variant_of(&self, trial: &TrialRecord) -> Option<&Variant> {
        self.variants
            .iter()
            .find(|v| trial.machine.is_guest() && v.name == trial.variant)
    }

    /// Returns the settings of a trial, by name: figures of trials that differ in any of them cannot be compared.
    pub fn settings_of(&self, trial: &TrialRecord) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = trial
            .result()
            .map(|r| r.workload.options.clone())
            .unwrap_or_default();
        let guest = &self.guest;
        let text = |path: &PathBuf| path.display().to_string();
        let qemu_args = (!guest.qemu_args.is_empty()).then(|| shell_line(&guest.qemu_args));
        let takes_turns = self.shared_boot() == Some(SharedBoot::Variants);
        let command = self.command();
        let tree = |tree: &Tree| {
            let made = format!("{} files, {} bytes", tree.files, tree.bytes);
            tree.path.as_ref().map_or(made, text)
        };
        let own = [
            ("guest.cpus", Some(guest.cpus.to_string())),
            ("guest.memory-mib", Some(guest.memory_mib.to_string())),
            ("guest.cpu-model", guest.cpu_model.clone()),
            ("guest.machine-type", guest.machine_type.clone()),
            ("guest.kernel-args", guest.kernel_args.clone()),
            ("guest.firmware", guest.firmware.as_ref().map(text)),
            ("guest.qemu-args", qemu_args),
            ("command", command.map(|own| shell_line(&own.argv))),
            ("directory", command.map(|own| text(&own.directory))),
            ("one-boot", takes_turns.then(|| "true".to_owned())),
            ("tree", self.tree.as_ref().map(tree)),
        ];
        let own = own.into_iter();
        all.extend(own.filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let properties = guest.properties.iter();
        all.extend(properties.map(|(key, value)| (format!("guest.{key}"), value.clone())));
        if let (Some(range), Some(size)) = (self.range(), trial.step) {
            if let Some(of_guest) = all.get_mut(&range.option) {
                *of_guest = size.to_string();
            }
        }
        // A QEMU of its own is a fact: that its change shows is what comparing runs is for.
        let own = self.variant_of(trial).into_iter().flat_map(|v| &v.set);
        let own = own.filter(|(key, _)| *key != "qemu");
        all.extend(own.map(|(key, value)| (format!("variant.{key}"), value.clone())));
        all
    }

    /// Why the variants cannot take turns in one boot; `None` where they can.
    pub fn one_boot_fault(&self) -> Option<String> {
        if self.command().is_some() {
            return Some("a command's writes stay in its guest until it ends".to_owned());
        }
        let is_live = |key: &str| {
            Variant::workload_option(key).is_some() || key.starts_with(Setting::BLOCK_QUEUE)
        };
        let mut differing = self.differing_settings().into_iter();
        let what = differing.find(|key| !is_live(key))?.escape_default();
        Some(format!(
            "the variants differ in {what}, which a running guest cannot change"
        ))
    }

    /// The settings that some variants have and others have not, or have with another value; sorted, each once.
    pub fn differing_settings(&self) -> Vec<&str> {
        let keys = self.variants.iter().flat_map(|variant| variant.set.keys());
        let differs = |key: &&String| {
            let mut variants = self.variants.iter();
            variants.any(|v| v.get(key) != self.variants[0].get(key))
        };
        let differing: BTreeSet<&str> = keys.filter(differs).map(String::as_str).collect();
        differing.into_iter().collect()
    }

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
        let command = line.strip_prefix("vmtax ");
        let words = command.map(|line| line.split_once(' ').unwrap_or((line, "")));
        let Some((name, rest)) = words.filter(|(name, _)| BOOTING.contains(name)) else {
            return line.to_owned();
        };
        let own = rest.split(" -- ").next().unwrap_or_default();
        let has = |option: &str| own.split(' ').any(|word| word == option);
        let common = self.common_settings();
        let guest = self.guest.with(&common);
        let mut guest = guest.unwrap_or_else(|_| self.guest.clone());
        if matches!(self.study, Study::Compare(_)) {
            guest.pinning = guest.pinning.or(Some(Pinning::Split));
        }
        let mut words = Vec::new();
        if !has("--machine") {
            words.extend(["--machine".to_owned(), machines(&self.machines)]);
        }
        words.extend(guest.options());
        if name == "layers" {
            let names = own.split(' ').filter_map(|word| word.split('=').next());
            let common = Variant {
                set: common,
                ..Variant::default()
            };
            let set = common.disk().into_iter();
            let set = set.filter(|(key, _)| !names.clone().any(|name| name == key));
            let value =
                |(key, value): (String, String)| format!("{key}={}", value.replace(',', ",,"));
            words.extend(set.flat_map(|set| ["--set".to_owned(), value(set)]));
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
        let single = single.into_iter();
        let single = single.filter_map(|(option, value)| Some((option, value?)));
        let repeated = self.qemu_args.iter();
        let repeated = repeated.map(|argument| ("--qemu-arg", argument.clone()));
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
