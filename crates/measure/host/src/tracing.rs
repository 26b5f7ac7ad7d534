//! tracefs, uprobes and perf_event. tracefs is only inspected: nothing is mounted, created or enabled. Counters are opened, since
//! what the settings allow depends on who asks.

use crate::CheckResult;
use crate::command::is_writable;
use crate::raw;
use crate::system_files::{self, read};
use procfs::MountEntry;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::{Check, HostProblem, LOCKDOWN_FILE, is_tracing_locked_down};

const LOCKED_DOWN: &str = "the kernel is locked down (lockdown=confidentiality)";

/// Access of this user to tracefs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tracefs {
    /// The kernel does not know it.
    Unknown,
    /// Known, not mounted.
    NotMounted,
    /// Closed to everybody by the kernel's lockdown mode.
    LockedDown,
    /// Mounted, but closed to this user.
    Closed(PathBuf),
    /// Open to this user.
    Open {
        root: PathBuf,
        /// True if vmtax can make an instance of its own.
        instances: bool,
        /// True if uprobes can be defined; `None` when this kernel has none.
        uprobes: Option<bool>,
        /// The clocks events can be stamped with.
        clocks: Vec<String>,
    },
}

/// The lines of `doctor` on tracing.
pub fn tracefs_checks() -> [Check; 2] {
    let mounts = procfs::mounts().unwrap_or_default();
    let kinds = read("/proc/filesystems").unwrap_or_default();
    let lockdown = read(LOCKDOWN_FILE).unwrap_or_default();
    let tracefs = find_tracefs(&mounts, &kinds, &lockdown);
    [
        tracing(&tracefs, is_privileged()).about(
            "tracefs",
            "tracefs",
            "kernel events show where a request is on the host; each trace uses its own instance",
        ),
        uprobes(&tracefs, is_privileged()).about(
            "uprobes",
            "uprobes",
            "probes on QEMU's functions show when a request enters and leaves QEMU",
        ),
    ]
}

fn find_tracefs(mounts: &[MountEntry], kinds: &str, lockdown: &str) -> Tracefs {
    if is_tracing_locked_down(lockdown) {
        return Tracefs::LockedDown;
    }
    let Some(root) = system_files::mount_point(mounts, "tracefs", None) else {
        let known = kinds.split_ascii_whitespace().any(|word| word == "tracefs");
        return if known {
            Tracefs::NotMounted
        } else {
            Tracefs::Unknown
        };
    };
    read_tracefs(root)
}

fn read_tracefs(root: PathBuf) -> Tracefs {
    let Some(clocks) = read(root.join("trace_clock")) else {
        return Tracefs::Closed(root);
    };
    let uprobes = root.join("uprobe_events");
    Tracefs::Open {
        instances: is_writable(&root.join("instances")),
        uprobes: uprobes.exists().then(|| is_writable(&uprobes)),
        clocks: clocks
            .split_ascii_whitespace()
            .map(|word| word.trim_matches(['[', ']']).to_owned())
            .collect(),
        root,
    }
}

/// Returns true if this process may mount a file system and observe processes of any user (CAP_SYS_ADMIN), as root outside of
/// containers.
fn is_privileged() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    effective.is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// `mounts`: vmtax may mount tracefs for itself where it is not mounted.
fn tracing(tracefs: &Tracefs, mounts: bool) -> CheckResult {
    let needs_root = |root: &Path, how: &str| {
        let found = format!("{} {how}", root.display());
        CheckResult::limited(found, HostProblem::TracingNeedsRoot)
    };
    match tracefs {
        Tracefs::Unknown => CheckResult::missing(
            "this kernel has no tracefs",
            HostProblem::KernelFeatureMissing,
        ),
        Tracefs::NotMounted if mounts => {
            CheckResult::ok("not mounted: vmtax mounts it for itself, where only it sees it")
        }
        Tracefs::NotMounted => CheckResult::limited(
            "not mounted; run as root, vmtax mounts it for itself",
            HostProblem::TracingNeedsRoot,
        ),
        Tracefs::LockedDown => CheckResult::limited(LOCKED_DOWN, HostProblem::KernelLockedDown),
        Tracefs::Closed(root) => needs_root(root, "is closed to this user"),
        Tracefs::Open {
            root,
            instances: false,
            ..
        } => needs_root(root, "is read-only for this user"),
        Tracefs::Open { root, clocks, .. } if !clocks.iter().any(|clock| clock == "x86-tsc") => {
            CheckResult::limited_for_good(format!(
                "{} without the clock x86-tsc: events of host and guest cannot be matched by TSC",
                root.display()
            ))
        }
        Tracefs::Open { root, .. } => CheckResult::ok(format!(
            "{} with instances and the clock x86-tsc",
            root.display()
        )),
    }
}

fn uprobes(tracefs: &Tracefs, mounts: bool) -> CheckResult {
    let is_known = Path::new("/sys/bus/event_source/devices/uprobe").exists();
    match tracefs {
        Tracefs::Unknown => CheckResult::missing(
            "this kernel has no tracefs",
            HostProblem::KernelFeatureMissing,
        ),
        // A kernel can have uprobes without tracefs mounted; perf's own type of event shows it.
        Tracefs::NotMounted if is_known && mounts => CheckResult::ok("can be defined"),
        Tracefs::NotMounted if is_known => CheckResult::limited(
            "supported by the kernel, but tracefs is not mounted",
            HostProblem::TracingNeedsRoot,
        ),
        Tracefs::NotMounted => CheckResult::limited(
            "unknown: tracefs is not mounted",
            HostProblem::TracingNeedsRoot,
        ),
        Tracefs::Open {
            uprobes: Some(true),
            ..
        } => CheckResult::ok("can be defined"),
        Tracefs::Open { uprobes: None, .. } => CheckResult::missing(
            "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)",
            HostProblem::KernelFeatureMissing,
        ),
        Tracefs::LockedDown => CheckResult::limited(LOCKED_DOWN, HostProblem::KernelLockedDown),
        // Root alone may define them, also where tracefs is open to a group.
        Tracefs::Open {
            uprobes: Some(false),
            ..
        }
        | Tracefs::Closed(_) => {
            CheckResult::limited("not permitted for this user", HostProblem::TracingNeedsRoot)
        }
    }
}

const HARDWARE: u32 = 0; // PERF_TYPE_HARDWARE
const SOFTWARE: u32 = 1; // PERF_TYPE_SOFTWARE
const CPU_CYCLES: u64 = 0; // PERF_COUNT_HW_CPU_CYCLES
const CPU_CLOCK: u64 = 0; // PERF_COUNT_SW_CPU_CLOCK

/// Counters that could be opened for this process.
#[derive(Debug, Clone, PartialEq)]
struct Openings {
    /// A clock counter that sees the kernel too.
    kernel_clock: Result<(), Option<i32>>,
    /// A clock counter for user code alone.
    user_clock: Result<(), Option<i32>>,
    /// The CPU's cycle counter, user code alone.
    cycles: Result<(), Option<i32>>,
}

/// The lines of `doctor`: sampling, and the CPU's own counters.
pub fn perf_checks() -> [Check; 2] {
    let open = |kind, config, exclude_kernel| {
        raw::perf_event(kind, config, exclude_kernel)
            .map(drop)
            .map_err(|error| error.raw_os_error())
    };
    let openings = Openings {
        kernel_clock: open(SOFTWARE, CPU_CLOCK, false),
        user_clock: open(SOFTWARE, CPU_CLOCK, true),
        cycles: open(HARDWARE, CPU_CYCLES, true),
    };
    let paranoid = read("/proc/sys/kernel/perf_event_paranoid");
    let limit = paranoid.map_or(String::new(), |level| {
        format!(" (kernel.perf_event_paranoid={level})")
    });
    let whose = if is_privileged() {
        "all"
    } else {
        "this user's"
    };
    [
        sampling(&openings, &limit, whose).about(
            "perf-event",
            "perf_event sampling",
            "samples host CPU time in the kernel and QEMU without modifying them",
        ),
        hardware(&openings, &limit).about(
            "perf-hardware",
            "hardware counters",
            "cycles, instructions and cache misses distinguish a slower clock from more work",
        ),
    ]
}

fn sampling(openings: &Openings, limit: &str, whose: &str) -> CheckResult {
    match (&openings.kernel_clock, &openings.user_clock) {
        (Ok(()), _) => CheckResult::ok(format!("kernel and user code of {whose} processes{limit}")),
        (Err(_), Ok(())) => CheckResult::limited(
            format!("user code only{limit}"),
            HostProblem::PerfEventParanoid,
        ),
        (Err(Some(libc::ENOSYS)), _) => CheckResult::missing(
            "this kernel has no perf_event",
            HostProblem::KernelFeatureMissing,
        ),
        (Err(_), Err(error)) => CheckResult::missing(
            format!("not allowed: {}{limit}", describe(*error)),
            HostProblem::PerfEventParanoid,
        ),
    }
}

fn hardware(openings: &Openings, limit: &str) -> CheckResult {
    match openings.cycles {
        Ok(()) => CheckResult::ok("present"),
        Err(Some(libc::EACCES | libc::EPERM)) => CheckResult::limited(
            format!("not allowed{limit}"),
            HostProblem::PerfEventParanoid,
        ),
        Err(Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP)) => {
            CheckResult::missing("none", HostProblem::NoVirtualPmu)
        }
        Err(error) => CheckResult::missing(
            format!("none: {}", describe(error)),
            HostProblem::NoVirtualPmu,
        ),
    }
}

fn describe(errno: Option<i32>) -> String {
    errno.map_or_else(
        || "unknown error".into(),
        |errno| io::Error::from_raw_os_error(errno).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use vmtax_model::Readiness::{Limited, Missing, Ok as Fine};

    fn open(instances: bool, uprobes: Option<bool>, clocks: &[&str]) -> Tracefs {
        let clocks = clocks.iter().map(|clock| clock.to_string()).collect();
        Tracefs::Open {
            root: "/sys/kernel/tracing".into(),
            instances,
            uprobes,
            clocks,
        }
    }

    #[test]
    fn each_kind_of_tracefs_has_its_lines() {
        let cases = [
            (Tracefs::Unknown, Missing, Missing),
            // Where it is not mounted a VM is traced all the same.
            (Tracefs::NotMounted, Limited, Limited),
            (Tracefs::Closed("/t".into()), Limited, Limited),
            (
                find_tracefs(&[], "nodev\ttracefs", "none integrity [confidentiality]\n"),
                Limited,
                Limited,
            ),
            (
                find_tracefs(&[], "nodev\text4", "none [integrity] confidentiality\n"),
                Missing,
                Missing,
            ),
            (open(true, Some(true), &["local", "x86-tsc"]), Fine, Fine),
            (open(true, Some(true), &["local"]), Limited, Fine),
            (open(false, Some(false), &["x86-tsc"]), Limited, Limited),
            (open(true, None, &["x86-tsc"]), Fine, Missing),
        ];
        for (tracefs, first, second) in cases {
            assert_eq!(
                (
                    tracing(&tracefs, false).state,
                    uprobes(&tracefs, false).state
                ),
                (first, second),
                "{tracefs:?}"
            );
        }
        assert_eq!(
            tracing(&Tracefs::NotMounted, false).problem,
            Some(HostProblem::TracingNeedsRoot)
        );
        let for_root = tracing(&Tracefs::NotMounted, true);
        assert_eq!(
            (for_root.state, for_root.problem),
            (Fine, None),
            "vmtax mounts it for itself"
        );
    }

    #[test]
    fn a_folder_like_tracefs_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        assert_eq!(read_tracefs(root.clone()), Tracefs::Closed(root.clone()));
        std::fs::write(root.join("trace_clock"), "[local] global mono x86-tsc\n").unwrap();
        std::fs::create_dir(root.join("instances")).unwrap();
        let Tracefs::Open {
            instances,
            uprobes,
            clocks,
            ..
        } = read_tracefs(root.clone())
        else {
            panic!()
        };
        assert_eq!((instances, uprobes), (true, None));
        assert_eq!(clocks, ["local", "global", "mono", "x86-tsc"]);
        std::fs::write(root.join("uprobe_events"), "").unwrap();
        assert!(matches!(
            read_tracefs(root),
            Tracefs::Open {
                uprobes: Some(true),
                ..
            }
        ));
    }

    #[test]
    fn mounted_or_not() {
        assert_eq!(
            find_tracefs(&[], "nodev\tsysfs\nnodev\ttracefs\n", ""),
            Tracefs::NotMounted
        );
        assert_eq!(find_tracefs(&[], "nodev\tsysfs\n", ""), Tracefs::Unknown);
        let mounts = Vec::from_buf_read(&b"tracefs /nonexistent tracefs rw 0 0\n"[..]).unwrap();
        assert_eq!(
            find_tracefs(&mounts, "", ""),
            Tracefs::Closed("/nonexistent".into())
        );
    }

    #[test]
    fn each_answer_of_the_kernel_has_its_line() {
        let denied = Err(Some(libc::EACCES));
        let cases = [
            (Ok(()), Ok(()), Ok(()), Fine, Fine),
            (Ok(()), Ok(()), Err(Some(libc::ENOENT)), Fine, Missing),
            (denied, Ok(()), denied, Limited, Limited),
            (denied, denied, denied, Missing, Limited),
            (
                Err(Some(libc::ENOSYS)),
                Err(Some(libc::ENOSYS)),
                Err(Some(libc::ENOSYS)),
                Missing,
                Missing,
            ),
            (Err(None), Err(None), Err(None), Missing, Missing),
        ];
        for (kernel_clock, user_clock, cycles, first, second) in cases {
            let openings = Openings {
                kernel_clock,
                user_clock,
                cycles,
            };
            let (sampling, hardware) = (sampling(&openings, "", "all"), hardware(&openings, ""));
            assert_eq!(
                (sampling.state, hardware.state),
                (first, second),
                "{openings:?}"
            );
            assert!(sampling.state == Fine || sampling.problem.is_some());
            assert!(hardware.state == Fine || hardware.problem.is_some());
        }
    }

    #[test]
    fn the_kernel_knows_our_attributes() {
        // An event that no kernel has: refused as unknown, not as a malformed request (E2BIG, EFAULT).
        let error = raw::perf_event(SOFTWARE, u64::MAX, true).unwrap_err();
        let refused = [
            Some(libc::ENOENT),
            Some(libc::EACCES),
            Some(libc::EPERM),
            Some(libc::ENOSYS),
        ];
        assert!(refused.contains(&error.raw_os_error()), "{error}");
    }
}
