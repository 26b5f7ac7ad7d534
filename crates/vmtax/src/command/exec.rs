//! `vmtax exec`: the exit status of a command of the user's.

use super::study::study;
use crate::cli::StudyArgs;
use crate::fault::{FAILED, Fault};
use std::process::ExitCode;
use vmtax_studies::ExecOptions;

/// What fails in vmtax has a status of its own, as that of timeout(1) and env(1).
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
