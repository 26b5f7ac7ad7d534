//! `vmtax reproduce`: published results.

use super::study::study;
use super::{note, print};
use crate::cli::StudyArgs;
use crate::fault::Fault;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use vmtax_host::HostError;
use vmtax_studies::OptionsError;
use vmtax_studies::reproduce::{Asked, PublishedResult, ReproduceOptions, all};

pub fn reproduce(args: &StudyArgs<ReproduceOptions>) -> Result<ExitCode, Fault> {
    match args.options.asked()? {
        Asked::List => print(&all()?.iter().map(line).collect::<String>())?,
        Asked::Show(result) => print(&description(&result)?)?,
        Asked::Run(result) => {
            if !args.record.dry_run {
                fetch_qemus(&result)?;
            }
            match study(args) {
                Err(Fault::Options(OptionsError::NotTestable(why))) => print(&(why + "\n"))?,
                ended => return ended,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fetches the QEMUs that a published result compares and that are not here; what and how much is printed before.
fn fetch_qemus(result: &PublishedResult) -> Result<(), Fault> {
    let wanted: BTreeSet<&str> = result
        .plan
        .variants
        .iter()
        .filter_map(|variant| variant.get("qemu"))
        .collect();
    for name in wanted {
        let is_missing = matches!(
            vmtax_host::best_qemu(Some(Path::new(name))),
            Err(HostError::QemuNotFetched { .. })
        );
        // One that has to be built is named with its command by the error.
        if is_missing && !vmtax_guests::qemu::is_name_of_built(name) {
            let cache = vmtax_guests::kernel::cache_dir()?;
            note(&format!(
                "{} needs QEMU {name}, which is not here: fetching it",
                result.name
            ));
            vmtax_guests::qemu::fetch(name, &cache, &mut |line| note(line))?;
        }
    }
    Ok(())
}

fn line(result: &PublishedResult) -> String {
    format!(
        "{:20} {}\n{:20} takes {}\n",
        result.name, result.title, "", result.takes
    )
}

fn description(result: &PublishedResult) -> Result<String, Fault> {
    let PublishedResult {
        name,
        title,
        claim,
        source,
        takes,
        tests,
        plan,
        ..
    } = result;
    let claims = tests
        .iter()
        .map(|test| format!("- {} (published: {})\n", test.what, test.published));
    let claims: String = claims.collect();
    let plan = plan.to_toml()?;
    Ok(format!(
        "{name}: {title}\n{claim}\nPublished in {source}.\nTakes {takes}.\n\nClaims:\n{claims}\nThe plan:\n{plan}"
    ))
}
