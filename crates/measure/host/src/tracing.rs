//! tracefs and uprobes: only inspected, nothing is mounted, created or enabled.

use crate::line::CheckResult;
use crate::program::is_writable;
use crate::system_files;
use procfs::MountEntry;
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
pub fn checks() -> [Check; 2] {
    let mounts = procfs::mounts().unwrap_or_default();
    let kinds = system_files::read("/proc/filesystems").unwrap_or_default();
    let lockdown = system_files::read(LOCKDOWN_FILE).unwrap_or_default();
    let tracefs = find_tracefs(&mounts, &kinds, &lockdown);
    [
        tracing(&tracefs).about(
            "tracefs",
            "tracefs",
            "kernel events show where a request is on the host; each trace uses its own instance",
        ),
        uprobes(&tracefs).about(
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
    let Some(clocks) = system_files::read(root.join("trace_clock")) else {
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

fn tracing(tracefs: &Tracefs) -> CheckResult {
    match tracefs {
        Tracefs::Unknown => CheckResult::missing(
            "this kernel has no tracefs",
            HostProblem::KernelFeatureMissing,
        ),
        Tracefs::NotMounted => CheckResult::missing("not mounted", HostProblem::TracefsNotMounted),
        Tracefs::LockedDown => CheckResult::limited(LOCKED_DOWN, HostProblem::KernelLockedDown),
        Tracefs::Closed(root) => CheckResult::limited(
            format!("{} is closed to this user", root.display()),
            HostProblem::TracingNeedsRoot,
        ),
        Tracefs::Open {
            root,
            instances: false,
            ..
        } => CheckResult::limited(
            format!("{} is read-only for this user", root.display()),
            HostProblem::TracingNeedsRoot,
        ),
        Tracefs::Open { root, clocks, .. } if !clocks.iter().any(|clock| clock == "x86-tsc") => {
            CheckResult::limited_for_good(format!(
                "{} without the clock x86-tsc: events of host and guest cannot be joined by TSC",
                root.display()
            ))
        }
        Tracefs::Open { root, .. } => CheckResult::ok(format!(
            "{} with instances and the clock x86-tsc",
            root.display()
        )),
    }
}

fn uprobes(tracefs: &Tracefs) -> CheckResult {
    match tracefs {
        Tracefs::Unknown => CheckResult::missing(
            "this kernel has no tracefs",
            HostProblem::KernelFeatureMissing,
        ),
        // A kernel can have uprobes without tracefs mounted; perf's own type of event shows it.
        Tracefs::NotMounted if Path::new("/sys/bus/event_source/devices/uprobe").exists() => {
            CheckResult::limited(
                "supported by the kernel, but tracefs is not mounted",
                HostProblem::TracefsNotMounted,
            )
        }
        Tracefs::NotMounted => CheckResult::missing(
            "unknown: tracefs is not mounted",
            HostProblem::TracefsNotMounted,
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
                (tracing(&tracefs).state, uprobes(&tracefs).state),
                (first, second),
                "{tracefs:?}"
            );
        }
        assert_eq!(
            tracing(&Tracefs::NotMounted).problem,
            Some(HostProblem::TracefsNotMounted)
        );
        assert_ne!(uprobes(&Tracefs::NotMounted).state, Fine);
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
}
