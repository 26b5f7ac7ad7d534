//! The trials of a plan, and the order in which they are made.

use super::definition::Plan;
use super::study::{Grows, Study};
use crate::{Machine, Probes, WorkloadSpec};

/// One machine in one round at one step: it runs every workload of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The round, from 0.
    pub round: u32,
    /// Machine that runs the workloads.
    pub machine: Machine,
    /// Index of the plan's variant.
    pub variant: usize,
    /// Index of the step in the plan's range; 0 without one.
    pub step: usize,
    /// Turn within the boot, from 0, where variants take turns in one boot; else 0.
    pub turn: u32,
}

impl Slot {
    /// The first slot of a machine in a variant.
    const fn first(round: u32, machine: Machine, variant: usize) -> Slot {
        Slot {
            round,
            machine,
            variant,
            step: 0,
            turn: 0,
        }
    }
}

/// Part of a plan that shares a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedBoot {
    /// All sizes of a range.
    Sizes,
    /// All variants of a comparison.
    Variants,
}

/// A machine and the name of its variant; empty for the host itself. Tables have a column for each.
pub type Column<'a> = (Machine, &'a str);

impl Plan {
    /// Every machine in each of its variants, in the plan's order.
    pub fn columns(&self) -> Vec<Column<'_>> {
        let mut columns = Vec::new();
        for &machine in &self.machines {
            match machine.is_guest() {
                true => columns.extend(
                    self.variants_on(machine)
                        .map(|(m, v)| (m, self.variants[v].name.as_str())),
                ),
                false => columns.push((machine, "")),
            }
        }
        columns
    }

    /// Number of steps; 1 without a range.
    pub fn steps(&self) -> usize {
        self.range().map_or(1, |range| range.steps.len())
    }

    /// The size at a step; `None` without a range.
    pub fn size(&self, step: usize) -> Option<u64> {
        self.range()
            .and_then(|range| range.steps.get(step).copied())
    }

    /// The plan of one step alone: with its size set, as a study without a range. Without a range the plan itself.
    pub fn at_step(&self, step: usize) -> Plan {
        let mut plan = self.clone();
        let (Some(range), Some(size)) = (self.range(), self.size(step)) else {
            return plan;
        };
        plan.study = Study::Overhead;
        let small = u32::try_from(size).unwrap_or(u32::MAX);
        match range.grows() {
            Ok(Grows::Cpus) => plan.guest.cpus = small,
            Ok(Grows::Memory) => plan.guest.memory_mib = small,
            Ok(Grows::Disks) => plan.guest.disks = small,
            Ok(Grows::MemoryRegions) => plan.guest.memory_regions = small,
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

    /// All slots in the order in which they run, those that share a boot together. A round has every machine once at each
    /// step, randomized by the seed, so that drift of the host affects all alike. Where all sizes share a boot, they are in
    /// ascending order within it, and the boots are randomized; the first round of another range with a budget has the sizes
    /// in ascending order, too. Where variants share a boot, they are in a random order within it and then in its reverse, so
    /// that drift within the boot affects all alike. After the rounds each guest runs once more where a command's requests
    /// are traced.
    pub fn schedule(&self) -> Vec<Slot> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut slots = Vec::new();
        for round in 0..self.rounds {
            let steps = |(machine, variant)| {
                (0..self.steps()).map(move |step| Slot {
                    step,
                    ..Slot::first(round, machine, variant)
                })
            };
            let machines = self.machines.iter().flat_map(|&m| self.variants_on(m));
            let machines = machines.map(steps);
            let mut boots: Vec<Vec<Slot>> = match self.shared_boot() {
                Some(SharedBoot::Sizes) => machines.map(Iterator::collect).collect(),
                Some(SharedBoot::Variants) => self
                    .machines
                    .iter()
                    .map(|&m| self.turns(round, m, &mut random))
                    .collect(),
                None => machines.flatten().map(|slot| vec![slot]).collect(),
            };
            random.shuffle(&mut boots);
            if round == 0 && self.range().is_some_and(|range| range.budget_s.is_some()) {
                boots.sort_by_key(|boot| boot[0].step);
            }
            slots.extend(boots.into_iter().flatten());
        }
        // Each in a fresh guest: a command finds the files that it found in the rounds.
        let after = (self.rounds..).take(self.probes_after_rounds().len());
        let observed = after.flat_map(|round| {
            let guests = self.observed_after_rounds();
            guests.map(move |(machine, variant)| Slot::first(round, machine, variant))
        });
        slots.extend(observed);
        slots
    }

    /// A machine's variants in one boot: A B B A.
    fn turns(&self, round: u32, machine: Machine, random: &mut fastrand::Rng) -> Vec<Slot> {
        let variants = self.variants_on(machine).map(|(_, variant)| variant);
        let mut order: Vec<usize> = variants.collect();
        random.shuffle(&mut order);
        let turns = order.iter().chain(order.iter().rev()).zip(0..);
        let slot = |(&variant, turn)| Slot {
            turn,
            ..Slot::first(round, machine, variant)
        };
        turns.map(slot).collect()
    }

    /// Returns the part of the plan that has one boot a machine and round instead of one each; `None` if there is
    /// none.
    pub fn shared_boot(&self) -> Option<SharedBoot> {
        match &self.study {
            Study::Scale(range) if range.one_boot => Some(SharedBoot::Sizes),
            Study::Compare(compare) if compare.settings.one_boot => Some(SharedBoot::Variants),
            _ => None,
        }
    }

    /// Returns true if two slots, one after the other, are of one boot.
    pub fn share_boot(&self, a: &Slot, b: &Slot) -> bool {
        let is_same_machine = (a.round, a.machine) == (b.round, b.machine);
        match self.shared_boot() {
            Some(SharedBoot::Sizes) => is_same_machine && a.variant == b.variant,
            Some(SharedBoot::Variants) => is_same_machine,
            None => false,
        }
    }

    /// The variant whose settings a slot's machine boots with: where variants share a boot, the first; each turn sets its
    /// own attributes of the disk's request queue.
    pub fn booted_variant(&self, slot: Slot) -> usize {
        let mut variants = self.variants_on(slot.machine);
        match self.shared_boot() {
            Some(SharedBoot::Variants) => variants.next().map_or(slot.variant, |(_, first)| first),
            _ => slot.variant,
        }
    }

    /// Returns the number of boots of machines in a round.
    pub fn boots_per_round(&self) -> usize {
        let machines = self.machines.iter();
        let variants: usize = machines.map(|&m| self.variants_on(m).count()).sum();
        match self.shared_boot() {
            Some(SharedBoot::Sizes) => variants,
            Some(SharedBoot::Variants) => self.machines.len(),
            None => variants * self.steps(),
        }
    }

    /// Returns the number of turns of a variant in a round.
    pub fn turns_per_round(&self) -> usize {
        1 + usize::from(self.shared_boot() == Some(SharedBoot::Variants))
    }

    /// Returns the workloads that a variant runs at a step, with the options that it sets.
    pub fn workloads_of(&self, variant: usize) -> Vec<WorkloadSpec> {
        self.variants.get(variant).map_or_else(
            || self.workloads.clone(),
            |variant| variant.workloads(&self.workloads),
        )
    }

    /// The guests that are traced once more after the rounds.
    fn observed_after_rounds(&self) -> impl Iterator<Item = (Machine, usize)> {
        let any = self.command().is_some_and(|command| command.layers);
        self.machines
            .iter()
            .filter(move |m| any && m.is_guest())
            .flat_map(|&m| self.variants_on(m))
    }

    /// The rounds, and those behind them in which guests are traced.
    pub fn rounds_with_observation(&self) -> u32 {
        let mut observed = self.observed_after_rounds();
        let after = observed
            .next()
            .map_or(0, |_| self.probes_after_rounds().len());
        self.rounds.saturating_add(after as u32)
    }

    /// Returns true if a slot is after the rounds: traced, in no figure.
    pub fn is_after_rounds(&self, slot: Slot) -> bool {
        slot.round >= self.rounds
    }

    /// A machine with the index of each variant that is built on it; the host itself has one.
    pub(super) fn variants_on(&self, machine: Machine) -> impl Iterator<Item = (Machine, usize)> {
        let is_guest = machine.is_guest();
        let count = if is_guest { self.variants.len() } else { 1 };
        let on = move |variant: &usize| !is_guest || self.variants[*variant].is_on(machine);
        (0..count).filter(on).map(move |variant| (machine, variant))
    }

    /// The probes under which a machine's workloads run, in order; none natively, which is the baseline.
    pub fn probes_on(&self, machine: Machine) -> &[Probes] {
        if machine.is_guest() {
            &self.probes
        } else {
            &[Probes::None]
        }
    }

    /// Returns true if any trial is observed.
    pub fn is_observed(&self) -> bool {
        self.probes.iter().any(|p| *p != Probes::None)
            || self.observed_after_rounds().next().is_some()
    }

    /// The probes under which a slot's workloads run, in order.
    pub fn probes_in(&self, slot: Slot) -> &[Probes] {
        match slot.round.checked_sub(self.rounds) {
            Some(after) => self
                .probes_after_rounds()
                .get(after as usize..)
                .and_then(|rest| rest.get(..1))
                .unwrap_or(&[]),
            None => self.probes_on(slot.machine),
        }
    }

    /// Returns the probes of guests that are traced after the rounds, a round each: their disk's requests, and their
    /// network card's packets.
    fn probes_after_rounds(&self) -> &'static [Probes] {
        let has_card = self.command().is_some_and(|command| command.net.is_some());
        if has_card {
            &[Probes::Layers, Probes::Network]
        } else {
            &[Probes::Layers]
        }
    }

    /// Number of trials in all.
    pub fn trials(&self) -> u64 {
        if let Some(tune) = self.guest_tune() {
            return tune.boots() * (self.probes.len() * self.workloads.len()) as u64;
        }
        u64::from(self.rounds) * self.trials_per_round()
            + (self.observed_after_rounds().count() * self.probes_after_rounds().len()) as u64
    }

    /// Number of trials of one round.
    pub fn trials_per_round(&self) -> u64 {
        let trials = |&m: &Machine| {
            self.variants_on(m).count() * self.probes_on(m).len() * self.workloads.len()
        };
        (self.machines.iter().map(trials).sum::<usize>() * self.steps() * self.turns_per_round())
            as u64
    }
}
