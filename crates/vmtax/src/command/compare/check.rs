//! `vmtax compare --check`: for pipelines.

use super::recordings::name;
use crate::cli::CompareArgs;
use crate::command::progress::Display;
use crate::command::record::{Recorded, record};
use crate::command::{doctor, print, style};
use crate::fault::Fault;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_analysis::Side;
use vmtax_model::{Plan, Thresholds};
use vmtax_report::check as report;
use vmtax_runner::Ended;

pub fn check(args: &CompareArgs, baseline: &Path) -> Result<ExitCode, Fault> {
    let thresholds = thresholds(args.thresholds.as_deref())?;
    let base = vmtax_recording::open(baseline)?;
    let now = match args.sides.as_slice() {
        [] => measured_again(&base.plan, args)?,
        [one] => PathBuf::from(one),
        _ => return Err(Fault::Usage("--check takes one recording to be checked, or none to measure anew".to_owned())),
    };
    if args.record.dry_run && args.sides.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let recording = vmtax_recording::open(&now)?;
    let names = [name(baseline), name(&now)];
    let findings = vmtax_analysis::check(
        &Side { name: &names[0], plan: &base.plan, trials: &base.trials },
        &Side { name: &names[1], plan: &recording.plan, trials: &recording.trials },
        &thresholds,
    );
    if findings.rows.is_empty() {
        return Err(Fault::Usage(format!(
            "{} and {} have no metric in common that was measured on the same machine by the same workload: nothing is checked",
            names[0], names[1]
        )));
    }
    let write = |path: &Option<PathBuf>, text: String| match path {
        Some(path) => fs::write(path, text).map_err(|e| Fault::file(format!("writing {}", path.display()), e)),
        None => Ok(()),
    };
    write(&args.junit, report::junit(&findings))?;
    write(&args.markdown, report::report(&findings).markdown())?;
    if args.record.json {
        print(&report::json(&findings)?)?;
    } else {
        print(&report::report(&findings).terminal(style(), false))?;
    }
    if args.github {
        print(&report::github(&findings))?;
    }
    Ok(if findings.failed() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// The baseline's plan, carried out now.
fn measured_again(plan: &Plan, args: &CompareArgs) -> Result<PathBuf, Fault> {
    let plan = Plan { rounds: args.rounds.unwrap_or(plan.rounds), ..plan.clone() };
    if args.record.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(PathBuf::new());
    }
    if plan.command().is_some() {
        let what = "a command's recording is not measured again by --check: run it with `vmtax exec`, and name that recording too";
        return Err(Fault::Usage(what.to_owned()));
    }
    let display = Display::new(u64::from(plan.rounds) * plan.trials_per_round());
    let host = doctor::facts(plan.guest.qemu.as_deref());
    let Recorded { folder, ended } = record(&plan, host, &args.record, &display, None, &mut |_, _| true)?;
    match ended {
        Ended::Complete => Ok(folder),
        Ended::Incomplete(first) => Err(Fault::Incomplete { folder, first: first.to_string() }),
        Ended::Interrupted => Err(Fault::Interrupted { folder }),
    }
}

fn thresholds(file: Option<&Path>) -> Result<Thresholds, Fault> {
    let Some(file) = file else { return Ok(Thresholds::default()) };
    let text = fs::read_to_string(file).map_err(|e| Fault::file(format!("reading {}", file.display()), e))?;
    Thresholds::from_toml(&text).map_err(|e| Fault::Usage(format!("{}: {e}", file.display())))
}
