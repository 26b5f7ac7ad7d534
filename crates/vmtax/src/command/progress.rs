//! Progress on standard error, only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vmtax_model::Probes;
use vmtax_runner::Progress;

pub struct Display(ProgressBar);

impl Display {
    /// A bar over `trials` trials; invisible when standard error is no terminal.
    pub fn new(trials: u64) -> Display {
        // `stderr()` hides itself off a terminal. Twice a second: drawing must not disturb what is measured.
        let bar = ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr_with_hz(2));
        if let Ok(style) = ProgressStyle::with_template("[{elapsed_precise}] {bar:24} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Display(bar)
    }

    /// A line of text that stays.
    pub fn say(&self, line: &str) {
        let line = vmtax_report::printable(line);
        self.0.suspend(|| eprintln!("{line}"));
    }

    pub fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Preparing => self.0.set_message("preparing disks and the guest's image"),
            Progress::Booting { turn } => {
                self.0.set_message(format!("round {}: {} comes up", turn.round + 1, turn.machine));
            }
            Progress::Trial { number, turn, workload, probes } => {
                self.0.set_position(u64::from(number));
                let under = if probes == Probes::None { "" } else { ", observed" };
                self.0.set_message(format!("round {}: {} on {}{under}", turn.round + 1, workload.name, turn.machine));
            }
            Progress::Failed { number, error } => self.say(&format!("trial {number} has no result: {error}")),
        }
        self.0.tick();
    }

    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
