//! `vmtax history` with what every run adds to it, and datasets of many hosts: `vmtax fleet`, which compares the hosts within their
//! classes, and `vmtax import --dataset`, which adds their runs to the history.

use super::{note, print, style, write_file};
use crate::cli::{FleetArgs, HistoryArgs, RecordArgs};
use crate::fault::Fault;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use vmtax_model::number::counted;
use vmtax_model::{Plan, shell_line, words_without_secrets};
use vmtax_recording::RecordingsFolder;
use vmtax_report::{Report, plain_json};
use vmtax_studies::history::{History, HistoryError, ImportedRuns};

pub fn history(args: &HistoryArgs) -> Result<ExitCode, Fault> {
    let mut history = History::open(&RecordingsFolder::open(&args.dir)?)?;
    history.catch_up()?;
    let Some(metric) = args.metric else {
        let mut entries = history.list();
        entries.retain(|e| args.machine.is_none_or(|m| m == e.machine));
        let listing = vmtax_report::history::listing(&entries, &history.notes);
        return show(&entries, &listing, args.json, false, None);
    };
    let figures = history.figures(metric, args.machine);
    if figures.is_empty() {
        let on = args.machine.map_or(String::new(), |m| format!(" on {m}"));
        return Err(Fault::Usage(format!(
            "no run in {} has {metric}{on}: `vmtax history` lists the metrics",
            args.dir.display()
        )));
    }
    let findings = vmtax_analysis::history(metric, figures);
    let (notes, command) = (&history.notes, command_line());
    let report = vmtax_report::history::report(&findings, notes, VERSION, &command);
    show(&findings, &report, args.json, false, args.output.as_deref())
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Hosts of a dataset that an error names.
const MAX_NAMED_HOSTS: usize = 10;

/// The command as a person typed it, wherever the program is.
fn command_line() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = ["vmtax".to_owned()].into_iter().chain(words).collect();
    shell_line(&words_without_secrets(&words))
}

/// Prints findings as JSON or as a report, and writes its page into `output`.
fn show(
    findings: &impl Serialize,
    report: &Report<'_>,
    json: bool,
    details: bool,
    output: Option<&Path>,
) -> Result<ExitCode, Fault> {
    match json {
        true => print(&(plain_json(findings)? + "\n"))?,
        false => print(&report.terminal(style(), details))?,
    }
    if let Some(path) = output {
        write_file(path, report.html())?;
        if !json {
            print(&format!("\nReport: {}\n", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a finished recording into the history of --dir. One of --output is put in where it is a tuning and that folder is
/// there, so that the next tuning of the same knows what it kept. A run does not fail for its history.
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
        note(&format!("Warning: {line}"));
    }
}

pub fn fleet(args: &FleetArgs) -> Result<ExitCode, Fault> {
    let data = vmtax_export::read_dataset(&args.dataset, today())?;
    let findings = vmtax_analysis::fleet(&data, &args.class, args.min_effect);
    drop(data);
    let dataset = shell_line(&[args.dataset.display().to_string()]);
    let report = vmtax_report::fleet::report(&findings, &dataset, VERSION, &command_line());
    let output = args.output.as_deref();
    show(&findings, &report, args.json, args.details, output)
}

fn today() -> jiff::civil::Date {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    now.date()
}

/// Adds figures and facts of runs on other hosts to the history in `runs`.
pub fn import_dataset(dataset: &Path, host: Option<&str>, runs: &Path) -> Result<ExitCode, Fault> {
    let data = vmtax_export::read_dataset(dataset, today())?;
    let folder = RecordingsFolder::create(runs)?;
    let mut history = History::open(&folder)?;
    // A run that was recorded here is known by its recording.
    history.catch_up()?;
    if let Some(host) = host.filter(|host| data.runs.iter().all(|run| run.host != *host)) {
        let hosts: BTreeSet<&str> = data.runs.iter().map(|run| run.host.as_str()).collect();
        let named: Vec<&str> = hosts.iter().copied().take(MAX_NAMED_HOSTS).collect();
        let more = match hosts.len().saturating_sub(MAX_NAMED_HOSTS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Err(Fault::Usage(format!(
            "{} has no runs of host {host}; hosts in it: {}{more}",
            dataset.display(),
            named.join(", ")
        )));
    }
    let ImportedRuns {
        added,
        known,
        unusable,
    } = history.import(&data, host)?;
    for line in data.warnings.iter().chain(&history.notes) {
        note(&format!("Warning: {line}"));
    }
    if unusable > 0 {
        note(&format!(
            "Warning: {} left out: start, CPU of the host or metrics unknown to this vmtax. Export the recordings again.",
            counted(unusable as u64, "run")
        ));
    }
    let folder = shell_line(&[runs.display().to_string()]);
    print(&format!(
        "{} added, {known} already known. Next: vmtax history --dir {folder}\n",
        counted(added as u64, "run")
    ))?;
    Ok(ExitCode::SUCCESS)
}
