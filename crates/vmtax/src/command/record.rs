//! From a plan to a recording.

use super::folder::Folder;
use super::{doctor, history, progress::Display};
use crate::cli::RecordArgs;
use crate::fault::Fault;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use vmtax_model::{HostFacts, Plan};
use vmtax_runner::{Ended, Watch, find_means};
use vmtax_vm::{Interrupt, Streams};

/// A plan that was carried out.
pub(super) struct Recorded {
    /// The recording.
    pub folder: PathBuf,
    /// How it ended.
    pub ended: Ended,
}

/// Carries a plan out, its command, if it has one, between `streams`. `go_on` is asked after each whole round, by the
/// recording's folder and how many rounds there are.
pub(super) fn record(
    plan: &Plan,
    host: HostFacts,
    args: &RecordArgs,
    display: &Display,
    streams: Option<&Streams>,
    go_on: &mut dyn FnMut(&Path, u32) -> bool,
) -> Result<Recorded, Fault> {
    record_into(&Folder { runs: &args.runs, named: None }, plan, host, display, streams, go_on)
}

/// The same, into such a folder.
pub(super) fn record_into(
    into: &Folder<'_>,
    plan: &Plan,
    mut host: HostFacts,
    display: &Display,
    streams: Option<&Streams>,
    go_on: &mut dyn FnMut(&Path, u32) -> bool,
) -> Result<Recorded, Fault> {
    if plan.guest.qemu.is_some() {
        // It may be named by the plan's file alone: its facts belong into the recording too.
        host = doctor::facts(plan.guest.qemu.as_deref());
    }
    let means = find_means(plan, &host, &vmtax_guests::kernel::cache_dir, &mut |line| display.say(line))?;
    // From here on there is something to end in good order; before, a signal's own effect is right.
    let interrupt = interrupt()?;
    vmtax_vm::sweep(into.runs);
    vmtax_observe::sweep();
    let mut writer = into.begin(plan, &host)?;
    let folder = writer.folder().to_path_buf();
    let mut watch = Watch { progress: &mut |p| display.show(p), go_on: &mut |rounds| go_on(&folder, rounds) };
    let ended = vmtax_runner::run(plan, means.as_ref(), &mut writer, &interrupt, streams, &mut watch);
    display.clear();
    let ended = ended?;
    if !matches!(ended, Ended::Interrupted) {
        writer.finish()?;
        if into.named.is_none() {
            history::remember(into.runs, &folder);
        }
    }
    Ok(Recorded { folder, ended })
}

/// Ctrl-C and its like end the trial under way in good order.
fn interrupt() -> Result<Interrupt, Fault> {
    let failed = |e| Fault::file("catching signals", e);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let end = theirs.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, end).map_err(failed)?;
    }
    Ok(Interrupt::new(ours.into()))
}
