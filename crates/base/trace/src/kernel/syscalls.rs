//! The system calls of x86-64 by number: the one table of them. A guest and its host are of one architecture, and so is
//! whatever traced them.

use std::borrow::Cow;

pub use syscalls::x86_64::Sysno as SystemCall;

/// `futex`, by which threads wait for locks and conditions.
pub const FUTEX: i64 = SystemCall::futex as i64;

/// The system call of a number as the kernel's events give it; `None` for one that this table does not know.
pub fn system_call(number: i64) -> Option<SystemCall> {
    usize::try_from(number).ok().and_then(SystemCall::new)
}

/// The kernel's name of a system call: "ppoll"; "syscall 9999" for a number without one.
pub fn system_call_name(number: i64) -> Cow<'static, str> {
    match system_call(number) {
        Some(call) => call.name().into(),
        None => format!("syscall {number}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_name_is_named_by_itself() {
        let names = [0, 202, 271, 426, 9999, -1].map(system_call_name);
        assert_eq!(
            names,
            [
                "read",
                "futex",
                "ppoll",
                "io_uring_enter",
                "syscall 9999",
                "syscall -1"
            ]
        );
    }
}
