//! Intervals as text, JSON lines, CSV or OpenMetrics.

use super::collect::{Collector, add_exits};
use super::exposition::Published;
use crate::cli::TopArgs;
use crate::command::interrupt::interrupt;
use crate::command::{print, style};
use crate::fault::Fault;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vmtax_model::TopSample;
use vmtax_vm::{Fleet, Interrupt, Level};

pub(super) fn run(args: &TopArgs, fleet: Fleet, level: Level) -> Result<ExitCode, Fault> {
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
        sample
            .notes
            .iter()
            .for_each(|note| eprintln!("{}", vmtax_report::printable(note)));
        return print(&vmtax_report::csv_rows(sample));
    }
    if args.batch || args.openmetrics.is_none() {
        return print(&(vmtax_report::top(sample).terminal(style(), true) + "\n"));
    }
    Ok(())
}
