//! Decisions on what is measured next, from what was recorded so far; the interim analyses of a comparison among them.

use crate::registry::analyze;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;
use vmtax_findings::{ClaimRow, ClaimVerdict};
use vmtax_model::{
    FEWEST_ROUNDS, GuestTuneStep, Plan, TrialRecord, TuneRecord, TuneSpec, TuneStep,
};
use vmtax_report::compare::{duration, estimated};
use vmtax_runner::{AfterRound, Decide};

/// The decisions of a plan's study.
pub struct Decisions<'a> {
    plan: &'a Plan,
    /// Receives lines for people who wait.
    say: &'a dyn Fn(&str),
    interim: InterimAnalyses<'a>,
    /// The step of a guest's tuning that is measured.
    step: Option<GuestTuneStep>,
}

impl<'a> Decisions<'a> {
    /// Returns the decisions of a plan that begins now.
    pub fn new(plan: &'a Plan, say: &'a dyn Fn(&str)) -> Decisions<'a> {
        Decisions {
            plan,
            say,
            interim: InterimAnalyses::new(plan),
            step: None,
        }
    }
}

impl Decide for Decisions<'_> {
    fn after_round(&mut self, folder: &Path, rounds: u32) -> AfterRound {
        let is_on = if self.step.is_some() {
            // A step that cannot be read from what is recorded goes on to the part's end.
            vmtax_recording::open(folder).map_or(true, |recording| {
                vmtax_analysis::next_guest_step(&recording.plan, &recording.trials) == self.step
            })
        } else if self.plan.reproduces.is_some()
            && self.plan.comparison().is_none()
            && is_decided(folder, rounds)
        {
            // Of a published result the claims' verdicts count: when each has its own, no further round is needed. A
            // comparison has interim analyses of its own.
            return AfterRound::Whole;
        } else {
            self.interim.go_on(folder, rounds, self.say)
        };
        if is_on {
            AfterRound::Another
        } else {
            AfterRound::End
        }
    }

    fn next_of_vm(&mut self, spec: &TuneSpec, records: &[TuneRecord]) -> TuneStep {
        let step = vmtax_analysis::next_step(spec, self.plan.seed, records);
        if let Some(line) = vmtax_report::tune::vm::begins(spec, records, &step) {
            (self.say)(&line);
        }
        step
    }

    fn next_of_guest(&mut self, plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneStep> {
        let step = vmtax_analysis::next_guest_step(plan, trials)?;
        if let Some(line) = vmtax_report::tune::guest::begins(plan, trials, &step) {
            (self.say)(&line);
        }
        self.step = Some(step.clone());
        Some(step)
    }
}

/// Decides after each round whether a comparison goes on: it ends when all is decided, or it times out.
struct InterimAnalyses<'a> {
    plan: &'a Plan,
    begun: Instant,
    predicted: bool,
}

impl<'a> InterimAnalyses<'a> {
    /// Of a plan that begins now.
    fn new(plan: &'a Plan) -> InterimAnalyses<'a> {
        InterimAnalyses {
            plan,
            begun: Instant::now(),
            predicted: false,
        }
    }

    /// Returns true if another round begins after `rounds` whole ones in the recording's directory; `say` receives the
    /// estimates. A plan that compares nothing goes on.
    fn go_on(&mut self, folder: &Path, rounds: u32, say: &dyn Fn(&str)) -> bool {
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

/// Whole rounds after which the claims of a published result may be judged before its plan has ended. An interval of 95 %
/// is on the wrong side of a bound after any of them in less than 4 % of runs.
const EARLY: RangeInclusive<u32> = FEWEST_ROUNDS..=12;

/// Returns true if each claim of the published result that a recording reproduces has its result after `rounds` whole
/// rounds, or is unlikely to get one from further rounds. Always false outside `EARLY`.
fn is_decided(folder: &Path, rounds: u32) -> bool {
    if !EARLY.contains(&rounds) {
        return false;
    }
    // An analysis that fails decides nothing.
    let Ok(recording) = vmtax_recording::open(folder) else {
        return false;
    };
    let answer = analyze(&recording).ok();
    let is_open =
        |row: &ClaimRow| row.verdict == ClaimVerdict::Inconclusive && row.rounds_needed.is_some();
    answer
        .and_then(|answer| answer.reproduction)
        .is_some_and(|(case, _)| !case.rows.iter().any(is_open))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each order in which rounds can lie above and below the true median is as likely: how often does an interval of the
    /// first 6, 7, … or 12 rounds lie above it?
    #[test]
    fn early_verdicts_are_wrong_in_less_than_5_of_100_runs() {
        let is_wrong = |order: u32, rounds: u32| {
            let sign = |round: u32| if order >> round & 1 == 0 { -1.0 } else { 1.0 };
            let interval = vmtax_analysis::estimate((0..rounds).map(sign).collect()).interval;
            interval.is_some_and(|interval| interval.low > 0.0)
        };
        let orders = 0..1_u32 << EARLY.end();
        let all = orders.len();
        let wrong = orders
            .filter(|order| EARLY.clone().any(|rounds| is_wrong(*order, rounds)))
            .count();
        assert!((wrong as f64) < 0.04 * all as f64, "{wrong} of {all}");
    }
}
