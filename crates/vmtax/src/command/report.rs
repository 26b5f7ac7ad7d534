//! `vmtax report`, and how every answer is shown.

use super::{print, style, style_of};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_studies::{Answer, analyze};

pub fn report(args: &ReportArgs) -> Result<ExitCode, Fault> {
    let recording = vmtax_recording::open(&args.run)?;
    let mut answer = analyze(&recording)?;
    if let Some(format) = &args.format {
        if format == "html" {
            answer.draw()?;
        }
        print(&answer.report().in_format(format).unwrap_or_default())?;
        return Ok(status(&answer));
    }
    put(&answer, args.json, args.details, false)?;
    if !args.json || args.output.is_some() {
        // Last, so that a recording that only others may write to is shown all the same.
        let written = write(&mut answer, &recording.folder, args.output.as_deref())?;
        if !args.json {
            print(&format!("\nReport: {}\n", vmtax_report::printable(&written)))?;
        }
    }
    Ok(status(&answer))
}

/// Prints what a recording that was just made says, and writes its page.
pub(super) fn show(
    answer: &mut Answer<'_>,
    folder: &Path,
    json: bool,
    details: bool,
    beside_output: bool,
) -> Result<(), Fault> {
    put(answer, json, details, beside_output)?;
    let written = write(answer, folder, None)?;
    let line = format!("\nReport: {}\n", vmtax_report::printable(&written));
    match (json, beside_output) {
        (true, _) => {}
        (false, true) => eprint!("{line}"),
        (false, false) => print(&line)?,
    }
    Ok(())
}

/// Prints an answer. Beside what a command of the user's prints all but JSON goes to standard error.
pub(super) fn put(answer: &Answer<'_>, json: bool, details: bool, beside_output: bool) -> Result<(), Fault> {
    match (json, beside_output) {
        (true, _) => print(&answer.json()?),
        (false, true) => {
            eprint!("\n{}", answer.terminal(details, style_of(&std::io::stderr())));
            Ok(())
        }
        (false, false) => print(&answer.terminal(details, style())),
    }
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

/// 1 where a claim of the published result does not hold here, or a metric is worse than it may be.
pub(super) fn status(answer: &Answer<'_>) -> ExitCode {
    ExitCode::from(u8::from(answer.is_contradicted()))
}
