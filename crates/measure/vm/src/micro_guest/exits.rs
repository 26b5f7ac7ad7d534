use crate::micro_guest::layout::{EXIT_WORDS, command, words};
use crate::micro_guest::{ExitKind, Mailbox, MicroError};

/// What an order for exits found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exits {
    /// Which kind.
    pub kind: ExitKind,
    /// Whether it ran in kernel mode ([`ExitKind::in_kernel_mode`]).
    pub in_kernel_mode: bool,
    /// How long each took, ticks, in the order in which they were made.
    pub ticks: Vec<u64>,
}

impl Mailbox<'_> {
    /// What the last order, for exits of this kind, found.
    ///
    /// # Errors
    /// [`MicroError::NotDone`] or [`MicroError::Failed`] when that was not the last order or it did not end well;
    /// [`MicroError::Nonsense`] for counts or stamps that cannot be.
    pub fn exits(&self, kind: ExitKind) -> Result<Exits, MicroError> {
        let count = self.finished(command::EXITS, "exits")?;
        if self.word(words::KIND) != kind as u64 {
            return Err(MicroError::NotDone { wanted: kind.label(), state: self.state()? });
        }
        let mut ticks = Vec::with_capacity(count);
        let mut last = 0;
        for entry in 0..count {
            let [before, after] = [0, 1].map(|word| self.entry(entry * EXIT_WORDS + word));
            // Two deadlines of the timer may lie closer than the wake-up from the first took.
            let begun = if kind == ExitKind::Halt { before } else { last };
            if before < begun || after < before || after < last {
                let what = format!("stamps of exit {entry} ({before}, {after}, after {last})");
                return Err(MicroError::Nonsense { what });
            }
            ticks.push(after - before);
            last = after;
        }
        Ok(Exits { kind, in_kernel_mode: kind.in_kernel_mode(), ticks })
    }
}
