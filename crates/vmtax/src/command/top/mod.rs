//! `vmtax top`: what running VMs do, live on a screen, or interval by interval for other programs.

mod batch;
mod collect;
mod exits;
mod exposition;
mod live;

use super::print;
use crate::cli::TopArgs;
use crate::fault::Fault;
use std::io::IsTerminal;
use std::process::ExitCode;
use vmtax_report::top_columns;
use vmtax_vm::{Fleet, Level};

pub fn top(args: &TopArgs) -> Result<ExitCode, Fault> {
    if let Some(name) = &args.explain {
        return explain(name);
    }
    let level = match args.level {
        0 => Level::Counters,
        1 => Level::Histograms,
        _ => Level::Traces,
    };
    super::undo::undo_interrupted();
    if level == Level::Traces {
        vmtax_observe::remove_stale_traces();
    }
    let fleet = Fleet::find(&args.vms, level)?;
    let is_batch = args.batch
        || args.json
        || args.csv
        || args.openmetrics.is_some()
        || args.duration.is_some();
    if is_batch || !std::io::stdout().is_terminal() {
        batch::run(args, fleet, level)
    } else {
        live::run(args, fleet, level)
    }
}

/// Prints the explanation of a column; for an unknown name the error lists the columns.
fn explain(name: &str) -> Result<ExitCode, Fault> {
    let is_named = |known: &str| {
        known.eq_ignore_ascii_case(name) || known.trim_matches('%').eq_ignore_ascii_case(name)
    };
    let Some(column) = top_columns().find(|column| is_named(column.column)) else {
        let known: Vec<&str> = top_columns().map(|column| column.column).collect();
        return Err(Fault::Usage(format!(
            "there is no column \"{name}\": choose from {}",
            known.join(", ")
        )));
    };
    print(&format!(
        "{}: {}. {}\n",
        column.column, column.what, column.explanation
    ))?;
    Ok(ExitCode::SUCCESS)
}
