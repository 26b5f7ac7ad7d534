use super::print;
use crate::cli::Cli;
use crate::fault::Fault;
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;

pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Fault> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vmtax", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

pub fn man(folder: &Path) -> Result<ExitCode, Fault> {
    let failed = |e| Fault::file(format!("writing manual pages into {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
