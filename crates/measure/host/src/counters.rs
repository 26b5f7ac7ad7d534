//! perf_event: found out by opening counters, since what the settings allow depends on who asks.

use crate::line::CheckResult;
use crate::raw;
use crate::system_files::read;
use std::io;
use vmtax_model::{Check, HostProblem};

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
pub fn checks() -> [Check; 2] {
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
    [
        sampling(&openings, &limit).about(
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

fn sampling(openings: &Openings, limit: &str) -> CheckResult {
    match (&openings.kernel_clock, &openings.user_clock) {
        (Ok(()), _) => CheckResult::ok(format!(
            "kernel and user code of this user's processes{limit}"
        )),
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
    use vmtax_model::Readiness::{Limited, Missing, Ok as Fine};

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
            let (sampling, hardware) = (sampling(&openings, ""), hardware(&openings, ""));
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
