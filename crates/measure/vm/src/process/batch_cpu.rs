//! The CPU time of a VMM's main thread during a batch of requests. It has no waits for a CPU, however busy the host is.

use procfs::process::Process;
use vmtax_model::BatchEdge;

/// Counts it between the edges of batches. The main thread looks up a 9p server's fids; vCPUs, which under TCG run the
/// guest's code, are other threads.
#[derive(Debug, Default)]
pub(crate) struct BatchCpu {
    began_ns: Option<u64>,
    /// CPU time and number of requests of the last whole batch.
    batch: Option<(u64, u64)>,
}

impl BatchCpu {
    /// An edge was reached when the main thread had run for `clock_ns`, where the kernel says so.
    pub fn add(&mut self, edge: BatchEdge, clock_ns: Option<u64>) {
        match edge {
            BatchEdge::Begin => (self.began_ns, self.batch) = (clock_ns, None),
            BatchEdge::End { requests } => {
                let spent = self
                    .began_ns
                    .take()
                    .zip(clock_ns)
                    .and_then(|(began, ended)| ended.checked_sub(began));
                self.batch = spent.map(|spent| (spent, requests));
            }
        }
    }

    /// Nanoseconds per request. None rather than 0: requests without any CPU time were not counted.
    pub fn per_request(&self) -> Option<f64> {
        let (spent, requests) = self
            .batch
            .filter(|(spent, requests)| *spent > 0 && *requests > 0)?;
        Some(spent as f64 / requests as f64)
    }
}

/// Returns the time that the main thread of a process ran, ns; `None` where the kernel keeps no such sum.
pub(crate) fn main_thread_ns(pid: i32) -> Option<u64> {
    let main = Process::new(pid).ok()?.task_from_tid(pid).ok()?;
    main.schedstat()
        .ok()
        .map(|times| times.sum_exec_runtime)
        .filter(|ns| *ns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_request(edges: &[(BatchEdge, Option<u64>)]) -> Option<f64> {
        let mut counted = BatchCpu::default();
        edges
            .iter()
            .for_each(|(edge, clock)| counted.add(*edge, *clock));
        counted.per_request()
    }

    #[test]
    fn whole_batches_alone_have_a_time() {
        let begin = |ns| (BatchEdge::Begin, Some(ns));
        let end = |ns, requests| (BatchEdge::End { requests }, Some(ns));
        assert_eq!(per_request(&[begin(1000), end(9000, 4)]), Some(2000.0));
        assert_eq!(
            per_request(&[begin(0), end(9, 1), begin(1000), end(9000, 2)]),
            Some(4000.0),
            "the last one"
        );
        for bad in [
            &[][..],
            &[begin(5)],
            &[end(5, 1)],
            &[begin(5), end(5, 1)],
            &[begin(5), end(9, 0)],
            &[begin(9), end(5, 1)],
            &[begin(5), (BatchEdge::End { requests: 1 }, None)],
            &[(BatchEdge::Begin, None), end(5, 1)],
            &[begin(5), end(9, 1), begin(10)],
            &[begin(5), end(9, 1), end(10, 1)],
        ] {
            assert_eq!(per_request(bad), None, "{bad:?}");
        }
    }
}
