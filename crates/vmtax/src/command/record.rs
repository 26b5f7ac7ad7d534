//! From a plan to a recording.

use super::interrupt::{interrupt, stop_flag};
use super::{doctor, history, progress::Display, recording_folder, tune_guest};
use crate::cli::RecordArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vmtax_import::AddedGuest;
use vmtax_model::number::{counted, nanoseconds};
use vmtax_model::{HostFacts, Plan, Study, TuneRecord, files};
use vmtax_observe::StopTime;
use vmtax_recording::{TrialFiles, Writer};
use vmtax_runner::{Ended, Requirements, Watch, find_requirements};
use vmtax_studies::{InterimAnalyses, analyze};
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
    if plan.is_attached() {
        return attach(plan, &host, args, display);
    }
    if plan.guest.qemu.is_some() {
        // Its facts belong into the recording too.
        host = doctor::facts(plan.guest.qemu.as_deref());
    }
    if plan.guest_tune().is_some() {
        let interrupt = interrupt()?;
        let mut writer = recording_folder::begin(args, plan, &host)?;
        let folder = writer.folder().to_path_buf();
        let ended = tune_guest::measure(plan, &host, &mut writer, &interrupt, streams, display);
        display.clear();
        let ended = ended?;
        return finish(writer, plan, folder, ended, args);
    }
    let means = find_requirements(plan, &host, &vmtax_guests::kernel::cache_dir, &mut |line| {
        display.note(line)
    })?;
    // From here on there is something to end in good order; before, a signal's own effect is right.
    let interrupt = interrupt()?;
    let mut writer = recording_folder::begin(args, plan, &host)?;
    writer.note_kernels(means.as_ref().map_or(&[], Requirements::kernels))?;
    let folder = writer.folder().to_path_buf();
    let mut interim = InterimAnalyses::new(plan);
    let mut enough = None;
    let mut watch = Watch {
        progress: &mut |p| display.show(p),
        go_on: &mut |rounds| {
            // Of a published result the claims' verdicts count: when each has its own, no further round is needed. A
            // comparison has interim analyses of its own.
            if plan.reproduces.is_some()
                && plan.comparison().is_none()
                && vmtax_studies::is_decided(&folder, rounds)
            {
                enough = Some(rounds);
            }
            enough.is_none() && interim.go_on(&folder, rounds, &|line| display.note(line))
        },
        before: None,
    };
    let ended = vmtax_runner::run(
        plan,
        means.as_ref(),
        &mut writer,
        &interrupt,
        streams,
        &mut None,
        &mut watch,
    );
    display.clear();
    let ended = ended?;
    if let Some(rounds) = enough {
        writer.shorten(rounds)?;
    }
    finish(writer, plan, folder, ended, args)
}

/// Marks a recording as ended, unless it was interrupted.
fn finish(
    writer: Writer,
    plan: &Plan,
    folder: PathBuf,
    ended: Ended,
    args: &RecordArgs,
) -> Result<Recorded, Fault> {
    if !matches!(ended, Ended::Interrupted | Ended::CommandFailed(_)) {
        writer.finish()?;
        history::remember(args, plan, &folder);
    }
    Ok(Recorded { folder, ended })
}

/// Observes a process that runs already.
fn attach(
    plan: &Plan,
    host: &HostFacts,
    args: &RecordArgs,
    display: &Display,
) -> Result<Recorded, Fault> {
    let settings = plan.profile();
    let of_vm = plan.running_vm();
    let Some(pid) = of_vm
        .map(|vm| vm.pid)
        .or(settings.and_then(|settings| settings.pid))
    else {
        let what = "the plan is of files of another tool: give these to `vmtax import`, stacks to `vmtax profile import`";
        return Err(Fault::Usage(what.to_owned()));
    };
    of_vm.map_or(Ok(()), vmtax_vm::check_identity)?;
    // A diagnosis lists what this user may not observe.
    if !matches!(plan.study, Study::Diagnose(_) | Study::Tune(_)) {
        vmtax_observe::may_observe(pid)?;
    }
    if let Some((settings, limit)) =
        settings.and_then(|settings| Some((settings, settings.stop_limit()?)))
    {
        display.note(&expected_stops(pid, settings.wall_hz, limit));
    }
    let stopped = stop_flag()?;
    let writer = recording_folder::begin(args, plan, host)?;
    let folder = writer.folder().to_path_buf();
    let _watchdog = vmtax_vm::Watchdog::start(Vec::new())?;
    let observe = |files: TrialFiles| match (&plan.study, settings) {
        (Study::Diagnose(vm), _) => vmtax_runner::diagnose(vm, &|| writer.trial_files(0), &stopped),
        (Study::Tune(spec), _) => {
            let mut next = |records: &[TuneRecord]| {
                let step = vmtax_analysis::next_step(spec, plan.seed, records);
                if let Some(line) = vmtax_report::tune::begins(spec, records, &step) {
                    display.note(&line);
                }
                step
            };
            vmtax_runner::tune(spec, files, &mut next, &stopped)
        }
        (Study::VmLayers(vm), _) => vmtax_runner::vm_layers(vm, files, &stopped),
        (Study::VmExits(vm), _) => vmtax_runner::vm_exits(vm, files, &stopped),
        (_, Some(settings)) => vmtax_runner::profile(pid, settings, files, &stopped),
        (_, None) => Ok(()),
    };
    let observed = writer
        .trial_files(0)
        .map_err(Fault::from)
        .and_then(|files| Ok(observe(files)?));
    if let Err(fault) = observed {
        writer.discard();
        return Err(fault);
    }
    writer.finish()?;
    if let Err(fault) = add_guest(&folder) {
        display.note(&fault.to_string());
    }
    // What else is attached to has no figures, and what changed nothing kept nothing.
    if plan.tune().is_some_and(|spec| spec.apply) {
        history::remember(args, plan, &folder);
    }
    Ok(Recorded {
        folder,
        ended: Ended::Complete,
    })
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

/// Describes the expected cost of stopping a process's threads for samples, measured on a process of vmtax itself.
fn expected_stops(pid: i32, hz: u32, limit: Duration) -> String {
    let measure =
        || vmtax_observe::stop_time(Command::new("/proc/self/exe").args(["agent", "serve"]));
    let measured = std::thread::Builder::new()
        .spawn(measure)
        .map(std::thread::JoinHandle::join);
    let expected = match measured {
        Ok(Ok(Ok(StopTime { median, max }))) => format!(
            "{} a stop (median; longest {}) on this host now, at most {:.2} % of a thread's time",
            nanoseconds(median.as_nanos() as f64),
            nanoseconds(max.as_nanos() as f64),
            median.as_secs_f64() * f64::from(hz) * 100.0
        ),
        _ => "an unknown time a stop".to_owned(),
    };
    let threads = counted(vmtax_observe::thread_names(pid).len() as u64, "thread");
    format!(
        "Wall-clock samples stop {threads} of process {pid} up to {hz} times a second: expected {expected}. A stop longer \
         than {} ends stopping.",
        nanoseconds(limit.as_nanos() as f64)
    )
}
