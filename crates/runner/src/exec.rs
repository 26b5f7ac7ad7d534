//! A plan's command: the host's root for guests, and one run of it.

use crate::RunError;
use crate::images::Images;
use crate::machine::Up;
use crate::shares::{Way, program};
use std::path::Path;
use std::time::Duration;
use vmtax_machine::{MachineError, Ran, Scratch, Sharing, Streams};
use vmtax_model::{Execution, Plan, ProcessorSeconds, Share, ShareMethod, TrialResult};

/// Each variant of the plan, in order.
pub(crate) fn ways(plan: &Plan, images: &Images, scratch: &Scratch) -> Result<Vec<Way>, RunError> {
    let source = scratch.folder().join("root");
    let making =
        |source: std::io::Error| MachineError::System { what: "making a place for the root".to_owned(), source };
    let source = std::path::absolute(source).map_err(making)?;
    std::fs::create_dir(&source).map_err(making)?;
    let way = |variant: &vmtax_model::Variant| {
        let share = variant.share().map_err(|e| e.to_string()).and_then(|share| match share {
            Some(share) => sharing(share, images, &source).map(Some),
            None => Err("a command needs the host's files: add share=9p or share=virtiofs".to_owned()),
        });
        Way { disk: variant.disk(), share }
    };
    Ok(plan.variants.iter().map(way).collect())
}

fn sharing(share: Share, images: &Images, source: &Path) -> Result<Sharing, String> {
    if let Some((_, why)) = images.refused.iter().find(|(method, _)| *method == share.method) {
        return Err(format!("share={}: {why}", share.method));
    }
    let server = match share.method {
        ShareMethod::NineP => None,
        ShareMethod::Virtiofs => Some(program(&share)?),
        other => return Err(format!("share={other} cannot give guests the host's root: use 9p or virtiofs")),
    };
    Ok(Sharing { read_only: true, server, host_root: true, ..Sharing::new(share, source.to_path_buf()) })
}

/// Runs the plan's command on a machine; with how it ended, as far as it began.
pub(crate) fn run(
    machine: &mut Up<'_>,
    plan: &Plan,
    streams: Option<&Streams>,
    deadline: Duration,
) -> (Result<TrialResult, MachineError>, Option<Execution>, Option<ProcessorSeconds>) {
    let Some((command, streams)) = plan.command.as_ref().zip(streams) else {
        let error = "the plan's command has no streams to run between".to_owned();
        return (Err(MachineError::Workload(error)), None, None);
    };
    match machine.exec(command, streams, deadline) {
        Ok(Ran::Done(execution, result, processor)) => (Ok(*result), Some(execution), processor),
        Ok(Ran::NotRun(status, error)) => {
            let execution = Execution { status, left: 0, window_s: None, busy_s: None, stolen_s: None };
            (Err(MachineError::Workload(error)), Some(execution), None)
        }
        Ok(Ran::Stopped) => (Err(MachineError::Interrupted), None, None),
        Err(error) => (Err(error), None, None),
    }
}
