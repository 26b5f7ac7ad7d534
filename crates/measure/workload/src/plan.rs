//! A plan with the options of its workloads parsed.

use crate::{Checked, WorkloadError, check};
use std::ops::Deref;
use vmtax_model::{Plan, WorkloadName, WorkloadSpec};

/// A plan whose workloads can be run as written, at each step of its range.
pub struct CheckedPlan {
    plan: Plan,
    steps: Vec<CheckedStep>,
}

/// A plan as it is at a step of its range.
pub struct CheckedStep {
    /// Plan with the values of this step.
    pub plan: Plan,
    /// Of each of the plan's variants.
    variants: Vec<Workloads>,
}

/// Workloads that a variant runs: as asked for and as checked, in the plan's order.
struct Workloads {
    specs: Vec<WorkloadSpec>,
    checked: Vec<Checked>,
}

impl CheckedPlan {
    /// Checks the workloads of a plan that [`Plan::check`] accepts.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(plan: Plan) -> Result<CheckedPlan, WorkloadError> {
        let checked_step = |step| {
            let plan = plan.at_step(step);
            let variants = (0..plan.variants.len()).map(|variant| {
                let specs = plan.workloads_of(variant);
                let checked = specs.iter().map(check).collect::<Result<_, _>>()?;
                Ok(Workloads { specs, checked })
            });
            let variants = variants.collect::<Result<_, _>>()?;
            Ok(CheckedStep { plan, variants })
        };
        let steps = (0..plan.steps())
            .map(checked_step)
            .collect::<Result<_, _>>()?;
        Ok(CheckedPlan { plan, steps })
    }

    /// The plan as it is at each step; without a range at the only one.
    pub fn checked_steps(&self) -> &[CheckedStep] {
        &self.steps
    }
}

impl Deref for CheckedPlan {
    type Target = Plan;
    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl CheckedStep {
    /// The workloads of each variant, in the plan's order.
    pub fn workloads(&self) -> impl Iterator<Item = &[Checked]> {
        self.variants
            .iter()
            .map(|of_variant| of_variant.checked.as_slice())
    }

    /// Returns the workloads of a variant as the plan asks for them.
    pub fn specs(&self, variant: usize) -> &[WorkloadSpec] {
        self.variants
            .get(variant)
            .map_or(&self.plan.workloads, |of_variant| &of_variant.specs)
    }

    /// A variant's workload of a name; `None` where it is not run.
    pub fn workload(&self, variant: usize, name: WorkloadName) -> Option<&Checked> {
        self.variants
            .get(variant)?
            .checked
            .iter()
            .find(|workload| workload.name() == name)
    }
}
