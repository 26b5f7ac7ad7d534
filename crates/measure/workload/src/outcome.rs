//! Results of a workload.

use vmtax_model::{
    Fairness, Kept, KernelIdentity, Latency, Measure, Metric, Operation, Timer, TrialResult,
    Unanswered, Unsupported, WorkloadSpec,
};

/// Results of a workload; [`Yield::result`] adds who, where and how timed.
#[derive(Default)]
pub(crate) struct Yield {
    pub measures: Vec<Measure>,
    pub operations: Vec<Operation>,
    pub unsupported: Vec<Unsupported>,
    pub kept: Vec<Kept>,
    pub notes: Vec<String>,
    pub unanswered: Option<Unanswered>,
    pub fairness: Option<Fairness>,
    /// Wall time of the measured part, seconds.
    pub total_s: f64,
}

impl Yield {
    pub fn measure(&mut self, metric: Metric, value: f64) {
        self.measures.push(Measure { metric, value });
    }

    pub fn operation(&mut self, name: &str, latency: Latency) {
        self.operations.push(Operation {
            name: name.to_owned(),
            latency,
        });
    }

    pub fn result(self, spec: WorkloadSpec, timer: Timer, kernel: KernelIdentity) -> TrialResult {
        let Yield {
            measures,
            operations,
            unsupported,
            kept,
            notes,
            unanswered,
            fairness,
            total_s,
        } = self;
        let new = TrialResult::new(spec, timer, kernel);
        TrialResult {
            measures,
            operations,
            unsupported,
            kept,
            notes,
            unanswered,
            fairness,
            total_s,
            ..new
        }
    }
}

pub(crate) fn kernel_identity() -> KernelIdentity {
    let name = rustix::system::uname();
    let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
    KernelIdentity {
        system: text(name.sysname()),
        release: text(name.release()),
        version: text(name.version()),
    }
}
