//! A plan with the options of its workloads parsed.

use crate::{Checked, WorkloadError, check};
use std::ops::Deref;
use vmtax_model::{Plan, WorkloadName};

/// A plan whose workloads can be run as written, at each step of its range.
pub struct CheckedPlan {
    plan: Plan,
    steps: Vec<CheckedStep>,
}

/// A plan as it is at a step of its range.
pub struct CheckedStep {
    /// The plan.
    pub plan: Plan,
    workloads: Vec<Checked>,
}

impl CheckedPlan {
    /// Checks the workloads of a plan that [`Plan::check`] accepts.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(plan: Plan) -> Result<CheckedPlan, WorkloadError> {
        let at = |step| {
            let plan = plan.at_step(step);
            let workloads = plan.workloads.iter().map(check).collect::<Result<_, _>>()?;
            Ok(CheckedStep { plan, workloads })
        };
        let steps = (0..plan.steps()).map(at).collect::<Result<_, _>>()?;
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
    /// The workloads, in the plan's order.
    pub fn workloads(&self) -> &[Checked] {
        &self.workloads
    }

    /// The workload of a name; `None` where it is not run.
    pub fn workload(&self, name: WorkloadName) -> Option<&Checked> {
        self.workloads.iter().find(|workload| workload.name() == name)
    }
}
