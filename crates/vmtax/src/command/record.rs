//! From a plan to a recording.

use super::interrupt::interrupt;
use super::{doctor, history, progress::Display, recording_folder};
use crate::cli::RecordArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use vmtax_import::AddedGuest;
use vmtax_model::{HostFacts, files};
use vmtax_runner::{Ended, Recorder, Watch};
use vmtax_studies::{Decisions, analyze};
use vmtax_vm::Streams;
use vmtax_workload::CheckedPlan;

/// A plan that was carried out.
pub(super) struct Recorded {
    /// Directory of the recording.
    pub folder: PathBuf,
    /// End of the run: complete, incomplete, interrupted, or by a command that failed.
    pub ended: Ended,
}

/// Carries a plan out, its command, if it has one, between `streams`.
pub(super) fn record(
    plan: &CheckedPlan,
    mut host: HostFacts,
    args: &RecordArgs,
    display: &Display,
    streams: Option<&Streams>,
) -> Result<Recorded, Fault> {
    if plan.guest.qemu.is_some() {
        // Its facts belong into the recording too.
        host = doctor::facts(plan.guest.qemu.as_deref());
    }
    let recorder = Recorder::prepare(plan, &host, &mut |progress| display.show(progress))?;
    // From here on there is something to end in good order; before, a signal's own effect is right.
    let interrupt = interrupt()?;
    let writer = recording_folder::begin(args, plan, &host)?;
    let folder = writer.folder().to_path_buf();
    let say = |line: &str| display.note(line);
    let ended = recorder.record(
        writer,
        &mut Watch {
            interrupt,
            streams,
            progress: &mut |progress| display.show(progress),
            decide: &mut Decisions::new(plan, &say),
        },
    );
    display.clear();
    let ended = ended?;
    if plan.is_attached() {
        add_guest(&folder).unwrap_or_else(|fault| display.note(&fault.to_string()));
    }
    // What else is attached to has no figures, and what changed nothing kept nothing.
    let has_figures = plan.tune().map_or(!plan.is_attached(), |spec| spec.apply);
    if has_figures && !matches!(ended, Ended::Interrupted | Ended::CommandFailed(_)) {
        history::remember(args, plan, &folder);
    }
    Ok(Recorded { folder, ended })
}

/// Joins what the guest traced with its host's trace, where it was fetched. The host's stands without it.
fn add_guest(folder: &Path) -> Result<(), Fault> {
    let recording = vmtax_recording::open(folder)?;
    let file = recording.trial_folder(0).join(files::GUEST_FILE);
    if !file.exists() {
        return Ok(());
    }
    let added = AddedGuest::add(&recording, &file);
    std::fs::remove_file(&file)
        .map_err(|e| Fault::file(format!("removing {}", file.display()), e))?;
    let added = added?;
    analyze(&recording)?;
    added.keep();
    Ok(())
}
