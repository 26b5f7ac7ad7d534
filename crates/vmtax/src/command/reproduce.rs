//! `vmtax reproduce`: published results.

use super::print;
use super::study::study;
use crate::cli::StudyArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_studies::OptionsError;
use vmtax_studies::reproduce::{Asked, PublishedResult, ReproduceOptions, all};

pub fn reproduce(args: &StudyArgs<ReproduceOptions>) -> Result<ExitCode, Fault> {
    match args.options.asked()? {
        Asked::List => print(&all()?.iter().map(line).collect::<String>())?,
        Asked::Show(result) => print(&description(&result)?)?,
        Asked::Run(_) => match study(args) {
            Err(Fault::Options(OptionsError::NotTestable(why))) => print(&(why + "\n"))?,
            ended => return ended,
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn line(result: &PublishedResult) -> String {
    format!("{:20} {}\n{:20} takes {}\n", result.name, result.title, "", result.takes)
}

fn description(result: &PublishedResult) -> Result<String, Fault> {
    let PublishedResult { name, title, claim, source, takes, tests, plan, .. } = result;
    let claims = tests.iter().map(|test| format!("- {} (published: {})\n", test.what, test.published));
    let claims: String = claims.collect();
    let plan = plan.to_toml()?;
    Ok(format!(
        "{name}: {title}\n{claim}\nPublished in {source}.\nTakes {takes}.\n\nClaims:\n{claims}\nThe plan:\n{plan}"
    ))
}
