//! A ladder: one size of a plan that grows from rung to rung, so that the cost can be held against it.

use crate::{Plan, PlanError, WorkloadName};
use serde::{Deserialize, Serialize};

/// Below this no law of growth can be told from another.
const FEWEST_RUNGS: usize = 3;
const MOST_RUNGS: usize = 64;

/// What grows, and through which sizes. As TOML:
///
/// ```toml
/// [ladder]
/// option = "seqread.depth"
/// rungs = [1, 2, 4, 8, 16, 32]
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// `WORKLOAD.OPTION` of a workload of the plan, or one of the guest's sizes: `guest.cpus`, `guest.memory-mib`,
    /// `guest.disks`, `guest.memory-regions`.
    pub option: String,
    /// The sizes, rising. Of an option that takes sizes in bytes, bytes.
    pub rungs: Vec<u64>,
}

/// What a ladder's option is an option of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grows<'a> {
    /// A size of the guest.
    Guest(GuestSize),
    /// An option of a workload.
    Workload(WorkloadName, &'a str),
}

/// What a guest has a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSize {
    /// Processors.
    Cpus,
    /// MiB of memory.
    Memory,
    /// Disks that are only there.
    Disks,
    /// Regions of memory that are only there.
    MemoryRegions,
}

impl GuestSize {
    const NAMES: [(&'static str, GuestSize); 4] = [
        ("guest.cpus", GuestSize::Cpus),
        ("guest.memory-mib", GuestSize::Memory),
        ("guest.disks", GuestSize::Disks),
        ("guest.memory-regions", GuestSize::MemoryRegions),
    ];

    /// Whether the host itself has it as well.
    pub const fn is_hosts_too(self) -> bool {
        matches!(self, GuestSize::Cpus | GuestSize::Memory)
    }
}

impl Ladder {
    /// At most `count` whole sizes from `from` to `to`, each about the same factor above the one before.
    pub fn geometric(option: &str, from: u64, to: u64, count: usize) -> Ladder {
        let (low, high) = (from as f64, to as f64);
        // One more than may be, so that too many are refused for what they are.
        let last = count.min(MOST_RUNGS + 1).saturating_sub(1).max(1);
        let size = |i: usize| (low * (high / low).powf(i as f64 / last as f64)).round() as u64;
        let mut rungs: Vec<u64> = (0..last).map(size).chain([to]).collect();
        rungs.dedup();
        Ladder { option: option.to_owned(), rungs }
    }

    /// What grows.
    ///
    /// # Errors
    /// [`PlanError::Range`] for what is neither an option of a workload's form nor one of the guest's sizes.
    pub fn grows(&self) -> Result<Grows<'_>, PlanError> {
        if let Some((_, size)) = GuestSize::NAMES.iter().find(|(name, _)| *name == self.option) {
            return Ok(Grows::Guest(*size));
        }
        let known = self.option.split_once('.').and_then(|(w, option)| Some((w.parse().ok()?, option)));
        known.map(|(workload, option)| Grows::Workload(workload, option)).ok_or_else(|| {
            PlanError::Range(format!(
                "ladder.option '{}' is nothing that grows: give WORKLOAD.OPTION, {}",
                self.option.escape_default(),
                GuestSize::NAMES.map(|(name, _)| name).join(", ")
            ))
        })
    }

    /// Whether the ladder makes sense in `plan`.
    ///
    /// # Errors
    /// [`PlanError::Range`] with the first thing that does not.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refused = |why: String| Err(PlanError::Range(why));
        if let Grows::Workload(workload, _) = self.grows()? {
            if plan.workloads.iter().all(|w| w.name != workload) {
                return refused(format!("ladder.option is of {workload}, which the plan does not run: add it"));
            }
        }
        if !(FEWEST_RUNGS..=MOST_RUNGS).contains(&self.rungs.len()) {
            return refused(format!(
                "the ladder has {} rungs: give {FEWEST_RUNGS} to {MOST_RUNGS} different sizes",
                self.rungs.len()
            ));
        }
        if self.rungs[0] == 0 || self.rungs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return refused("the ladder does not rise: give sizes above 0, each larger than the one before".to_owned());
        }
        // What no machine could be given is a mistake of the plan; what this one refuses is found out on it.
        (0..self.rungs.len()).try_for_each(|rung| Plan { ladder: None, ..plan.at_rung(rung) }.check())
    }
}

impl Plan {
    /// How many rungs the plan has; 1 without a ladder.
    pub fn rungs(&self) -> usize {
        self.ladder.as_ref().map_or(1, |ladder| ladder.rungs.len())
    }

    /// The size at a rung; `None` without a ladder.
    pub fn size(&self, rung: usize) -> Option<u64> {
        self.ladder.as_ref().and_then(|ladder| ladder.rungs.get(rung).copied())
    }

    /// The plan as it is at a rung: the size in its place. Without a ladder the plan itself.
    pub fn at_rung(&self, rung: usize) -> Plan {
        let mut plan = self.clone();
        let (Some(ladder), Some(size)) = (&self.ladder, self.size(rung)) else { return plan };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(option: &str, rungs: &[u64]) -> Result<Plan, PlanError> {
        Plan::from_toml(&format!(
            "rounds = 2\nmachines = [\"native\", \"tcg\"]\n[ladder]\noption = \"{option}\"\nrungs = {rungs:?}\n\
             [[workload]]\nname = \"seqread\"\noptions = {{ mode = \"random\" }}\n"
        ))
    }

    #[test]
    fn sizes_rise_by_about_the_same_factor_and_end_where_they_should() {
        assert_eq!(Ladder::geometric("x.y", 1, 32, 6).rungs, [1, 2, 4, 8, 16, 32]);
        assert_eq!(Ladder::geometric("x.y", 1, 4, 8).rungs, [1, 2, 3, 4]);
        let wide = Ladder::geometric("x.y", 1000, 278_000, 8).rungs;
        assert_eq!((wide.len(), wide[0], wide[7]), (8, 1000, 278_000));
        assert!(wide.windows(2).all(|p| (2.1..2.4).contains(&(p[1] as f64 / p[0] as f64))), "{wide:?}");
        // What does not rise is left for the check to refuse.
        assert_eq!(Ladder::geometric("x.y", 5, 5, 4).rungs, [5]);
    }

    #[test]
    fn each_rung_is_a_plan_and_a_turn_of_its_own() {
        let plan = plan("seqread.depth", &[1, 4, 32]).unwrap();
        assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
        let top = &plan.at_rung(2).workloads[0].options;
        assert_eq!((top["depth"].as_str(), top["mode"].as_str()), ("32", "random"));
        assert_eq!((plan.trials_per_round(), plan.schedule().len()), (6, 12));
        for round in plan.schedule().chunks(6) {
            let mut rungs: Vec<_> = round.iter().map(|t| (t.machine, t.rung)).collect();
            assert!(!rungs.is_sorted(), "the order is drawn: {rungs:?}");
            rungs.sort_unstable();
            rungs.dedup();
            assert_eq!(rungs.len(), 6);
        }
        let cpus = super::tests::plan("guest.cpus", &[1, 2, 4]).unwrap();
        assert_eq!(cpus.at_rung(1).guest.cpus, 2);
        let text = cpus.to_toml().unwrap().replace("guest.cpus", "guest.disks").replace("\"native\", ", "");
        let disks = Plan::from_toml(&text).unwrap();
        assert_eq!((disks.at_rung(2).guest.disks, disks.at_rung(2).guest.cpus), (4, 1));
        let too_many =
            Plan { ladder: Some(Ladder { option: "guest.memory-regions".into(), rungs: vec![1, 2, 4000] }), ..disks };
        assert!(too_many.check().unwrap_err().to_string().contains("0 to 960"));
    }

    #[test]
    fn what_does_not_rise_or_does_not_grow_is_refused() {
        for (option, rungs, why) in [
            ("seqread.depth", &[1, 2][..], "2 rungs"),
            ("seqread.depth", &[4], "1 rungs"),
            ("seqread.depth", &[1, 4, 4], "does not rise"),
            ("seqread.depth", &[8, 4, 2], "does not rise"),
            ("seqread.depth", &[0, 1, 2], "does not rise"),
            ("cpu.max-prime", &[1, 2, 4], "does not run"),
            ("guest.kernel", &[1, 2, 4], "nothing that grows"),
            ("depth", &[1, 2, 4], "nothing that grows"),
            ("guest.cpus", &[1, 2, 4000], "guest.cpus"),
            ("guest.disks", &[1, 2, 4], "leave other machines out"),
        ] {
            let error = plan(option, rungs).unwrap_err().to_string();
            assert!(error.contains(why), "{option} {rungs:?}: {error}");
        }
    }
}
