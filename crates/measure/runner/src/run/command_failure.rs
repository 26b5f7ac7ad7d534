//! A failure of the plan's command, which ends the run where the command fails on the baseline.

use super::state::{CommandFailure, Run};
use vmtax_model::{Machine, Slot, Study, TrialResult};
use vmtax_vm::MachineError;

impl Run<'_> {
    /// Notes a failure of the plan's command in this slot; the trial's result, an error where it must not count.
    pub(super) fn note_failure(
        &mut self,
        slot: Slot,
        status: i32,
        result: Result<TrialResult, MachineError>,
    ) -> Result<TrialResult, MachineError> {
        self.has_command_failed = self.ends_at_failure();
        if self.is_baseline(slot) && self.ends_at_failure() {
            self.command_failure = Some(CommandFailure {
                machine: slot.machine,
                status,
            });
        } else if self.excludes_failures() {
            let why = format!(
                "the command ended with exit status {status}: --ignore-failure counts it nevertheless"
            );
            return result.and(Err(MachineError::Workload(why)));
        }
        result
    }

    /// Returns true for a slot of the baseline: the first variant, natively where that is measured.
    fn is_baseline(&self, slot: Slot) -> bool {
        let is_native_measured = self.plan.machines.contains(&Machine::NATIVE);
        slot.variant == 0 && (slot.machine == Machine::NATIVE || !is_native_measured)
    }

    /// Moves the baseline's boot of this round to the front, if it is still to come: the command failed elsewhere, and where it fails
    /// on the baseline, too, the run ends. Boots are in random order otherwise.
    pub(super) fn advance_baseline(&self, boots: &mut [&[Slot]], round: u32) {
        let is_next = |boot: &&[Slot]| {
            boot.iter()
                .any(|slot| slot.round == round && self.is_baseline(*slot))
        };
        if let Some(at) = boots.iter().position(is_next) {
            boots[..=at].rotate_right(1);
        }
    }

    /// Returns true if the first failure of the plan's command on the baseline ends the run. A command that runs once, as a shell on a
    /// terminal does, has ended anyway; of a published result the claims say what counts.
    fn ends_at_failure(&self) -> bool {
        let counts_failures = self
            .plan
            .command()
            .is_none_or(|command| command.ignore_failure);
        !counts_failures
            && self.plan.reproduces.is_none()
            && (self.before.is_some() || self.plan.trials() > 1)
    }

    /// Returns true if a failing run of the plan's command has no result: where variants are compared, one that makes it fail would
    /// pass for the fastest.
    fn excludes_failures(&self) -> bool {
        self.ends_at_failure() && !matches!(self.plan.study, Study::Exec(_))
    }
}
