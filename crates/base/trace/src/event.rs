//! Entries of a trace: events and losses.

/// The event ID in records. The running kernel assigns it: it may differ after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u16);

impl EventId {
    /// The ID that a record begins with (`common_type`).
    #[inline]
    pub(crate) fn of_record(record: &[u8]) -> EventId {
        let id = record.first_chunk();
        EventId(id.map_or(0, |id| u16::from_le_bytes(*id)))
    }
}

/// One entry of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Something that happened.
    Event(Event<'a>),
    /// Something happened that the trace does not have.
    Lost(Lost),
}

/// One event, with its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// When, in the unit of the trace's clock.
    pub ticks: u64,
    /// The CPU that wrote it; 0 in a trace that does not tell.
    pub cpu: u32,
    /// Number of the trace's input that the event is from.
    pub input: u32,
    /// Kind of the event; its format says what the fields are.
    pub id: EventId,
    /// The thread that was running (`common_pid`); 0 is the idle thread.
    pub pid: i32,
    /// Record of the event; [`crate::Field`] reads it.
    pub data: &'a [u8],
}

/// `TRACE_FLAG_HARDIRQ`, `_SOFTIRQ` and `_NMI` (`include/linux/trace_events.h`).
const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40;

impl<'a> Event<'a> {
    /// The event of a record, which begins with the event's ID and its thread (`struct trace_entry`).
    #[inline]
    pub(crate) fn of_record(ticks: u64, cpu: u32, input: u32, data: &'a [u8]) -> Event<'a> {
        let pid = data.get(4..).and_then(|rest| rest.first_chunk());
        Event {
            ticks,
            cpu,
            input,
            id: EventId::of_record(data),
            pid: pid.map_or(0, |pid| i32::from_le_bytes(*pid)),
            data,
        }
    }

    /// Returns true if the event is of an interrupt: the thread that was running has nothing to do with it.
    #[inline]
    pub fn in_interrupt(&self) -> bool {
        // `common_flags` has always been the third byte of a record.
        self.data
            .get(2)
            .is_some_and(|flags| flags & IN_INTERRUPT != 0)
    }
}

/// Events are missing here: after the last event of this input, before its next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// When the input goes on.
    pub ticks: u64,
    /// The CPU that wrote them; `None` where the trace does not say.
    pub cpu: Option<u32>,
    /// Number of the trace's input that they are missing from.
    pub input: u32,
    /// Number; `None` where unknown.
    pub events: Option<u64>,
}

/// Counts of what was read from a trace, and of what was skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of events given.
    pub events: u64,
    /// Places where events were lost, each given as [`Lost`].
    pub losses: u64,
    /// Events lost there, as far as the number is known.
    pub lost: u64,
    /// Pages left out, whole or from the place where they are invalid; each is a loss, too. Of a trace without pages:
    /// the records that are invalid.
    pub damaged_pages: u64,
    /// Events left out because no format has their number or name; lines of a log that are no events.
    pub unknown: u64,
    /// Events left out because they do not fit their format, mostly by being shorter: it is of another kernel or QEMU.
    pub short: u64,
    /// Events earlier than the one before them in the same input: a clock that was set back. They are given as they
    /// are.
    pub backwards: u64,
    /// Events later than the one before them in the same input by [`LEAP`] or more: a clock that jumped. They are given
    /// as they are.
    pub leaps: u64,
}

impl Counts {
    /// An entry of an input is at `now`; `last` is that of the one before it, 0 for none.
    #[inline]
    pub(crate) fn time(&mut self, last: &mut u64, now: u64) {
        if now < *last {
            self.backwards += 1;
        } else if now - *last >= LEAP && *last != 0 {
            self.leaps += 1;
        }
        *last = now;
    }

    /// Events were lost.
    pub(crate) fn loss(&mut self, events: Option<u64>) {
        self.losses += 1;
        self.lost = self.lost.saturating_add(events.unwrap_or(0));
    }
}

/// No CPU is silent for so many ticks: about 18 minutes in nanoseconds, 7 at 2.6 GHz.
pub const LEAP: u64 = 1 << 40;
