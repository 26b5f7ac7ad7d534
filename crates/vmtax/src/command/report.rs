use super::{print, style};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_model::{Findings, LayerFindings, Probes};
use vmtax_recording::Recording;

pub fn report(args: &ReportArgs) -> Result<ExitCode, Fault> {
    let recording = vmtax_recording::open(&args.run)?;
    if args.details && !is_observed(&recording) {
        print(&vmtax_report::sysbench(&recording, None))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.json && args.html.is_none() {
        print(&Shown::of(&recording)?.json(&recording)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    show(&recording, args.json, args.details, args.html.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn is_observed(recording: &Recording) -> bool {
    recording.plan.probes.contains(&Probes::Layers)
}

/// What a recording says: it depends on whether its trials were observed.
enum Shown {
    Taxes(Findings),
    Layers(Box<LayerFindings>),
}

impl Shown {
    fn of(recording: &Recording) -> Result<Shown, Fault> {
        Ok(if is_observed(recording) {
            let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
            Shown::Layers(Box::new(vmtax_layers::findings(&recording.plan, trials)?))
        } else {
            Shown::Taxes(vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials))
        })
    }

    fn json(&self, recording: &Recording) -> Result<String, Fault> {
        Ok(match self {
            Shown::Taxes(findings) => vmtax_report::json(recording, findings)?,
            Shown::Layers(findings) => vmtax_report::layers::json(recording, findings)?,
        })
    }

    fn terminal(&self, recording: &Recording, details: bool) -> String {
        match self {
            Shown::Taxes(findings) => vmtax_report::terminal(recording, findings, style()),
            Shown::Layers(findings) if details => vmtax_report::layers::details(recording, findings, style()),
            Shown::Layers(findings) => vmtax_report::layers::terminal(recording, findings, style()),
        }
    }

    fn html(&self, recording: &Recording) -> String {
        match self {
            Shown::Taxes(findings) => vmtax_report::html(recording, findings),
            Shown::Layers(findings) => vmtax_report::layers::html(recording, findings),
        }
    }
}

/// Prints the findings of a recording and writes its HTML report.
pub fn show(recording: &Recording, json: bool, details: bool, html: Option<&Path>) -> Result<(), Fault> {
    let shown = Shown::of(recording)?;
    if json {
        print(&shown.json(recording)?)?;
    } else {
        print(&shown.terminal(recording, details))?;
    }
    // Last, so that a recording that only others may write to is shown all the same.
    let path = html.map_or_else(|| recording.folder.join("report.html"), PathBuf::from);
    std::fs::write(&path, shown.html(recording))
        .map_err(|e| Fault::file(format!("writing {}: name another file with --html", path.display()), e))?;
    if json { Ok(()) } else { print(&format!("\nReport: {}\n", path.display())) }
}
