//! System calls: measured where they are there, unsupported where not, and nothing left behind.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::{Mutex, PoisonError};
use std::thread;
use vmtax_model::Places;
use vmtax_model::{Metric, TrialResult, WorkloadName, WorkloadSpec};
use vmtax_workload::run;

/// The workload's folder, descriptors and children are those of the process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn syscalls(only: &str) -> TrialResult {
    let spec = WorkloadSpec::new(WorkloadName::Syscalls)
        .with("time", 0.02)
        .with("only", only);
    run(&spec, &Places::default()).unwrap()
}

#[test]
fn every_kind_of_call_has_a_figure_here_and_nothing_is_left() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = fds();
    let got = syscalls("all");
    assert_eq!(got.unsupported, []);
    let kinds: Vec<_> = Metric::ALL
        .iter()
        .filter(|m| m.id().starts_with("syscalls."))
        .collect();
    for metric in &kinds {
        let ns = got.value(**metric).unwrap();
        assert!((1.0..1e8).contains(&ns), "{metric}: {ns} ns");
        let name = metric.id().trim_start_matches("syscalls.");
        assert!(got.summary(name).unwrap().count > 0, "{name}");
    }
    assert_eq!(got.measures.len(), kinds.len());
    assert_eq!(fds(), before, "descriptors are left open");
    // SAFETY: asks for a child without waiting.
    let child = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    assert_eq!(child, -1, "a child is left");
    let leftover = format!("vmtax-{}", std::process::id());
    assert!(!std::env::temp_dir().join(leftover).exists());
}

#[test]
fn only_what_is_asked_for_is_measured() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let got = syscalls("stat,getpid");
    let metrics: Vec<_> = got.measures.iter().map(|m| m.metric).collect();
    assert_eq!(metrics, [Metric::SyscallGetpid, Metric::SyscallStat]);
    assert_eq!(got.workload.options["only"], "getpid,stat");
}

/// From here on, the calling thread and what it starts get `errno` for the call `number`.
fn refuse(number: libc::c_long, errno: i32) {
    let op = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut program = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            number as u32,
        ),
        op(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        ),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter),
            0
        );
    }
}

#[test]
fn what_the_kernel_lacks_is_unsupported_and_the_rest_goes_on() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, errno, only, metric, reason) in [
        (
            libc::SYS_getpid,
            libc::ENOSYS,
            "getpid",
            Metric::SyscallGetpid,
            "ENOSYS: getpid",
        ),
        (
            libc::SYS_open,
            libc::ENOENT,
            "read_null",
            Metric::SyscallReadNull,
            "ENOENT: open /dev/null",
        ),
        (
            libc::SYS_stat,
            libc::ENOSYS,
            "stat",
            Metric::SyscallStat,
            "ENOSYS: stat",
        ),
        (
            libc::SYS_pipe2,
            libc::ENOSYS,
            "pipe",
            Metric::SyscallPipe,
            "ENOSYS: pipe2",
        ),
        (
            libc::SYS_fork,
            libc::EPERM,
            "fork",
            Metric::SyscallFork,
            "EPERM: fork",
        ),
        (
            libc::SYS_fork,
            libc::ENOSYS,
            "context_switch",
            Metric::SyscallContextSwitch,
            "ENOSYS: fork",
        ),
        (
            libc::SYS_execveat,
            libc::ENOSYS,
            "exec",
            Metric::SyscallExec,
            "ENOSYS: execveat",
        ),
        (
            libc::SYS_memfd_create,
            libc::ENOSYS,
            "exec",
            Metric::SyscallExec,
            "ENOSYS: memfd_create",
        ),
        (
            libc::SYS_tgkill,
            libc::ENOSYS,
            "signal",
            Metric::SyscallSignal,
            "ENOSYS: tgkill",
        ),
        (
            libc::SYS_sched_setaffinity,
            libc::ENOSYS,
            "context_switch",
            Metric::SyscallContextSwitch,
            "ENOSYS: sched_setaffinity",
        ),
    ] {
        let got = thread::spawn(move || {
            refuse(number, errno);
            syscalls(&format!("{only},clock_gettime_raw"))
        });
        let got = got.join().unwrap();
        assert_eq!(got.unsupported.len(), 1, "{reason}: {:?}", got.unsupported);
        assert_eq!(
            (
                got.unsupported[0].metric,
                got.unsupported[0].reason.as_str()
            ),
            (metric, reason)
        );
        assert_eq!(got.value(metric), None);
        assert!(got.value(Metric::SyscallClockRaw).is_some());
        assert!(got.summary(only).is_none());
    }
}
