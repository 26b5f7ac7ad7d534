use super::{print, style};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_model::Findings;
use vmtax_recording::Recording;

pub fn report(args: &ReportArgs) -> Result<ExitCode, Fault> {
    let recording = vmtax_recording::open(&args.run)?;
    if args.details {
        print(&vmtax_report::sysbench(&recording, None))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.json && args.html.is_none() {
        print(&vmtax_report::json(&recording, &findings(&recording))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    show(&recording, args.json, args.html.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn findings(recording: &Recording) -> Findings {
    vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials)
}

/// Prints the findings of a recording and writes its HTML report.
pub fn show(recording: &Recording, json: bool, html: Option<&Path>) -> Result<(), Fault> {
    let findings = findings(recording);
    if json {
        print(&vmtax_report::json(recording, &findings)?)?;
    } else {
        print(&vmtax_report::terminal(recording, &findings, style()))?;
    }
    // Last, so that a recording that only others may write to is shown all the same.
    let path = html.map_or_else(|| recording.folder.join("report.html"), PathBuf::from);
    std::fs::write(&path, vmtax_report::html(recording, &findings))
        .map_err(|e| Fault::file(format!("writing {}: name another file with --html", path.display()), e))?;
    if json { Ok(()) } else { print(&format!("\nReport: {}\n", path.display())) }
}
