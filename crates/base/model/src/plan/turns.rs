//! The trials of a plan, and the order in which they are made.

use super::definition::Plan;
use super::ladder::{Grows, GuestSize};
use super::study::Study;
use crate::{Machine, Probes};

/// A machine's turn in a round: it boots, makes every workload of the plan, and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The round, from 0.
    pub round: u32,
    /// Whose turn.
    pub machine: Machine,
    /// In which of the plan's variants.
    pub variant: usize,
    /// At which rung of the plan's ladder.
    pub rung: usize,
}

/// A machine in one variant, by its name; the host itself has none. What tables have a column for.
pub type Column<'a> = (Machine, &'a str);

impl Plan {
    /// What is compared with each other, in the plan's order.
    pub fn columns(&self) -> Vec<Column<'_>> {
        let mut columns = Vec::new();
        for &machine in &self.machines {
            match machine.is_guest() {
                true => columns.extend(self.ways(machine).map(|(m, v)| (m, self.variants[v].name.as_str()))),
                false => columns.push((machine, "")),
            }
        }
        columns
    }

    /// How many rungs the plan has; 1 without a ladder.
    pub fn rungs(&self) -> usize {
        self.ladder().map_or(1, |ladder| ladder.rungs.len())
    }

    /// The size at a rung; `None` without a ladder.
    pub fn size(&self, rung: usize) -> Option<u64> {
        self.ladder().and_then(|ladder| ladder.rungs.get(rung).copied())
    }

    /// The plan as it is at a rung: the size in its place, and nothing that grows. Without a ladder the plan itself.
    pub fn at_rung(&self, rung: usize) -> Plan {
        let mut plan = self.clone();
        let (Some(ladder), Some(size)) = (self.ladder(), self.size(rung)) else { return plan };
        plan.study = Study::Tax;
        let small = u32::try_from(size).unwrap_or(u32::MAX);
        match ladder.grows() {
            Ok(Grows::Guest(GuestSize::Cpus)) => plan.guest.cpus = small,
            Ok(Grows::Guest(GuestSize::Memory)) => plan.guest.memory_mib = small,
            Ok(Grows::Guest(GuestSize::Disks)) => plan.guest.disks = small,
            Ok(Grows::Guest(GuestSize::MemoryRegions)) => plan.guest.memory_regions = small,
            Ok(Grows::Workload(name, option)) => {
                for workload in plan.workloads.iter_mut().filter(|w| w.name == name) {
                    workload.options.insert(option.to_owned(), size.to_string());
                }
            }
            // `check` has refused it.
            Err(_) => {}
        }
        plan
    }

    /// The turns in order: in each round every machine once at each rung, in an order drawn from the seed, so that a
    /// drift of the host falls on all alike. Behind them each guest once more where a command's requests are to be followed.
    pub fn schedule(&self) -> Vec<Turn> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut turns = Vec::new();
        for round in 0..self.rounds {
            let rungs = |(machine, variant)| (0..self.rungs()).map(move |rung| Turn { round, machine, variant, rung });
            let mut order: Vec<Turn> = self.machines.iter().flat_map(|&m| self.ways(m)).flat_map(rungs).collect();
            random.shuffle(&mut order);
            turns.extend(order);
        }
        let looks = self.looked_at().map(|(machine, variant)| Turn { round: self.rounds, machine, variant, rung: 0 });
        turns.extend(looks);
        turns
    }

    /// The guests that are observed once more after the rounds.
    fn looked_at(&self) -> impl Iterator<Item = (Machine, usize)> {
        let any = self.command().is_some_and(|command| command.layers);
        self.machines.iter().filter(move |m| any && m.is_guest()).flat_map(|&m| self.ways(m))
    }

    /// How many rounds have trials, with the one after the others in which guests are observed.
    pub fn rounds_with_looks(&self) -> u32 {
        self.rounds.saturating_add(u32::from(self.looked_at().next().is_some()))
    }

    /// Whether a turn is after the rounds: a guest that is only observed.
    pub fn is_looked_at(&self, turn: Turn) -> bool {
        turn.round >= self.rounds
    }

    /// A machine in each variant that is built on it; the host itself has no disk to attach, and is only once.
    pub(super) fn ways(&self, machine: Machine) -> impl Iterator<Item = (Machine, usize)> {
        let count = if machine.is_guest() { self.variants.len() } else { 1 };
        let on = move |variant: &usize| !machine.is_guest() || self.variants[*variant].is_on(machine);
        (0..count).filter(on).map(move |variant| (machine, variant))
    }

    /// Under what a machine's workloads run, in order: the host itself is only what guests are held against.
    pub fn probes_on(&self, machine: Machine) -> &[Probes] {
        if machine.is_guest() { &self.probes } else { &[Probes::None] }
    }

    /// Whether any trial is observed.
    pub fn looks(&self) -> bool {
        self.probes.iter().any(|p| *p != Probes::None) || self.looked_at().next().is_some()
    }

    /// Under what the workloads of a turn run.
    pub fn probes_in(&self, turn: Turn) -> &[Probes] {
        if self.is_looked_at(turn) { &[Probes::Layers] } else { self.probes_on(turn.machine) }
    }

    /// How many trials there are.
    pub fn trials(&self) -> u64 {
        u64::from(self.rounds) * self.trials_per_round() + self.looked_at().count() as u64
    }

    /// How many trials one round has.
    pub fn trials_per_round(&self) -> u64 {
        let trials = |&m: &Machine| self.ways(m).count() * self.probes_on(m).len() * self.workloads.len();
        (self.machines.iter().map(trials).sum::<usize>() * self.rungs()) as u64
    }
}
