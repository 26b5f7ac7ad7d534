//! `vmtax report`, and what is shown of a recording that was just made.

use super::{print, style};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_recording::Recording;
use vmtax_studies::{Answer, analyze};

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
    let mut answer = analyze(recording)?;
    print(&if json { answer.json()? } else { answer.terminal(details, style()) })?;
    // Last, so that a recording that only others may write to is shown all the same.
    let written = write(&mut answer, &recording.folder, html)?;
    if !json {
        print(&format!("\nReport: {}\n", vmtax_report::printable(&written)))?;
    }
    Ok(status(&answer))
}

/// Writes the page, into `html` where that is given, else into the recording's folder, and what stands beside it; says where.
pub(super) fn write(answer: &mut Answer<'_>, folder: &Path, html: Option<&Path>) -> Result<String, Fault> {
    let path = html.map_or_else(|| folder.join("report.html"), PathBuf::from);
    let write = |path: &Path, content: &[u8]| {
        std::fs::write(path, content)
            .map_err(|e| Fault::file(format!("writing {}: name another file with --html", path.display()), e))
    };
    let files = answer.draw()?;
    write(&path, answer.report().html().as_bytes())?;
    let mut written = path.display().to_string();
    if let Some(layers) = answer.layers_html() {
        let beside = path.with_extension("layers.html");
        write(&beside, layers.as_bytes())?;
        written += &format!(", by layer: {}", beside.display());
    }
    for file in files {
        let beside = folder.join(file.name);
        std::fs::write(&beside, &file.content).map_err(|e| Fault::file(format!("writing {}", beside.display()), e))?;
        written += &format!(", {}", file.name);
    }
    Ok(written)
}

/// 1 where a claim of the published result does not hold here.
pub(super) fn status(answer: &Answer<'_>) -> ExitCode {
    ExitCode::from(u8::from(answer.contradicts()))
}
