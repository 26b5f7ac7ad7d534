//! A point of a VMM that a request passes, as the VMM's own table describes it.

/// A point: an exported function of the VMM.
#[derive(Debug, Clone, Copy)]
pub struct ProbePoint {
    /// The event it makes. Points of one event have the same fields.
    pub event: &'static str,
    /// Name of the function.
    pub function: &'static str,
    /// Moment of the function at which the event is made.
    pub at: ProbeAt,
    /// Fields to read there, in the syntax of `uprobe_events`; registers as they are at the function's entry.
    pub fields: &'static str,
    /// When it is used.
    pub used: ProbeUse,
}

/// Moment of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAt {
    /// It is called.
    Entry,
    /// It has called this one, whose result is in `%ax` and is not zero. Cheaper than a probe on a return, for which newer
    /// kernels make a system call; and only calls from here count.
    After(&'static str),
}

/// When a point is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeUse {
    /// Where it has a cheap place.
    Cheap,
    /// Requests are joined by it: also where it costs 10 us a hit.
    Anyway,
    /// Anyway, where the points of the event before it have no cheap place.
    Instead,
}
