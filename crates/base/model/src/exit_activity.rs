//! Activity of vCPUs during VM exits.

use serde::{Deserialize, Serialize};

/// Activity of a vCPU while an exit lasts, by the exit's reason. Time of halted and of spinning vCPUs is no cost of exits: the
/// guest has nothing to do, or waits for another vCPU.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ExitActivity {
    /// Halted until the next interrupt, by HLT: the guest is idle.
    Halted,
    /// Spinning: the guest executes PAUSE in a loop, as for a lock.
    Spinning,
    /// Handled in KVM or QEMU, for which the guest waits.
    #[default]
    Handled,
}

impl ExitActivity {
    /// The activity in exits of a reason, by KVM's name of it on Intel's and AMD's CPUs, by that of `KVM_RUN`, or by that of
    /// libtraceevent's plugin.
    pub fn from_reason(reason: &str) -> ExitActivity {
        let name = reason.to_ascii_lowercase();
        let name = name
            .strip_prefix("kvm_exit_")
            .or_else(|| name.strip_prefix("exit_"))
            .unwrap_or(&name);
        match name.strip_suffix("_instruction").unwrap_or(name) {
            // An exit of AMD's idle HLT intercept is made where no interrupt is pending; a CPU of an SEV-ES guest that does
            // not run yet is in the loop.
            // KVM executes an intercepted MWAIT as a NOP (Linux commit 87c00572ba05).
            "hlt" | "idle-halt" | "idle_hlt" | "vmgexit_ap_hlt_loop" => ExitActivity::Halted,
            "pause" => ExitActivity::Spinning,
            _ => ExitActivity::Handled,
        }
    }
}

/// Time of exits by the activity of the vCPUs meanwhile, ns; of exits whose time is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ExitTimes {
    /// Time of halted vCPUs, ns.
    pub halted_ns: f64,
    /// Time of spinning vCPUs, ns.
    pub spinning_ns: f64,
    /// Exits handled in KVM or QEMU: their cost.
    pub handled_ns: f64,
}

impl ExitTimes {
    /// Adds the time of exits.
    pub fn add(&mut self, activity: ExitActivity, ns: f64) {
        match activity {
            ExitActivity::Halted => self.halted_ns += ns,
            ExitActivity::Spinning => self.spinning_ns += ns,
            ExitActivity::Handled => self.handled_ns += ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_one_by_each_name_that_it_has() {
        let halted = ["HLT", "hlt", "EXIT_HLT", "KVM_EXIT_HLT", "idle-halt"];
        assert!(
            halted
                .iter()
                .all(|reason| ExitActivity::from_reason(reason) == ExitActivity::Halted)
        );
        let spinning = ["PAUSE_INSTRUCTION", "pause", "EXIT_PAUSE"];
        assert!(
            spinning
                .iter()
                .all(|reason| ExitActivity::from_reason(reason) == ExitActivity::Spinning)
        );
        let handled = [
            "EPT_VIOLATION",
            "npf",
            "msr",
            "monitor",
            "MWAIT_INSTRUCTION",
            "mwait",
            "TPAUSE",
            "unknown (0x78)",
            "exit_",
            "",
        ];
        assert!(
            handled
                .iter()
                .all(|reason| ExitActivity::from_reason(reason) == ExitActivity::Handled)
        );
    }
}
