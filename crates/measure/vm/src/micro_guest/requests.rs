use crate::micro_guest::layout::{REQUEST_WORDS, SECTOR, command, completion, words};
use crate::micro_guest::{Mailbox, MicroError};

/// One request, as the guest stamped it: ticks of its time stamp counter, in user mode.
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
    /// The first sector, of 512 bytes.
    pub sector: u64,
}

impl Mailbox<'_> {
    /// The requests of the last order, in the order in which they were made.
    ///
    /// # Errors
    /// [`MicroError::NotDone`] or [`MicroError::Failed`] when the last order was no run or it did not end well;
    /// [`MicroError::InvalidMemory`] for counts, stamps or sectors that cannot be.
    pub fn requests(&self) -> Result<Vec<MicroRequest>, MicroError> {
        let count = self.finished(command::RUN, "a run")?;
        let polled = self.word(words::COMPLETION) == completion::POLLED;
        let block = self.word(words::BLOCK) / u64::from(SECTOR);
        let blocks = self.word(words::BLOCKS);
        let mut requests = Vec::with_capacity(count);
        let mut last = 0;
        for entry in 0..count {
            let [begin, notified, interrupt, seen, sector] =
                [0, 1, 2, 3, 4].map(|word| self.entry(entry * REQUEST_WORDS + word));
            let interrupted = if polled { interrupt == 0 } else { (begin..=seen).contains(&interrupt) };
            let on_disk = sector.checked_rem(block) == Some(0) && sector / block < blocks;
            if begin < last || notified < begin || seen < notified || !interrupted || !on_disk {
                let what = format!(
                    "request {entry} ({begin}, {notified}, {interrupt}, {seen}, after {last}; sector {sector})"
                );
                return Err(MicroError::InvalidMemory { what });
            }
            requests.push(MicroRequest { begin, notified, interrupt: (!polled).then_some(interrupt), seen, sector });
            last = seen;
        }
        Ok(requests)
    }
}
