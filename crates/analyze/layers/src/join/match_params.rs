//! Rules for the search for a request's checkpoints among the events.

/// Extent to which the guest shows its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// A kernel that traces.
    Kernel,
    /// The micro-guest: its stamps are its driver's, right before the notification and when it sees the completion.
    Driver,
    /// A kernel that does not trace.
    Blind,
    /// Any guest: its requests are those that QEMU pops and pushes.
    Host,
}

/// Parameters of the match: the clocks' error, and conclusions from order alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchParams {
    pub view: View,
    /// Guest and host ticks agree within this.
    pub bound: u64,
    /// As far as this, an event that identifies a request but lies outside of it shows that the clocks do not agree.
    pub slack: u64,
    /// Never two requests at once: the next event is the request's.
    pub alone: bool,
}

/// Some event belongs to the request but contradicts cause and effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation;
