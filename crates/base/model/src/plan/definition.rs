//! What a plan holds.

use super::command::CommandSpec;
use super::guest::Guest;
use super::ladder::Ladder;
use super::profile::ProfileSettings;
use super::study::{Compare, Study};
use super::variant::Variant;
use crate::{Machine, Probes, Tree, WorkloadSpec};

/// The trials to make, how often and in which order. As TOML:
///
/// ```toml
/// study = "tax"
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
    /// What it is called: part of the recording's folder name.
    pub name: String,
    /// The question.
    pub study: Study,
    /// How many times each machine makes each workload.
    pub rounds: u32,
    /// Seeds the order of trials.
    pub seed: u64,
    /// A trial that takes longer than this many seconds is given up.
    pub deadline_s: u32,
    /// Where to run.
    pub machines: Vec<Machine>,
    /// Under what each workload runs, in this order, in each turn of a guest.
    pub probes: Vec<Probes>,
    /// The guest.
    pub guest: Guest,
    /// The tree that variants share with their guests.
    pub tree: Option<Tree>,
    /// How guests are built; every guest boots in each.
    pub variants: Vec<Variant>,
    /// The published result that is reproduced, by name.
    pub reproduces: Option<String>,
    /// What to run, in order within a machine's turn.
    pub workloads: Vec<WorkloadSpec>,
}

impl Plan {
    /// Of a trial, where nothing else is said.
    pub const DEADLINE_S: u32 = 600;

    /// These workloads on these machines so many times: unobserved, in guests as they usually are.
    pub fn new(name: &str, rounds: u32, machines: Vec<Machine>, workloads: Vec<WorkloadSpec>) -> Plan {
        Plan {
            schema: crate::SCHEMA,
            name: name.to_owned(),
            study: Study::of(&workloads),
            rounds,
            seed: 0,
            deadline_s: Plan::DEADLINE_S,
            machines,
            probes: vec![Probes::None],
            guest: Guest::default(),
            tree: None,
            variants: vec![Variant::default()],
            reproduces: None,
            workloads,
        }
    }

    /// The command of the workload `exec`.
    pub fn command(&self) -> Option<&CommandSpec> {
        match &self.study {
            Study::Exec(command) => Some(command),
            Study::Profile(profile) => profile.command.as_deref(),
            _ => None,
        }
    }

    /// What grows; every machine takes a turn at each of its sizes.
    pub fn ladder(&self) -> Option<&Ladder> {
        if let Study::Scale(ladder) = &self.study { Some(ladder) } else { None }
    }

    /// What a comparison must be able to show.
    pub fn comparison(&self) -> Option<Compare> {
        if let Study::Compare(compare) = self.study { Some(compare) } else { None }
    }

    /// How the QEMU of its guest, or what is there already, is profiled.
    pub fn profile(&self) -> Option<&ProfileSettings> {
        if let Study::Profile(profile) = &self.study { Some(&profile.settings) } else { None }
    }

    /// Whether it observes what is there already, and boots nothing.
    pub fn is_attached(&self) -> bool {
        self.profile().is_some_and(ProfileSettings::is_attached)
    }
}
