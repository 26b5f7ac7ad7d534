//! Progress on standard error: a bar on a terminal, or a line for each trial.

use crate::fault::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use vmtax_model::Probes;
use vmtax_runner::Progress;

/// Amount of output on standard error while measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Warnings and errors.
    Quiet,
    /// And progress on a terminal, notes.
    Normal,
    /// And a line for each trial.
    Verbose,
}

pub struct Display {
    bar: ProgressBar,
    verbosity: Verbosity,
    /// True if a line is printed before the output of each run of a command.
    marks: bool,
}

impl Display {
    /// A bar over `trials` trials, on a terminal.
    pub fn new(trials: u64, verbosity: Verbosity) -> Display {
        if verbosity != Verbosity::Normal {
            return Display {
                bar: ProgressBar::hidden(),
                verbosity,
                marks: false,
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

    /// For a command that prints itself: no bar, on a terminal a line before each run.
    pub fn beside_output(verbosity: Verbosity) -> Display {
        let marks = verbosity == Verbosity::Normal && std::io::stderr().is_terminal();
        Display {
            bar: ProgressBar::hidden(),
            verbosity,
            marks,
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
