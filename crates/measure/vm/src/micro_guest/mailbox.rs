use crate::micro_guest::layout::{
    FRAME, MAGIC, MAILBOX, MAX_BLOCK, MAX_COUNT, RAM_BYTES, TABLE, failure, state, words,
};
use crate::micro_guest::{Failure, MicroError, Order, State};
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<AtomicU64>();

/// The guest's memory, mapped by the host: orders go in, results come out. The guest is not trusted: whatever it wrote,
/// reading it gives an error at worst.
#[derive(Debug, Clone, Copy)]
pub struct Mailbox<'a> {
    ram: &'a [AtomicU64],
}

impl<'a> Mailbox<'a> {
    /// Views the guest's memory, all of it, from its first byte; zeros until QEMU has started.
    ///
    /// # Errors
    /// [`MicroError::WrongMemory`] when it has another size.
    pub fn new(ram: &'a [AtomicU64]) -> Result<Self, MicroError> {
        match ram.len() * WORD {
            RAM_BYTES => Ok(Self { ram }),
            bytes => Err(MicroError::WrongMemory { bytes }),
        }
    }

    /// The cells for the clock's exchange of stamps: the host's and the guest's.
    pub fn stamps(&self) -> (&'a AtomicU64, &'a AtomicU64) {
        (self.cell(words::HOST_STAMP), self.cell(words::GUEST_STAMP))
    }

    /// Gives an order. It returns at once; [`Mailbox::state`] says when the guest is done with it.
    ///
    /// # Errors
    /// [`MicroError::Busy`] before the guest is ready and while it carries an order out; [`MicroError::Failed`] when it
    /// has crashed; others for what it cannot do.
    pub fn order(&self, order: &Order) -> Result<(), MicroError> {
        let words = order.words()?;
        match self.state()? {
            state @ (State::Starting | State::Running) => return Err(MicroError::Busy { state }),
            State::Failed(failure @ Failure::Trap { .. }) => return Err(failure.into()),
            State::Ready | State::Done | State::Failed(_) => {}
        }
        for (at, word) in words {
            self.cell(at).store(word, Ordering::Relaxed);
        }
        self.cell(words::ORDER).fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns the state of the guest.
    ///
    /// # Errors
    /// [`MicroError::InvalidMemory`] for an unknown state.
    pub fn state(&self) -> Result<State, MicroError> {
        match self.word(words::MAGIC) {
            0 => return Ok(State::Starting),
            MAGIC => {}
            other => {
                return Err(MicroError::InvalidMemory {
                    what: format!("first word ({other:#x})"),
                });
            }
        }
        let word = self.word(words::STATE);
        let of_last_order = word >> 8 == self.word(words::ORDER) & (u64::MAX >> 8);
        match word & 0xff {
            state::FAILED if self.word(words::FAILURE) == failure::TRAP => {
                Ok(State::Failed(self.failure()?))
            }
            _ if !of_last_order => Ok(State::Running),
            state::READY => Ok(State::Ready),
            state::RUNNING => Ok(State::Running),
            state::DONE => Ok(State::Done),
            state::FAILED => Ok(State::Failed(self.failure()?)),
            other => Err(MicroError::InvalidMemory {
                what: format!("state ({other})"),
            }),
        }
    }

    fn failure(&self) -> Result<Failure, MicroError> {
        let (detail, count) = (self.word(words::DETAIL), self.word(words::COUNT));
        Ok(match self.word(words::FAILURE) {
            failure::UNKNOWN => Failure::UnknownOrder,
            failure::NO_DISK => Failure::NoDisk,
            failure::NO_MSIX => Failure::NoMsix,
            failure::BAD_QUEUE => Failure::BadQueue { size: detail },
            failure::SMALL_DISK => Failure::SmallDisk {
                sectors: self.word(words::CAPACITY),
            },
            failure::IO => Failure::Io {
                request: count,
                status: detail,
            },
            failure::TIMEOUT => Failure::Timeout { number: count },
            failure::TRAP => Failure::Trap {
                vector: (detail >> 56) as u8,
                address: detail & (u64::MAX >> 8),
            },
            failure::NO_TIMER => Failure::NoTimer,
            failure::NO_X2APIC => Failure::NoX2apic,
            failure::NO_HPET => Failure::NoHpet,
            failure::NO_CARD => Failure::NoCard,
            other => {
                return Err(MicroError::InvalidMemory {
                    what: format!("failure ({other})"),
                });
            }
        })
    }

    /// Returns the number of entries in the table, when the last order was `command` and is done.
    pub(crate) fn finished(&self, command: u64, wanted: &'static str) -> Result<usize, MicroError> {
        match self.state()? {
            State::Done if self.word(words::COMMAND) == command => {}
            State::Failed(failure) => return Err(failure.into()),
            state => return Err(MicroError::NotDone { wanted, state }),
        }
        let count = self.word(words::COUNT);
        if count != self.word(words::HOW_MANY) || count > u64::from(MAX_COUNT) {
            return Err(MicroError::InvalidMemory {
                what: format!("count ({count})"),
            });
        }
        Ok(count as usize)
    }

    /// Lays the request there that round trips send: at most [`crate::micro_guest::layout::MAX_BLOCK`] bytes of it.
    pub(crate) fn lay(&self, request: &[u8]) {
        for (cell, word) in self.ram[FRAME / WORD..][..MAX_BLOCK as usize / WORD]
            .iter()
            .zip(request.chunks(WORD))
        {
            let mut bytes = [0; WORD];
            bytes[..word.len()].copy_from_slice(word);
            cell.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// A word of the mailbox.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.cell(at).load(Ordering::Acquire)
    }

    /// A word of the table.
    pub(crate) fn entry(&self, word: usize) -> u64 {
        self.ram[TABLE / WORD + word].load(Ordering::Relaxed)
    }

    fn cell(&self, at: usize) -> &'a AtomicU64 {
        &self.ram[(MAILBOX + at) / WORD]
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
