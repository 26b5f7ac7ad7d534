//! Interim analyses of a comparison, and when enough was measured.

use super::progress::Display;
use std::path::Path;
use std::time::Instant;
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_model::Plan;
use vmtax_report::compare::{duration, foretold};

/// Decides after each round whether a comparison goes on: it ends when all is decided, or its time is over.
pub(super) struct InterimAnalyses<'a> {
    plan: &'a Plan,
    display: &'a Display,
    begun: Instant,
    predicted: bool,
}

impl<'a> InterimAnalyses<'a> {
    pub fn new(plan: &'a Plan, display: &'a Display) -> InterimAnalyses<'a> {
        InterimAnalyses { plan, display, begun: Instant::now(), predicted: false }
    }

    /// After so many whole rounds.
    pub fn after(&mut self, folder: &Path, rounds: u32) -> bool {
        let spent = self.begun.elapsed().as_secs_f64();
        let budget = self.plan.comparison().and_then(|c| c.budget_s).map_or(f64::INFINITY, f64::from);
        if rounds == 1 {
            let affordable = (budget / spent).min(f64::from(self.plan.rounds)).max(f64::from(FEWEST_ROUNDS));
            let most = duration(affordable * spent);
            self.display.say(&format!(
                "a round takes {}: at most {affordable:.0} rounds, {most}; how many it takes is estimated from the first rounds' noise",
                duration(spent)
            ));
        }
        if rounds >= FEWEST_ROUNDS && spent >= budget {
            return false;
        }
        if !vmtax_analysis::is_look(self.plan, rounds) {
            return true;
        }
        // An interim analysis that fails decides nothing.
        let Ok(recording) = vmtax_recording::open(folder) else { return true };
        let findings = vmtax_analysis::compare(self.plan, &recording.trials);
        if !self.predicted && !findings.is_decided() {
            self.predicted = true;
            self.display.say(&foretold(&findings, budget - spent));
        }
        !findings.is_decided()
    }
}
