//! `vmtax export`: datasets of recordings, and traced requests in files of other tools.

use super::note;
use crate::cli::ExportArgs;
use crate::fault::Fault;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_export::{Added, Dataset, ObservedTrials, Perfetto, Requests, Segments, at_quantile};
use vmtax_layers::JoinedRequest;
use vmtax_model::number::counted;

pub fn export(args: &ExportArgs) -> Result<ExitCode, Fault> {
    if let Some(folder) = &args.dataset {
        return dataset(folder, args);
    }
    if args.perfetto.is_none() && args.parquet.is_none() && args.segments.is_none() {
        return Err(Fault::Usage(
            "nothing to write: name a directory with --dataset, or a file with --perfetto, --parquet or --segments"
                .to_owned(),
        ));
    }
    let [run] = &args.recordings[..] else {
        return Err(Fault::Usage(
            "--perfetto, --parquet and --segments are for one recording: name one".to_owned(),
        ));
    };
    let recording = vmtax_recording::open(run)?;
    let trials = ObservedTrials::read(&recording)?;
    if trials.is_empty() {
        let run = run.display();
        return Err(Fault::Usage(format!(
            "{run} has no observed trial: `vmtax layers` makes such recordings"
        )));
    }
    let joined_requests = write_requests(&trials, args)?;
    let files = [&args.perfetto, &args.parquet, &args.segments]
        .into_iter()
        .flatten();
    let names: Vec<String> = files.map(|path| path.display().to_string()).collect();
    note(&format!(
        "{joined_requests} requests of {} trials: {}",
        trials.len(),
        names.join(", ")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Writes the requests of traced trials into the files that were asked for, and returns their number.
fn write_requests(trials: &ObservedTrials<'_>, args: &ExportArgs) -> Result<usize, Fault> {
    let mut perfetto = create(args.perfetto.as_ref())?.map(Perfetto::new);
    let requests = create(args.parquet.as_ref())?;
    let mut requests = requests.map(Requests::new).transpose()?;
    let segments = create(args.segments.as_ref())?;
    let mut segments = segments.map(Segments::new).transpose()?;
    let mut joined_requests = 0;
    trials.for_each(|trial| {
        let joined = trial.joined;
        joined_requests += joined.requests.len();
        if let Some(out) = &mut perfetto {
            let only = args.only.iter();
            let only = only.filter_map(|q| at_quantile(joined, share(q)));
            let wanted: Vec<&JoinedRequest> = only.collect();
            out.add(&trial, |r| {
                args.only.is_empty() || wanted.iter().any(|w| std::ptr::eq(*w, r))
            })?;
        }
        if let Some(out) = &mut requests {
            out.add(&trial)?;
        }
        if let Some(out) = &mut segments {
            out.add(&trial)?;
        }
        Ok(())
    })?;
    perfetto.map_or(Ok(()), Perfetto::finish)?;
    requests.map_or(Ok(()), Requests::finish)?;
    segments.map_or(Ok(()), Segments::finish)?;
    Ok(joined_requests)
}

/// Adds recordings to a dataset. What cannot be read is named, and keeps none of the others out.
fn dataset(folder: &Path, args: &ExportArgs) -> Result<ExitCode, Fault> {
    let dataset = Dataset::create(folder, args.hash_host)?;
    let (mut sum, mut recordings, mut failed) = (Added::default(), 0, None);
    for path in &args.recordings {
        let added = vmtax_recording::open(path)
            .map_err(Fault::from)
            .and_then(|recording| {
                if !recording.damaged.is_empty() {
                    let (path, first) = (path.display(), &recording.damaged[0]);
                    let line = format!(
                        "{path}: left out {}; the first: {first}",
                        counted(recording.damaged.len() as u64, "trial")
                    );
                    note(&line);
                }
                let mut added = dataset.add(&recording)?;
                if args.requests {
                    added += dataset.add_requests(&recording)?;
                }
                Ok(added)
            });
        match added {
            Ok(added) => {
                recordings += 1;
                sum += added;
            }
            Err(fault) => {
                if let Some(before) = failed.replace(fault) {
                    note(&before.to_string());
                }
            }
        }
    }
    let (Added { written, unchanged }, of) = (sum, args.recordings.len());
    let line = format!(
        "{}: {recordings} of {of} recordings, {written} files written, {unchanged} unchanged",
        folder.display()
    );
    note(&line);
    if recordings > 0 && !vmtax_export::has_figures(folder) {
        note(
            "no recording in it has figures for `vmtax fleet` and `vmtax history`: those of running VMs have none",
        );
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn create(path: Option<&PathBuf>) -> Result<Option<File>, Fault> {
    let create = |path: &Path| {
        File::create(path).map_err(|e| {
            Fault::file(
                format!(
                    "creating {}: name a file in a directory that you may write to",
                    path.display()
                ),
                e,
            )
        })
    };
    path.map(|path| create(path)).transpose()
}

/// The share of requests that the named one outlasts or equals.
fn share(name: &str) -> f64 {
    match name {
        "p90" => 0.9,
        "p99" => 0.99,
        "max" => 1.0,
        _ => 0.5,
    }
}
