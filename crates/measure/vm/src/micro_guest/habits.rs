use crate::micro_guest::layout::{EXIT_WORDS, command, words};
use crate::micro_guest::order::number;
use crate::micro_guest::{Mailbox, MicroError};
use vmtax_model::Habit;

impl Mailbox<'_> {
    /// What the last order, for this habit, found: how long each took, or each [`Habit::batch`], ticks.
    ///
    /// # Errors
    /// As [`Mailbox::exits`].
    pub fn habit(&self, habit: Habit, cured: bool) -> Result<Vec<u64>, MicroError> {
        let count = self.finished(command::HABITS, "habits")?;
        if self.word(words::KIND) != number(habit, cured) {
            return Err(MicroError::NotDone { wanted: "this habit", state: self.state()? });
        }
        let mut last = 0;
        let took = (0..count).map(|entry| {
            let [before, after] = [0, 1].map(|word| self.entry(entry * EXIT_WORDS + word));
            if before < last || after < before {
                let what = format!("stamps of habit {entry} ({before}, {after}, after {last})");
                return Err(MicroError::Nonsense { what });
            }
            last = after;
            Ok(after - before)
        });
        took.collect()
    }
}
