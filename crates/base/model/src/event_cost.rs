//! Time that a recorded event adds to the thread that passes it.

use serde::{Deserialize, Serialize};

/// Kinds of events, by how the kernel records them: within a kind the cost is about the same.
#[derive(
    Debug,
    Clone,
    Copy,
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
pub enum EventKind {
    /// A system call's entry or return.
    Call,
    /// `sched_switch` or `sched_waking`.
    Schedule,
    /// Any other tracepoint.
    Tracepoint,
    /// A uprobe on an instruction that the kernel emulates.
    Uprobe,
    /// A kprobe on the kernel.
    Kprobe,
}

impl EventKind {
    /// Every kind, in the order of declaration: `ALL[kind as usize] == kind`.
    pub const ALL: [EventKind; 5] = [
        EventKind::Call,
        EventKind::Schedule,
        EventKind::Tracepoint,
        EventKind::Uprobe,
        EventKind::Kprobe,
    ];

    /// For people: "system call", "scheduler", ….
    pub const fn label(self) -> &'static str {
        match self {
            EventKind::Call => "system call",
            EventKind::Schedule => "scheduler",
            EventKind::Tracepoint => "tracepoint",
            EventKind::Uprobe => "uprobe",
            EventKind::Kprobe => "kprobe",
        }
    }
}

/// One repetition of a calibration: what an event of a kind took in a thread that had just slept, with the events recorded
/// less without. May be negative by chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EventCost {
    pub kind: EventKind,
    /// The first event of the kind since the thread slept, ns: caches have forgotten the code that records it.
    pub first_ns: f64,
    /// Another right after it, ns.
    pub again_ns: f64,
}

/// Costs of events at one trial, ns: the medians of its repetitions, 0 for a kind that was not calibrated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EventCosts {
    first_ns: [f64; EventKind::ALL.len()],
    again_ns: [f64; EventKind::ALL.len()],
}

impl EventCosts {
    /// `None` where nothing was calibrated.
    pub fn of(repetitions: &[EventCost]) -> Option<EventCosts> {
        let median = |kind: EventKind, of: fn(&EventCost) -> f64| {
            let mut values: Vec<f64> = repetitions
                .iter()
                .filter(|cost| cost.kind == kind)
                .map(of)
                .collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).map_or(0.0, |ns| ns.max(0.0))
        };
        (!repetitions.is_empty()).then(|| EventCosts {
            first_ns: EventKind::ALL.map(|kind| median(kind, |cost| cost.first_ns)),
            again_ns: EventKind::ALL.map(|kind| median(kind, |cost| cost.again_ns)),
        })
    }

    /// Returns the cost of an event, ns; `first`: the first of its kind since the thread slept.
    pub fn ns(&self, kind: EventKind, first: bool) -> f64 {
        if first {
            self.first_ns[kind as usize]
        } else {
            self.again_ns[kind as usize]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_medians_of_repetitions() {
        assert_eq!(EventCosts::of(&[]), None);
        let cost = |kind, first_ns, again_ns| EventCost {
            kind,
            first_ns,
            again_ns,
        };
        let repetitions = [
            cost(EventKind::Call, 300.0, 90.0),
            cost(EventKind::Uprobe, 900.0, -3.0),
            cost(EventKind::Call, 5000.0, 80.0),
            cost(EventKind::Call, 200.0, 100.0),
        ];
        let costs = EventCosts::of(&repetitions).unwrap();
        assert_eq!(
            (
                costs.ns(EventKind::Call, true),
                costs.ns(EventKind::Call, false)
            ),
            (300.0, 90.0)
        );
        assert_eq!(
            (
                costs.ns(EventKind::Uprobe, true),
                costs.ns(EventKind::Uprobe, false)
            ),
            (900.0, 0.0)
        );
        assert_eq!(costs.ns(EventKind::Schedule, true), 0.0);
        for (i, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(
                (kind as usize, serde_json::to_value(kind).unwrap()),
                (i, <&str>::from(kind).into())
            );
        }
    }
}
