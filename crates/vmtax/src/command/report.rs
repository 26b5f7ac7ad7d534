//! `vmtax report`, and how every report is printed and written.

use super::{print, style, style_of};
use crate::cli::ReportArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_import::AddedGuest;
use vmtax_recording::State;
use vmtax_report::Style;
use vmtax_studies::{Answer, analyze};

/// The file of a recording with the first sentence of its report, for `vmtax list`.
pub(super) const HEADLINE: &str = "headline.txt";

pub fn report(args: &ReportArgs) -> Result<ExitCode, Fault> {
    let folder = args
        .recording
        .clone()
        .map_or_else(|| newest(&args.dir), Ok)?;
    let recording = vmtax_recording::open(&folder)?;
    let added = args
        .guest_trace
        .as_ref()
        .map(|file| AddedGuest::add(&recording, file))
        .transpose()?;
    let mut answer = analyze(&recording)?;
    if let Some(added) = added {
        added.keep();
        // The page in the recording shows the guest's layers from now on.
        write(&mut answer, &folder)?;
    }
    let default = if args.output.is_some() {
        "html"
    } else {
        "text"
    };
    let format = if args.json {
        "json"
    } else {
        args.format.as_deref().unwrap_or(default)
    };
    if format == "html" {
        answer.draw()?;
    }
    let style = if args.output.is_some() {
        Style {
            width: PAGE_WIDTH,
            color: false,
        }
    } else {
        style()
    };
    let text = match format {
        "text" => answer.terminal(args.details, style),
        "json" => answer.json()?,
        "md" => answer.report().in_format("markdown").unwrap_or_default(),
        other => answer.report().in_format(other).unwrap_or_default(),
    };
    match &args.output {
        None => print(&text)?,
        Some(file) => {
            put_file(file, text.as_bytes())?;
            let layers = answer.layers_html().filter(|_| format == "html");
            layers.map_or(Ok(()), |page| {
                put_file(&file.with_extension("layers.html"), page.as_bytes())
            })?;
        }
    }
    Ok(status(&answer))
}

/// Columns of a text that is written to a file.
const PAGE_WIDTH: usize = 100;

fn put_file(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let failed = |e| {
        Fault::file(
            format!(
                "writing {}: name another file with --output",
                path.display()
            ),
            e,
        )
    };
    std::fs::write(path, content).map_err(failed)
}

/// The newest recording in a folder that can be opened; its name goes to standard error.
fn newest(dir: &Path) -> Result<PathBuf, Fault> {
    let mut all = vmtax_recording::list(dir)?;
    all.retain(|listing| !matches!(listing.state, State::Damaged { .. }));
    let Some(newest) = all.pop() else {
        let dir = dir.display();
        return Err(Fault::Usage(format!(
            "no recordings in {dir}: `vmtax run --quick` makes one, --dir names another folder"
        )));
    };
    eprintln!(
        "{}",
        vmtax_report::printable(&newest.folder.display().to_string())
    );
    Ok(newest.folder)
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
    let written = write(answer, folder)?;
    let line = format!("\nReport: {}\n", vmtax_report::printable(&written));
    match (json, beside_output) {
        (true, _) => {}
        (false, true) => eprint!("{line}"),
        (false, false) => print(&line)?,
    }
    Ok(())
}

/// Prints an answer. Beside what a command of the user's prints all but JSON goes to standard error.
pub(super) fn put(
    answer: &Answer<'_>,
    json: bool,
    details: bool,
    beside_output: bool,
) -> Result<(), Fault> {
    match (json, beside_output) {
        (true, _) => print(&answer.json()?),
        (false, true) => {
            eprint!(
                "\n{}",
                answer.terminal(details, style_of(&std::io::stderr()))
            );
            Ok(())
        }
        (false, false) => print(&answer.terminal(details, style())),
    }
}

/// Writes the page of a recording that was just made, and what stands beside it, into its folder; says where.
pub(super) fn write(answer: &mut Answer<'_>, folder: &Path) -> Result<String, Fault> {
    let path = folder.join("report.html");
    let files = answer.draw()?;
    put_file(&path, answer.report().html().as_bytes())?;
    put_file(
        &folder.join(HEADLINE),
        answer.report().headline().as_bytes(),
    )?;
    let mut written = path.display().to_string();
    if let Some(layers) = answer.layers_html() {
        let beside = path.with_extension("layers.html");
        put_file(&beside, layers.as_bytes())?;
        written += &format!(", by layer: {}", beside.display());
    }
    for file in files {
        let beside = folder.join(file.name);
        if let Some(parent) = beside.parent() {
            let what = || {
                format!(
                    "making the folder {}: name another with --output",
                    parent.display()
                )
            };
            std::fs::create_dir_all(parent).map_err(|e| Fault::file(what(), e))?;
        }
        put_file(&beside, &file.content)?;
        written += &format!(", {}", file.name);
    }
    Ok(written)
}

/// 1 where a claim of the published result is not reproduced, or a metric is worse than it may be.
pub(super) fn status(answer: &Answer<'_>) -> ExitCode {
    ExitCode::from(u8::from(answer.is_contradicted()))
}
