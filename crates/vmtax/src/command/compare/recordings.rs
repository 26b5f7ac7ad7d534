//! Recordings compared with each other.

use crate::cli::CompareArgs;
use crate::command::{print, style};
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_analysis::Side;

/// The smallest difference that matters, where nothing else is asked for.
pub(super) const DETECT: f64 = 0.02;

pub(super) fn compare(folders: &[PathBuf], args: &CompareArgs) -> Result<ExitCode, Fault> {
    if folders.len() < 2 {
        return Err(Fault::Usage("a comparison takes two sides: name another recording".to_owned()));
    }
    let recordings: Vec<_> = folders.iter().map(|f| vmtax_recording::open(f)).collect::<Result<_, _>>()?;
    let names: Vec<String> = folders.iter().map(|f| name(f)).collect();
    let sides: Vec<Side<'_>> = recordings
        .iter()
        .zip(&names)
        .map(|(recording, name)| Side { name, plan: &recording.plan, trials: &recording.trials })
        .collect();
    let findings = vmtax_analysis::compare_recordings(&sides, args.detect.unwrap_or(DETECT));
    if findings.against.iter().all(|a| a.rows.is_empty()) {
        return Err(Fault::Usage(format!(
            "{} have no metric in common that was measured on the same machine by the same workload: `vmtax report` \
             shows what each has",
            names.join(" and ")
        )));
    }
    if args.record.json {
        print(&vmtax_report::compare::findings_json(&findings)?)?;
    } else {
        print(&vmtax_report::compare::report(None, &findings, None).terminal(style(), false))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A recording by its folder's own name.
pub(super) fn name(folder: &Path) -> String {
    let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}
