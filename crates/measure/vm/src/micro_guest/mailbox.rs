use crate::micro_guest::layout::{MAGIC, MAILBOX, MAX_COUNT, RAM_BYTES, TABLE, failure, state, words};
use crate::micro_guest::{MicroError, Order};
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<AtomicU64>();

/// The guest's memory, mapped by the host: orders go in, results come out. The guest is not trusted: whatever it wrote,
/// reading it gives an error at worst.
#[derive(Debug, Clone, Copy)]
pub struct Mailbox<'a> {
    ram: &'a [AtomicU64],
}

/// How the guest is, with regard to the last order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not up yet.
    Starting,
    /// Up, and without an order so far.
    Ready,
    /// Carrying the order out, or about to see it.
    Running,
    /// Done with it.
    Done,
    /// It could not be done. The guest takes further orders, except after [`Failure::Trap`].
    Failed(Failure),
}

/// Why the guest could not do what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no disk.
    #[error("it found no legacy virtio-blk disk on PCI bus 0: give QEMU `-device virtio-blk-pci,disable-modern=on,…`")]
    NoDisk,
    /// The disk has no MSI-X.
    #[error("its disk has no MSI-X: leave out `vectors=0`, or choose INTx or polling")]
    NoMsix,
    /// The disk's queue is too large for the ROM, or there is none.
    #[error("its disk's queue has {size} entries: give the device `queue-size=256`, or any up to 1024")]
    BadQueue {
        /// Entries.
        size: u64,
    },
    /// The disk is smaller than the run's range.
    #[error("its disk has {sectors} sectors, less than the run is to use: give a larger disk or a smaller range")]
    SmallDisk {
        /// Sectors of the disk.
        sectors: u64,
    },
    /// The disk answered a request with an error.
    #[error(
        "request {request} ended with virtio-blk status {status}: see QEMU's log, and whether the disk may be written to"
    )]
    Io {
        /// Which, counted from 0.
        request: u64,
        /// 1: error; 2: not supported.
        status: u64,
    },
    /// A completion or an interrupt did not come in time.
    #[error(
        "it waited in vain for completion or interrupt {number}: see whether the host's disk answers, or allow more ticks"
    )]
    Timeout {
        /// Which, counted from 0.
        number: u64,
    },
    /// The guest's own code went wrong, or the machine is not what it was made for.
    #[error("exception {vector} at {address:#x}: this machine cannot run the ROM, try `-accel tcg`")]
    Trap {
        /// The exception's number.
        vector: u8,
        /// Where.
        address: u64,
    },
    /// The local APIC's timer stands still.
    #[error("its local APIC's timer stands still: leave the machine its local APIC (`-cpu …,-apic` takes it away)")]
    NoTimer,
    /// The local APIC knows only memory.
    #[error("its local APIC has no x2APIC mode: QEMU's TCG has it since 9.0, KVM with `-cpu …,+x2apic`")]
    NoX2apic,
    /// There is no HPET.
    #[error("its machine has no HPET: give QEMU `-machine hpet=on`")]
    NoHpet,
    /// The ROM does not know the order.
    #[error("it does not know the order: the ROM is of another version")]
    UnknownOrder,
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
    /// has crashed; others for what it cannot be told to do.
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

    /// How the guest is.
    ///
    /// # Errors
    /// [`MicroError::Nonsense`] for a state that there is not.
    pub fn state(&self) -> Result<State, MicroError> {
        match self.word(words::MAGIC) {
            0 => return Ok(State::Starting),
            MAGIC => {}
            other => return Err(MicroError::Nonsense { what: format!("first word ({other:#x})") }),
        }
        let word = self.word(words::STATE);
        let of_last_order = word >> 8 == self.word(words::ORDER) & (u64::MAX >> 8);
        match word & 0xff {
            state::FAILED if self.word(words::FAILURE) == failure::TRAP => Ok(State::Failed(self.failure()?)),
            _ if !of_last_order => Ok(State::Running),
            state::READY => Ok(State::Ready),
            state::RUNNING => Ok(State::Running),
            state::DONE => Ok(State::Done),
            state::FAILED => Ok(State::Failed(self.failure()?)),
            other => Err(MicroError::Nonsense { what: format!("state ({other})") }),
        }
    }

    fn failure(&self) -> Result<Failure, MicroError> {
        let (detail, count) = (self.word(words::DETAIL), self.word(words::COUNT));
        Ok(match self.word(words::FAILURE) {
            failure::UNKNOWN => Failure::UnknownOrder,
            failure::NO_DISK => Failure::NoDisk,
            failure::NO_MSIX => Failure::NoMsix,
            failure::BAD_QUEUE => Failure::BadQueue { size: detail },
            failure::SMALL_DISK => Failure::SmallDisk { sectors: self.word(words::CAPACITY) },
            failure::IO => Failure::Io { request: count, status: detail },
            failure::TIMEOUT => Failure::Timeout { number: count },
            failure::TRAP => Failure::Trap { vector: (detail >> 56) as u8, address: detail & (u64::MAX >> 8) },
            failure::NO_TIMER => Failure::NoTimer,
            failure::NO_X2APIC => Failure::NoX2apic,
            failure::NO_HPET => Failure::NoHpet,
            other => return Err(MicroError::Nonsense { what: format!("failure ({other})") }),
        })
    }

    /// How many entries the table has, when the last order was `command` and is done.
    pub(crate) fn finished(&self, command: u64, wanted: &'static str) -> Result<usize, MicroError> {
        match self.state()? {
            State::Done if self.word(words::COMMAND) == command => {}
            State::Failed(failure) => return Err(failure.into()),
            state => return Err(MicroError::NotDone { wanted, state }),
        }
        let count = self.word(words::COUNT);
        if count != self.word(words::HOW_MANY) || count > u64::from(MAX_COUNT) {
            return Err(MicroError::Nonsense { what: format!("count ({count})") });
        }
        Ok(count as usize)
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
