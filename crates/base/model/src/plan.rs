//! A plan: the trials to make, how often and in which order. What a command line means, and what a person can write.

use crate::{CommandSpec, Compare, Ladder, Machine, Probes, Tree, Variant, WorkloadSpec};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A plan cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, an unknown key, a wrong type: the message names line and column.
    #[error("the plan cannot be read: {0}")]
    Syntax(String),
    /// From a newer vmtax.
    #[error("the plan has schema {0}, this vmtax knows up to {known}: update vmtax", known = crate::SCHEMA)]
    TooNew(u32),
    /// Nothing would be run.
    #[error("the plan has no {0}: add at least one")]
    Empty(&'static str),
    /// A value out of range.
    #[error("{0}")]
    Range(String),
}

/// The guest that a plan's `kvm` and `tcg` machines are; `native` gets the same number of CPUs and the same memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Guest {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Virtio disks besides those that are worked on: they are only there.
    #[serde(skip_serializing_if = "is_none")]
    pub disks: u32,
    /// Regions of memory besides the guest's own, each behind a PCI device: likewise.
    #[serde(skip_serializing_if = "is_none")]
    pub memory_regions: u32,
    /// A guest that takes longer than this many seconds to come up is given up.
    pub boot_deadline_s: u32,
    /// The QEMU to use; the best one found when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu: Option<PathBuf>,
    /// The kernel image; the first one found when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// The folder with the kernel's modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<PathBuf>,
}

impl Default for Guest {
    fn default() -> Self {
        let (qemu, kernel, modules) = (None, None, None);
        Guest { cpus: 1, memory_mib: 1024, disks: 0, memory_regions: 0, boot_deadline_s: 60, qemu, kernel, modules }
    }
}

impl Guest {
    /// Devices that may only be there: 120 root ports of a q35, eight to a port.
    pub const MOST_DEVICES: u32 = 960;

    /// Whether it makes sense.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        range("guest.boot-deadline-s", self.boot_deadline_s, 1, 3600)?;
        range("guest.cpus", self.cpus, 1, 1024)?;
        range("guest.memory-mib", self.memory_mib, 128, 16 * 1024 * 1024)?;
        range("guest.disks and guest.memory-regions", self.devices(), 0, Guest::MOST_DEVICES)?;
        if self.modules.is_some() && self.kernel.is_none() {
            return Err(PlanError::Range("guest.modules is given without guest.kernel: give both".to_owned()));
        }
        Ok(())
    }

    /// Devices that are only there.
    pub fn devices(&self) -> u32 {
        self.disks.saturating_add(self.memory_regions)
    }
}

pub(crate) fn range(what: &str, value: u32, low: u32, high: u32) -> Result<(), PlanError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(PlanError::Range(format!("{what} is {value}: give {low} to {high}")))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The trials to make. As TOML:
///
/// ```toml
/// rounds = 6
/// machines = ["native", "tcg"]
/// [guest]
/// cpus = 1
/// [[workload]]
/// name = "cpu"
/// options = { max-prime = 2000, time = 1 }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`crate::SCHEMA`] of the writer; may be left out.
    #[serde(default = "current_schema")]
    pub schema: u32,
    /// What it is called: part of the recording's folder name.
    #[serde(default = "default_name")]
    pub name: String,
    /// How many times each machine makes each workload.
    pub rounds: u32,
    /// Seeds the order of trials.
    #[serde(default)]
    pub seed: u64,
    /// A trial that takes longer than this many seconds is given up.
    #[serde(default = "default_deadline", rename = "deadline-s")]
    pub deadline_s: u32,
    /// Where to run.
    pub machines: Vec<Machine>,
    /// Under what each workload runs, in this order, in each turn of a guest; unobserved when absent.
    #[serde(default = "unobserved", skip_serializing_if = "is_unobserved")]
    pub probes: Vec<Probes>,
    /// The guest.
    #[serde(default)]
    pub guest: Guest,
    /// The tree that variants share with their guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// The command of the workload `exec`. Its variants' shares then give guests the host's own root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    /// How guests are built; every guest comes up in each. One plain way when absent.
    #[serde(default = "plain", rename = "variant", skip_serializing_if = "is_plain")]
    pub variants: Vec<Variant>,
    /// What grows; every machine takes a turn at each of its sizes. Nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// That the first column is to be held against the others, and how well. Not at all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<Compare>,
    /// The published finding that is put to the test, by name (`vmtax case list`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// What to run, in order within a machine's turn.
    #[serde(rename = "workload")]
    pub workloads: Vec<WorkloadSpec>,
}

fn current_schema() -> u32 {
    crate::SCHEMA
}

fn default_deadline() -> u32 {
    600
}

fn default_name() -> String {
    "run".to_owned()
}

fn plain() -> Vec<Variant> {
    vec![Variant::default()]
}

fn is_plain(variants: &Vec<Variant>) -> bool {
    *variants == plain()
}

fn unobserved() -> Vec<Probes> {
    vec![Probes::None]
}

fn is_unobserved(probes: &Vec<Probes>) -> bool {
    *probes == unobserved()
}

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
    /// These workloads on these machines so many times: unobserved, in guests as they usually are.
    pub fn new(name: &str, rounds: u32, machines: Vec<Machine>, workloads: Vec<WorkloadSpec>) -> Plan {
        Plan {
            schema: current_schema(),
            name: name.to_owned(),
            rounds,
            seed: 0,
            deadline_s: default_deadline(),
            machines,
            probes: unobserved(),
            guest: Guest::default(),
            tree: None,
            command: None,
            variants: plain(),
            ladder: None,
            compare: None,
            case: None,
            workloads,
        }
    }

    /// What is held against each other, in the plan's order.
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

    /// Reads a plan from TOML and checks it.
    ///
    /// # Errors
    /// [`PlanError`], naming the line for what TOML can tell.
    pub fn from_toml(text: &str) -> Result<Plan, PlanError> {
        let plan: Plan = toml::from_str(text).map_err(|e| PlanError::Syntax(e.to_string().trim_end().to_owned()))?;
        plan.check()?;
        Ok(plan)
    }

    /// The plan as TOML that [`Plan::from_toml`] reads.
    ///
    /// # Errors
    /// [`PlanError::Syntax`] for values TOML has no form for (a path that is not UTF-8).
    pub fn to_toml(&self) -> Result<String, PlanError> {
        toml::to_string(self).map_err(|e| PlanError::Syntax(e.to_string()))
    }

    /// Whether the plan makes sense.
    ///
    /// # Errors
    /// [`PlanError`] with the first thing that does not.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.schema > crate::SCHEMA {
            return Err(PlanError::TooNew(self.schema));
        }
        if self.machines.is_empty() {
            return Err(PlanError::Empty("machines"));
        }
        if self.workloads.is_empty() {
            return Err(PlanError::Empty("workload"));
        }
        range("rounds", self.rounds, 1, 10_000)?;
        range("deadline-s", self.deadline_s, 1, 86_400)?;
        self.guest.check()?;
        if self.guest.devices() > 0 && self.machines.iter().any(|m| !m.is_linux_guest()) {
            let what = "guest.disks and guest.memory-regions are of guests with a kernel: leave other machines out";
            return Err(PlanError::Range(format!("{what} (--machines tcg)")));
        }
        for (i, machine) in self.machines.iter().enumerate() {
            if self.machines[..i].contains(machine) {
                return Err(PlanError::Range(format!("machine '{machine}' is listed twice: list it once")));
            }
        }
        for (i, w) in self.workloads.iter().enumerate() {
            if self.workloads[..i].iter().any(|o| o.name == w.name) {
                return Err(PlanError::Range(format!("workload '{}' is listed twice: list it once", w.name)));
            }
        }
        if self.variants.is_empty() {
            return Err(PlanError::Empty("variant"));
        }
        if self.probes.is_empty() {
            return Err(PlanError::Empty("probes"));
        }
        range("probes (how many)", self.probes.len() as u32, 1, 64)?;
        range("variant (how many)", self.variants.len() as u32, 1, 64)?;
        for (i, variant) in self.variants.iter().enumerate() {
            if self.variants[..i].iter().any(|v| v.name == variant.name) {
                return Err(PlanError::Range(format!(
                    "variant '{}' is listed twice: list it once",
                    variant.name.escape_default()
                )));
            }
            variant.check(self)?;
        }
        if let Some(machine) = self.machines.iter().find(|m| self.ways(**m).next().is_none()) {
            let what = format!(
                "every variant is for another machine than {machine}: leave {machine} or a variant's machine out"
            );
            return Err(PlanError::Range(what));
        }
        if let Some(tree) = &self.tree {
            tree.check()?;
        }
        if let Some(compare) = &self.compare {
            compare.check(self)?;
        }
        crate::command::check(self)?;
        if let Some(ladder) = &self.ladder {
            ladder.check(self)?;
        }
        let name_is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(name_is_plain) {
            return Err(PlanError::Range(format!(
                "name '{}' must be 1 to 64 letters, digits, '-' or '_': it names a folder",
                self.name.escape_default()
            )));
        }
        if self.case.as_ref().is_some_and(|case| case.len() > 64 || !case.chars().all(name_is_plain)) {
            return Err(PlanError::Range("case must be the name of a case: `vmtax case list` has them".to_owned()));
        }
        Ok(())
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

    /// The guests that are looked at behind the rounds.
    fn looked_at(&self) -> impl Iterator<Item = (Machine, usize)> {
        let any = self.command.as_ref().is_some_and(|command| command.layers);
        self.machines.iter().filter(move |m| any && m.is_guest()).flat_map(|&m| self.ways(m))
    }

    /// How many rounds have trials, the one behind the others among them in which guests are looked at.
    pub fn rounds_with_looks(&self) -> u32 {
        self.rounds.saturating_add(u32::from(self.looked_at().next().is_some()))
    }

    /// Whether a turn is behind the rounds: a guest that is only looked at.
    pub fn is_looked_at(&self, turn: Turn) -> bool {
        turn.round >= self.rounds
    }

    /// A machine in each variant that is built on it; the host itself has no disk to attach, and is only once.
    fn ways(&self, machine: Machine) -> impl Iterator<Item = (Machine, usize)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadName;

    fn plan() -> Plan {
        let workload = WorkloadSpec::new(WorkloadName::Cpu).with("max-prime", 2000);
        Plan { seed: 7, ..Plan::new("t", 40, vec![Machine::NATIVE, Machine::TCG], vec![workload]) }
    }

    #[test]
    fn toml_reads_back() {
        assert_eq!(Plan::from_toml(&plan().to_toml().unwrap()), Ok(plan()));
    }

    #[test]
    fn unknown_keys_are_named_with_their_line() {
        let text = "rounds = 6\nmachines = [\"native\"]\nrepeats = 3\n[[workload]]\nname = \"cpu\"\n";
        let error = Plan::from_toml(text).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("repeats"), "{error}");
    }

    #[test]
    fn numbers_and_booleans_need_no_quotes() {
        let text = "rounds = 1\nmachines = [\"native\"]\n[[workload]]\nname = \"fileio\"\noptions = { time = 0.5, fsync-end = false, num = 4 }\n";
        let o = &Plan::from_toml(text).unwrap().workloads[0].options;
        assert_eq!((o["time"].as_str(), o["fsync-end"].as_str(), o["num"].as_str()), ("0.5", "off", "4"));
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: fn(&mut Plan)| {
            let mut p = plan();
            change(&mut p);
            p.check().is_err()
        };
        assert!(refused(|p| p.rounds = 0));
        assert!(refused(|p| p.machines.clear()));
        assert!(refused(|p| p.workloads.clear()));
        assert!(refused(|p| p.machines.push(Machine::TCG)));
        assert!(refused(|p| p.name = "../x".into()));
        assert!(refused(|p| p.schema = 99));
        assert!(refused(|p| p.guest.cpus = 0));
    }

    #[test]
    fn a_guest_comes_up_in_each_variant_and_the_host_once() {
        let text = "rounds = 1\nmachines = [\"native\", \"tcg\"]\nprobes = [\"none\", \"layers\"]\n[[variant]]\nname = \"a\"\n\
                    [[variant]]\nname = \"b\"\nset = { aio = \"native\" }\n[[workload]]\nname = \"seqread\"\n";
        let plan = Plan::from_toml(text).unwrap();
        assert_eq!(plan.schedule().len(), 3);
        assert_eq!(plan.trials_per_round(), 5);
        assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
        assert_eq!(plan.variants[1].set["aio"], "native");
        let twice = Plan { variants: vec![Variant::default(), Variant::default()], ..plan };
        assert!(twice.check().is_err());
    }

    #[test]
    fn sides_may_be_on_machines_of_their_own() {
        let text = include_str!("../../../../fuzz/corpus/plan/compare.toml");
        let plan = Plan::from_toml(text).unwrap();
        assert_eq!(plan.columns(), [(Machine::KVM, "a"), (Machine::TCG, "b")]);
        assert_eq!((plan.schedule().len(), plan.trials_per_round()), (80, 4));
        assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
        let guest = plan.variants[1].guest(&plan.guest).unwrap();
        assert_eq!((guest.memory_mib, guest.kernel), (512, Some("6.1".into())));
        assert_eq!(plan.variants[1].host().into_iter().collect::<Vec<_>>(), [("thp", "never")]);
        assert!(plan.variants.iter().all(|v| v.disk().is_empty()));
        let refused = |from: &str, to: &str| Plan::from_toml(&text.replace(from, to)).is_err();
        assert!(refused("machine = \"tcg\"", "machine = \"kvm\""), "nothing on tcg");
        assert!(refused("detect = 0.02", "detect = 0.0") && refused("\"512\"", "\"some\""));
        assert!(refused("\"512\"", "\"16\"") && refused("kernel = \"6.1\", ", "modules = \"x\", "));
    }

    #[test]
    fn a_shared_tree_needs_a_tree() {
        let text = "rounds = 1\nmachines = [\"tcg\"]\n[tree]\nfiles = 10\n[[variant]]\nname = \"a\"\n\
                    set = { share = \"9p\", \"share.msize\" = \"8192\", qemu = \"5.2\", aio = \"native\" }\n\
                    [[workload]]\nname = \"cpu\"\n";
        let plan = Plan::from_toml(text).unwrap();
        assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
        let variant = &plan.variants[0];
        assert_eq!(variant.disk().into_keys().collect::<Vec<_>>(), ["aio"]);
        assert_eq!(variant.qemu(), Some(std::path::Path::new("5.2")));
        assert!(Plan { tree: None, ..plan.clone() }.check().is_err());
        assert!(Plan { machines: vec![Machine::MICRO_TCG], ..plan }.check().is_err());
    }

    #[test]
    fn every_round_has_every_machine_and_the_order_varies_by_seed() {
        let s = plan().schedule();
        assert_eq!(s.len(), 80);
        for pair in s.chunks(2) {
            assert_eq!(pair[0].round, pair[1].round);
            assert_ne!(pair[0].machine, pair[1].machine);
        }
        let first_native = s.chunks(2).filter(|p| p[0].machine == Machine::NATIVE).count();
        assert!((8..=32).contains(&first_native), "{first_native}");
        assert_eq!(s, plan().schedule());
        assert_ne!(s, Plan { seed: 8, ..plan() }.schedule());
    }
}
