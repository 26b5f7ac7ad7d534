//! A seccomp filter that refuses set-user-ID and set-group-ID modes.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, EPERM, S_ISGID,
    S_ISUID, SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    SECCOMP_SET_MODE_FILTER, sock_filter, sock_fprog,
};
use std::io;

/// System calls with the position of their mode argument. That of `openat2` is in memory, where a filter cannot read it.
const MODES: [(i64, u32); 9] = [
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
    (libc::SYS_creat, 1),
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Architecture of system calls of x86-64 (`AUDIT_ARCH_X86_64`).
const X86_64: u32 = 0xc000_003e;
/// Numbers from here on are those of x32.
const X32: u32 = 0x4000_0000;

/// Makes system calls of this process, and of those that it starts, fail with EPERM where they would make a file
/// set-user-ID or set-group-ID (the kernel clears the latter only where the file's group is not the process's).
/// Directories are included: a filter does not see the type of the file. Needs `no_new_privs`.
///
/// # Errors
/// The error of the kernel.
pub(super) fn refuse_set_id() -> io::Result<()> {
    let mut filter = program();
    let program = sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // Without this flag a kernel before 5.16 slows the process down against speculative store bypass.
    let flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, whose length and address these are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn program() -> Vec<sock_filter> {
    let refuse = SECCOMP_RET_ERRNO | EPERM as u32;
    let load = |at| step(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    let end = |with| step(BPF_RET | BPF_K, with, 0, 0);
    let mut all = vec![
        load(ARCHITECTURE),
        step(BPF_JMP | BPF_JEQ | BPF_K, X86_64, 1, 0),
        end(refuse),
        load(NUMBER),
        step(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1),
        end(refuse),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::SYS_openat2 as u32, 0, 1),
        end(SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    for (call, mode) in MODES {
        all.extend([
            step(BPF_JMP | BPF_JEQ | BPF_K, call as u32, 0, 4),
            load(ARGUMENTS + 8 * mode),
            step(BPF_JMP | BPF_JSET | BPF_K, S_ISUID | S_ISGID, 0, 1),
            end(refuse),
            end(SECCOMP_RET_ALLOW),
        ]);
    }
    all.push(end(SECCOMP_RET_ALLOW));
    all
}

/// An instruction; the jumps are the numbers of instructions left out when it holds and when it does not.
fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}
