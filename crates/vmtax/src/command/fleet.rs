//! `vmtax fleet`: the hosts of a dataset, compared within their classes.

use super::{print, style};
use crate::cli::FleetArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::shell_line;
use vmtax_report::{fleet as report, plain_json};

pub fn fleet(args: &FleetArgs) -> Result<ExitCode, Fault> {
    let today = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let data = vmtax_export::read_dataset(&args.dataset, today)?;
    let findings = vmtax_analysis::fleet(&data, &args.class, args.min_effect / 100.0);
    drop(data);
    if args.json {
        print(&(plain_json(&findings)? + "\n"))?;
    }
    let words = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = ["vmtax".to_owned()].into_iter().chain(words).collect();
    let dataset = shell_line(&[args.dataset.display().to_string()]);
    let report = report::report(
        &findings,
        &dataset,
        env!("CARGO_PKG_VERSION"),
        &shell_line(&words),
    );
    if !args.json {
        print(&report.terminal(style(), args.details))?;
    }
    if let Some(path) = &args.output {
        std::fs::write(path, report.html())
            .map_err(|e| Fault::file(format!("writing {}", path.display()), e))?;
        if !args.json {
            print(&format!("\nReport: {}\n", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
