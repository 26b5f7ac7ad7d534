//! What every measuring command does with its plan.

use super::interim::InterimAnalyses;
use super::record::{Recorded, record};
use super::{exec, print, profile, progress::Display, report};
use crate::cli::RecordArgs;
use crate::fault::Fault;
use std::path::Path;
use std::process::ExitCode;
use vmtax_layers::LayersError;
use vmtax_model::{HostFacts, Plan};
use vmtax_runner::Ended;
use vmtax_studies::StudyError;

/// Carries a plan out, shows what came of it, and says how it ended.
pub(super) fn carry_out(plan: &Plan, host: HostFacts, args: &RecordArgs, details: bool) -> Result<ExitCode, Fault> {
    if args.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if plan.command().is_some() {
        return exec::carry_out(plan, host, args, false);
    }
    if plan.is_attached() {
        return profile::attach(plan, args, None);
    }
    let display = Display::new(u64::from(plan.rounds) * plan.trials_per_round());
    let mut interim = InterimAnalyses::new(plan, &display);
    let mut go_on = |folder: &Path, rounds| plan.comparison().is_none() || interim.after(folder, rounds);
    let Recorded { folder, ended } = record(plan, host, args, &display, None, &mut go_on)?;
    let shown = report::show(&vmtax_recording::open(&folder)?, args.json, details, None);
    match (ended, shown) {
        (Ended::Complete, shown) => shown,
        // Where no observed trial came to its end there is nothing to show, and how the run ended says why.
        (Ended::Incomplete(first), Ok(_) | Err(Fault::Study(StudyError::Layers(LayersError::Unobserved)))) => {
            Err(Fault::Incomplete { folder, first: first.to_string() })
        }
        (Ended::Interrupted, Ok(_) | Err(Fault::Study(StudyError::Layers(LayersError::Unobserved)))) => {
            Err(Fault::Interrupted { folder })
        }
        (_, Err(fault)) => Err(fault),
    }
}
