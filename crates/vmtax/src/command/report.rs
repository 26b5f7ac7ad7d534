use super::{case, print, style};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_layers::LayersError;
use vmtax_model::{
    CaseFindings, CommandLayers, CompareFindings, ExecFindings, ExitFindings, Findings, GrowthFindings, HabitFindings,
    LayerFindings, Probes, ProfileSpec, ShareFindings, Study,
};
use vmtax_recording::Recording;
use vmtax_report::{Report, Style};
use vmtax_studies::reproduce::Measured;

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

/// By layer where the time goes.
fn layers(recording: &Recording) -> Result<Box<LayerFindings>, Fault> {
    let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
    let findings = vmtax_layers::findings(&recording.plan, trials).map_err(|error| match recording.damaged.first() {
        // It was observed, but cannot be read.
        Some(first) if matches!(error, LayersError::Unobserved) => {
            Fault::Incomplete { folder: recording.folder.clone(), first: first.clone() }
        }
        _ => error.into(),
    });
    Ok(Box::new(findings?))
}

/// What a command's guests asked of their disks, where that was to be seen.
pub(super) fn requests(recording: &Recording) -> Option<CommandLayers> {
    let asked = recording.plan.command().is_some_and(|command| command.layers);
    let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
    asked.then(|| vmtax_layers::command(&recording.plan, trials))
}

/// What a recording says: it depends on what was run and observed.
enum Shown {
    Taxes(Findings),
    Layers(Box<LayerFindings>),
    Exits(ExitFindings),
    Exec(Box<ExecFindings>, Option<Box<CommandLayers>>),
    Compared(Box<CompareFindings>, Option<Box<LayerFindings>>),
    Growth(GrowthFindings),
    Habits(HabitFindings),
    Shares(Box<ShareFindings>),
}

impl Shown {
    fn of(recording: &Recording) -> Result<Shown, Fault> {
        let plan = &recording.plan;
        Ok(match &plan.study {
            Study::Compare(_) => {
                let findings = vmtax_analysis::compare(plan, &recording.trials);
                let layers = plan.probes.contains(&Probes::Layers).then(|| layers(recording)).transpose()?;
                Shown::Compared(Box::new(findings), layers)
            }
            Study::Scale(_) => Shown::Growth(vmtax_analysis::growth(plan, &recording.trials)),
            Study::Exits => {
                let manifest = &recording.manifest;
                let about = (manifest.vmtax.as_str(), manifest.command.as_slice(), manifest.started.as_str());
                Shown::Exits(vmtax_analysis::exits(plan, &recording.host, &recording.trials, about))
            }
            Study::GuestAntipatterns => Shown::Habits(vmtax_analysis::habits(plan, &recording.host, &recording.trials)),
            Study::Exec(_) | Study::Profile(ProfileSpec { command: Some(_) }) => {
                let findings = vmtax_analysis::exec(plan, &recording.host, &recording.trials);
                Shown::Exec(Box::new(findings), requests(recording).map(Box::new))
            }
            Study::Share => Shown::Shares(Box::new(vmtax_analysis::shares(plan, &recording.trials))),
            Study::Layers => Shown::Layers(layers(recording)?),
            Study::Tax | Study::Profile(_) => {
                Shown::Taxes(vmtax_analysis::findings(plan, &recording.host, &recording.trials))
            }
        })
    }

    /// What it says to the published finding that its plan puts to the test.
    fn case(&self, recording: &Recording) -> Option<CaseFindings> {
        match self {
            Shown::Taxes(findings) => case::judged(recording, Measured::Taxes(findings)),
            Shown::Layers(findings) => case::judged(recording, Measured::Layers(findings)),
            Shown::Growth(findings) => case::judged(recording, Measured::Growth(findings)),
            Shown::Shares(findings) => case::judged(recording, Measured::Shares(findings)),
            Shown::Habits(findings) => case::judged(recording, Measured::Habits(findings)),
            Shown::Exec(findings, _) => case::judged(recording, Measured::Exec(findings)),
            Shown::Compared(findings, _) => case::judged(recording, Measured::Compared(findings)),
            Shown::Exits(_) => None,
        }
    }

    /// The report in sections.
    fn report<'a>(&'a self, recording: &'a Recording) -> Option<Report<'a>> {
        Some(match self {
            Shown::Exits(findings) => vmtax_report::exits::report(findings),
            Shown::Compared(findings, _) => vmtax_report::compare::report(Some(recording), findings),
            Shown::Growth(findings) => vmtax_report::growth::report(recording, findings),
            Shown::Habits(findings) => vmtax_report::habits::report(recording, findings),
            _ => return None,
        })
    }

    fn json(&self, recording: &Recording, case: Option<&CaseFindings>) -> Result<String, Fault> {
        let document = match self {
            Shown::Taxes(findings) => vmtax_report::json(recording, findings)?,
            Shown::Layers(findings) => vmtax_report::layers::json(recording, findings)?,
            Shown::Exits(findings) => vmtax_report::exits::json(findings)?,
            Shown::Exec(findings, layers) => vmtax_report::exec::json(recording, findings, layers.as_deref())?,
            Shown::Compared(findings, layers) => vmtax_report::compare::json(recording, findings, layers.as_deref())?,
            Shown::Growth(findings) => vmtax_report::growth::json(recording, findings)?,
            Shown::Shares(findings) => vmtax_report::shares::json(recording, findings)?,
            Shown::Habits(findings) => vmtax_report::habits::json(recording, findings)?,
        };
        Ok(match case {
            Some(case) => vmtax_report::case::into_json(&document, case)?,
            None => document,
        })
    }

    fn terminal(&self, recording: &Recording, case: Option<&CaseFindings>, details: bool, style: Style) -> String {
        let case = case.map_or(String::new(), |c| vmtax_report::case::terminal(c, style));
        case + &match self {
            Shown::Taxes(findings) => vmtax_report::terminal(recording, findings, style),
            Shown::Layers(findings) if details => vmtax_report::layers::details(recording, findings, style),
            Shown::Layers(findings) => vmtax_report::layers::terminal(recording, findings, style),
            Shown::Exec(findings, layers) if details => {
                let layers = layers.as_ref().map(|l| vmtax_report::layers::details(recording, &l.layers, style));
                let exec = vmtax_report::exec::terminal(recording, findings, None, style);
                layers.into_iter().fold(exec + "\n", |all, layers| all + &layers)
            }
            Shown::Exec(findings, layers) => {
                vmtax_report::exec::terminal(recording, findings, layers.as_deref(), style)
            }
            Shown::Compared(findings, layers) => {
                let layers = layers.as_ref().map(|l| vmtax_report::layers::terminal(recording, l, style));
                let gap = layers.as_ref().map_or("", |_| "\n");
                vmtax_report::compare::report(Some(recording), findings).terminal(style, details)
                    + gap
                    + &layers.unwrap_or_default()
            }
            Shown::Shares(findings) => vmtax_report::shares::terminal(recording, findings, details, style),
            _ => self.report(recording).map_or(String::new(), |report| report.terminal(style, details)),
        }
    }

    /// What has a page of its own.
    fn layers(&self) -> Option<&LayerFindings> {
        match self {
            Shown::Compared(_, layers) => layers.as_deref(),
            Shown::Exec(_, layers) => layers.as_ref().map(|l| &l.layers).filter(|l| !l.columns.is_empty()),
            _ => None,
        }
    }

    /// Writes the page, and that of the layers beside it; says where.
    fn write(&self, recording: &Recording, case: Option<&CaseFindings>, path: &Path) -> Result<String, Fault> {
        let write = |path: &Path, page: String| {
            std::fs::write(path, page)
                .map_err(|e| Fault::file(format!("writing {}: name another file with --html", path.display()), e))
        };
        write(path, self.html(recording, case))?;
        let Some(layers) = self.layers() else { return Ok(path.display().to_string()) };
        let beside = path.with_extension("layers.html");
        write(&beside, vmtax_report::layers::html(recording, layers))?;
        Ok(format!("{}, by layer: {}", path.display(), beside.display()))
    }

    fn html(&self, recording: &Recording, case: Option<&CaseFindings>) -> String {
        let page = match self {
            Shown::Taxes(findings) => vmtax_report::html(recording, findings),
            Shown::Layers(findings) => vmtax_report::layers::html(recording, findings),
            Shown::Exec(findings, layers) => vmtax_report::exec::html(recording, findings, layers.as_deref()),
            Shown::Shares(findings) => vmtax_report::shares::html(recording, findings),
            _ => self.report(recording).map_or(String::new(), |report| report.html()),
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
        print(&shown.terminal(recording, case.as_ref(), details, style()))?;
    }
    // Last, so that a recording that only others may write to is shown all the same.
    let path = html.map_or_else(|| recording.folder.join("report.html"), PathBuf::from);
    let written = shown.write(recording, case.as_ref(), &path)?;
    if !json {
        print(&format!("\nReport: {written}\n"))?;
    }
    Ok(case::status(case.as_ref()))
}

/// The same of a command that has just run: standard output is the command's, so that all but JSON goes to standard error.
pub(super) fn show_exec(
    recording: &Recording,
    findings: ExecFindings,
    case: Option<&CaseFindings>,
    json: bool,
) -> Result<(), Fault> {
    let shown = Shown::Exec(Box::new(findings), requests(recording).map(Box::new));
    let written = shown.write(recording, case, &recording.folder.join("report.html"))?;
    if json {
        return print(&shown.json(recording, case)?);
    }
    let text = shown.terminal(recording, case, false, super::style_of(&std::io::stderr()));
    eprint!("\n{text}\nReport: {written}\n");
    Ok(())
}
