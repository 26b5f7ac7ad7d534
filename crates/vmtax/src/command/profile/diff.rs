//! `vmtax profile diff`.

use super::super::{print, style};
use crate::cli::DiffArgs;
use crate::fault::Fault;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use vmtax_profile::{Profile, changes, flame, fold};

pub fn diff(args: &DiffArgs) -> Result<ExitCode, Fault> {
    draw(&args.before, &args.after, &args.out)?;
    let changes = changes(&read(&args.before)?, &read(&args.after)?);
    print(&vmtax_report::profile::changes(&changes, style()))?;
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

/// The folded stacks of a profile.
fn read(path: &Path) -> Result<Profile, Fault> {
    let file = if path.is_dir() { path.join("on-cpu.folded") } else { path.to_path_buf() };
    let failed = |e| {
        let what = format!("reading {}: give a profile's folder or a file of folded stacks", file.display());
        Fault::file(what, e)
    };
    Ok(fold::unfold(&fs::read_to_string(&file).map_err(failed)?, &file)?)
}
