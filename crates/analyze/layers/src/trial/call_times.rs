//! How long the system calls of QEMU's threads took, and what came after each, while requests were under way.

use crate::events::calls::CallKind;
use crate::events::event::{Event, Host};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use vmtax_model::{Missing, Moments, QemuThread, Role};

/// A call, or the user time after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallPhase {
    pub kind: CallKind,
    pub after: bool,
}

/// The calls of all threads, by thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallStats {
    pub of: BTreeMap<(i32, CallPhase), Moments>,
    /// Each thread's latest call, and when it was entered or, if `true`, left.
    last: BTreeMap<i32, (CallKind, u64, bool)>,
}

impl CallStats {
    /// Takes an event; only what begins and ends in the given time counts.
    pub fn take(&mut self, event: &Event<Host>, during: &RangeInclusive<u64>) {
        let last = self.last.get(&event.tid).copied();
        let now = match event.what {
            Host::Enter { nr, args } => (CallKind::of(nr, &args), event.at, false),
            Host::Exit => match last {
                Some((kind, _, false)) => (kind, event.at, true),
                _ => return,
            },
            _ => return,
        };
        self.last.insert(event.tid, now);
        let Some((kind, since, after)) = last else { return };
        // Two entries in a row: an exit is lost, or was none (`exit`, `execve`).
        if (after || now.2) && during.contains(&since) && during.contains(&event.at) && event.at >= since {
            self.of.entry((event.tid, CallPhase { kind, after })).or_default().add((event.at - since) as f64);
        }
    }
}

/// The system calls of QEMU's threads in one trial.
pub(crate) struct TrialCalls {
    pub stats: CallStats,
    pub threads: Vec<QemuThread>,
    /// Ticks per microsecond.
    pub mhz: f64,
    /// CallPhase could not be observed.
    pub missing: Vec<Missing>,
}

impl TrialCalls {
    /// CallPhase each thread did, in nanoseconds. One that is not named came and went: a worker.
    pub fn by_role(&self) -> impl Iterator<Item = (Role, CallPhase, Moments)> {
        self.stats.of.iter().map(|((tid, what), moments)| {
            let known = self.threads.iter().find(|t| t.tid == *tid);
            (known.map_or(Role::Worker, |t| t.role.clone()), *what, moments.scaled(1000.0 / self.mhz))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_by_hand_and_merged() {
        let values = [4.0, 9.0, 4.0, 2.0, 5.0, 5.0, 7.0, 4.0];
        let all = |v: &[f64]| {
            let mut m = Moments::default();
            v.iter().for_each(|v| m.add(*v));
            m
        };
        let whole = all(&values).row("x".into());
        assert_eq!((whole.count, whole.mean_ns, whole.min_ns, whole.max_ns, whole.total_ns), (8, 5.0, 2.0, 9.0, 40.0));
        assert!((whole.stddev_ns - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        for cut in 0..=values.len() {
            let mut merged = all(&values[..cut]);
            merged.merge(&all(&values[cut..]));
            let merged = merged.row("x".into());
            assert!((merged.mean_ns - 5.0).abs() < 1e-12 && (merged.stddev_ns - whole.stddev_ns).abs() < 1e-12);
            assert_eq!((merged.count, merged.min_ns, merged.max_ns), (8, 2.0, 9.0));
        }
        assert_eq!(Moments::default().row("x".into()).min_ns, 0.0);
    }

    #[test]
    fn user_time_counts_for_the_call_before_it() {
        let mut stats = CallStats::default();
        let event = |at, what| Event { at, cpu: 0, tid: 7, interrupt: false, what };
        let enter = |nr| Host::Enter { nr, args: [0; 4] };
        for (at, what) in [(5, enter(271)), (30, Host::Exit), (35, enter(1)), (36, Host::Exit), (99, enter(271))] {
            stats.take(&event(at, what), &(10..=90));
        }
        let of = |nr, after| {
            stats.of.get(&(7, CallPhase { kind: CallKind::Other(nr), after })).map(|m| m.row(String::new()).total_ns)
        };
        // The wait began before the time that counts, and what follows the write ends after it.
        assert_eq!((of(271, false), of(271, true), of(1, false), of(1, true)), (None, Some(5.0), Some(1.0), None));
    }
}
