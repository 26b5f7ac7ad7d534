//! `vmtax list`: the recordings of a folder, newest first.

use super::print;
use super::report::HEADLINE;
use crate::cli::ListArgs;
use crate::fault::Fault;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use vmtax_recording::{Listing, State, read_bounded};

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

/// As it was written when the recording was made; of an older recording from its analysis.
fn headline(listing: &Listing) -> Option<String> {
    if matches!(listing.state, State::Damaged { .. }) {
        return None;
    }
    stored_headline(&listing.folder).or_else(|| analyzed(&listing.folder))
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
