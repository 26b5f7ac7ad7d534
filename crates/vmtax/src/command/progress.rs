//! Progress on standard error, only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use vmtax_model::Probes;
use vmtax_runner::Progress;

pub struct Display {
    bar: ProgressBar,
    /// Whether each trial has a line that stays.
    marks: bool,
}

impl Display {
    /// A bar over `trials` trials; invisible when standard error is no terminal.
    pub fn new(trials: u64) -> Display {
        // `stderr()` hides itself off a terminal. Twice a second: drawing must not disturb what is measured.
        let bar = ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr_with_hz(2));
        if let Ok(style) = ProgressStyle::with_template("[{elapsed_precise}] {bar:24} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Display { bar, marks: false }
    }

    /// For a command that prints itself: no bar, and on a terminal a line before each run.
    pub fn beside_output() -> Display {
        Display { bar: ProgressBar::hidden(), marks: std::io::stderr().is_terminal() }
    }

    /// A line of text that stays.
    pub fn say(&self, line: &str) {
        let line = vmtax_report::printable(line);
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Preparing => self.bar.set_message("preparing disks and the guest's image"),
            Progress::Booting { slot } => {
                self.bar.set_message(format!("round {}: {} comes up", slot.round + 1, slot.machine));
            }
            Progress::Trial { slot, probes: Probes::None, .. } if self.marks => {
                eprintln!("── {}, round {} ──", slot.machine, slot.round + 1);
            }
            Progress::Trial { slot, .. } if self.marks => eprintln!("── {}, under probes ──", slot.machine),
            Progress::Trial { number, slot, workload, probes } => {
                self.bar.set_position(u64::from(number));
                let under = if probes == Probes::None { "" } else { ", observed" };
                self.bar.set_message(format!("round {}: {} on {}{under}", slot.round + 1, workload.name, slot.machine));
            }
            Progress::Failed { number, error } => self.say(&format!("trial {number} has no result: {error}")),
        }
        self.bar.tick();
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
