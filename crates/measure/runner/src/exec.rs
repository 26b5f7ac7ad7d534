//! A plan's command: the host's root for guests, and one run of it with what it says of itself.

use crate::RunError;
use crate::images::Images;
use crate::observe::{Observable, observed};
use crate::shares::{Way, program};
use crate::tool_output::{Patterns, figures};
use std::path::Path;
use std::time::Duration;
use vmtax_model::{Execution, Net, Plan, Probes, ProcessorSeconds, Share, ShareMethod, TrialResult};
use vmtax_recording::TrialFiles;
use vmtax_vm::{Besides, CommandRun, Finished, MachineError, Ran, RunningMachine, Scratch, Sharing, Streams, no_files};

/// Each variant of the plan, in order.
pub(crate) fn ways(plan: &Plan, images: &Images, scratch: &Scratch) -> Result<Vec<Way>, RunError> {
    let source = scratch.folder().join("root");
    let making =
        |source: std::io::Error| MachineError::System { what: "making a place for the root".to_owned(), source };
    let source = std::path::absolute(source).map_err(making)?;
    std::fs::create_dir(&source).map_err(making)?;
    let besides = besides(plan)?;
    let way = |variant: &vmtax_model::Variant| {
        let share = variant.share().map_err(|e| e.to_string()).and_then(|share| match share {
            Some(share) => sharing(share, images, &source, &besides).map(Some),
            None => Err("a command needs the host's files: add share=9p or share=virtiofs".to_owned()),
        });
        Way::new(variant, share)
    };
    Ok(plan.variants.iter().map(way).collect())
}

/// What guests have besides the root.
fn besides(plan: &Plan) -> Result<Besides, MachineError> {
    let Some(command) = plan.command() else { return Ok(Besides::default()) };
    for folder in &command.write {
        if !folder.is_dir() {
            let source = std::io::ErrorKind::NotADirectory.into();
            return Err(MachineError::NoTree { folder: folder.clone(), source });
        }
    }
    Ok(Besides { writable: command.write.clone(), network: command.net.map(|Net::User| command.forward.clone()) })
}

fn sharing(share: Share, images: &Images, source: &Path, besides: &Besides) -> Result<Sharing, String> {
    let taken = |method| method == share.method || (method == ShareMethod::NineP && !besides.writable.is_empty());
    if let Some((method, why)) = images.refused.iter().find(|(method, _)| taken(*method)) {
        return Err(format!("share={method}: {why}"));
    }
    let server = match share.method {
        ShareMethod::NineP => None,
        ShareMethod::Virtiofs => Some(program(&share)?),
        other => return Err(format!("share={other} cannot give guests the host's root: use 9p or virtiofs")),
    };
    Ok(Sharing {
        read_only: true,
        server,
        host_root: Some(besides.clone()),
        ..Sharing::new(share, source.to_path_buf())
    })
}

/// The expressions of the plan's command.
pub(crate) fn patterns(plan: &Plan) -> Result<Patterns, RunError> {
    Ok(Patterns::new(plan.command().map_or(&[], |command| &command.metrics))?)
}

/// Runs the plan's command on a machine, observed where there is something to observe it with; with how it ended, as far as
/// it began.
pub(crate) fn run(
    machine: &mut dyn RunningMachine,
    plan: &Plan,
    (streams, patterns): (Option<&Streams>, &Patterns),
    deadline: Duration,
    observe: Option<(&Observable<'_>, TrialFiles)>,
) -> (Result<TrialResult, MachineError>, Option<Execution>, Option<ProcessorSeconds>) {
    let Some((command, streams)) = plan.command().zip(streams) else {
        let error = "the plan's command has no streams to run between".to_owned();
        return (Err(MachineError::Workload(error)), None, None);
    };
    let run = CommandRun { command, streams, deadline };
    for (option, line) in command.before() {
        if let Err(error) = machine.shell(option, line, run) {
            return (Err(error), None, None);
        }
    }
    let ran = match observe {
        None => machine.exec(run, Probes::None, &mut no_files),
        Some((what, store)) => observed(machine, what, store, |machine, files| {
            let mut ran = machine.exec(run, what.probes, files)?;
            let seen = if let Ran::Done(finished) = &mut ran { finished.observed.take() } else { None };
            Ok((ran, seen))
        }),
    };
    // A machine that is no more needs no cleaning.
    let cleaned = match command.after().filter(|_| matches!(ran, Ok(Ran::Done(_) | Ran::NotRun(..)))) {
        Some((option, line)) => machine.shell(option, line, run),
        None => Ok(()),
    };
    match ran {
        Ok(Ran::Done(mut finished)) => {
            understand(&mut finished, patterns);
            let Finished { execution, result, processor, .. } = *finished;
            (cleaned.map(|()| result), Some(execution), processor)
        }
        Ok(Ran::NotRun(status, error)) => {
            (Err(MachineError::Workload(error)), Some(Execution { status, ..Execution::default() }), None)
        }
        Ok(Ran::Stopped) => (Err(MachineError::Interrupted), None, None),
        Err(error) => (Err(error), None, None),
    }
}

/// What the command printed becomes figures: known tools' from standard output, a person's from either stream.
fn understand(finished: &mut Finished, patterns: &Patterns) {
    let [stdout, stderr] = &finished.printed;
    let (output, errors) = (stdout.text(), stderr.text());
    let mut printed = figures(&output);
    let (named, mut missing) = patterns.find(&[&output, &errors]);
    printed.extend(named);
    if !missing.is_empty() && (stdout.is_cut() || stderr.is_cut()) {
        missing.push("of a long output only the beginning and the end are looked at, 256 KiB each".to_owned());
    }
    finished.result.notes.extend(missing);
    finished.execution.printed = printed;
}
