//! Differences between two profiles.

use crate::analysis::StudyError;
use std::fs;
use std::path::Path;
use vmtax_model::ProfileFindings;
use vmtax_model::samples::Profile;
use vmtax_profile::{flame, fold};
use vmtax_report::Report;

/// Reports the functions whose shares changed between two profiles, each a recording or a file of folded stacks.
///
/// # Errors
/// [`StudyError`] for a profile that cannot be read.
pub fn changes(before: &Path, after: &Path) -> Result<Report<'static>, StudyError> {
    let changes = vmtax_profile::changes(&read(before)?, &read(after)?);
    let unlike = match (findings(before), findings(after)) {
        (Some(before), Some(after)) => vmtax_report::profile::unlike(&before, &after),
        _ => Vec::new(),
    };
    Ok(vmtax_report::profile::changes(&changes, &unlike))
}

/// The differential flame graph of two profiles, as SVG.
///
/// # Errors
/// [`StudyError`] for a profile that cannot be read or drawn.
pub fn draw_difference(before: &Path, after: &Path) -> Result<String, StudyError> {
    let title = format!("{} against {}", after.display(), before.display());
    Ok(flame::draw_difference(
        &read(before)?,
        &read(after)?,
        &title,
    )?)
}

/// Returns the further findings in a profile's directory; `None` if there are none, or they are of another version.
fn findings(path: &Path) -> Option<ProfileFindings> {
    serde_json::from_slice(&fs::read(path.join("profile.json")).ok()?).ok()
}

/// The folded stacks of a profile.
fn read(path: &Path) -> Result<Profile, StudyError> {
    let file = if path.is_dir() {
        path.join("on-cpu.folded")
    } else {
        path.to_path_buf()
    };
    let text = fs::read_to_string(&file).map_err(|source| StudyError::Unreadable {
        file: file.clone(),
        source,
    })?;
    Ok(fold::unfold(&text, &file)?)
}
