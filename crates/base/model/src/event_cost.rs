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
