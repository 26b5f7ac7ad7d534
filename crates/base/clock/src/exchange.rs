//! Stamps exchanged through shared memory: the host writes its time stamp counter into one cell, the guest answers with
//! its own in another, the host reads its own again. The guest's stamp was taken between the host's two, whatever kept
//! either side from its CPU meanwhile: that only widens this one interval, and the intervals of thousands of
//! exchanges are intersected. What is left is about as wide as the quickest way there and back.

use crate::{ClockError, Shared, checked, now};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vmtax_model::Ping;

/// Where the host writes, bytes from the start of a memory that serves nothing else.
pub const HOST_CELL: usize = 0;
/// Where the guest does: in another cache line.
pub const GUEST_CELL: usize = 64;

/// In the host's cell: the exchange is over. A counter does not come that far.
const END: u64 = u64::MAX;
/// Time that the guest may take for its first answer: it may have to be woken and to find the memory.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest extension of the time asked for. A busy machine, where both sides seldom run at once, may need it until the
/// offset is known to [`GOOD_WIDTH`].
const MAX_EXTENSION: Duration = Duration::from_secs(2);
/// Width of the offset's interval that ends the extension, in ticks: half of it is 500 ns at 2 GHz.
const GOOD_WIDTH: i64 = 2_000;
/// Largest move of the offset, in ticks, after which it can be bounded again. QEMU keeps a translated guest's counter
/// from going back: where a thread on another of the host's CPUs read a later one, it moves the guest's by some
/// hundred.
const MAX_MOVE: i64 = 10_000;
/// Reads of a cell between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 4096;

/// The host's side: exchanges stamps for `how_long` from the guest's first answer on, or up to two seconds longer while
/// they are all far apart, then tells the guest that it is over. Where the offset moved a little, it is that of the end.
///
/// # Errors
/// [`ClockError::Silent`] when the guest does not answer, [`ClockError::Contradiction`] when no offset fits all answers,
/// [`ClockError::NoCell`] for cells outside the memory.
pub fn exchange(
    shared: &Shared,
    host_cell: usize,
    guest_cell: usize,
    how_long: Duration,
) -> Result<Ping, ClockError> {
    let (ours, theirs) = (shared.cell(host_cell)?, shared.cell(guest_cell)?);
    let result = exchanges(ours, theirs, how_long);
    ours.store(END, Ordering::Release);
    result
}

fn exchanges(ours: &AtomicU64, theirs: &AtomicU64, how_long: Duration) -> Result<Ping, ClockError> {
    // On one CPU the guest runs only when this thread does not. On more it is better to stay, and be there when
    // the guest comes to run: a busy machine takes long to bring back who gave way.
    let alone = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
    let mut last = theirs.load(Ordering::Acquire);
    let mut first = now();
    let mut offset: Option<(i64, i64)> = None;
    let mut deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut enough = deadline;
    let (mut exchanges, mut latest) = (0, first);
    let is_good = |(low, high): (i64, i64)| high.saturating_sub(low) <= GOOD_WIDTH;
    loop {
        let is_enough = offset.is_some_and(is_good);
        if Instant::now() >= if is_enough { enough } else { deadline } {
            break;
        }
        let before = now();
        ours.store(before, Ordering::Release);
        let Some(guest) = changed(theirs, last, deadline, alone) else {
            break;
        };
        latest = now();
        last = guest;
        // A guest may write anything: what does not fit at all shows as a contradiction.
        let [low, high] = [before, latest].map(|host| host.wrapping_sub(guest) as i64);
        offset = match offset.map(|(least, most)| (least.max(low), most.min(high))) {
            Some((least, most)) if least > most && least.saturating_sub(most) <= MAX_MOVE => {
                (first, exchanges) = (before, 0);
                Some((low, high))
            }
            Some(both) => Some(both),
            None => {
                enough = Instant::now() + how_long;
                deadline = enough + MAX_EXTENSION;
                Some((low, high))
            }
        };
        exchanges += 1;
    }
    let timeout = ANSWER_TIMEOUT;
    let (low, high) = offset.ok_or(ClockError::Silent { timeout })?;
    checked(Ping {
        at: first + (latest - first) / 2,
        low,
        high,
        exchanges,
    })
}

/// The guest's side: answers until the host ends the exchange, or for `timeout` if it does not.
///
/// # Errors
/// [`ClockError::NoHost`] when the host does not end it, [`ClockError::NoCell`] for cells outside the memory.
pub fn answer(
    shared: &Shared,
    host_cell: usize,
    guest_cell: usize,
    timeout: Duration,
) -> Result<(), ClockError> {
    let (theirs, ours) = (shared.cell(host_cell)?, shared.cell(guest_cell)?);
    let deadline = Instant::now() + timeout;
    // The end of an exchange before this one is not the end of this one.
    let mut last = if theirs.load(Ordering::Acquire) == END {
        END
    } else {
        0
    };
    loop {
        last = changed(theirs, last, deadline, false).ok_or(ClockError::NoHost { timeout })?;
        if last == END {
            return Ok(());
        }
        ours.store(now(), Ordering::Release);
    }
}

/// Waits for a cell to change. Without PAUSE, which an emulator takes a microsecond for.
#[inline]
fn changed(cell: &AtomicU64, last: u64, deadline: Instant, give_way: bool) -> Option<u64> {
    loop {
        for _ in 0..POLLS_PER_CLOCK_READ {
            let now = cell.load(Ordering::Acquire);
            if now != last {
                return Some(now);
            }
        }
        if Instant::now() >= deadline {
            return None;
        }
        if give_way {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::thread;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn two_threads_have_one_counter_and_can_begin_again() {
        let shared = Shared::create(4096).unwrap();
        for _ in 0..3 {
            let ping = thread::scope(|scope| {
                let guest = scope.spawn(|| answer(&shared, HOST_CELL, GUEST_CELL, LONG));
                let ping = exchange(&shared, HOST_CELL, GUEST_CELL, SOON).unwrap();
                guest.join().unwrap().unwrap();
                ping
            });
            assert!(ping.low <= 0 && 0 <= ping.high, "{ping:?}");
            assert!(ping.exchanges > 0 && now() > ping.at, "{ping:?}");
        }
    }

    #[test]
    fn a_guest_that_is_late_or_silent_is_waited_for_so_long() {
        let shared = Shared::create(4096).unwrap();
        let late = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SOON);
                answer(&shared, HOST_CELL, GUEST_CELL, LONG)
            });
            exchange(&shared, HOST_CELL, GUEST_CELL, SOON)
        });
        assert!(late.is_ok(), "{late:?}");
        let nobody = answer(&shared, HOST_CELL, GUEST_CELL, SOON);
        assert!(
            matches!(nobody, Err(ClockError::NoHost { .. })),
            "{nobody:?}"
        );
        let began = Instant::now();
        let silent = exchange(&shared, HOST_CELL, GUEST_CELL, SOON);
        assert!(
            matches!(silent, Err(ClockError::Silent { .. })) && began.elapsed() >= ANSWER_TIMEOUT,
            "{silent:?}"
        );
        assert!(matches!(
            exchange(&shared, 4096, 0, SOON),
            Err(ClockError::NoCell { offset: 4096, .. })
        ));
    }

    #[test]
    fn a_clock_that_is_moved_a_little_is_known_as_it_is_then() {
        let shared = Shared::create(4096).unwrap();
        let ping = thread::scope(|scope| {
            scope.spawn(|| {
                let (theirs, ours) = (
                    shared.cell(HOST_CELL).unwrap(),
                    shared.cell(GUEST_CELL).unwrap(),
                );
                let mut last = 0;
                for number in 0.. {
                    let Some(next) = changed(theirs, last, Instant::now() + LONG, true) else {
                        return;
                    };
                    if next == END {
                        return;
                    }
                    last = next;
                    let moved = if number < 3 { 0 } else { 9_000 };
                    ours.store(now() + moved, Ordering::Release);
                }
            });
            exchange(&shared, HOST_CELL, GUEST_CELL, Duration::from_millis(500)).unwrap()
        });
        assert!((ping.low..=ping.high).contains(&-9_000), "{ping:?}");
    }

    #[test]
    fn a_guest_whose_clock_is_none_is_found_out() {
        let shared = Shared::create(4096).unwrap();
        let lies = [5, u64::MAX - 5, 1 << 63, 17, 0, u64::MAX];
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                let (theirs, ours) = (
                    shared.cell(HOST_CELL).unwrap(),
                    shared.cell(GUEST_CELL).unwrap(),
                );
                let mut last = 0;
                for lie in lies.into_iter().cycle() {
                    let Some(next) = changed(theirs, last, Instant::now() + LONG, true) else {
                        return;
                    };
                    if next == END {
                        return;
                    }
                    last = next;
                    ours.store(lie, Ordering::Release);
                }
            });
            exchange(&shared, HOST_CELL, GUEST_CELL, SOON)
        });
        assert!(
            matches!(found, Err(ClockError::Contradiction { .. })),
            "{found:?}"
        );
    }
}
