use crate::micro_guest::layout::{REQUEST_WORDS, SECTOR, command, completion, words};
use crate::micro_guest::{Mailbox, MicroError};

/// One request to the disk or over the network, as the guest stamped it: ticks of its time stamp counter, in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroRequest {
    /// Just before the request lay in the ring and the device was notified.
    pub begin: u64,
    /// After the instruction that notified returned.
    pub notified: u64,
    /// At the interrupt handler's first instruction in user mode, two after its first; `None` when polled.
    pub interrupt: Option<u64>,
    /// When the guest saw the request in the used ring. After the interrupt's acknowledgement at the device (INTx only),
    /// before its end at the interrupt controller.
    pub seen: u64,
    /// The first sector, of 512 bytes; of a round trip its number.
    pub place: u64,
}

impl Mailbox<'_> {
    /// The requests of the last order, in the order in which they were made.
    ///
    /// # Errors
    /// [`MicroError::NotDone`] or [`MicroError::Failed`] when the last order was no run or it did not end well;
    /// [`MicroError::InvalidMemory`] for counts, stamps or sectors that cannot be.
    pub fn requests(&self) -> Result<Vec<MicroRequest>, MicroError> {
        let block = self.word(words::BLOCK) / u64::from(SECTOR);
        let blocks = self.word(words::BLOCKS);
        let on_disk =
            |_, sector: u64| sector.checked_rem(block) == Some(0) && sector / block < blocks;
        self.stamped(command::RUN, "a run", on_disk)
    }

    /// The round trips of the last order, likewise.
    ///
    /// # Errors
    /// As [`Mailbox::requests`].
    pub fn round_trips(&self) -> Result<Vec<MicroRequest>, MicroError> {
        let first = self.word(words::SEED);
        let in_order = |entry: usize, number: u64| Some(number) == first.checked_add(entry as u64);
        self.stamped(command::ROUND_TRIPS, "round trips", in_order)
    }

    /// The table's requests. `may_be`: whether one has this place.
    fn stamped(
        &self,
        command: u64,
        wanted: &'static str,
        may_be: impl Fn(usize, u64) -> bool,
    ) -> Result<Vec<MicroRequest>, MicroError> {
        let count = self.finished(command, wanted)?;
        let polled = self.word(words::COMPLETION) == completion::POLLED;
        let mut requests = Vec::with_capacity(count);
        let mut last = 0;
        for entry in 0..count {
            let [begin, notified, interrupt, seen, place] =
                [0, 1, 2, 3, 4].map(|word| self.entry(entry * REQUEST_WORDS + word));
            let interrupted = if polled {
                interrupt == 0
            } else {
                (begin..=seen).contains(&interrupt)
            };
            if begin < last
                || notified < begin
                || seen < notified
                || !interrupted
                || !may_be(entry, place)
            {
                let what = format!(
                    "request {entry} ({begin}, {notified}, {interrupt}, {seen}, after {last}; at {place})"
                );
                return Err(MicroError::InvalidMemory { what });
            }
            requests.push(MicroRequest {
                begin,
                notified,
                interrupt: (!polled).then_some(interrupt),
                seen,
                place,
            });
            last = seen;
        }
        Ok(requests)
    }
}
