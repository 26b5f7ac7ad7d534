//! From records of the kernel's ring buffer to what they tell of threads.

use super::timeline::{Leaves, What};
use vmtax_trace::{Event, EventId, Field, Formats};

/// `TASK_DEAD`'s way out: `EXIT_DEAD` and `EXIT_ZOMBIE`, in the bits of `prev_state` that are reported.
const ENDED: u64 = 0x30;
/// All bits of `prev_state` that say that a thread does not run on; the one above them is for one that had to give way.
const STOPPED: u64 = 0xff;

/// Where in the records of this kernel the fields lie.
#[derive(Debug, Default)]
pub struct Decoder {
    switch: Option<(EventId, [Field; 3])>,
    waking: Option<(EventId, Field)>,
    enter: Option<(EventId, Field, Field)>,
    exit: Option<EventId>,
}

impl Decoder {
    /// For a trace with these formats; what it does not have, it has no events of.
    pub fn new(formats: &Formats) -> Decoder {
        let of = |system, name, field| {
            let id = formats.event(system, name)?;
            Some((id, formats.field(id, field)?))
        };
        let switch = |name| of("sched", "sched_switch", name);
        let enter = |name| of("raw_syscalls", "sys_enter", name);
        Decoder {
            switch: (|| {
                let (id, from) = switch("prev_pid")?;
                Some((id, [from, switch("prev_state")?.1, switch("next_pid")?.1]))
            })(),
            waking: of("sched", "sched_waking", "pid"),
            enter: (|| {
                let (id, number) = enter("id")?;
                Some((id, number, enter("args")?.1.element(0)?))
            })(),
            exit: formats.event("raw_syscalls", "sys_exit"),
        }
    }

    /// What an event tells; nothing if it is none of these, or damaged.
    pub fn what(&self, event: &Event<'_>) -> Option<What> {
        let thread = |field: &Field| i32::try_from(field.signed(event.data)?).ok();
        if let Some((_, [from, state, to])) = self.switch.as_ref().filter(|(id, _)| *id == event.id) {
            let state = state.unsigned(event.data)?;
            let leaves = match state & STOPPED {
                0 => Leaves::Ready,
                state if state & ENDED != 0 => Leaves::Ended,
                _ => Leaves::Blocked,
            };
            return Some(What::Switch { from: thread(from)?, leaves, to: thread(to)? });
        }
        match (&self.waking, &self.enter, self.exit) {
            (Some((id, whom)), ..) if *id == event.id => Some(What::Waking(thread(whom)?)),
            (_, Some((id, number, argument)), _) if *id == event.id => {
                Some(What::Enter(number.signed(event.data)?, argument.unsigned(event.data)?))
            }
            (.., Some(id)) if id == event.id => Some(What::Exit),
            _ => None,
        }
    }
}
