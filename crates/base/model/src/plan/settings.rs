//! Settings with which a trial of a plan was made.

use super::definition::Plan;
use super::schedule::SharedBoot;
use super::variant::Variant;
use crate::{TrialRecord, shell_line};
use std::collections::BTreeMap;

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
        all.insert("guest.cpus".to_owned(), guest.cpus.to_string());
        all.insert("guest.memory-mib".to_owned(), guest.memory_mib.to_string());
        let firmware = guest
            .firmware
            .as_ref()
            .map(|file| file.display().to_string());
        let qemu_args = (!guest.qemu_args.is_empty()).then(|| shell_line(&guest.qemu_args));
        let own = [
            ("guest.cpu-model", guest.cpu_model.clone()),
            ("guest.machine-type", guest.machine_type.clone()),
            ("guest.kernel-args", guest.kernel_args.clone()),
            ("guest.firmware", firmware),
            ("guest.qemu-args", qemu_args),
        ];
        all.extend(
            own.into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
        all.extend(
            guest
                .properties
                .iter()
                .map(|(key, value)| (format!("guest.{key}"), value.clone())),
        );
        if let (Some(range), Some(size)) = (self.range(), trial.step) {
            if let Some(of_guest) = all.get_mut(&range.option) {
                *of_guest = size.to_string();
            }
        }
        if let Some(command) = self.command() {
            all.insert("command".to_owned(), shell_line(&command.argv));
            all.insert(
                "directory".to_owned(),
                command.directory.display().to_string(),
            );
        }
        if self.shared_boot() == Some(SharedBoot::Variants) {
            all.insert("one-boot".to_owned(), "true".to_owned());
        }
        if let Some(tree) = &self.tree {
            let made = format!("{} files, {} bytes", tree.files, tree.bytes);
            all.insert(
                "tree".to_owned(),
                tree.path
                    .as_ref()
                    .map_or(made, |path| path.display().to_string()),
            );
        }
        // A QEMU of its own is a fact: that its change shows is what comparing runs is for.
        let own = self
            .variant_of(trial)
            .into_iter()
            .flat_map(|v| &v.set)
            .filter(|(key, _)| *key != "qemu");
        all.extend(own.map(|(key, value)| (format!("variant.{key}"), value.clone())));
        all
    }
}
