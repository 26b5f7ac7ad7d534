//! Files of the host's kernel that remedies set, read so that none is advised that is in effect or that this host lacks.

/// The kernel's file with its lockdown modes.
pub const LOCKDOWN_FILE: &str = "/sys/kernel/security/lockdown";

/// Returns true where the lockdown mode in effect, which its file has in brackets, closes tracing to root, too. Source:
/// kernel_lockdown(7).
pub fn is_tracing_locked_down(modes: &str) -> bool {
    modes.contains("[confidentiality]")
}

/// The files as remedies name them; of several that a `*` stands for, the last is read.
pub const HOST_SETTING_FILES: &[&str] = &[
    "/proc/cmdline",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/swappiness",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/node/online",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/module/kvm/parameters/halt_poll_ns",
    "/sys/module/kvm/parameters/nx_huge_pages",
];
