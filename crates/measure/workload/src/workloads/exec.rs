//! `exec`: a command of the user's, which `vmtax exec` runs by the plan's [`vmtax_model::CommandSpec`]; it has no options.

use crate::descriptor::{Workload, Yield, workload};
use crate::{Clock, WorkloadError};
use vmtax_model::{Places, WorkloadName};

workload! {
    Exec: "your command, run by vmtax exec";
}

impl Workload for Exec {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::CommandAlone(WorkloadName::Exec))
    }
}
