//! `vmtax history`, and what every run adds to it.

use super::{print, style};
use crate::cli::{HistoryArgs, RecordArgs};
use crate::fault::Fault;
use std::path::Path;
use std::process::ExitCode;
use vmtax_model::{Plan, shell_line};
use vmtax_recording::RecordingsFolder;
use vmtax_report::{history as report, plain_json};
use vmtax_studies::history::{History, HistoryError};

pub fn history(args: &HistoryArgs) -> Result<ExitCode, Fault> {
    let mut history = History::open(&RecordingsFolder::open(&args.dir)?)?;
    history.catch_up()?;
    let Some(metric) = args.metric else {
        let mut entries = history.list();
        entries.retain(|e| args.machine.is_none_or(|m| m == e.machine));
        match args.json {
            true => print(&(plain_json(&entries)? + "\n"))?,
            false => print(&report::listing(&entries, &history.notes).terminal(style(), false))?,
        }
        return Ok(ExitCode::SUCCESS);
    };
    let figures = history.figures(metric, args.machine);
    if figures.is_empty() {
        let on = args.machine.map_or(String::new(), |m| format!(" on {m}"));
        return Err(Fault::Usage(format!(
            "no run in {} has {metric}{on}: `vmtax history` lists what there is",
            args.dir.display()
        )));
    }
    let findings = vmtax_analysis::history(metric, figures);
    let words = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = ["vmtax".to_owned()].into_iter().chain(words).collect();
    let report = report::report(
        &findings,
        &history.notes,
        env!("CARGO_PKG_VERSION"),
        &shell_line(&words),
    );
    match args.json {
        true => print(&(plain_json(&findings)? + "\n"))?,
        false => print(&report.terminal(style(), false))?,
    }
    if let Some(path) = &args.output {
        std::fs::write(path, report.html())
            .map_err(|e| Fault::file(format!("writing {}", path.display()), e))?;
        if !args.json {
            print(&format!("\nReport: {}\n", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a finished recording into the history of --dir. One of --output is put in where it is a tuning and that folder is there, so that
/// the next tuning of the same knows what it kept. A run does not fail for its history.
pub(super) fn remember(args: &RecordArgs, plan: &Plan, recording: &Path) {
    let runs = &args.dir;
    let is_tuning = plan.guest_tune().is_some() || plan.tune().is_some();
    if args.output.is_some() && !(is_tuning && runs.is_dir()) {
        return;
    }
    let added = RecordingsFolder::open(runs).map_err(HistoryError::from);
    let added = added.and_then(|runs| vmtax_studies::history::add(&runs, recording));
    let lines = added.unwrap_or_else(|error| vec![error.to_string()]);
    for line in lines {
        eprintln!("Warning: {}", vmtax_report::printable(&line));
    }
}
