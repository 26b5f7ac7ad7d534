//! Content of a plan: its study, machines, guest, variants and workloads; the parts in which a guest is tuned, each a comparison of
//! some configurations.

use super::command::CommandSpec;
use super::guest::Guest;
use super::study::{Compare, ObservedVm, ProfileSettings, SizeRange, Study, WithCommand};
use super::variant::Variant;
use crate::{
    GuestTunePart, GuestTuneSpec, GuestTuneStep, ImportedFiles, Machine, Missing, Probes,
    SECRET_REMOVED, Tree, TuneSpec, VmIdentity, WorkloadSpec, remove_secrets_of_values,
    without_secrets, words_without_secrets,
};

/// The trials to make, how often and in which order. As TOML:
///
/// ```toml
/// study = "overhead"
/// rounds = 6
/// machines = ["native", "tcg"]
/// [guest]
/// cpus = 1
/// [[workload]]
/// name = "cpu"
/// options = { max-prime = 2000, time = 1 }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the plan: part of the recording's directory name.
    pub name: String,
    /// Study of the plan: the question that it answers, with the settings of that study alone.
    pub study: Study,
    /// Repetitions: each machine runs each workload once a round.
    pub rounds: u32,
    /// Seeds the order of trials.
    pub seed: u64,
    /// Timeout of a trial, s.
    pub timeout_s: u32,
    /// Where to run.
    pub machines: Vec<Machine>,
    /// The probes under which each workload runs, in this order, in each slot of a guest.
    pub probes: Vec<Probes>,
    /// Guest that `kvm` and `tcg` machines boot, before a variant's settings.
    pub guest: Guest,
    /// The tree that variants share with their guests.
    pub tree: Option<Tree>,
    /// Configurations of the guest; every guest boots in each.
    pub variants: Vec<Variant>,
    /// Configurations that were meant and that this host cannot have: left out, with the reason.
    pub not_measured: Vec<Missing>,
    /// The published result that is reproduced, by name.
    pub reproduces: Option<String>,
    /// Workloads to run, in order within a slot.
    pub workloads: Vec<WorkloadSpec>,
}

impl Plan {
    /// Default timeout of a trial, s.
    pub const TIMEOUT_S: u32 = 600;

    /// These workloads on these machines for so many rounds, without probes, in default guests.
    pub fn new(
        name: &str,
        rounds: u32,
        machines: Vec<Machine>,
        workloads: Vec<WorkloadSpec>,
    ) -> Plan {
        Plan {
            schema: crate::SCHEMA,
            name: name.to_owned(),
            study: Study::default_for(&workloads),
            rounds,
            seed: 0,
            timeout_s: Plan::TIMEOUT_S,
            machines,
            probes: vec![Probes::None],
            guest: Guest::default(),
            tree: None,
            variants: vec![Variant::default()],
            not_measured: Vec::new(),
            reproduces: None,
            workloads,
        }
    }

    /// The command of the workload `exec`.
    pub fn command(&self) -> Option<&CommandSpec> {
        match &self.study {
            Study::Exec(command) => Some(command),
            Study::Compare(compare) => compare.command.as_deref(),
            Study::Profile(profile) => profile.command.as_deref(),
            Study::TuneGuest(tune) => tune.command.as_deref(),
            _ => None,
        }
    }

    /// Returns true if guests share the host's root: a command or a program of the host runs in them.
    pub fn shares_host_root(&self) -> bool {
        let mut workloads = self.workloads.iter();
        self.command().is_some() || workloads.any(|w| w.name.needs_host_program())
    }

    /// Returns the plan as it is stored and shown: with [`crate::SECRET_REMOVED`] in the place of each secret of its command, of its
    /// arguments for QEMU, of the guest kernel's command line, of its variants and of its workloads.
    #[must_use]
    pub fn without_secrets(&self) -> Plan {
        let mut plan = self.clone();
        let command = match &mut plan.study {
            Study::Exec(command) => Some(command),
            Study::Compare(compare) => compare.command.as_mut(),
            Study::Profile(profile) => profile.command.as_mut(),
            Study::TuneGuest(tune) => tune.command.as_mut(),
            _ => None,
        };
        if let Some(command) = command {
            command.argv = words_without_secrets(&command.argv);
            let lines = [
                &mut command.setup,
                &mut command.prepare,
                &mut command.cleanup,
            ];
            for line in lines.into_iter().flatten() {
                *line = without_secrets(line).into_owned();
            }
        }
        let guest = &mut plan.guest;
        guest.qemu_args = words_without_secrets(&guest.qemu_args);
        if let Some(line) = &mut guest.kernel_args {
            *line = without_secrets(line).into_owned();
        }
        for variant in &mut plan.variants {
            variant.name = without_secrets(&variant.name).into_owned();
            remove_secrets_of_values(&mut variant.set);
        }
        for workload in &mut plan.workloads {
            remove_secrets_of_values(&mut workload.options);
        }
        plan
    }

    /// Returns the part of the plan from which a secret was removed when it was stored: such a plan cannot be carried out.
    pub fn part_without_secret(&self) -> Option<&'static str> {
        let is_removed = |text: &String| text.contains(SECRET_REMOVED);
        let in_command = |command: &CommandSpec| {
            let lines = [&command.setup, &command.prepare, &command.cleanup];
            command
                .argv
                .iter()
                .chain(lines.into_iter().flatten())
                .any(is_removed)
        };
        if self.command().is_some_and(in_command) {
            Some("the command")
        } else if self.guest.qemu_args.iter().any(is_removed) {
            Some("qemu-args")
        } else {
            let in_line = self.guest.kernel_args.as_ref().is_some_and(is_removed);
            let mut values = self
                .variants
                .iter()
                .flat_map(|variant| variant.set.values());
            let mut options = self.workloads.iter().flat_map(|one| one.options.values());
            let in_variant = values.any(is_removed).then_some("a variant");
            let in_workload = options.any(is_removed).then_some("a workload");
            in_line
                .then_some("kernel-args")
                .or(in_variant)
                .or(in_workload)
        }
    }

    /// Returns the size that is varied, with its steps; `None` of a study other than `scale`.
    pub fn range(&self) -> Option<&SizeRange> {
        match &self.study {
            Study::Scale(range) => Some(range),
            _ => None,
        }
    }

    /// Seconds after which no round after the sixth begins; `None` of a study without such a limit.
    pub fn budget_s(&self) -> Option<u32> {
        match &self.study {
            Study::Compare(compare) => compare.settings.budget_s,
            Study::Scale(range) => range.budget_s,
            _ => None,
        }
    }

    /// When a comparison has measured enough.
    pub fn comparison(&self) -> Option<Compare> {
        match &self.study {
            Study::Compare(compare) => Some(compare.settings),
            _ => None,
        }
    }

    /// Returns the settings with which QEMU, or a process that runs already, is profiled; `None` of a study other than
    /// `profile`.
    pub fn profile(&self) -> Option<&ProfileSettings> {
        match &self.study {
            Study::Profile(profile) => Some(&profile.settings),
            _ => None,
        }
    }

    /// The running VM that is observed.
    pub fn observed_vm(&self) -> Option<&ObservedVm> {
        match &self.study {
            Study::Vm(_, vm) => Some(vm),
            _ => None,
        }
    }

    /// The running VM that is observed or tuned, or the process that is profiled.
    pub fn running_vm(&self) -> Option<&VmIdentity> {
        match &self.study {
            Study::Vm(_, vm) => Some(&vm.process),
            Study::Tune(vm) => Some(&vm.process),
            // That of a file's samples ran elsewhere.
            Study::Profile(profile) if profile.settings.file.is_none() => {
                profile.settings.process.as_ref()
            }
            _ => None,
        }
    }

    /// Returns the changes that are tried on a running VM; `None` of a study other than `tune`.
    pub fn tune(&self) -> Option<&TuneSpec> {
        match &self.study {
            Study::Tune(spec) => Some(spec),
            _ => None,
        }
    }

    /// Returns the settings that are tried on a guest booted for it; `None` of a study other than `tune-guest`.
    pub fn guest_tune(&self) -> Option<&GuestTuneSpec> {
        match &self.study {
            Study::TuneGuest(tune) => Some(&tune.settings),
            _ => None,
        }
    }

    /// The files of other tools that are imported.
    pub fn imported(&self) -> Option<&ImportedFiles> {
        match &self.study {
            Study::Import(files) => Some(files),
            _ => None,
        }
    }

    /// Returns true if the plan attaches to a process or imports files, and boots nothing.
    pub fn is_attached(&self) -> bool {
        self.observed_vm().is_some()
            || self.tune().is_some()
            || self.imported().is_some()
            || self.profile().is_some_and(ProfileSettings::is_attached)
    }
}

/// Rounds of a part at most: what is decided ends it earlier.
const ROUNDS: u32 = 15;

/// The smallest difference that matters.
const MIN_EFFECT: f64 = 0.02;

impl Plan {
    /// Begins a part of the tuning after so many rounds; a plan of another study stays as it is.
    pub fn begin_part(&mut self, step: GuestTuneStep, first_round: u32) {
        let GuestTuneStep {
            phase,
            configurations,
        } = step;
        let Some(baseline) = self.variants.first().cloned() else {
            return;
        };
        let Study::TuneGuest(tune) = &mut self.study else {
            return;
        };
        for configuration in &configurations {
            let variant = tune.settings.variant(&baseline, configuration);
            if self.variants.iter().all(|known| known.name != variant.name) {
                self.variants.push(variant);
            }
        }
        self.rounds = first_round + ROUNDS;
        tune.settings.parts.push(GuestTunePart {
            phase,
            configurations,
            first_round,
            rounds: 0,
        });
    }

    /// A plan as it was before its guest was tuned.
    #[must_use]
    pub fn without_parts(mut self) -> Plan {
        if let Study::TuneGuest(tune) = &mut self.study {
            tune.settings.parts.clear();
            self.variants.truncate(1);
            self.rounds = 1;
        }
        self
    }

    /// Ends the part that was begun last, after so many rounds of its own.
    pub fn end_part(&mut self, rounds: u32) {
        if let Study::TuneGuest(tune) = &mut self.study {
            if let Some(part) = tune.settings.parts.last_mut() {
                part.rounds = rounds;
                self.rounds = part.first_round + rounds;
            }
        }
    }

    /// The comparison that measures the part that was begun last; `None` before the first.
    pub fn part(&self) -> Option<Plan> {
        let Study::TuneGuest(tune) = &self.study else {
            return None;
        };
        let (part, baseline) = (tune.settings.parts.last()?, self.variants.first()?);
        let variants: Vec<Variant> = part
            .configurations
            .iter()
            .map(|configuration| tune.settings.variant(baseline, configuration))
            .collect();
        let settings = Compare {
            min_effect: MIN_EFFECT,
            budget_s: None,
            one_boot: false,
        };
        Some(Plan {
            study: Study::Compare(WithCommand {
                settings,
                command: tune.command.clone(),
            }),
            rounds: ROUNDS,
            seed: self.seed.wrapping_add(tune.settings.parts.len() as u64),
            variants,
            ..self.clone()
        })
    }
}
