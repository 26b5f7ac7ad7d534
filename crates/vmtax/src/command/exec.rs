//! `vmtax exec`: the exit status of a command of the user's.

use super::study::study;
use crate::cli::StudyArgs;
use crate::fault::{FAILED, Fault};
use std::process::ExitCode;
use vmtax_studies::ExecOptions;

/// Runs the study. A failure of vmtax itself has the exit status 125, as in timeout(1) and env(1), so that it differs
/// from those of the command.
pub fn exec(args: &StudyArgs<ExecOptions>) -> Result<ExitCode, Fault> {
    match study(args) {
        Err(fault)
            if !matches!(
                fault,
                Fault::Interrupted { .. } | Fault::CommandFailed { .. }
            ) =>
        {
            eprintln!("Error: {}", vmtax_report::printable(&fault.to_string()));
            Ok(ExitCode::from(FAILED))
        }
        ended => ended,
    }
}
