//! Stamps exchanged through shared memory: the host writes its time stamp counter into one cell, the guest answers with
//! its own in another, the host reads its own again. The guest's stamp was taken between the host's two, whatever kept
//! either side from its CPU meanwhile: that only widens this one interval, and the intervals of thousands of
//! exchanges are intersected. What is left is about as wide as the quickest way there and back.

use crate::{ClockError, checked, now};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::ptr::{self, NonNull};
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

const WORD: usize = size_of::<AtomicU64>();

/// Vendor and device of QEMU's ivshmem (docs/specs/ivshmem-spec): its BAR 2 is the memory.
const IVSHMEM: [&str; 2] = ["0x1af4", "0x1110"];

const DEVICES: &str = "/sys/bus/pci/devices";

/// Memory that another process or a guest sees too. Whatever they write into it, reading gives numbers.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
    file: OwnedFd,
}

// SAFETY: it owns its mapping, and all access to that is through atomics.
unsafe impl Send for Shared {}

// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes new memory of zeros. Its size is sealed, so that nobody who is given it can take pages away from under us.
    ///
    /// # Errors
    /// [`ClockError::System`] when the system gives none.
    pub fn create(bytes: usize) -> Result<Shared, ClockError> {
        let failed = |e| ClockError::system(format!("making shared memory of {bytes} bytes"), e);
        let file = memfd_create(
            "vmtax-shared",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(failed)?;
        ftruncate(&file, bytes as u64).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(failed)?;
        Shared::map(file, bytes, "shared memory")
    }

    /// Maps the first `bytes` of `file`, a file in memory or a device's; `what` names it in errors. Who else has it
    /// may not make it smaller.
    ///
    /// # Errors
    /// [`ClockError::Small`] when it is smaller, [`ClockError::System`] when it cannot be mapped.
    pub fn map(file: impl Into<OwnedFd>, bytes: usize, what: &str) -> Result<Shared, ClockError> {
        let file = file.into();
        let failed = |e| ClockError::system(format!("mapping {what}"), e);
        let size = u64::try_from(fstat(&file).map_err(failed)?.st_size).unwrap_or(0);
        if size < bytes as u64 {
            return Err(ClockError::Small {
                what: what.to_owned(),
                bytes: size,
                wanted: bytes as u64,
            });
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where, so nothing that is in use is replaced.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }
            .map_err(failed)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        Ok(Shared {
            start,
            words: bytes / WORD,
            file,
        })
    }

    /// Inside a guest: maps what QEMU was given with `-device ivshmem-plain`.
    ///
    /// # Errors
    /// [`ClockError::NoDevice`] without one, others when sysfs does not let it be used.
    pub fn guest() -> Result<Shared, ClockError> {
        let devices = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        // The first: what a guest has besides is behind bridges.
        let device = devices
            .map(|d| d.path())
            .filter(|d| is_ivshmem(d))
            .min()
            .ok_or(ClockError::NoDevice)?;
        let (enable, memory) = (device.join("enable"), device.join("resource2"));
        // Without a driver nobody else does; before it is done, reads give all ones.
        fs::write(&enable, "1")
            .map_err(|e| ClockError::system(format!("writing {}", enable.display()), e))?;
        let path = memory.display().to_string();
        let open = |path: &Path| -> std::io::Result<(File, u64)> {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        };
        let (file, bytes) =
            open(&memory).map_err(|e| ClockError::system(format!("opening {path}"), e))?;
        Shared::map(file, usize::try_from(bytes).unwrap_or(usize::MAX), &path)
    }

    /// The memory's file once more, to hand on: it is closed on exec unless the receiver is given it by number.
    ///
    /// # Errors
    /// [`ClockError::System`] when this process has no descriptor left.
    pub fn descriptor(&self) -> Result<OwnedFd, ClockError> {
        let again = self.file.as_fd().try_clone_to_owned();
        again.map_err(|e| ClockError::system("duplicating the descriptor of shared memory", e))
    }

    /// All of it, as words of eight bytes.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words from `start`, which lies on a page, are mapped, readable and writable, as long as `self`
        // lives; their file keeps its size; any bits are an AtomicU64, and everyone in this process goes through those.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The word at a byte offset.
    ///
    /// # Errors
    /// [`ClockError::NoCell`] unless it lies within, at a multiple of 8.
    pub fn cell(&self, offset: usize) -> Result<&AtomicU64, ClockError> {
        let cell = if offset % WORD == 0 {
            self.words().get(offset / WORD)
        } else {
            None
        };
        cell.ok_or(ClockError::NoCell {
            offset,
            bytes: self.words * WORD,
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length (the kernel rounds both to pages), and no borrow is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}

fn is_ivshmem(device: &Path) -> bool {
    let reads = |file: &str, wanted: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|id| id.trim() == wanted)
    };
    reads("vendor", IVSHMEM[0]) && reads("device", IVSHMEM[1])
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
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

    #[test]
    fn both_sides_see_it_and_its_size_is_kept() {
        let ours = Shared::create(8192).unwrap();
        let theirs = Shared::map(ours.descriptor().unwrap(), 8192, "a copy").unwrap();
        ours.cell(4096).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(theirs.cell(4096).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(theirs.words().len(), 1024);
        assert!(
            ftruncate(theirs.descriptor().unwrap(), 0).is_err(),
            "a page could be taken away"
        );
    }

    #[test]
    fn what_is_outside_is_refused() {
        let ours = Shared::create(4096).unwrap();
        assert!(ours.cell(4088).is_ok());
        for offset in [4096, 4, usize::MAX] {
            assert!(
                matches!(ours.cell(offset), Err(ClockError::NoCell { .. })),
                "{offset}"
            );
        }
        let larger = Shared::map(ours.descriptor().unwrap(), 4097, "it");
        assert!(
            matches!(
                larger,
                Err(ClockError::Small {
                    bytes: 4096,
                    wanted: 4097,
                    ..
                })
            ),
            "{larger:?}"
        );
    }
}
