//! A plan's command: the host's root for guests, one run, and the metrics in its output.

use crate::RunError;
use crate::images::Images;
use crate::shares::ShareSetup;
use crate::tool_output::{Patterns, figures};
use std::path::Path;
use vmtax_model::{CpuSeconds, Execution, Net, Plan, Probes, Share, ShareMethod, TrialResult};
use vmtax_vm::{
    CommandRun, Files, Finished, MachineError, Observed, Ran, RootExtras, RunningMachine, Scratch,
    Sharing,
};

/// Each variant of the plan, in order.
pub(crate) fn share_setups(
    plan: &Plan,
    images: &Images,
    scratch: &Scratch,
) -> Result<Vec<ShareSetup>, RunError> {
    let source = scratch.folder().join("root");
    let making = |source: std::io::Error| MachineError::System {
        what: "making the folder of the guests' root".to_owned(),
        source,
    };
    let source = std::path::absolute(source).map_err(making)?;
    // The parts of a tuning have one scratch folder.
    std::fs::create_dir_all(&source).map_err(making)?;
    let besides = besides(plan)?;
    let setup = |variant: &vmtax_model::Variant| {
        let share = variant
            .share()
            .map_err(|e| e.to_string())
            .and_then(|share| match share {
                Some(share) => sharing(share, images, &source, &besides).map(Some),
                None => Err(
                    "a command in a guest needs the host's files: set share=9p or share=virtiofs"
                        .to_owned(),
                ),
            });
        ShareSetup::new(variant, share)
    };
    Ok(plan.variants.iter().map(setup).collect())
}

/// Returns what guests can access in addition to the read-only root.
fn besides(plan: &Plan) -> Result<RootExtras, MachineError> {
    let Some(command) = plan.command() else {
        return Ok(RootExtras::default());
    };
    for folder in &command.write {
        if !folder.is_dir() {
            let source = std::io::ErrorKind::NotADirectory.into();
            return Err(MachineError::NoTree {
                folder: folder.clone(),
                source,
            });
        }
    }
    Ok(RootExtras {
        writable: command.write.clone(),
        network: command.net.map(|Net::User| command.forward.clone()),
    })
}

fn sharing(
    share: Share,
    images: &Images,
    source: &Path,
    besides: &RootExtras,
) -> Result<Sharing, String> {
    let taken = |method| {
        method == share.method || (method == ShareMethod::NineP && !besides.writable.is_empty())
    };
    if let Some((method, why)) = images.refused.iter().find(|(method, _)| taken(*method)) {
        return Err(format!("share={method}: {why}"));
    }
    let server = match share.method {
        ShareMethod::NineP | ShareMethod::Virtiofs => {
            vmtax_vm::share_program(&share).map_err(|e| e.to_string())?
        }
        other => {
            return Err(format!(
                "share={other} cannot share the host's root: use 9p or virtiofs"
            ));
        }
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
    Ok(Patterns::new(
        plan.command().map_or(&[], |command| &command.metrics),
    )?)
}

/// The outcome of a command on a machine.
pub(crate) struct CommandOutcome {
    /// Result of the command's trial, and how the agent traced it.
    pub ran: Result<(TrialResult, Option<Observed>), MachineError>,
    /// Outcome of the command, if it started.
    pub execution: Option<Execution>,
    /// The host CPU time that it used, in a guest.
    pub cpu_seconds: Option<CpuSeconds>,
    /// True if the machine still runs.
    pub alive: bool,
}

/// Runs the shell lines before or after the command.
pub(crate) fn shell<'a>(
    machine: &mut dyn RunningMachine,
    mut lines: impl Iterator<Item = (&'static str, &'a str)>,
    run: CommandRun<'_>,
) -> Result<(), MachineError> {
    lines.try_for_each(|(option, line)| machine.shell(option, line, run))
}

/// Runs the plan's command on a machine, under `probes`.
pub(crate) fn run(
    machine: &mut dyn RunningMachine,
    run: CommandRun<'_>,
    patterns: &Patterns,
    probes: Probes,
    files: &mut Files<'_>,
) -> CommandOutcome {
    let command_outcome = |ran, execution, cpu_seconds, alive| CommandOutcome {
        ran,
        execution,
        cpu_seconds,
        alive,
    };
    match machine.exec(run, probes, files) {
        Ok(Ran::Done(mut finished)) => {
            parse_output(&mut finished, patterns);
            let Finished {
                execution,
                result,
                cpu_seconds,
                observed,
                ..
            } = *finished;
            command_outcome(Ok((result, observed)), Some(execution), cpu_seconds, true)
        }
        Ok(Ran::NotRun(status, error)) => {
            let execution = Execution {
                status,
                ..Execution::default()
            };
            command_outcome(
                Err(MachineError::Workload(error)),
                Some(execution),
                None,
                true,
            )
        }
        Ok(Ran::Stopped) => command_outcome(Err(MachineError::Interrupted), None, None, false),
        Err(error) => command_outcome(Err(error), None, None, false),
    }
}

/// Reads metrics from the output: those of known tools from standard output, those of the user's patterns from either stream.
fn parse_output(finished: &mut Finished, patterns: &Patterns) {
    let [stdout, stderr] = &finished.printed;
    let (output, errors) = (stdout.text(), stderr.text());
    let mut printed = figures(&output);
    let (named, mut missing) = patterns.find(&[&output, &errors]);
    printed.extend(named);
    if !missing.is_empty() && (stdout.is_cut() || stderr.is_cut()) {
        missing.push("only the first and the last 256 KiB of the output were searched".to_owned());
    }
    finished.result.notes.extend(missing);
    finished.execution.printed = printed;
}
