//! Processes made and ended, and operations of two: processes that answer each other through pipes, threads that wake each other.

use super::measure::{Attempt, Bench, Lack, Sample, checked};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// `fork(2)` by number: no handlers of the C library run.
///
/// # Safety
/// In the child (0), only calls by number are allowed: another thread may have held any lock.
pub(super) unsafe fn fork_raw() -> Attempt<libc::pid_t> {
    // SAFETY: the caller keeps to what a child may do.
    Ok(checked("fork", unsafe { libc::syscall(libc::SYS_fork) })? as libc::pid_t)
}

/// Ends the calling process, running nothing.
pub(super) fn exit_raw(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Waits for a child and gives its exit status; killed children count as status 255.
#[inline(always)]
pub(super) fn wait_raw(child: libc::pid_t) -> Attempt<i32> {
    let mut status = 0i32;
    // SAFETY: `status` has room for the answer.
    let waited = unsafe { libc::syscall(libc::SYS_wait4, child, &raw mut status, 0, 0usize) };
    if waited < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() == std::io::ErrorKind::Interrupted {
            // The watch has lost patience; the child is still there.
            reap(child);
        }
        return Err(Lack::from_error("wait4", &error));
    }
    Ok(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        255
    })
}

/// Kills a child that may have ended already and takes its status, so that no zombie stays.
pub(super) fn reap(child: libc::pid_t) {
    // SAFETY: signals and waits for our own child only; it is not reaped yet, so its number is not reused.
    unsafe {
        libc::syscall(libc::SYS_kill, child, libc::SIGKILL);
        while libc::syscall(libc::SYS_wait4, child, 0usize, 0, 0usize) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

/// An operation: `fork(2)` of this process, the child's `exit_group(2)`, and `wait4(2)` for it.
pub(super) fn fork(bench: &Bench) -> Attempt<Sample> {
    bench.measure(|| {
        // SAFETY: the child exits at once.
        let child = unsafe { fork_raw() }?;
        if child == 0 {
            exit_raw(0);
        }
        wait_raw(child).map(drop)
    })
}

/// The smallest useful program: an ELF header, one segment, and `exit(0)`.
fn tiny_program() -> Vec<u8> {
    const CODE: [u8; 9] = [0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]; // xor edi,edi; mov eax,60; syscall
    const HEADERS: u64 = 64 + 56;
    const BASE: u64 = 0x40_0000;
    let length = HEADERS + CODE.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |elf: &mut Vec<u8>, v: &[u16]| v.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    let word = |elf: &mut Vec<u8>, v: &[u32]| v.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    let long = |elf: &mut Vec<u8>, v: &[u64]| v.iter().for_each(|v| elf.extend(v.to_le_bytes()));
    half(&mut elf, &[2, 62]); // an executable, x86-64
    word(&mut elf, &[1]);
    long(&mut elf, &[BASE + HEADERS, 64, 0]); // entry, program headers, no section headers
    word(&mut elf, &[0]);
    half(&mut elf, &[64, 56, 1, 0, 0, 0]); // sizes and numbers of headers
    word(&mut elf, &[1, 5]); // load, readable and executable
    long(&mut elf, &[0, BASE, BASE, length, length, 4096]);
    elf.extend(CODE);
    elf
}

/// A program in memory, which needs no filesystem.
fn program() -> Attempt<File> {
    // SAFETY: a C string; the descriptor is new and ours.
    let mut file = unsafe {
        let fd = checked(
            "memfd_create",
            libc::syscall(libc::SYS_memfd_create, c"exit".as_ptr(), libc::MFD_CLOEXEC),
        )?;
        File::from_raw_fd(fd as RawFd)
    };
    file.write_all(&tiny_program())
        .map_err(|e| Lack::from_error("write a program", &e))?;
    Ok(file)
}

/// An operation: `fork(2)`, the child's `execveat(2)` of a program of 129 bytes in a memfd that only exits, and
/// `wait4(2)` for it.
pub(super) fn exec(bench: &Bench) -> Attempt<Sample> {
    let program = program()?;
    let arguments = [c"exit".as_ptr(), std::ptr::null()];
    bench.measure(|| {
        // SAFETY: the child makes two calls by number, with memory that was there before it.
        let child = unsafe { fork_raw() }?;
        if child == 0 {
            // SAFETY: C strings and arrays that end in a null pointer.
            let errno = unsafe {
                libc::syscall(
                    libc::SYS_execveat,
                    program.as_raw_fd(),
                    c"".as_ptr(),
                    arguments.as_ptr(),
                    arguments[1..].as_ptr(),
                    libc::AT_EMPTY_PATH,
                );
                *libc::__errno_location()
            };
            exit_raw(errno);
        }
        // The program's own status is 0; anything else is the error that kept it from running.
        match wait_raw(child)? {
            0 => Ok(()),
            errno => Err(Lack::from_errno("execveat", errno)),
        }
    })
}

/// The two ends of a pipe: to read, to write.
fn pipe_ends() -> Attempt<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    // SAFETY: room for two descriptors, which are new and ours.
    unsafe {
        checked(
            "pipe2",
            libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC),
        )?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

#[inline(always)]
fn send(to: RawFd, byte: &u8) -> libc::c_long {
    // SAFETY: one byte to read from.
    unsafe { libc::syscall(libc::SYS_write, to, byte as *const u8, 1usize) }
}

#[inline(always)]
fn receive(from: RawFd, byte: &mut u8) -> libc::c_long {
    // SAFETY: room for one byte.
    unsafe { libc::syscall(libc::SYS_read, from, byte as *mut u8, 1usize) }
}

/// A child process that returns every byte it is sent; killed and reaped when dropped.
struct Echo {
    child: libc::pid_t,
    to: OwnedFd,
    from: OwnedFd,
}

impl Echo {
    fn start() -> Attempt<Echo> {
        let (child_from, to) = pipe_ends()?;
        let (from, child_to) = pipe_ends()?;
        let (mine, his) = (
            [to.as_raw_fd(), from.as_raw_fd()],
            [child_from.as_raw_fd(), child_to.as_raw_fd()],
        );
        // SAFETY: the child makes calls by number only and never returns from here.
        let child = unsafe { fork_raw() }?;
        if child == 0 {
            // Held open, my ends would keep him from noticing that I am gone.
            // SAFETY: descriptors of the child's own copy, which nothing in it uses any more.
            mine.iter().for_each(|&fd| unsafe {
                libc::syscall(libc::SYS_close, fd);
            });
            let mut byte = 0;
            while receive(his[0], &mut byte) == 1 && send(his[1], &byte) == 1 {}
            exit_raw(0);
        }
        Ok(Echo { child, to, from })
    }

    #[inline(always)]
    fn round_trip(&self) -> Attempt {
        let mut byte = 1;
        checked("write to a pipe", send(self.to.as_raw_fd(), &byte))?;
        match checked(
            "read from a pipe",
            receive(self.from.as_raw_fd(), &mut byte),
        )? {
            1 => Ok(()),
            _ => Err(Lack(
                "the process at the other end of the pipe is gone".to_owned(),
            )),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        reap(self.child);
    }
}

/// An operation: a byte to another process through a pipe and back through a second one, on whichever CPUs the
/// kernel chooses.
pub(super) fn pipe(bench: &Bench) -> Attempt<Sample> {
    let echo = Echo::start()?;
    bench.measure(|| echo.round_trip())
}

/// This thread on one CPU; as before when dropped.
struct Pinned(CpuSet);

impl Pinned {
    fn here() -> Attempt<Pinned> {
        let lack = |call: &'static str| {
            move |e: rustix::io::Errno| Lack::from_errno(call, e.raw_os_error())
        };
        let before = sched_getaffinity(None).map_err(lack("sched_getaffinity"))?;
        let mut only = CpuSet::new();
        only.set(sched_getcpu());
        sched_setaffinity(None, &only).map_err(lack("sched_setaffinity"))?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// An operation: half of a `pipe` round trip between two processes on one CPU, so that each byte handed over is
/// a switch. The pipe's own read and write are in it.
pub(super) fn context_switch(bench: &Bench) -> Attempt<Sample> {
    let _pinned = Pinned::here()?;
    let echo = Echo::start()?;
    bench.measure_parts(2, || echo.round_trip())
}

/// Whose turn it is.
const MINE: u32 = 0;
const HIS: u32 = 1;
const OVER: u32 = 2;

fn futex(word: &AtomicU32, operation: i32, value: u32) -> libc::c_long {
    // SAFETY: the word lives as long as the call; there is no timeout and no second word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            0usize,
        )
    }
}

/// Waits while it is `whose` turn. EAGAIN says that it is no longer, EINTR that time is up.
#[inline(always)]
fn wait_while(word: &AtomicU32, whose: u32) -> Attempt {
    while word.load(SeqCst) == whose {
        if futex(word, libc::FUTEX_WAIT, whose) < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if errno != libc::EAGAIN {
                return Err(Lack::from_errno("futex wait", errno));
            }
        }
    }
    Ok(())
}

/// A thread that gives the turn back each time it gets it; told to end when dropped.
struct Partner {
    turn: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Partner {
    fn start() -> Attempt<Partner> {
        let turn = Arc::new(AtomicU32::new(MINE));
        // Threads themselves need futexes: where there are none, starting one would abort.
        checked("futex", futex(&turn, libc::FUTEX_WAKE, 1))?;
        let his = Arc::clone(&turn);
        let thread = std::thread::Builder::new()
            .spawn(move || {
                while wait_while(&his, MINE).is_ok()
                    && his.compare_exchange(HIS, MINE, SeqCst, SeqCst).is_ok()
                {
                    futex(&his, libc::FUTEX_WAKE, 1);
                }
            })
            .map_err(|e| Lack::from_error("clone", &e))?;
        Ok(Partner {
            turn,
            thread: Some(thread),
        })
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.turn.store(OVER, SeqCst);
        futex(&self.turn, libc::FUTEX_WAKE, 1);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A kernel that loses wake-ups must not hang us: such a thread is left behind.
        for _ in 0..200 {
            if thread.is_finished() {
                let _ = thread.join();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An operation: give another thread the turn and wake it with `futex(2)`, wait until it has given it back the same
/// way; on whichever CPUs the kernel chooses.
pub(super) fn futex_round_trip(bench: &Bench) -> Attempt<Sample> {
    let partner = Partner::start()?;
    let turn = &partner.turn;
    bench.measure(|| {
        turn.store(HIS, SeqCst);
        checked("futex wake", futex(turn, libc::FUTEX_WAKE, 1))?;
        wait_while(turn, HIS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tiny_program_is_small_and_runs() {
        assert_eq!(tiny_program().len(), 129);
        let path = std::env::temp_dir().join(format!("vmtax-tiny-{}", std::process::id()));
        std::fs::write(&path, tiny_program()).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let status = std::process::Command::new(&path).status();
        std::fs::remove_file(&path).unwrap();
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_child_is_reaped_whether_it_lives_or_not() {
        // SAFETY: the child only pauses.
        let child = unsafe { fork_raw() }.unwrap();
        if child == 0 {
            // SAFETY: waits for a signal.
            unsafe { libc::syscall(libc::SYS_pause) };
            exit_raw(1);
        }
        reap(child);
        // SAFETY: asks about a process that must be gone.
        assert_eq!(unsafe { libc::kill(child, 0) }, -1);
    }

    #[test]
    fn a_partner_that_dies_is_noticed() {
        let echo = Echo::start().unwrap();
        echo.round_trip().unwrap();
        // SAFETY: our own child, which the drop reaps.
        unsafe { libc::kill(echo.child, libc::SIGKILL) };
        let lack = echo.round_trip().unwrap_err();
        assert!(lack.0.contains("pipe"), "{lack:?}");
    }
}
