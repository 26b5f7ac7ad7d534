//! `vmtax profile import`.

use super::folder::Folder;
use super::inside::SeenInside;
use super::present;
use super::take::Taken;
use crate::cli::ImportArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_profile::{Imported, import as read, summary};

pub fn import(args: &ImportArgs) -> Result<ExitCode, Fault> {
    Folder::check(args.out.as_deref())?;
    let Imported { found, pid, program, missing } = read(&args.file, args.pid, args.symbols.as_deref())?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if found.profile.total() == 0 {
        return Err(Fault::Usage(format!("{name} holds no samples: give another file")));
    }
    let mut findings = summary::of(&found, pid, &program);
    findings.missing = missing;
    findings.file = Some(name.clone());
    let folder = Folder::create(args.out.as_deref(), &name)?;
    present(
        &folder,
        args.json,
        &Taken { on_cpu: found, wall: None, findings, counted: None, inside: SeenInside::default() },
    )
}
