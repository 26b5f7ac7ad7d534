//! A plan with the options of its workloads parsed.

use crate::{Checked, WorkloadError, check};
use std::ops::Deref;
use vmtax_model::{Plan, WorkloadName};

/// A plan whose workloads can be run as written, at each rung of its ladder.
pub struct CheckedPlan {
    plan: Plan,
    rungs: Vec<CheckedRung>,
}

/// A plan as it is at a rung of its ladder.
pub struct CheckedRung {
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
        let at = |rung| {
            let plan = plan.at_rung(rung);
            let workloads = plan.workloads.iter().map(check).collect::<Result<_, _>>()?;
            Ok(CheckedRung { plan, workloads })
        };
        let rungs = (0..plan.rungs()).map(at).collect::<Result<_, _>>()?;
        Ok(CheckedPlan { plan, rungs })
    }

    /// The plan as it is at each rung; without a ladder at the only one.
    pub fn checked_rungs(&self) -> &[CheckedRung] {
        &self.rungs
    }
}

impl Deref for CheckedPlan {
    type Target = Plan;
    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl CheckedRung {
    /// The workloads, in the plan's order.
    pub fn workloads(&self) -> &[Checked] {
        &self.workloads
    }

    /// The workload of a name; `None` where it is not run.
    pub fn workload(&self, name: WorkloadName) -> Option<&Checked> {
        self.workloads.iter().find(|workload| workload.name() == name)
    }
}
