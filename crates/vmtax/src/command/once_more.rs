//! A profile of each guest, or the layers of its requests, beside what a study measured, so that no sampling or tracing is in a figure.

use super::record::{Recorded, record};
use super::{progress::Display, report};
use crate::cli::RecordArgs;
use crate::fault::Fault;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{HostFacts, Plan};
use vmtax_runner::Ended;
use vmtax_studies::{analyze, draw_difference, layers_of_tuned, moved_layer};
use vmtax_vm::Streams;
use vmtax_workload::CheckedPlan;

/// Carries out these plans of profiles, each with its name, into recordings of their own; into all but the first also what
/// differs from the first.
pub(super) fn profile(
    plans: Vec<(String, Plan)>,
    host: &HostFacts,
    args: &RecordArgs,
    streams: Option<&Streams>,
) -> Result<(), Fault> {
    let args = RecordArgs {
        output: None,
        ..args.clone()
    };
    let mut first: Option<PathBuf> = None;
    for (of, plan) in plans {
        let folder = whole(plan, host, &args, streams)?;
        let mut line = format!("profile of {of}: {}", folder.join("report.html").display());
        match &first {
            None => first = Some(folder),
            Some(first) => {
                let picture = folder.join("difference.svg");
                let written = fs::write(&picture, draw_difference(first, &folder)?);
                written.map_err(|e| Fault::file(format!("writing {}", picture.display()), e))?;
                line += &format!(", what differs: {}", picture.display());
            }
        }
        eprintln!("{}", vmtax_report::printable(&line));
    }
    Ok(())
}

/// Traces the requests of the guest of a tuning, as it was and as it is kept, and says which layer moved. Nothing where nothing is kept.
pub(super) fn layers(tuning: &Path, host: &HostFacts, args: &RecordArgs) -> Result<(), Fault> {
    let Some(plan) = layers_of_tuned(&vmtax_recording::open(tuning)?) else {
        return Ok(());
    };
    let folder = whole(
        plan,
        host,
        &RecordArgs {
            output: None,
            ..args.clone()
        },
        None,
    )?;
    let moved = moved_layer(&vmtax_recording::open(&folder)?)?;
    let moved =
        moved.unwrap_or_else(|| "the requests could not be followed through the layers".to_owned());
    let line = format!("layers: {moved}: {}", folder.join("report.html").display());
    eprintln!("{}", vmtax_report::printable(&line));
    Ok(())
}

/// A recording of a plan with its page; an error unless it came to its end.
fn whole(
    plan: Plan,
    host: &HostFacts,
    args: &RecordArgs,
    streams: Option<&Streams>,
) -> Result<PathBuf, Fault> {
    let plan = CheckedPlan::new(plan)?;
    let Recorded { folder, ended } = record(
        &plan,
        host.clone(),
        args,
        &Display::beside_output(args.verbosity()),
        streams,
    )?;
    match ended {
        Ended::Interrupted => return Err(Fault::Interrupted { folder }),
        Ended::CommandFailed(failure) => return Err(Fault::command_failed(failure, folder)),
        Ended::Incomplete(why) => {
            return Err(Fault::Incomplete {
                folder,
                first: why.to_string(),
            });
        }
        Ended::Complete => {}
    }
    let recording = vmtax_recording::open(&folder)?;
    report::write(&mut analyze(&recording)?, &folder)?;
    Ok(folder)
}
