//! `vmtax get` and `vmtax build`: kernels and QEMUs for guests, fetched or built from source.

use super::{note, print};
use crate::cli::{BuildArgs, BuildWhat, GetArgs, GetWhat};
use crate::fault::Fault;
use std::fmt::{Display, Write};
use std::path::Path;
use std::process::ExitCode;
use vmtax_guests::kernel::UnusableKernel;
use vmtax_guests::qemu::{Fetched, Recipe};
use vmtax_model::SourceOfKernel;

pub fn get(args: &GetArgs) -> Result<ExitCode, Fault> {
    let cache = vmtax_guests::kernel::cache_dir()?;
    match &args.what {
        Some(GetWhat::Kernel { wanted }) => {
            let kernel =
                vmtax_guests::kernel::fetch(wanted.as_deref(), &cache, &mut |line| note(line))?;
            print(&format!("{}  {}\n", kernel.release, kernel.image.display()))?;
        }
        Some(GetWhat::Qemu { wanted: None }) => print(&qemus(&cache))?,
        Some(GetWhat::Qemu {
            wanted: Some(wanted),
        }) => {
            let qemu = vmtax_guests::qemu::fetch(wanted, &cache, &mut |line| note(line))?;
            print(&line(&qemu))?;
        }
        None => print(&listing(&cache)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn listing(cache: &Path) -> Result<String, Fault> {
    let mut text = String::from("Guest kernels on this host:\n");
    let found = vmtax_guests::kernel::find(Some(cache));
    for (i, kernel) in found.kernels.iter().enumerate() {
        let default = if i == 0 { "  (default)" } else { "" };
        let of = match vmtax_guests::kernel::suites(cache, &kernel.release) {
            suites if kernel.source == SourceOfKernel::Cache && !suites.is_empty() => {
                format!("  {}", suites.join(", "))
            }
            _ => String::new(),
        };
        let (release, image) = (&kernel.release, kernel.image.display());
        let _ = writeln!(text, "  {release}{of}  {image}{default}");
    }
    // One that is not installed is not unusable.
    for UnusableKernel { path, reason } in
        found.unusable.iter().filter(|kernel| kernel.path.exists())
    {
        let _ = writeln!(text, "  unusable: {}: {reason}", path.display());
    }
    if found.kernels.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str("Available via `vmtax get kernel VERSION|SUITE`; other suites work too:\n");
    let releases = vmtax_guests::kernel::list_fetchable().map(|releases| {
        let lines = releases.iter().map(|release| format!("  {release}\n"));
        lines.collect()
    });
    text += &releases.unwrap_or_else(unknown);
    let suites = vmtax_guests::kernel::available();
    text += &suites.map_or_else(unknown, |suites| suites_with(&suites));
    text += &qemus(cache);
    Ok(text)
}

fn qemus(cache: &Path) -> String {
    let mut text = String::from(
        "QEMUs that were fetched or built, for --qemu VERSION, SUITE or both (a built one: its name):\n",
    );
    let found = vmtax_guests::qemu::find(cache);
    for qemu in &found {
        text += &format!("  {}", line(qemu));
    }
    if found.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str("Available via `vmtax get qemu VERSION|SUITE`; other suites work too:\n");
    let suites = vmtax_guests::qemu::available();
    text + &suites.map_or_else(unknown, |suites| suites_with(&suites))
}

/// The line for a list that is not available.
fn unknown(error: impl Display) -> String {
    format!("  unknown: {error}\n")
}

fn suites_with(versions: &[(&str, Option<&str>)]) -> String {
    versions
        .iter()
        .map(|(suite, version)| {
            format!("  {suite}  {}\n", version.unwrap_or("newest in the suite"))
        })
        .collect()
}

/// One QEMU: version, suite or what it was built of, size, path.
fn line(qemu: &Fetched) -> String {
    let (version, suite, mb) = (&qemu.version, &qemu.suite, qemu.size() as f64 / 1e6);
    format!("{version}  {suite}  {mb:.0} MB  {}\n", qemu.path.display())
}

pub fn build(args: &BuildArgs) -> Result<ExitCode, Fault> {
    let BuildWhat::Qemu {
        source,
        patch,
        configure,
    } = &args.what;
    let words = configure.iter().flat_map(|words| words.split_whitespace());
    let recipe = Recipe {
        source: source.clone(),
        patches: patch.clone(),
        configure: words.map(str::to_owned).collect(),
    };
    let cache = vmtax_guests::kernel::cache_dir()?;
    let qemu = vmtax_guests::qemu::build(&recipe, &cache, &mut note)?;
    print(&line(&qemu))?;
    Ok(ExitCode::SUCCESS)
}
