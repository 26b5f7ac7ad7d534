use super::{case, print, style};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_cases::Measured;
use vmtax_layers::LayersError;
use vmtax_model::{
    CaseFindings, ExecFindings, ExitFindings, Findings, GrowthFindings, LayerFindings, Probes, ShareFindings,
    WorkloadName,
};
use vmtax_recording::Recording;

pub fn report(args: &ReportArgs) -> Result<ExitCode, Fault> {
    let recording = vmtax_recording::open(&args.run)?;
    let shown = Shown::of(&recording)?;
    if args.details && matches!(shown, Shown::Taxes(_)) {
        print(&vmtax_report::sysbench(&recording, None))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.json && args.html.is_none() {
        let case = shown.case(&recording);
        print(&shown.json(&recording, case.as_ref())?)?;
        return Ok(case::status(case.as_ref()));
    }
    show(&recording, args.json, args.details, args.html.as_deref())
}

/// What a recording says: it depends on what was run and observed.
enum Shown {
    Taxes(Findings),
    Layers(Box<LayerFindings>),
    Exits(ExitFindings),
    Exec(Box<ExecFindings>),
    Growth(GrowthFindings),
    Shares(Box<ShareFindings>),
}

impl Shown {
    fn of(recording: &Recording) -> Result<Shown, Fault> {
        let plan = &recording.plan;
        Ok(if plan.ladder.is_some() {
            Shown::Growth(vmtax_analysis::growth(plan, &recording.trials))
        } else if plan.workloads.iter().any(|w| w.name == WorkloadName::Exits) {
            let manifest = &recording.manifest;
            let about = (manifest.vmtax.as_str(), manifest.command.as_slice(), manifest.started.as_str());
            Shown::Exits(vmtax_analysis::exits(plan, &recording.host, &recording.trials, about))
        } else if plan.command.is_some() {
            Shown::Exec(Box::new(vmtax_analysis::exec(plan, &recording.host, &recording.trials)))
        } else if plan.tree.is_some() && plan.variants.iter().any(|v| v.set.contains_key("share")) {
            Shown::Shares(Box::new(vmtax_analysis::shares(plan, &recording.trials)))
        } else if plan.probes.contains(&Probes::Layers) {
            let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
            let findings = vmtax_layers::findings(plan, trials).map_err(|error| match recording.damaged.first() {
                // It was observed, but cannot be read.
                Some(first) if matches!(error, LayersError::Unobserved) => {
                    Fault::Incomplete { folder: recording.folder.clone(), first: first.clone() }
                }
                _ => error.into(),
            });
            Shown::Layers(Box::new(findings?))
        } else {
            Shown::Taxes(vmtax_analysis::findings(plan, &recording.host, &recording.trials))
        })
    }

    /// What it says to the published finding that its plan puts to the test.
    fn case(&self, recording: &Recording) -> Option<CaseFindings> {
        match self {
            Shown::Taxes(findings) => case::judged(recording, Measured::Taxes(findings)),
            Shown::Layers(findings) => case::judged(recording, Measured::Layers(findings)),
            Shown::Growth(findings) => case::judged(recording, Measured::Growth(findings)),
            Shown::Shares(findings) => case::judged(recording, Measured::Shares(findings)),
            Shown::Exits(_) | Shown::Exec(_) => None,
        }
    }

    fn json(&self, recording: &Recording, case: Option<&CaseFindings>) -> Result<String, Fault> {
        let document = match self {
            Shown::Taxes(findings) => vmtax_report::json(recording, findings)?,
            Shown::Layers(findings) => vmtax_report::layers::json(recording, findings)?,
            Shown::Exits(findings) => vmtax_report::exits::json(findings)?,
            Shown::Exec(findings) => vmtax_report::exec::json(recording, findings)?,
            Shown::Growth(findings) => vmtax_report::growth::json(recording, findings)?,
            Shown::Shares(findings) => vmtax_report::shares::json(recording, findings)?,
        };
        Ok(match case {
            Some(case) => vmtax_report::case::into_json(&document, case)?,
            None => document,
        })
    }

    fn terminal(&self, recording: &Recording, case: Option<&CaseFindings>, details: bool) -> String {
        let case = case.map_or(String::new(), |c| vmtax_report::case::terminal(c, style()));
        case + &match self {
            Shown::Taxes(findings) => vmtax_report::terminal(recording, findings, style()),
            Shown::Layers(findings) if details => vmtax_report::layers::details(recording, findings, style()),
            Shown::Layers(findings) => vmtax_report::layers::terminal(recording, findings, style()),
            Shown::Exits(findings) => vmtax_report::exits::terminal(findings, style()),
            Shown::Exec(findings) => vmtax_report::exec::terminal(recording, findings, style()),
            Shown::Growth(findings) => vmtax_report::growth::terminal(recording, findings, style()),
            Shown::Shares(findings) => vmtax_report::shares::terminal(recording, findings, details, style()),
        }
    }

    fn html(&self, recording: &Recording, case: Option<&CaseFindings>) -> String {
        let page = match self {
            Shown::Taxes(findings) => vmtax_report::html(recording, findings),
            Shown::Layers(findings) => vmtax_report::layers::html(recording, findings),
            Shown::Exits(findings) => vmtax_report::exits::html(findings),
            Shown::Exec(findings) => vmtax_report::exec::html(recording, findings),
            Shown::Growth(findings) => vmtax_report::growth::html(recording, findings),
            Shown::Shares(findings) => vmtax_report::shares::html(recording, findings),
        };
        match case {
            Some(case) => vmtax_report::case::into_page(&page, case),
            None => page,
        }
    }
}

/// Prints the findings of a recording and writes its HTML report; the status says whether its case, if any, holds.
pub fn show(recording: &Recording, json: bool, details: bool, html: Option<&Path>) -> Result<ExitCode, Fault> {
    let shown = Shown::of(recording)?;
    let case = shown.case(recording);
    if json {
        print(&shown.json(recording, case.as_ref())?)?;
    } else {
        print(&shown.terminal(recording, case.as_ref(), details))?;
    }
    // Last, so that a recording that only others may write to is shown all the same.
    let path = html.map_or_else(|| recording.folder.join("report.html"), PathBuf::from);
    std::fs::write(&path, shown.html(recording, case.as_ref()))
        .map_err(|e| Fault::file(format!("writing {}: name another file with --html", path.display()), e))?;
    if !json {
        print(&format!("\nReport: {}\n", path.display()))?;
    }
    Ok(case::status(case.as_ref()))
}

/// The same of a command that has just run: standard output is the command's, so that all but JSON goes to standard error.
pub(super) fn show_exec(recording: &Recording, findings: &ExecFindings, json: bool) -> Result<(), Fault> {
    let path = recording.folder.join("report.html");
    std::fs::write(&path, vmtax_report::exec::html(recording, findings))
        .map_err(|e| Fault::file(format!("writing {}", path.display()), e))?;
    if json {
        return print(&vmtax_report::exec::json(recording, findings)?);
    }
    let style = super::style_of(&std::io::stderr());
    eprint!("\n{}\nReport: {}\n", vmtax_report::exec::terminal(recording, findings, style), path.display());
    Ok(())
}
