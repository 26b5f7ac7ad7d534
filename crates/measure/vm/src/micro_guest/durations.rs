use crate::micro_guest::layout::{EXIT_WORDS, command, words};
use crate::micro_guest::order::number;
use crate::micro_guest::{ExitKind, Mailbox, MicroError};
use vmtax_model::Antipattern;

impl Mailbox<'_> {
    /// Returns the duration of each exit of the last order, for exits of this kind: ticks, in the order in which they
    /// were made.
    ///
    /// # Errors
    /// [`MicroError::NotDone`] or [`MicroError::Failed`] when that was not the last order or it did not end well;
    /// [`MicroError::InvalidMemory`] for counts or stamps that cannot be.
    pub fn exits(&self, kind: ExitKind) -> Result<Vec<u64>, MicroError> {
        self.durations(
            command::EXITS,
            kind as u64,
            kind.label(),
            kind == ExitKind::Halt,
        )
    }

    /// Returns the durations of the last order, for this antipattern: ticks of each, or of each
    /// [`Antipattern::batch`].
    ///
    /// # Errors
    /// As [`Mailbox::exits`].
    pub fn antipattern(
        &self,
        antipattern: Antipattern,
        fixed: bool,
    ) -> Result<Vec<u64>, MicroError> {
        self.durations(
            command::ANTIPATTERNS,
            number(antipattern, fixed),
            "this antipattern",
            false,
        )
    }

    /// `overlap`: two deadlines of the timer may lie closer than the wake-up from the first took.
    fn durations(
        &self,
        command: u64,
        kind: u64,
        wanted: &'static str,
        overlap: bool,
    ) -> Result<Vec<u64>, MicroError> {
        let count = self.finished(command, wanted)?;
        if self.word(words::KIND) != kind {
            return Err(MicroError::NotDone {
                wanted,
                state: self.state()?,
            });
        }
        let mut last = 0;
        let took = (0..count).map(|entry| {
            let [before, after] = [0, 1].map(|word| self.entry(entry * EXIT_WORDS + word));
            let begun = if overlap { before } else { last };
            if before < begun || after < before || after < last {
                let what =
                    format!("stamps of {wanted}, number {entry} ({before}, {after}, after {last})");
                return Err(MicroError::InvalidMemory { what });
            }
            last = after;
            Ok(after - before)
        });
        took.collect()
    }
}
