//! The mailbox in the guest's memory: orders go in, states and results come out.

use super::layout::{
    EXIT_WORDS, FRAME, MAGIC, MAILBOX, MAX_BLOCK, MAX_COUNT, RAM_BYTES, REQUEST_WORDS, SECTOR,
    TABLE, command, completion, failure, state, words,
};
use super::order::number;
use super::{ExitKind, Failure, MicroError, Order, State};
use std::sync::atomic::{AtomicU64, Ordering};
use vmtax_model::Antipattern;

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
                return Err(invalid(format!("first word ({other:#x})")));
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
            other => Err(invalid(format!("state ({other})"))),
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
                return Err(invalid(format!("failure ({other})")));
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
            return Err(invalid(format!("count ({count})")));
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
                return Err(invalid(format!(
                    "request {entry} ({begin}, {notified}, {interrupt}, {seen}, after {last}; at {place})"
                )));
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
                return Err(invalid(format!(
                    "stamps of {wanted}, number {entry} ({before}, {after}, after {last})"
                )));
            }
            last = after;
            Ok(after - before)
        });
        took.collect()
    }
}

/// The error of data, by its name and value, that the ROM never writes.
fn invalid(what: String) -> MicroError {
    MicroError::InvalidMemory { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro_guest::layout::{
        BUFFER, EXIT_WORDS, MAX_BLOCK, MAX_FRAME, REQUEST_WORDS, command, completion,
    };
    use crate::micro_guest::{Completion, Direction, ExitKind, Pattern, RoundTrips, Run};
    use proptest::prelude::*;
    use std::sync::LazyLock;
    use vmtax_model::Antipattern;

    fn memory() -> Box<[AtomicU64]> {
        (0..RAM_BYTES / WORD).map(|_| AtomicU64::new(0)).collect()
    }

    /// A guest that has just done what the words order.
    fn done(memory: &[AtomicU64], ordered: &[(usize, u64)], table: &[u64]) {
        let set = |at: usize, word: u64| memory[at / WORD].store(word, Ordering::Relaxed);
        set(MAILBOX + words::MAGIC, MAGIC);
        set(MAILBOX + words::ORDER, 7);
        set(MAILBOX + words::STATE, 7 << 8 | state::DONE);
        ordered
            .iter()
            .for_each(|&(at, word)| set(MAILBOX + at, word));
        table
            .iter()
            .enumerate()
            .for_each(|(word, &value)| set(TABLE + word * WORD, value));
    }

    const RUN: Run = Run {
        count: 2,
        block: 4096,
        direction: Direction::Read,
        pattern: Pattern::Sequential,
        sectors: 80,
        completion: Completion::Msix,
        timeout: 1,
    };

    fn ran(table: [[u64; REQUEST_WORDS]; 2]) -> Result<usize, MicroError> {
        let memory = memory();
        let ordered = Order::Run(RUN).words().unwrap();
        done(&memory, &ordered, &table.concat());
        memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
        Mailbox::new(&memory)
            .unwrap()
            .requests()
            .map(|requests| requests.len())
    }

    #[test]
    fn requests_that_cannot_be_are_refused() {
        let sound = [[10, 20, 15, 30, 0], [30, 31, 40, 40, 72]];
        assert_eq!(ran(sound), Ok(2));
        for (request, word, value, why) in [
            (0, 1, 9, "notified before it began"),
            (0, 2, 9, "an interrupt before it began"),
            (0, 2, 31, "an interrupt after it was seen"),
            (0, 2, 0, "no interrupt"),
            (0, 3, 19, "seen before notified"),
            (1, 0, 29, "begun before the one before was seen"),
            (1, 4, 73, "in the middle of a block"),
            (1, 4, 80, "outside the range"),
        ] {
            let mut table = sound;
            table[request][word] = value;
            assert!(
                matches!(ran(table), Err(MicroError::InvalidMemory { .. })),
                "{why}"
            );
        }
    }

    #[test]
    fn round_trips_that_cannot_be_are_refused() {
        let memory = memory();
        let made = |table: [[u64; REQUEST_WORDS]; 2]| {
            let ordered = Order::RoundTrips(RoundTrips {
                count: 2,
                bytes: 116,
                timeout: 1,
            })
            .words()
            .unwrap();
            done(&memory, &ordered, &table.concat());
            memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
            Mailbox::new(&memory)
                .unwrap()
                .round_trips()
                .map(|trips| trips.len())
        };
        assert_eq!(made([[10, 20, 25, 30, 0], [30, 31, 40, 40, 1]]), Ok(2));
        assert!(
            made([[10, 20, 25, 30, 0], [30, 31, 40, 40, 2]]).is_err(),
            "another number"
        );
        assert!(
            made([[10, 20, 25, 30, 0], [29, 31, 40, 40, 1]]).is_err(),
            "two at once"
        );
        for bytes in [0, 60, MAX_FRAME + 1] {
            let order = Order::RoundTrips(RoundTrips {
                count: 2,
                bytes,
                timeout: 1,
            });
            assert_eq!(order.words(), Err(MicroError::BadFrame { bytes }));
        }
    }

    #[test]
    fn exits_that_cannot_be_are_refused() {
        let memory = memory();
        let took = |kind, table: [u64; 2 * EXIT_WORDS]| {
            let ordered = Order::Exits { kind, count: 2 }.words().unwrap();
            done(&memory, &ordered, &table);
            memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
            Mailbox::new(&memory).unwrap().exits(kind)
        };
        assert_eq!(took(ExitKind::Cpuid, [5, 9, 9, 10]), Ok(vec![4, 1]));
        assert!(
            took(ExitKind::Cpuid, [5, 4, 9, 10]).is_err(),
            "after before before"
        );
        assert!(took(ExitKind::Cpuid, [5, 9, 8, 10]).is_err(), "two at once");
    }

    #[test]
    fn antipatterns_that_cannot_be_are_refused() {
        let memory = memory();
        let took = |fixed, table: [u64; 2 * EXIT_WORDS]| {
            let ordered = Order::Antipattern {
                antipattern: Antipattern::FastTick,
                fixed: true,
                count: 2,
            }
            .words()
            .unwrap();
            done(&memory, &ordered, &table);
            memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
            Mailbox::new(&memory)
                .unwrap()
                .antipattern(Antipattern::FastTick, fixed)
        };
        assert_eq!(took(true, [5, 9, 9, 10]), Ok(vec![4, 1]));
        assert!(
            matches!(took(false, [5, 9, 9, 10]), Err(MicroError::NotDone { .. })),
            "of the fix"
        );
        assert!(took(true, [5, 4, 9, 10]).is_err(), "after before before");
        assert!(took(true, [5, 9, 8, 10]).is_err(), "two at once");
    }

    #[test]
    fn states_are_about_the_last_order() {
        let memory = memory();
        let mailbox = Mailbox::new(&memory).unwrap();
        let set =
            |at: usize, word: u64| memory[(MAILBOX + at) / WORD].store(word, Ordering::Relaxed);
        assert_eq!(mailbox.state(), Ok(State::Starting));
        assert_eq!(
            mailbox.order(&Order::Leave),
            Err(MicroError::Busy {
                state: State::Starting
            })
        );
        set(words::MAGIC, MAGIC);
        set(words::STATE, state::READY);
        assert_eq!(mailbox.state(), Ok(State::Ready));
        mailbox.order(&Order::Ping).unwrap();
        assert_eq!(
            mailbox.state(),
            Ok(State::Running),
            "not yet seen by the guest"
        );
        set(words::STATE, 1 << 8 | state::DONE);
        assert_eq!(mailbox.state(), Ok(State::Done));
        mailbox.order(&Order::Ping).unwrap();
        assert_eq!(
            mailbox.state(),
            Ok(State::Running),
            "done is what the guest is with the one before"
        );
        set(words::STATE, 2 << 8 | state::FAILED);
        assert!(mailbox.state().is_err(), "failed, for no reason");
        set(words::FAILURE, failure::TRAP);
        set(words::DETAIL, 14 << 56 | 0xf_0123);
        let crash = Failure::Trap {
            vector: 14,
            address: 0xf_0123,
        };
        assert_eq!(mailbox.state(), Ok(State::Failed(crash)));
        assert_eq!(mailbox.order(&Order::Ping), Err(MicroError::Failed(crash)));
        set(words::MAGIC, MAGIC + 1);
        assert!(mailbox.state().is_err(), "another version");
        assert_eq!(
            Mailbox::new(&memory[1..]).err(),
            Some(MicroError::WrongMemory {
                bytes: RAM_BYTES - 8
            })
        );
    }

    #[test]
    fn orders_that_cannot_be_carried_out_are_refused() {
        let words = |run| Order::Run(run).words();
        assert!(words(RUN).is_ok());
        for count in [0, MAX_COUNT + 1] {
            assert_eq!(
                words(Run { count, ..RUN }),
                Err(MicroError::BadCount { count })
            );
            assert_eq!(
                Order::Exits {
                    kind: ExitKind::Eoi,
                    count
                }
                .words(),
                Err(MicroError::BadCount { count })
            );
        }
        for bytes in [0, 100, 513, MAX_BLOCK + 512] {
            assert_eq!(
                words(Run {
                    block: bytes,
                    ..RUN
                }),
                Err(MicroError::BadBlock { bytes })
            );
        }
        for sectors in [0, 7, u64::MAX] {
            assert_eq!(
                words(Run { sectors, ..RUN }),
                Err(MicroError::BadRange {
                    sectors,
                    block: 4096
                })
            );
        }
        for stride in [0, 10, u64::MAX] {
            let pattern = Pattern::Stride(stride);
            assert_eq!(
                words(Run { pattern, ..RUN }),
                Err(MicroError::BadStride { stride, blocks: 10 })
            );
        }
    }

    /// The ROM finds a kind by its place.
    #[test]
    fn kinds_are_numbered_in_their_order() {
        assert!(
            ExitKind::ALL
                .iter()
                .enumerate()
                .all(|(number, &kind)| kind as usize == number)
        );
        assert!(
            Antipattern::ALL
                .iter()
                .enumerate()
                .all(|(number, &antipattern)| antipattern as usize == number)
        );
    }

    const _: () = assert!(TABLE + MAX_COUNT as usize * REQUEST_WORDS * WORD <= RAM_BYTES);
    const _: () = assert!(BUFFER + MAX_BLOCK as usize <= TABLE && MAILBOX + 4096 <= BUFFER);

    /// Numbers that come near to being right.
    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..12u64,
            7 << 8..(7 << 8) + 6u64,
            any::<u64>(),
            Just(MAGIC),
            Just(4096),
            Just(u64::from(MAX_COUNT))
        ]
    }

    proptest! {
        #[test]
        fn any_memory_is_survived(
            mailbox in proptest::collection::vec(word(), 27),
            table in proptest::collection::vec(word(), 0..20),
            kind in 0..ExitKind::ALL.len(),
            up in any::<bool>(),
        ) {
            static MEMORY: LazyLock<Box<[AtomicU64]>> = LazyLock::new(memory);
            let set = |at: usize, word: u64| MEMORY[at / WORD].store(word, Ordering::Relaxed);
            let last = [words::MAGIC / WORD, words::STATE / WORD, words::ORDER / WORD];
            let cells = (words::MAGIC / WORD..=words::SEED / WORD).filter(|cell| !up || !last.contains(cell));
            cells.zip(mailbox).for_each(|(cell, word)| set(MAILBOX + cell * WORD, word));
            table.iter().enumerate().for_each(|(word, &value)| set(TABLE + word * WORD, value));
            if up {
                done(&MEMORY, &[], &[]);
            }
            let mailbox = Mailbox::new(&MEMORY).unwrap();
            let polled = mailbox.word(words::COMPLETION) == completion::POLLED;
            if let Ok(requests) = mailbox.requests() {
                prop_assert_eq!(mailbox.word(words::COMMAND), command::RUN);
                prop_assert!(requests.iter().all(|r| r.begin <= r.notified && r.notified <= r.seen));
                prop_assert!(requests.iter().all(|r| r.interrupt.is_none() == polled));
                prop_assert!(requests.windows(2).all(|two| two[0].seen <= two[1].begin));
            }
            if let Ok(exits) = mailbox.exits(ExitKind::ALL[kind]) {
                prop_assert_eq!(exits.len() as u64, mailbox.word(words::HOW_MANY));
            }
            for (antipattern, fixed) in Antipattern::forms() {
                if let Ok(ticks) = mailbox.antipattern(antipattern, fixed) {
                    prop_assert_eq!(ticks.len() as u64, mailbox.word(words::HOW_MANY));
                }
            }
            let _ = mailbox.order(&Order::Run(RUN));
        }
    }
}
