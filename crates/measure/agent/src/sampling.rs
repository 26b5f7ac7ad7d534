//! Samples a guest from inside while workloads run, and counts system calls. The samples are sent after the workloads
//! end.

use crate::outbox::{Send, ship};
use crate::trial::run_in_fresh_process;
use crate::{AgentError, exec};
use vmtax_model::{CallCounts, CountBy, Inside, Missing, Places, WorkloadSpec, files};
use vmtax_observe::{CallCounter, GuestSampler, mount_tracefs};
use vmtax_wire::Reply;

/// Number of measurements of the overhead of counting, alternating with and without it: the minimum of each counts.
const REPEATS: usize = 3;

/// A guest that is sampled from its inside.
#[derive(Debug)]
pub(crate) struct GuestSampling {
    sampler: Option<GuestSampler>,
    counter: Option<CallCounter>,
    added_ns: Option<f64>,
    missing: Vec<Missing>,
}

impl GuestSampling {
    /// Starts to sample and to count, as far as this kernel lets it.
    pub fn start(inside: Inside, shortest_call: &WorkloadSpec, places: &Places) -> GuestSampling {
        let mut missing = Vec::new();
        let mut lacking = |what: &str, error: &dyn std::error::Error| {
            missing.push(Missing::for_error(what, error))
        };
        if inside.calls.is_some() {
            // Kernels without BPF are traced; before 5.2 what that takes has to be in a folder.
            let _ = mount_tracefs();
        }
        // Before anything else is there that could cost.
        let added_ns = inside
            .calls
            .and_then(|by| added_ns(by, shortest_call, places));
        if inside.calls.is_some() {
            // So that the programs which count have names among what is sampled; older kernels have no such switch.
            let _ = std::fs::write("/proc/sys/net/core/bpf_jit_kallsyms", "1");
        }
        let counter = inside
            .calls
            .map(|by| CallCounter::start(by == CountBy::Process));
        let counter =
            counter.and_then(|c| c.map_err(|e| lacking("the guest's system calls", &e)).ok());
        let sampler = (inside.hz > 0).then(|| GuestSampler::begin(inside, vec![exec::ROOT.into()]));
        let sampler = sampler.and_then(|s| {
            s.map_err(|e| lacking("samples of what runs in the guest", &e))
                .ok()
        });
        GuestSampling {
            sampler,
            counter,
            added_ns,
            missing,
        }
    }

    /// Ends it, and sends what was found; gives the reply that comes last.
    ///
    /// # Errors
    /// [`AgentError`] when the channel breaks; what else goes wrong is in the reply.
    pub fn stop(self, send: &mut Send<'_>) -> Result<Reply, AgentError> {
        let added_ns = self.added_ns;
        let counts = |counter: &CallCounter| {
            let rows = counter.read().map_err(|e| e.to_string())?;
            serde_json::to_vec(&CallCounts {
                method: counter.method(),
                rows,
                lost: counter.lost(),
                added_ns,
            })
            .map_err(|e| e.to_string())
        };
        // The programs that count stay until what was sampled has names: theirs are among them.
        let calls = self.counter.as_ref().map(counts);
        let profile = self
            .sampler
            .map(|sampler| serde_json::to_vec(&sampler.end()).map_err(|e| e.to_string()));
        let sent = ship(send, |ship| {
            for (name, bytes) in [(files::GUEST_CALLS, calls), (files::GUEST_PROFILE, profile)] {
                let Some(bytes) = bytes.transpose()? else {
                    continue;
                };
                ship(name, &bytes)
                    .map_err(|e| format!("sending what was sampled in the guest: {e}"))?;
            }
            Ok(())
        });
        match sent {
            Ok(()) => Ok(Reply::Samples {
                missing: self.missing,
            }),
            Err(failure) => failure.reply(),
        }
    }
}

/// Measures the time that counting adds to the shortest call, ns, by the workload that times this call.
fn added_ns(by: CountBy, shortest_call: &WorkloadSpec, places: &Places) -> Option<f64> {
    let once = || {
        run_in_fresh_process(shortest_call, places, None, None)
            .ok()?
            .measures
            .first()
            .map(|m| m.value)
    };
    let (mut without, mut with) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..REPEATS {
        without = without.min(once()?);
        let counter = CallCounter::start(by == CountBy::Process).ok()?;
        with = with.min(once()?);
        drop(counter);
    }
    Some(with - without)
}
