//! `vmtax profile diff`.

use super::super::print;
use crate::cli::DiffArgs;
use crate::fault::Fault;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use vmtax_profile::{Profile, flame, fold};

pub fn diff(args: &DiffArgs) -> Result<ExitCode, Fault> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let title = format!("{} against {}", args.after.display(), args.before.display());
    let svg = flame::draw_difference(&before, &after, &title)?;
    let failed = |e| Fault::file(format!("writing {}: name a file with --out", args.out.display()), e);
    fs::write(&args.out, svg).map_err(failed)?;
    print(&vmtax_report::printable(&format!("{}\n", args.out.display())))?;
    Ok(ExitCode::SUCCESS)
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
