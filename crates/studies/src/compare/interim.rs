//! Interim analyses of a comparison, and when enough was measured.

use std::path::Path;
use std::time::Instant;
use vmtax_model::FEWEST_ROUNDS;
use vmtax_model::Plan;
use vmtax_report::compare::{duration, estimated};

/// Decides after each round whether a comparison goes on: it ends when all is decided, or it times out.
pub struct InterimAnalyses<'a> {
    plan: &'a Plan,
    begun: Instant,
    predicted: bool,
}

impl<'a> InterimAnalyses<'a> {
    /// Of a plan that begins now.
    pub fn new(plan: &'a Plan) -> InterimAnalyses<'a> {
        InterimAnalyses {
            plan,
            begun: Instant::now(),
            predicted: false,
        }
    }

    /// Returns true if another round begins after `rounds` whole ones in the recording's directory; `say` receives the
    /// estimates. A plan that compares nothing goes on.
    pub fn go_on(&mut self, folder: &Path, rounds: u32, say: &dyn Fn(&str)) -> bool {
        let spent = self.begun.elapsed().as_secs_f64();
        let budget = self.plan.budget_s().map_or(f64::INFINITY, f64::from);
        let compares = self.plan.comparison().is_some();
        if compares && rounds == 1 {
            let affordable = (budget / spent)
                .min(f64::from(self.plan.rounds))
                .max(f64::from(FEWEST_ROUNDS));
            let most = duration(affordable * spent);
            say(&format!(
                "a round takes {}: at most {affordable:.0} rounds, {most}; how many it takes is estimated from the first rounds' noise",
                duration(spent)
            ));
        }
        if rounds >= FEWEST_ROUNDS && spent >= budget {
            return false;
        }
        if !compares || !vmtax_analysis::is_look(self.plan, rounds) {
            return true;
        }
        // An interim analysis that fails decides nothing.
        let Ok(recording) = vmtax_recording::open(folder) else {
            return true;
        };
        let findings = vmtax_analysis::compare(self.plan, &recording.trials);
        if !self.predicted && !findings.is_decided() {
            self.predicted = true;
            say(&estimated(&findings, budget - spent));
        }
        !findings.is_decided()
    }
}
