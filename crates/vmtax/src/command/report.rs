//! `vmtax report`, and how every report is printed and written; `vmtax list`: the recordings of a folder, newest first.

use super::{note, print, style, style_of, tell};
use crate::cli::{ListArgs, RecordArgs, ReportArgs};
use crate::fault::Fault;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_import::AddedGuest;
use vmtax_recording::{Listing, State, read_bounded};
use vmtax_report::Style;
use vmtax_studies::{Answer, analyze};

/// The file of a recording with the first sentence of its report, for `vmtax list`.
const HEADLINE: &str = "headline.txt";

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
    let (default, style) = match args.output {
        Some(_) => ("html", FILE_STYLE),
        None => ("text", style()),
    };
    let format = match args.json {
        true => "json",
        false => args.format.as_deref().unwrap_or(default),
    };
    if format == "html" {
        answer.draw()?;
    }
    let text = match format {
        "text" => answer.terminal(args.details, style),
        "json" => answer.json()?,
        "md" if args.details => answer.report().markdown_details(),
        "md" => answer.report().in_format("markdown").unwrap_or_default(),
        other => answer.report().in_format(other).unwrap_or_default(),
    };
    match &args.output {
        None => print(&text)?,
        Some(file) => {
            put_file(file, text.as_bytes())?;
            if let Some(page) = answer.layers_html().filter(|_| format == "html") {
                put_file(&file.with_extension("layers.html"), page.as_bytes())?;
            }
        }
    }
    Ok(status(&answer))
}

/// Style of a text that is written to a file.
const FILE_STYLE: Style = Style {
    width: 100,
    color: false,
};

fn put_file(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let shown = path.display();
    let what = || format!("writing {shown}: name another file with --output");
    std::fs::write(path, content).map_err(|e| Fault::file(what(), e))
}

/// The newest recording in a folder that can be opened; its name goes to standard error.
fn newest(dir: &Path) -> Result<PathBuf, Fault> {
    let mut all = vmtax_recording::list(dir)?;
    all.retain(|listing| !matches!(listing.state, State::Damaged { .. }));
    let Some(newest) = all.pop() else {
        let dir = dir.display();
        return Err(Fault::Usage(format!(
            "no recordings in {dir}: `vmtax run --quick` makes one, --dir names another directory"
        )));
    };
    note(&newest.folder.display().to_string());
    Ok(newest.folder)
}

/// Prints what the recording in a folder, which was just made, says, and writes its page.
pub(super) fn show_recording(folder: &Path, args: &RecordArgs) -> Result<ExitCode, Fault> {
    let recording = vmtax_recording::open(folder)?;
    show(&mut analyze(&recording)?, folder, args, false)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what a recording that was just made says, and writes its page.
pub(super) fn show(
    answer: &mut Answer<'_>,
    folder: &Path,
    args: &RecordArgs,
    beside_output: bool,
) -> Result<(), Fault> {
    put(answer, args, beside_output)?;
    let written = write(answer, folder)?;
    let line = format!("\nReport: {}\n", vmtax_report::printable(&written));
    match (args.json, beside_output) {
        (true, _) => {}
        (false, true) => tell(&line),
        (false, false) => print(&line)?,
    }
    Ok(())
}

/// Prints an answer. Beside what a command of the user's prints all but JSON goes to standard error.
pub(super) fn put(
    answer: &Answer<'_>,
    args: &RecordArgs,
    beside_output: bool,
) -> Result<(), Fault> {
    match (args.json, beside_output) {
        (true, _) => print(&answer.json()?),
        (false, true) => {
            let style = style_of(&std::io::stderr());
            tell(&format!("\n{}", answer.terminal(args.details, style)));
            Ok(())
        }
        (false, false) => print(&answer.terminal(args.details, style())),
    }
}

/// Writes the page of a recording that was just made, and what stands beside it, into its folder; says where.
pub(super) fn write(answer: &mut Answer<'_>, folder: &Path) -> Result<String, Fault> {
    let path = folder.join("report.html");
    let files = answer.draw()?;
    put_file(&path, answer.report().html().as_bytes())?;
    let headline = answer.report().headline().to_owned();
    put_file(&folder.join(HEADLINE), headline.as_bytes())?;
    let mut written = path.display().to_string();
    if let Some(layers) = answer.layers_html() {
        let beside = path.with_extension("layers.html");
        put_file(&beside, layers.as_bytes())?;
        written += &format!(", by layer: {}", beside.display());
    }
    for file in files {
        let beside = folder.join(file.name);
        if let Some(parent) = beside.parent() {
            let shown = parent.display();
            let what = || format!("making the directory {shown}: name another with --output");
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

/// Bytes of a first sentence; none of our own comes near.
const MAX_HEADLINE: u64 = 4096;

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    listing: Listing,
    /// The first sentence of its report.
    headline: Option<String>,
}

pub fn list(args: &ListArgs) -> Result<ExitCode, Fault> {
    let listings = vmtax_recording::list(&args.dir)?.into_iter().rev();
    let rows: Vec<Row> = listings
        .map(|listing| Row {
            headline: headline(&listing),
            listing,
        })
        .collect();
    if args.json {
        print(&(vmtax_report::plain_json(&rows)? + "\n"))?;
    } else if rows.is_empty() {
        print(&format!(
            "no recordings in {}: `vmtax run --quick` makes one\n",
            args.dir.display()
        ))?;
    } else {
        print(&vmtax_report::printable(
            &rows.iter().map(entry).collect::<String>(),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn headline(listing: &Listing) -> Option<String> {
    if matches!(listing.state, State::Damaged { .. }) {
        return None;
    }
    first_sentence(&listing.folder)
}

/// Returns the first sentence of a recording's report, as it was written when the recording was made; of an older recording from
/// its analysis. `None` where nothing was recorded that has a report.
pub(super) fn first_sentence(folder: &Path) -> Option<String> {
    stored_headline(folder).or_else(|| analyzed(folder))
}

/// Returns the first sentence of a recording's report; `None` where it was not written down.
pub(super) fn stored_headline(folder: &Path) -> Option<String> {
    let stored = read_bounded(&folder.join(HEADLINE), MAX_HEADLINE)
        .ok()
        .flatten();
    stored.and_then(|text| String::from_utf8(text).ok())
}

fn analyzed(folder: &Path) -> Option<String> {
    let recording = vmtax_recording::open(folder).ok()?;
    let answer = vmtax_studies::analyze(&recording).ok()?;
    let headline = answer.report().headline().to_owned();
    Some(headline)
}

/// Two lines: what it is, with its folder for the next command; what it found.
fn entry(Row { listing, headline }: &Row) -> String {
    let folder = listing.folder.display();
    if let State::Damaged { reason } = &listing.state {
        return format!("{folder}  damaged: {reason}\n");
    }
    if listing.started.is_none() {
        return format!("{folder}  unfinished: it ended before its first trial\n");
    }
    let Listing {
        started,
        name,
        study,
        qemu,
        kernel,
        rounds,
        trials_done,
        trials_planned,
        ..
    } = listing;
    let date = started
        .as_deref()
        .unwrap_or_default()
        .get(..16)
        .unwrap_or_default()
        .replace('T', " ");
    let what = if study == name {
        name.clone()
    } else {
        format!("{study} {name}")
    };
    let machines: Vec<&str> = listing.machines.iter().map(|m| m.as_str()).collect();
    let mut parts = vec![date, what];
    parts.extend((!machines.is_empty()).then(|| machines.join(", ")));
    parts.extend(qemu.as_ref().map(|version| format!("QEMU {version}")));
    parts.extend(kernel.as_ref().map(|release| format!("Linux {release}")));
    parts.extend(
        (!listing.machines.is_empty()).then(|| vmtax_report::counted(u64::from(*rounds), "round")),
    );
    if trials_done < trials_planned {
        parts.push(format!("{trials_done} of {trials_planned} trials"));
    }
    parts.extend((listing.state == State::Unfinished).then(|| "unfinished".to_owned()));
    let headline = headline
        .as_ref()
        .map_or(String::new(), |text| format!("    {text}\n"));
    format!("{folder}\n    {}\n{headline}", parts.join(" · "))
}
