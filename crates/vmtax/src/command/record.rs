//! From a plan to a recording, its folder, and further recordings beside it: a profile of each guest, or the layers of its
//! requests, so that no sampling or tracing is in a figure. And its progress on standard error: a bar on a terminal, or a line for each trial.

use super::{history, host, interrupt, report, write_file};
use crate::cli::{RecordArgs, Verbosity};
use crate::fault::{Fault, note};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::fs::{Access, access};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;
use vmtax_import::AddedGuest;
use vmtax_model::number::duration;
use vmtax_model::{HostFacts, Plan, Probes, SECRET_REMOVED, files};
use vmtax_recording::{RecordingsFolder, Writer, check_place};
use vmtax_runner::{Ended, Progress, Recorder, Watch};
use vmtax_studies::{Decisions, analyze, draw_difference, layers_of_tuned, moved_layer};
use vmtax_vm::Streams;
use vmtax_workload::CheckedPlan;

/// A plan that was carried out.
pub(super) struct Recorded {
    /// Directory of the recording.
    pub folder: PathBuf,
    /// End of the run: complete, incomplete, interrupted, or by a command that failed.
    pub ended: Ended,
}

impl Recorded {
    /// Returns the directory; an error unless the run came to its end.
    pub fn complete(self) -> Result<PathBuf, Fault> {
        let folder = self.folder;
        match self.ended {
            Ended::Complete => Ok(folder),
            Ended::Incomplete(first) => Err(Fault::Incomplete {
                folder,
                first: first.to_string(),
            }),
            Ended::Interrupted => Err(Fault::Interrupted { folder }),
            Ended::CommandFailed(failure) => Err(Fault::command_failed(failure, folder)),
        }
    }
}

/// Carries a plan out, its command, if it has one, between `streams`.
pub(super) fn record(
    plan: &CheckedPlan,
    mut host: HostFacts,
    args: &RecordArgs,
    display: &Display,
    streams: Option<&Streams>,
) -> Result<Recorded, Fault> {
    if let Some(part) = plan.part_without_secret() {
        return Err(Fault::Usage(format!(
            "{part} of the plan has {SECRET_REMOVED} where a secret was, which no recording keeps: put it in its place, or a \
             variable of the environment ($TOKEN)"
        )));
    }
    if plan.guest.qemu.is_some() {
        // Its facts belong into the recording too.
        host = host::facts(plan.guest.qemu.as_deref());
    }
    let recorder = Recorder::prepare(plan, &host, &mut |progress| display.show(progress))?;
    // From here on there is something to end in good order; before, a signal's own effect is right.
    let interrupt = interrupt()?;
    let writer = begin(args, plan, &host)?;
    if let Some(part) = plan.without_secrets().part_without_secret() {
        display.note(&format!(
            "the recording has {part} without its secret ({SECRET_REMOVED}): its plan cannot run again as it is. A secret in the \
             environment is stored nowhere: TOKEN=… vmtax … sh -c 'command \"$TOKEN\"'"
        ));
    }
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

/// Checks, before time is spent, that a recording can be written to its directory. A directory given by name has to be
/// new or empty: it is created, and removed again.
pub(super) fn check_folder(args: &RecordArgs) -> Result<(), Fault> {
    check_place(args.output.as_ref().unwrap_or(&args.dir))?;
    let Some(path) = &args.output else {
        return Ok(());
    };
    let new: Vec<&Path> = path.ancestors().take_while(|part| !part.exists()).collect();
    let usable = make_usable(path);
    new.iter().for_each(|part| drop(fs::remove_dir(part)));
    usable
}

/// Makes a directory, if it is not there; an error where it is not empty or cannot be written to.
fn make_usable(path: &Path) -> Result<(), Fault> {
    let shown = path.display();
    fs::create_dir_all(path).map_err(|e| {
        let what = format!("making the directory {shown}: name one with --output");
        Fault::file(what, e)
    })?;
    if fs::read_dir(path).is_ok_and(|mut files| files.next().is_some()) {
        return Err(Fault::Usage(format!(
            "{shown} contains files already: name a new directory with --output"
        )));
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| {
        let what = format!("{shown}: name another directory with --output");
        Fault::file(what, e.into())
    })
}

/// Clears up after killed processes, and begins a recording: in the named folder, or in a new one among the others.
pub(super) fn begin(args: &RecordArgs, plan: &Plan, host: &HostFacts) -> Result<Writer, Fault> {
    let command: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    vmtax_observe::remove_stale_traces();
    vmtax_vm::remove_stale_groups();
    // That changes VMs: at level 0 nothing does.
    if plan.observed_vm().is_none_or(|vm| vm.level > 0) {
        host::undo_interrupted();
    }
    if let Some(folder) = &args.output {
        return Ok(Writer::create_at(folder, plan, host, &command, version)?);
    }
    let folder = RecordingsFolder::create(&args.dir)?;
    folder.sweep(vmtax_vm::remove_scratch);
    Ok(Writer::create(&folder, plan, host, &command, version)?)
}

/// Carries out these plans of profiles, each with its name, into recordings of their own; into all but the first also what
/// differs from the first.
pub(super) fn record_profiles(
    plans: Vec<(String, Plan)>,
    host: &HostFacts,
    args: &RecordArgs,
    streams: Option<&Streams>,
) -> Result<(), Fault> {
    let mut first: Option<PathBuf> = None;
    for (of, plan) in plans {
        let folder = whole(plan, host, args, streams)?;
        let mut line = format!("profile of {of}: {}", folder.join("report.html").display());
        match &first {
            None => first = Some(folder),
            Some(first) => {
                let picture = folder.join("difference.svg");
                write_file(&picture, draw_difference(first, &folder)?)?;
                line += &format!(", what differs: {}", picture.display());
            }
        }
        note(&line);
    }
    Ok(())
}

/// Traces the requests of the guest of a tuning, as it was and as it is kept, and says which layer moved. Nothing where
/// nothing is kept.
pub(super) fn record_layers(
    tuning: &Path,
    host: &HostFacts,
    args: &RecordArgs,
) -> Result<(), Fault> {
    let plan = layers_of_tuned(&vmtax_recording::open(tuning)?);
    let Some(plan) = plan.filter(|plan| plan.part_without_secret().is_none()) else {
        return Ok(());
    };
    let folder = whole(plan, host, args, None)?;
    let moved = moved_layer(&vmtax_recording::open(&folder)?)?;
    let moved =
        moved.unwrap_or_else(|| "the requests could not be matched across the layers".to_owned());
    let line = format!("layers: {moved}: {}", folder.join("report.html").display());
    note(&line);
    Ok(())
}

/// Makes a recording of a plan in --dir with its page; an error unless it came to its end.
fn whole(
    plan: Plan,
    host: &HostFacts,
    args: &RecordArgs,
    streams: Option<&Streams>,
) -> Result<PathBuf, Fault> {
    let (plan, args) = (CheckedPlan::new(plan)?, args.beside_output());
    let display = Display::beside_output(plan.trials(), args.verbosity());
    let folder = record(&plan, host.clone(), &args, &display, streams)?.complete()?;
    let recording = vmtax_recording::open(&folder)?;
    report::write(&mut analyze(&recording)?, &folder)?;
    Ok(folder)
}

/// Progress on standard error.
pub struct Display {
    bar: ProgressBar,
    verbosity: Verbosity,
    /// True if a line is printed before the output of each run of a command.
    marks: bool,
    /// Off a terminal the runs of a command that are counted in lines.
    counted: Option<CountedRuns>,
}

/// Runs that are counted.
struct CountedRuns {
    total: u64,
    started: Instant,
}

impl CountedRuns {
    /// "run 3 of 12 on tcg, about 3 min left": the run that begins now, `number` from 0. The time is that of the runs before.
    fn line(&self, number: u32, on: &str) -> String {
        let (number, elapsed_s) = (u64::from(number), self.started.elapsed().as_secs_f64());
        let left = (number > 0).then(|| {
            let runs = self.total.saturating_sub(number) as f64;
            format!(
                ", about {} left",
                duration(elapsed_s / number as f64 * runs)
            )
        });
        format!(
            "run {} of {} on {on}{}",
            number + 1,
            self.total,
            left.unwrap_or_default()
        )
    }
}

impl Display {
    /// A bar over `trials` trials, on a terminal.
    pub fn new(trials: u64, verbosity: Verbosity) -> Display {
        if verbosity != Verbosity::Normal {
            return Display {
                bar: ProgressBar::hidden(),
                verbosity,
                marks: false,
                counted: None,
            };
        }
        // `stderr()` hides itself off a terminal. Twice a second: drawing must not disturb what is measured.
        let bar =
            ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr_with_hz(2));
        if let Ok(style) =
            ProgressStyle::with_template("[{elapsed_precise}] {bar:24} {pos}/{len} {wide_msg}")
        {
            bar.set_style(style);
        }
        Display {
            bar,
            verbosity,
            marks: false,
            counted: None,
        }
    }

    /// A line of what is done, on a terminal, where nobody knows how many trials there will be.
    pub fn open_ended(verbosity: Verbosity) -> Display {
        let display = Display::new(1, verbosity);
        if let Ok(style) = ProgressStyle::with_template("[{elapsed_precise}] {wide_msg}") {
            display.bar.set_style(style);
        }
        display
    }

    /// For a command that prints itself, `total` runs of it: no bar, but a line before each run, off a terminal with the number of
    /// the run and the time that is left.
    pub fn beside_output(total: u64, verbosity: Verbosity) -> Display {
        let is_normal = verbosity == Verbosity::Normal;
        let is_terminal = std::io::stderr().is_terminal();
        Display {
            bar: ProgressBar::hidden(),
            verbosity,
            marks: is_normal && is_terminal,
            counted: (is_normal && !is_terminal).then(|| CountedRuns {
                total,
                started: Instant::now(),
            }),
        }
    }

    /// A note, as what is fetched or estimated.
    pub fn note(&self, line: &str) {
        if self.verbosity != Verbosity::Quiet {
            self.warn(line);
        }
    }

    /// A line that even `--quiet` prints.
    pub fn warn(&self, line: &str) {
        self.bar.suspend(|| note(line));
    }

    pub fn show(&self, progress: Progress<'_>) {
        if let (Some(runs), Progress::Trial { number, slot, .. }) = (&self.counted, &progress) {
            note(&runs.line(*number, slot.machine.as_str()));
        }
        match progress {
            Progress::Note(line) => return self.note(line),
            Progress::Preparing => self.step("preparing disks and the guest's image".to_owned()),
            Progress::Booting { slot } => {
                self.step(format!("round {}: {} boots", slot.round + 1, slot.machine));
            }
            Progress::Trial {
                slot,
                probes: Probes::None,
                ..
            } if self.marks => {
                note(&format!("── {}, round {} ──", slot.machine, slot.round + 1));
            }
            Progress::Trial { slot, .. } if self.marks => {
                note(&format!("── {}, traced ──", slot.machine));
            }
            Progress::Trial {
                number,
                slot,
                workload,
                probes,
            } => {
                self.bar.set_position(u64::from(number));
                let under = if probes == Probes::None {
                    ""
                } else {
                    ", traced"
                };
                self.step(format!(
                    "round {}: {} on {}{under}",
                    slot.round + 1,
                    workload.name,
                    slot.machine
                ));
            }
            Progress::LeftOut { range } => {
                if let Some(line) = vmtax_report::growth::left_out(range) {
                    self.note(&line);
                }
            }
            Progress::Failed { number, error } => {
                self.warn(&format!("trial {number} has no result: {error}"))
            }
        }
        self.bar.tick();
    }

    /// Shows the current step: beside the bar, or as a line.
    fn step(&self, text: String) {
        if self.verbosity == Verbosity::Verbose {
            self.note(&text);
        }
        self.bar.set_message(text);
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_run_is_counted_with_the_time_that_is_left() {
        let started = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let runs = CountedRuns { total: 12, started };
        assert_eq!(runs.line(0, "native"), "run 1 of 12 on native");
        assert_eq!(runs.line(3, "tcg"), "run 4 of 12 on tcg, about 3 min left");
    }
}
