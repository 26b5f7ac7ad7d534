//! The way of every study: from its options to a plan, a recording, a report.

use super::record::{Recorded, record};
use super::{doctor, once_more, print, progress::Display, recording_folder, report, streams};
use crate::cli::{RecordArgs, StudyArgs};
use crate::fault::{FAILED, Fault};
use std::path::PathBuf;
use std::process::ExitCode;
use vmtax_layers::LayersError;
use vmtax_model::{HostFacts, Study};
use vmtax_runner::Ended;
use vmtax_studies::{Answer, StudyError, StudyOptions, analyze, forecast, profiles_of_guests};
use vmtax_vm::Streams;
use vmtax_workload::CheckedPlan;

/// Carries out the plan that the options mean, and shows what was found.
pub fn study<O: StudyOptions>(args: &StudyArgs<O>) -> Result<ExitCode, Fault> {
    let host = doctor::facts(None);
    let (plan, record) = (args.options.plan(&host)?, &args.record);
    if record.dry_run {
        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    for line in vmtax_report::shares::not_measured(&plan) {
        eprintln!("Not measured: {}", vmtax_report::printable(&line));
    }
    if let Some(line) = forecast(&plan, &record.dir) {
        eprintln!("{}", vmtax_report::printable(&line));
    }
    let profiles = if args.options.is_profiled() {
        profiles_of_guests(&plan)
    } else {
        Vec::new()
    };
    let runs = plan.trials() + profiles.len() as u64;
    let streams = match plan.command() {
        Some(_) => Some(streams::of_command(
            &plan,
            runs,
            args.options.has_terminal(),
            record.json,
        )?),
        None => None,
    };
    let (status, folder) = carry_out(&plan, host.clone(), record, streams.as_ref())?;
    once_more::profile(profiles, &host, record, streams.as_ref())?;
    if args.options.traces_tuned() {
        once_more::layers(&folder, &host, record)?;
    }
    Ok(status)
}

/// Carries a plan out, its command, if it has one, between `streams`, and shows what was found; the exit status and
/// the recording.
fn carry_out(
    plan: &CheckedPlan,
    host: HostFacts,
    args: &RecordArgs,
    streams: Option<&Streams>,
) -> Result<(ExitCode, PathBuf), Fault> {
    recording_folder::check(args)?;
    let display = match streams {
        Some(_) => Display::beside_output(args.verbosity()),
        // How many rounds a tuning takes only its measurements tell.
        None if plan.guest_tune().is_some() => Display::open_ended(args.verbosity()),
        None => Display::new(
            u64::from(plan.rounds) * plan.trials_per_round(),
            args.verbosity(),
        ),
    };
    let Recorded { folder, ended } = record(plan, host, args, &display, streams)?;
    // Of a command that failed there is no figure to show.
    if let Ended::CommandFailed(failure) = ended {
        return Err(Fault::command_failed(failure, folder));
    }
    let recording = vmtax_recording::open(&folder)?;
    let answer = match analyze(&recording) {
        Ok(mut answer) => {
            report::show(
                &mut answer,
                &folder,
                args.json,
                args.details,
                streams.is_some(),
            )?;
            Some(answer)
        }
        // Where no observed trial came to its end there is nothing to show, and how the run ended says why.
        Err(_) if matches!(ended, Ended::Interrupted) => None,
        Err(StudyError::Layers(LayersError::Unobserved | LayersError::Failed(_)))
            if !matches!(ended, Ended::Complete) =>
        {
            None
        }
        Err(error) => return Err(error.into()),
    };
    let status = answer.as_ref().and_then(|answer| answer.command_status());
    match (ended, answer) {
        (Ended::Interrupted, _) => Err(Fault::Interrupted { folder }),
        // That the command went well where it ran must not pass for all.
        (Ended::Incomplete(first), answer)
            if status.unwrap_or(0) == 0 || answer.as_ref().is_some_and(Answer::is_reproduction) =>
        {
            Err(Fault::Incomplete {
                folder,
                first: first.to_string(),
            })
        }
        // Of a reproduction its verdict is what counts.
        (_, Some(answer)) if !answer.is_reproduction() && matches!(plan.study, Study::Exec(_)) => {
            let status = ExitCode::from(
                status
                    .and_then(|status| u8::try_from(status).ok())
                    .unwrap_or(FAILED),
            );
            Ok((status, folder))
        }
        (_, answer) => {
            let status = answer.map_or(ExitCode::SUCCESS, |answer| report::status(&answer));
            Ok((status, folder))
        }
    }
}
