//! The facts of this host: CPU, KVM, QEMU, tracing, and what each of them needs.
//!
//! Read-only: nothing is changed on the host, and root is not needed. What an ordinary user may not see or use is reported
//! as limited, with its remedy.

mod collect;
mod command;
mod cpu;
mod error;
mod kvm;
mod micro_vm;
mod qemu;
mod raw;
mod system;
mod system_files;
mod tracing;

pub use collect::{collect, kernel_settings};
pub use command::{Answer, Output, ask_command, ask_command_unless, ask_streams, find_program};
pub use cpu::online as online_cpus;
pub use error::{HostError, QemuVersion};
pub use kvm::{kvm, kvm_forgets_breakpoints};
pub use qemu::{best_qemu, check_named_qemu, fetched_qemus};
pub use raw::end_with_this_thread;
pub use system::{has_vhost_net, passt_has_vhost_user};
pub use system_files::{CpuTime, meminfo, value_in_effect};

use vmtax_model::{Check, HostProblem, Readiness};

/// Result of a check, before it has a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckResult {
    state: Readiness,
    found: String,
    problem: Option<HostProblem>,
}

impl CheckResult {
    fn new(state: Readiness, found: impl Into<String>, problem: Option<HostProblem>) -> Self {
        let found = found.into();
        Self {
            state,
            found,
            problem,
        }
    }

    /// Returns the result of what is as it should be.
    fn ok(found: impl Into<String>) -> Self {
        Self::new(Readiness::Ok, found, None)
    }

    /// Returns the result of what is usable with something taken away.
    fn limited(found: impl Into<String>, problem: HostProblem) -> Self {
        Self::new(Readiness::Limited, found, Some(problem))
    }

    /// Returns the result of what is as it should be, or else usable with something taken away.
    fn ok_if(is_ok: bool, found: String, problem: HostProblem) -> Self {
        if is_ok {
            Self::ok(found)
        } else {
            Self::limited(found, problem)
        }
    }

    /// Returns the result of what is not available on this host.
    fn missing(found: impl Into<String>, problem: HostProblem) -> Self {
        Self::new(Readiness::Missing, found, Some(problem))
    }

    /// Returns the result of what is usable with something taken away that nobody can give back.
    fn limited_for_good(found: impl Into<String>) -> Self {
        Self::new(Readiness::Limited, found, None)
    }

    /// Makes it the check of a subject. The rule about its problem has the remedies.
    fn about(self, id: &str, subject: &str, why: &str) -> Check {
        Check {
            id: id.into(),
            subject: subject.into(),
            state: self.state,
            found: self.found,
            why: why.into(),
            problem: self.problem,
            remedies: Vec::new(),
        }
    }
}
