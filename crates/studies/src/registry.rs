//! The studies: which analysis a recording gets.

use crate::analysis::{Analysis, ReportFile, StudyError, found};
use crate::compare::{Baseline, Comparison, Recordings};
use crate::exec::Exec;
use crate::profile::Profile;
use crate::{diagnose, exits, import, layers, overhead, reproduce, tune, tune_guest};
use std::collections::BTreeSet;
use vmtax_findings::{CheckFindings, ClaimVerdict, CompareFindings, ReproductionFindings};
use vmtax_model::{Study, VmStudy};
use vmtax_recording::Recording;
use vmtax_report::{self as page, Report, ReportError, Style};

/// Analyzes a recording by the study of its plan.
///
/// # Errors
/// [`StudyError`] if the run was to be observed and no observation can be read.
pub fn analyze(recording: &Recording) -> Result<Answer<'_>, StudyError> {
    let (host, trials) = (&recording.host, &recording.trials);
    let analysis = analysis_of(recording)?;
    // A published result that this version does not know has no verdict.
    let case = recording
        .plan
        .reproduces
        .as_deref()
        .and_then(|name| reproduce::find(name).ok());
    let rounds: BTreeSet<u32> = trials.iter().map(|trial| trial.round).collect();
    let rounds = rounds.len() as u32;
    let judged = |case| reproduce::judge(&case, host, rounds, analysis.evidence());
    let reproduction = case.map(|case| (judged(case), recording));
    Ok(Answer {
        analysis,
        reproduction,
    })
}

/// Returns the findings of a plan's study in its recording, and how they are shown.
fn analysis_of(recording: &Recording) -> Result<Box<dyn Analysis + '_>, StudyError> {
    let (plan, trials) = (&recording.plan, &recording.trials);
    let analysis: Box<dyn Analysis> = match &plan.study {
        Study::Overhead => overhead::analysis(recording),
        Study::Layers => {
            let findings = layers::findings(recording)?;
            found(recording, findings, page::layers::report, page::json)
        }
        Study::Exec(_) => Box::new(Exec::new(recording)),
        Study::Compare(_) => Box::new(Comparison::new(recording)?),
        Study::Scale(_) => {
            let findings = vmtax_analysis::growth(plan, trials);
            found(recording, findings, page::growth::report, page::json)
        }
        Study::Profile(_) => Box::new(Profile::new(recording)?),
        Study::Share => {
            let findings = vmtax_analysis::shares(plan, trials);
            found(recording, findings, page::shares::report, page::json)
        }
        Study::Exits => exits::analysis(recording),
        Study::GuestAntipatterns => {
            let findings = vmtax_analysis::antipatterns(plan, &recording.host, trials);
            found(recording, findings, page::antipatterns::report, page::json)
        }
        Study::Vm(VmStudy::Diagnose, _) => {
            let findings = diagnose::findings(recording)?;
            found(recording, findings, page::vm_diagnosis::report, page::json)
        }
        Study::Tune(spec) => {
            let findings = tune::findings(recording, spec)?;
            found(recording, findings, page::tune::vm::report, page::json)
        }
        Study::TuneGuest(_) => tune_guest::analysis(recording)?,
        Study::Vm(VmStudy::VmExits, _) => {
            let findings = exits::of_vm(recording)?;
            found(recording, findings, page::vm_exits::report, page::json)
        }
        Study::Import(_) => {
            let findings = import::findings(recording)?;
            found(recording, findings, page::import::report, page::json)
        }
        Study::Vm(VmStudy::VmLayers, _) => {
            let findings = layers::of_vm(recording)?;
            found(recording, findings, page::vm_layers::report, page::json)
        }
    };
    Ok(analysis)
}

impl From<CompareFindings> for Answer<'_> {
    fn from(findings: CompareFindings) -> Self {
        Answer {
            analysis: Box::new(Recordings(findings)),
            reproduction: None,
        }
    }
}

impl From<CheckFindings> for Answer<'_> {
    fn from(findings: CheckFindings) -> Self {
        Answer {
            analysis: Box::new(Baseline(findings)),
            reproduction: None,
        }
    }
}

/// Analysis of a recording: its study's findings, below the result of the reproduction, if it is one.
pub struct Answer<'a> {
    analysis: Box<dyn Analysis + 'a>,
    pub(crate) reproduction: Option<(ReproductionFindings, &'a Recording)>,
}

impl Answer<'_> {
    /// The report, for every output format.
    pub fn report(&self) -> Report<'_> {
        let mut report = self.analysis.report();
        if let Some((case, recording)) = &self.reproduction {
            vmtax_report::reproduction::put_first(&mut report, case, recording);
        }
        report
    }

    /// For a terminal; with all details, or the most important.
    pub fn terminal(&self, details: bool, style: Style) -> String {
        // Where no trial can be read there are no tables: the report says why.
        let all = details.then(|| self.analysis.details()).flatten();
        match all.filter(|all| !all.trim().is_empty()) {
            // The verdict on a published result stands in the report alone.
            Some(all) if self.is_reproduction() => {
                self.report().terminal(style, false) + "\n" + &all
            }
            Some(all) => all,
            None => self.report().terminal(style, details),
        }
    }

    /// The page of requests by layer, that stands beside the first.
    pub fn layers_html(&self) -> Option<String> {
        self.analysis.layers_report().map(|report| report.html())
    }

    /// Draws what only the page shows, into the report from then on; the files that stand beside the page.
    ///
    /// # Errors
    /// [`StudyError`] where something cannot be drawn.
    pub fn draw(&mut self) -> Result<Vec<ReportFile>, StudyError> {
        self.analysis.draw()
    }

    /// For scripts.
    ///
    /// # Errors
    /// [`ReportError::Json`] for a value JSON has no form for.
    pub fn json(&self) -> Result<String, ReportError> {
        let document = self.analysis.json()?;
        match &self.reproduction {
            Some((case, _)) => vmtax_report::reproduction::into_json(&document, case),
            None => Ok(document),
        }
    }

    /// Returns true if the recording reproduces a published result.
    pub fn is_reproduction(&self) -> bool {
        self.reproduction.is_some()
    }

    /// Returns true if a claim of the published result is not reproduced, or a metric is worse by more than its
    /// threshold.
    pub fn is_contradicted(&self) -> bool {
        let reproduction = self.reproduction.as_ref();
        reproduction.map_or(self.analysis.is_contradicted(), |(case, _)| {
            case.verdict == ClaimVerdict::NotReproduced
        })
    }

    /// The status that the measured command gave; `None` where it has none.
    pub fn command_status(&self) -> Option<i32> {
        self.analysis.command_status()
    }
}
