//! Traces from other tools: what they say of a VM's exits and requests.

use crate::analysis::StudyError;
use crate::reproduce::Evidence;
use std::path::PathBuf;
use vmtax_findings::ImportFindings;
use vmtax_model::{
    ImportFacts, ImportedFiles, JoinedClock, Plan, PlanError, Study, TraceSide, files,
};
use vmtax_recording::Recording;

/// The plan of an import of these files.
///
/// # Errors
/// [`PlanError`] for more files than a plan takes.
pub fn imported(files: &[PathBuf]) -> Result<Plan, PlanError> {
    let study = Study::Import(ImportedFiles {
        files: files.to_vec(),
    });
    let plan = Plan {
        study,
        ..Plan::new("import", 1, Vec::new(), Vec::new())
    };
    plan.check()?;
    Ok(plan)
}

/// Returns the findings in the imported traces: VM exits and requests by layer.
pub(crate) fn findings(recording: &Recording) -> Result<ImportFindings, StudyError> {
    let folder = recording.trial_folder(0);
    let mut facts: ImportFacts = recording.artifact(0, files::IMPORT)?;
    let exits = folder
        .join(files::EXITS)
        .exists()
        .then(|| vmtax_profile::vm_exits(&folder))
        .transpose()?;
    let layers = folder
        .join(files::VM_TRACE)
        .exists()
        .then(|| vmtax_layers::vm(&folder, &recording.host))
        .transpose()?;
    let guest = facts
        .files
        .iter()
        .find(|file| file.side == TraceSide::Guest)
        .map(|file| file.file.clone());
    let column = layers
        .as_ref()
        .and_then(|layers| layers.layers.columns.first());
    if let Some((file, column)) = guest.zip(column) {
        // Cause and effect among the requests tell only once these are joined.
        if column.clock.bound_ns > 0.0 && !facts.clocks.iter().any(|clock| clock.file == file) {
            let (method, bound_ns) = (column.clock.source.clone(), Some(column.clock.bound_ns));
            facts.clocks.push(JoinedClock {
                file,
                method,
                bound_ns,
            });
        }
    }
    Ok(ImportFindings {
        facts,
        exits,
        layers,
    })
}

/// No published result claims anything of them.
impl Evidence for ImportFindings {}
