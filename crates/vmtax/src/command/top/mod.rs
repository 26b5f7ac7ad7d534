//! `vmtax top`: what running VMs do, live on a screen, or interval by interval for other programs.

mod collect;
mod exposition;
mod live;

use super::{interrupt, note, print, style};
use crate::cli::TopArgs;
use crate::fault::Fault;
use collect::{Collector, add_exits};
use exposition::Published;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vmtax_findings::TopSample;
use vmtax_live::{Fleet, Level};
use vmtax_model::Counter;
use vmtax_vm::Interrupt;

pub fn top(args: &TopArgs) -> Result<ExitCode, Fault> {
    if let Some(name) = &args.explain {
        return explain(name);
    }
    let level = match args.level {
        0 => Level::Counters,
        1 => Level::Histograms,
        _ => Level::Traces,
    };
    super::host::undo_interrupted();
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
        print_intervals(args, fleet, level)
    } else {
        live::run(args, fleet, level)
    }
}

/// Prints the explanation of a column; for an unknown name the error lists the columns.
fn explain(name: &str) -> Result<ExitCode, Fault> {
    let is_named = |known: &str| {
        known.eq_ignore_ascii_case(name) || known.trim_matches('%').eq_ignore_ascii_case(name)
    };
    let Some(column) = Counter::columns().find(|column| is_named(column.column)) else {
        let known: Vec<&str> = Counter::columns().map(|column| column.column).collect();
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

/// Prints intervals as text, JSON lines, CSV or OpenMetrics.
fn print_intervals(args: &TopArgs, fleet: Fleet, level: Level) -> Result<ExitCode, Fault> {
    let interrupt = interrupt()?;
    let mut published = args.openmetrics.as_ref().map(Published::open).transpose()?;
    let (interval, samples) = match args.duration {
        Some(duration) => (duration, Some(1)),
        None => (args.interval, args.samples),
    };
    let mut collector = Collector::start(fleet, level)?;
    if args.csv {
        print(&vmtax_report::csv_head())?;
    }
    let mut done = 0;
    let mut due = Instant::now();
    while samples.is_none_or(|samples| done < samples) {
        publish(published.as_mut(), &collector)?;
        due += interval;
        let traced = if level == Level::Traces {
            collector.trace(None, due.saturating_duration_since(Instant::now()), &|| {
                interrupt.raised()
            })
        } else {
            Vec::new()
        };
        if waits(interrupt, due) {
            // Endless by what was asked: then the end is no failure.
            return Ok(samples.map_or(ExitCode::SUCCESS, |_| ExitCode::from(130)));
        }
        let mut sample = collector.sample()?;
        add_exits(&mut sample, traced);
        show(args, &sample)?;
        done += 1;
        // After a stop of the host, or a slow sample, intervals are not made up for.
        due = due.max(Instant::now());
        if !args.vms.is_empty() && collector.counters().is_empty() {
            return Err(Fault::Usage(format!(
                "{} ended: `vmtax vms` lists the VMs that run",
                args.vms.join(", ")
            )));
        }
    }
    publish(published.as_mut(), &collector)?;
    Ok(ExitCode::SUCCESS)
}

fn publish(published: Option<&mut Published>, collector: &Collector) -> Result<(), Fault> {
    published.map_or(Ok(()), |published| {
        published.replace(&vmtax_report::openmetrics(&collector.counters()))
    })
}

/// Waits until then; whether a signal came first.
fn waits(interrupt: &Interrupt, until: Instant) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt.raised() || left.is_zero() {
            return interrupt.raised();
        }
        let Ok(left) = Timespec::try_from(left.max(Duration::from_millis(1))) else {
            return true;
        };
        let _ = poll(&mut [PollFd::new(interrupt, PollFlags::IN)], Some(&left));
    }
}

fn show(args: &TopArgs, sample: &TopSample) -> Result<(), Fault> {
    if args.json {
        let line = serde_json::to_string(sample).map_err(vmtax_report::ReportError::from)?;
        return print(&(line + "\n"));
    }
    if args.csv {
        sample.notes.iter().for_each(|line| note(line));
        return print(&vmtax_report::csv_rows(sample));
    }
    if args.batch || args.openmetrics.is_none() {
        return print(&(vmtax_report::top(sample).terminal(style(), true) + "\n"));
    }
    Ok(())
}
