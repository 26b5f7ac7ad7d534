//! System calls of all processes, counted and timed; without a [`CallCounter`] nothing is there.

mod bpf;
mod in_kernel;
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
        let failed = |e| ProbeError::system("reading the counts of system calls", e);
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

#[cfg(test)]
mod tests {
    // System calls of a program whose calls are known, counted by this machine's kernel in both ways.
    //
    // Needs root, a kernel with BPF and tracing, and the host's own numbers of processes; without, it says so and passes: the
    // guest's kernel is put to the same test in tests/it.

    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;
    use vmtax_model::testing::skipped;

    /// Number of `write` on x86-64.
    const WRITE: u32 = 1;
    const NANOSLEEP: [u32; 2] = [35, 230];

    fn in_kernel(by_process: bool) -> Option<CallCounter> {
        let counter = InKernel::start(by_process).inspect_err(|error| skipped(&error.to_string()));
        counter
            .ok()
            .map(|counter| CallCounter(CallMethod::InKernel(counter)))
    }

    fn call_by_call(by_process: bool) -> Option<CallCounter> {
        let counter = Traced::start(by_process).inspect_err(|error| skipped(&error.to_string()));
        counter
            .ok()
            .map(|counter| CallCounter(CallMethod::Traced(counter)))
    }

    #[test]
    fn in_the_kernel_each_call_is_counted_once_and_its_time_is_its_own() {
        each_call_is_counted_once(in_kernel);
    }

    #[test]
    fn call_by_call_each_is_counted_once_and_its_time_is_its_own() {
        each_call_is_counted_once(call_by_call);
    }

    #[test]
    fn processes_go_together_where_nobody_asks() {
        processes_go_together(in_kernel);
        processes_go_together(call_by_call);
    }

    fn each_call_is_counted_once(start: impl Fn(bool) -> Option<CallCounter>) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        if status
            .lines()
            .any(|line| line.starts_with("NSpid:") && line.split_whitespace().count() > 2)
        {
            return skipped("the kernel knows processes here by other numbers");
        }
        let begun = Instant::now();
        let Some(counter) = start(true) else { return };
        let mut copy = Command::new("dd");
        copy.args([
            "if=/dev/zero",
            "of=/dev/null",
            "bs=1",
            "count=5000",
            "status=none",
        ])
        .stderr(Stdio::null());
        let mut copy = copy.spawn().unwrap();
        let mut sleep = Command::new("sleep").arg("0.2").spawn().unwrap();
        let (copying, sleeping) = (copy.id() as i32, sleep.id() as i32);
        assert!(copy.wait().unwrap().success() && sleep.wait().unwrap().success());
        let rows = counter.read().unwrap();
        let passed = begun.elapsed().as_nanos() as u64;
        if counter.lost() > 0 {
            return skipped(
                "other processes on this machine make more calls than there is room for",
            );
        }
        let row_of_calls = |pid, calls: &[u32]| {
            rows.iter()
                .find(|r| r.pid == Some(pid) && calls.contains(&r.call))
                .unwrap()
        };

        let writes = row_of_calls(copying, &[WRITE]);
        assert_eq!(writes.count, 5000, "{writes:?}");
        assert!(
            writes.min_ns > 0 && writes.min_ns <= writes.total_ns / 5000,
            "{writes:?}"
        );
        assert!(
            writes.max_ns >= writes.total_ns / 5000 && writes.total_ns < passed,
            "{writes:?}"
        );
        let slept = row_of_calls(sleeping, &NANOSLEEP);
        assert_eq!(slept.count, 1);
        assert!((200_000_000..passed).contains(&slept.total_ns), "{slept:?}");
        assert_eq!(
            (slept.min_ns, slept.max_ns),
            (slept.total_ns, slept.total_ns)
        );
        // Nobody counts who counts.
        assert!(
            rows.iter()
                .all(|r| r.pid != Some(std::process::id() as i32))
        );
    }

    fn processes_go_together(start: impl Fn(bool) -> Option<CallCounter>) {
        let Some(counter) = start(false) else { return };
        for _ in 0..2 {
            let copy = [
                "if=/dev/zero",
                "of=/dev/null",
                "bs=1",
                "count=3000",
                "status=none",
            ];
            assert!(Command::new("dd").args(copy).status().unwrap().success());
        }
        let rows = counter.read().unwrap();
        if counter.lost() > 0 {
            return skipped(
                "other processes on this machine make more calls than there is room for",
            );
        }
        let writes: Vec<_> = rows.iter().filter(|r| r.call == WRITE).collect();
        assert!(writes.len() == 1 && writes[0].pid.is_none(), "{rows:?}");
        // Others on this machine write too.
        assert!(writes[0].count >= 6000, "{writes:?}");
    }
}
