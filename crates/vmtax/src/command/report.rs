//! `vmtax report`, and what is shown of a recording that was just made.

use super::{print, style};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_recording::Recording;
use vmtax_studies::{Answer, ReportFile, analyze};

pub fn report(args: &ReportArgs) -> Result<ExitCode, Fault> {
    let recording = vmtax_recording::open(&args.run)?;
    if args.json && args.html.is_none() {
        let answer = analyze(&recording)?;
        print(&answer.json()?)?;
        return Ok(status(&answer));
    }
    if let Some(format) = &args.format {
        let answer = analyze(&recording)?;
        print(&answer.report().in_format(format).unwrap_or_default())?;
        return Ok(status(&answer));
    }
    show(&recording, args.json, args.details, args.html.as_deref())
}

/// Prints what a recording says and writes its HTML report.
pub fn show(recording: &Recording, json: bool, details: bool, html: Option<&Path>) -> Result<ExitCode, Fault> {
    let answer = analyze(recording)?;
    print(&if json { answer.json()? } else { answer.terminal(details, style()) })?;
    // Last, so that a recording that only others may write to is shown all the same.
    let path = html.map_or_else(|| recording.folder.join("report.html"), PathBuf::from);
    let written = write(&answer, &path)?;
    let beside = write_files(&answer, &recording.folder)?;
    if !json {
        let beside = beside.iter().map(|name| format!(", {name}")).collect::<String>();
        print(&format!("\nReport: {}\n", vmtax_report::printable(&(written + &beside))))?;
    }
    Ok(status(&answer))
}

/// Writes the page, and that of the layers beside it; says where.
pub(super) fn write(answer: &Answer<'_>, path: &Path) -> Result<String, Fault> {
    let write = |path: &Path, page: String| {
        std::fs::write(path, page)
            .map_err(|e| Fault::file(format!("writing {}: name another file with --html", path.display()), e))
    };
    write(path, answer.report().html())?;
    let Some(layers) = answer.layers_html() else { return Ok(path.display().to_string()) };
    let beside = path.with_extension("layers.html");
    write(&beside, layers)?;
    Ok(format!("{}, by layer: {}", path.display(), beside.display()))
}

/// Writes the pictures and other formats that stand beside the page into the recording: their names.
pub(super) fn write_files<'a>(answer: &'a Answer<'_>, folder: &Path) -> Result<Vec<&'a str>, Fault> {
    let write = |file: &'a ReportFile| {
        let path = folder.join(file.name);
        std::fs::write(&path, &file.content).map_err(|e| Fault::file(format!("writing {}", path.display()), e))?;
        Ok(file.name)
    };
    answer.files().iter().map(write).collect()
}

/// 1 where a claim of the published result does not hold here.
pub(super) fn status(answer: &Answer<'_>) -> ExitCode {
    ExitCode::from(u8::from(answer.contradicts()))
}
