//! Published results as plans: each with its claims, the published figures, and how each claim is tested. The files in
//! `published/` are part of the program.

use serde::Deserialize;
use vmtax_findings::Law;
use vmtax_model::{Antipattern, Keeping, KvmClass, Layer, Machine, Metric, Plan, PlanError, Study};

/// A case cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PublishedError {
    /// There is none of that name.
    #[error(
        "there is no published result '{0}': `vmtax reproduce list` names those that there are"
    )]
    Unknown(String),
    /// A file of the program's own is wrong.
    #[error("the published result {name} is damaged ({reason}): report this as a fault of vmtax")]
    Damaged {
        /// Name of the published result.
        name: &'static str,
        /// Description of the damage.
        reason: String,
    },
}

/// A published finding.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedResult {
    /// As it is typed.
    #[serde(skip)]
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// The finding in a sentence or two.
    pub claim: String,
    /// Duration of the reproduction, as a text for people.
    pub takes: String,
    /// A program that has to be installed.
    #[serde(default)]
    pub needs: Option<String>,
    /// True if one guest is enough: KVM where it runs kernels with hardware virtualization, else TCG.
    #[serde(default)]
    pub one_guest: bool,
    /// The trials that it takes.
    pub plan: Plan,
    /// Smaller rounds, steps, time and files for `--quick`.
    #[serde(default)]
    pub quick: Quick,
    /// Claims of the published result.
    #[serde(rename = "test")]
    pub tests: Vec<Claim>,
}

/// A smaller form of a case's plan; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// Number of rounds.
    pub rounds: Option<u32>,
    /// Steps of the range.
    pub steps: Option<Vec<u64>>,
    /// Seconds for all rounds.
    pub budget_s: Option<u32>,
    /// Files of the shared tree.
    pub files: Option<u64>,
}

/// A claim of a published result, with its test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Claim {
    /// The claim, as a sentence.
    pub what: String,
    /// The published figure.
    pub published: String,
    /// Test of the claim.
    #[serde(flatten)]
    pub check: Check,
}

/// Test of a claim. It is reproduced if the interval lies within the bounds, and not reproduced if it lies outside
/// them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Check {
    /// The growth law by which a cost grows in a variant.
    Law {
        /// Of which metric.
        metric: Metric,
        /// In this variant.
        variant: String,
        /// The one that is claimed.
        law: Law,
        /// Beside this variant, which tells growth best: O(1) is less than a tenth of this one's growth.
        against: Option<String>,
    },
    /// Cost of one more item in a variant, over that in another variant.
    OneMore {
        /// Of which metric.
        metric: Metric,
        /// In this variant.
        variant: String,
        /// Against this one.
        against: String,
        /// Lower bound of the ratio.
        at_least: f64,
    },
    /// A variant's cost over another's, at a size.
    At {
        /// Of which metric.
        metric: Metric,
        /// In this variant.
        variant: String,
        /// Against this one.
        against: String,
        /// At this size.
        size: u64,
        /// Lower bound of the ratio.
        at_least: f64,
    },
    /// A machine's cost over native's.
    Overhead {
        /// Of which metric.
        metric: Metric,
        /// On this machine.
        machine: Machine,
        /// Lower bound of the ratio.
        at_least: f64,
    },
    /// Ratio of a figure that a command prints on a machine, over native's.
    Printed {
        /// Program or benchmark that prints the figure, e.g. `sysbench cpu`.
        of: String,
        /// Name of the figure in the program's output.
        name: String,
        /// On this machine.
        machine: Machine,
        /// Lower bound of the ratio.
        at_least: f64,
    },
    /// A metric's own value on a machine.
    Value {
        /// Of which metric.
        metric: Metric,
        /// On this machine.
        machine: Machine,
        /// The bound, in the metric's unit.
        at_most: f64,
    },
    /// The share that layers have of a request's time, percent.
    Share {
        /// Layers whose shares are summed.
        layers: Vec<Layer>,
        /// Lower bound of the share, percent.
        at_least: f64,
    },
    /// Cost of a share method, over that of the first one. At least one bound is given.
    Way {
        /// Of which metric.
        metric: Metric,
        /// In this variant.
        variant: String,
        /// The lower bound.
        at_least: Option<f64>,
        /// The upper bound.
        at_most: Option<f64>,
    },
    /// Cost of a variant of a comparison, over that of the first one. At least one bound is given.
    Side {
        /// Of which metric.
        metric: Metric,
        /// Name of the variant.
        variant: String,
        /// The lower bound.
        at_least: Option<f64>,
        /// The upper bound.
        at_most: Option<f64>,
    },
    /// Outcome for a property of files on a share: kept, lost or refused.
    Kept {
        /// In this variant.
        variant: String,
        /// Name of the property, as the workload `fs-semantics` has it.
        property: String,
        /// Claimed outcome for the property.
        keeping: Keeping,
    },
    /// Cost of an antipattern of guest kernels, over that of its fix.
    Antipattern {
        /// Antipattern that is claimed to be costly.
        antipattern: Antipattern,
        /// On this machine.
        machine: Machine,
        /// Lower bound of the ratio.
        at_least: f64,
    },
    /// Number of VM exits that an antipattern has and its fix does not.
    Spared {
        /// Antipattern with the additional exits.
        antipattern: Antipattern,
        /// On this machine.
        machine: Machine,
        /// Lower bound of the number of exits.
        at_least: f64,
    },
    /// A variant is faster than the first one.
    Faster {
        /// In this variant.
        variant: String,
    },
}

const FILES: [(&str, &str); 9] = [
    ("9p-fids", include_str!("published/9p-fids.toml")),
    (
        "9p-fids-patched",
        include_str!("published/9p-fids-patched.toml"),
    ),
    (
        "virtio-blk-latency",
        include_str!("published/virtio-blk-latency.toml"),
    ),
    (
        "virtfs-or-nfs",
        include_str!("published/virtfs-or-nfs.toml"),
    ),
    (
        "guest-syscalls",
        include_str!("published/guest-syscalls.toml"),
    ),
    (
        "guest-antipatterns",
        include_str!("published/guest-antipatterns.toml"),
    ),
    (
        "sysbench-five",
        include_str!("published/sysbench-five.toml"),
    ),
    (
        "sysbench-five-real",
        include_str!("published/sysbench-five-real.toml"),
    ),
    (
        "sysbench-patched",
        include_str!("published/sysbench-patched.toml"),
    ),
];

/// Every case, in the order in which they are listed.
///
/// # Errors
/// [`PublishedError::Damaged`] for a file that is not one.
pub fn all() -> Result<Vec<PublishedResult>, PublishedError> {
    FILES.iter().map(|(name, text)| read(name, text)).collect()
}

/// The case of a name.
///
/// # Errors
/// [`PublishedError::Unknown`].
pub fn find(name: &str) -> Result<PublishedResult, PublishedError> {
    let file = FILES.iter().find(|(known, _)| *known == name);
    file.map_or_else(
        || Err(PublishedError::Unknown(name.to_owned())),
        |(name, text)| read(name, text),
    )
}

fn read(name: &'static str, text: &str) -> Result<PublishedResult, PublishedError> {
    let mut case: PublishedResult = toml::from_str(text).map_err(|e| PublishedError::Damaged {
        name,
        reason: e.to_string(),
    })?;
    name.clone_into(&mut case.name);
    name.clone_into(&mut case.plan.name);
    case.plan.reproduces = Some(name.to_owned());
    case.plan
        .check()
        .map_err(|e: PlanError| PublishedError::Damaged {
            name,
            reason: e.to_string(),
        })?;
    Ok(case)
}

impl Check {
    /// The metric that the claim is about; `None` where it is about something else.
    pub fn metric(&self) -> Option<Metric> {
        match self {
            Check::Law { metric, .. }
            | Check::OneMore { metric, .. }
            | Check::At { metric, .. }
            | Check::Overhead { metric, .. }
            | Check::Value { metric, .. }
            | Check::Way { metric, .. }
            | Check::Side { metric, .. } => Some(*metric),
            _ => None,
        }
    }
}

impl PublishedResult {
    /// The plan that tests it on a host with such a KVM: with the machines that there are.
    pub fn plan_here(&self, class: KvmClass, quick: bool) -> Plan {
        let mut plan = self.plan.clone();
        let kvm = class == KvmClass::Hardware;
        plan.machines.retain(|m| match *m {
            Machine::KVM => kvm,
            // Its own code runs in user mode.
            Machine::MICRO_KVM => kvm || class == KvmClass::EmulatesKernels,
            Machine::TCG => !(self.one_guest && kvm),
            _ => true,
        });
        if quick {
            plan.rounds = self.quick.rounds.unwrap_or(plan.rounds);
            if let Study::Scale(range) = &mut plan.study {
                if let Some(steps) = &self.quick.steps {
                    range.steps.clone_from(steps);
                }
                range.budget_s = self.quick.budget_s;
            }
            if let (Some(tree), Some(files)) = (&mut plan.tree, self.quick.files) {
                tree.files = files;
                tree.bytes = files.saturating_mul(vmtax_model::Tree::SMALL);
            }
        }
        plan
    }
}
