//! System calls of all processes, counted and timed; without a [`CallCounter`] nothing is there.

mod bpf;
mod in_kernel;
mod program;
#[cfg(test)]
mod tests;
mod traced;

use crate::ProbeError;
use in_kernel::InKernel;
use traced::Traced;
use vmtax_model::{CallCount, CountMethod};

/// Counts the system calls of every process but this one, until it is dropped.
#[derive(Debug)]
pub struct CallCounter(CallMethod);

#[derive(Debug)]
enum CallMethod {
    InKernel(InKernel),
    Traced(Traced),
}

impl CallCounter {
    /// Begins to count, by call, or by call and process: in the kernel where it has BPF, else call by call.
    ///
    /// # Errors
    /// [`ProbeError::NoCalls`] when this kernel has neither, or lets this user have none.
    pub fn start(by_process: bool) -> Result<CallCounter, ProbeError> {
        let in_kernel = InKernel::start(by_process).map(CallMethod::InKernel);
        let method = in_kernel.or_else(|bpf| {
            let traced = Traced::start(by_process).map(CallMethod::Traced);
            traced.map_err(|trace| ProbeError::NoCalls {
                source: bpf,
                trace: Box::new(trace),
            })
        });
        method.map(CallCounter)
    }

    /// Returns the method of counting: in the kernel or call by call.
    pub fn method(&self) -> CountMethod {
        match self.0 {
            CallMethod::InKernel(_) => CountMethod::InKernel,
            CallMethod::Traced(_) => CountMethod::CallByCall,
        }
    }

    /// Returns the counts so far, by call and process, those with most time first; calls that have not returned are
    /// not in it.
    ///
    /// # Errors
    /// Errors of the kernel when the counts are read.
    pub fn read(&self) -> Result<Vec<CallCount>, ProbeError> {
        let failed = |source| ProbeError::System {
            what: "reading the counts of system calls".to_owned(),
            source,
        };
        let mut rows = match &self.0 {
            CallMethod::InKernel(counter) => counter.read().map_err(failed)?,
            CallMethod::Traced(counter) => counter.read(),
        };
        rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
        Ok(rows)
    }

    /// Calls that there was no room for; call by call, events that were lost.
    pub fn lost(&self) -> u64 {
        match &self.0 {
            CallMethod::InKernel(counter) => counter.lost(),
            CallMethod::Traced(counter) => counter.lost(),
        }
    }
}
