//! `vmtax build`: QEMUs from source.

use super::{get, print};
use crate::cli::{BuildArgs, BuildWhat};
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_guests::qemu::Recipe;

pub fn build(args: &BuildArgs) -> Result<ExitCode, Fault> {
    let BuildWhat::Qemu {
        source,
        patch,
        configure,
    } = &args.what;
    let words = configure
        .iter()
        .flat_map(|words| words.split_whitespace())
        .map(str::to_owned)
        .collect();
    let recipe = Recipe {
        source: source.clone(),
        patches: patch.clone(),
        configure: words,
    };
    let cache = vmtax_guests::kernel::cache_dir()?;
    let qemu = vmtax_guests::qemu::build(&recipe, &cache, &mut |line| {
        eprintln!("{}", vmtax_report::printable(line))
    })?;
    print(&get::line(&qemu))?;
    Ok(ExitCode::SUCCESS)
}
