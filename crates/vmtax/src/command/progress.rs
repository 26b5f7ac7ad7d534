//! Progress on standard error: a bar on a terminal, or a line for each trial.

use crate::fault::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;
use vmtax_model::Probes;
use vmtax_model::number::duration;
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
