//! `exec`: a command of the user's, which `vmtax exec` runs by the plan's [`vmtax_model::CommandSpec`]; it has no options.

use crate::clock::Clock;
use crate::descriptor::{Descriptor, Presets, Workload, work};
use crate::error::WorkloadError;
use crate::options::options;
use crate::outcome::Yield;
use vmtax_model::{Places, WorkloadName};

options! {
    struct Exec {}
}

pub(crate) static WORKLOAD: Descriptor = Descriptor {
    name: WorkloadName::Exec,
    about: "a command of yours, run by vmtax exec",
    options: Exec::OPTIONS,
    presets: Presets::NONE,
    parse: work::<Exec>,
};

impl Workload for Exec {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::CommandAlone(WorkloadName::Exec))
    }
}
