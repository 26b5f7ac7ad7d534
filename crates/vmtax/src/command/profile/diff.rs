//! `vmtax profile diff`.

use super::super::{print, style};
use crate::cli::DiffArgs;
use crate::fault::Fault;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use vmtax_model::ProfileFindings;
use vmtax_model::samples::Profile;
use vmtax_profile::{changes, flame, fold};

pub fn diff(args: &DiffArgs) -> Result<ExitCode, Fault> {
    draw(&args.before, &args.after, &args.out)?;
    let changes = changes(&read(&args.before)?, &read(&args.after)?);
    let unlike = match (findings(&args.before), findings(&args.after)) {
        (Some(before), Some(after)) => vmtax_report::profile::unlike(&before, &after),
        _ => Vec::new(),
    };
    print(&vmtax_report::profile::changes(&changes, &unlike).terminal(style(), false))?;
    print(&vmtax_report::printable(&format!("{}\n", args.out.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// The differential flame graph of two profiles, into a file.
pub fn draw(before: &Path, after: &Path, out: &Path) -> Result<(), Fault> {
    let title = format!("{} against {}", after.display(), before.display());
    let svg = flame::draw_difference(&read(before)?, &read(after)?, &title)?;
    let failed = |e| Fault::file(format!("writing {}: name a file with --out", out.display()), e);
    fs::write(out, svg).map_err(failed)
}

/// What else a profile's folder says of it; nothing where there is none, or it is of another version.
fn findings(path: &Path) -> Option<ProfileFindings> {
    serde_json::from_slice(&fs::read(path.join("profile.json")).ok()?).ok()
}

/// The folded stacks of a profile.
fn read(path: &Path) -> Result<Profile, Fault> {
    let file = if path.is_dir() { path.join("on-cpu.folded") } else { path.to_path_buf() };
    let failed = |e| {
        let what = format!("reading {}: give a profile's folder or a file of folded stacks", file.display());
        Fault::file(what, e)
    };
    Ok(fold::unfold(&fs::read_to_string(&file).map_err(failed)?, &file)?)
}
