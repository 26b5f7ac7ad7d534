//! `vmtax compare`: sides, recordings, or a recording with its baseline.

use super::progress::Display;
use super::record::record;
use super::study::study;
use super::{host, print, report, write_file};
use crate::cli::StudyArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_recording::{Recording, open};
use vmtax_report::check as files;
use vmtax_studies::{Answer, CompareOptions, Compared, check, compare_recordings};
use vmtax_workload::CheckedPlan;

/// The exit status of a check that could test no metric: a pipeline must not take it for a success.
const TESTED_NOTHING: u8 = 3;

pub fn compare(args: &StudyArgs<CompareOptions>) -> Result<ExitCode, Fault> {
    match args.options.compared()? {
        Compared::Sides => study(args),
        Compared::Recordings(folders) => {
            let recordings: Vec<Recording> =
                folders.iter().map(|f| open(f)).collect::<Result<_, _>>()?;
            show(
                &compare_recordings(&recordings, args.options.min_effect())?.into(),
                args,
            )
        }
        Compared::WithBaseline { baseline, now } => {
            let thresholds = args.options.thresholds()?;
            let baseline = open(&baseline)?;
            let now = match now {
                Some(now) => now,
                None => {
                    let plan = args.options.plan_again(&baseline.plan)?;
                    if args.record.dry_run {
                        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
                    }
                    measure_again(&plan, args)?
                }
            };
            let findings = check(&baseline, &open(&now)?, &thresholds)?;
            write(args.options.junit.as_deref(), || files::junit(&findings))?;
            write(args.options.markdown.as_deref(), || {
                files::report(&findings).markdown()
            })?;
            let annotations = args.options.github.then(|| files::github(&findings));
            let tested_nothing = findings.tested_nothing();
            let status = show(&findings.into(), args)?;
            print(&annotations.unwrap_or_default())?;
            Ok(if tested_nothing {
                ExitCode::from(TESTED_NOTHING)
            } else {
                status
            })
        }
    }
}

fn show(answer: &Answer<'_>, args: &StudyArgs<CompareOptions>) -> Result<ExitCode, Fault> {
    report::put(answer, &args.record, false)?;
    Ok(report::status(answer))
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), Fault> {
    path.map_or(Ok(()), |path| write_file(path, text()))
}

/// The baseline's plan, carried out now.
fn measure_again(plan: &CheckedPlan, args: &StudyArgs<CompareOptions>) -> Result<PathBuf, Fault> {
    let display = Display::new(
        u64::from(plan.rounds) * plan.trials_per_round(),
        args.record.verbosity(),
    );
    record(plan, host::facts(None), &args.record, &display, None)?.complete()
}
