//! Processes made and ended.

use super::measure::{Attempt, Bench, Lack, Sample, checked};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

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
        return Err(Lack::from_errno("wait4", error.raw_os_error().unwrap_or(0)));
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
        wait_raw(child)?;
        Ok(())
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
        .map_err(|e| Lack::from_errno("write a program", e.raw_os_error().unwrap_or(0)))?;
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
}
