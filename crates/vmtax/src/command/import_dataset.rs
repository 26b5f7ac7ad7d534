//! `vmtax import --dataset`: figures and facts of runs on other hosts, into the history.

use super::print;
use crate::fault::Fault;
use std::path::Path;
use std::process::ExitCode;
use vmtax_model::shell_line;
use vmtax_recording::RecordingsFolder;
use vmtax_report::printable;
use vmtax_studies::history::{History, ImportedRuns};

pub fn import(dataset: &Path, host: Option<&str>, runs: &Path) -> Result<ExitCode, Fault> {
    let today = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let data = vmtax_export::read_dataset(dataset, today)?;
    let folder = RecordingsFolder::create(runs)?;
    let mut history = History::open(&folder)?;
    // A run that was recorded here is known by its recording.
    history.catch_up()?;
    if let Some(host) = host.filter(|host| data.runs.iter().all(|run| run.host != *host)) {
        let names = "select distinct host from 'DIR/figures/**/*.parquet' lists them in DuckDB";
        return Err(Fault::Usage(format!(
            "{} has no runs of a host {host}: {names}",
            dataset.display()
        )));
    }
    let ImportedRuns {
        added,
        known,
        unusable,
    } = history.import(&data, host)?;
    for line in data.warnings.iter().chain(&history.notes) {
        eprintln!("Warning: {}", printable(line));
    }
    if unusable > 0 {
        eprintln!(
            "Warning: {unusable} runs are left out: their start, their host's CPU or each of their metrics is unknown to this vmtax. Export \
             their recordings again."
        );
    }
    let folder = shell_line(&[runs.display().to_string()]);
    print(&format!(
        "{added} runs added, {known} already known. Next: vmtax history --dir {folder}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}
