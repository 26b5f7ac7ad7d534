//! Files of the host's kernel that remedies set, read so that none is advised that is in effect or that this host lacks.

use crate::Setting;

/// The kernel's file with its lockdown modes.
pub const LOCKDOWN_FILE: &str = "/sys/kernel/security/lockdown";

/// Returns true where the lockdown mode in effect, which its file has in brackets, closes tracing to root, too. Source:
/// kernel_lockdown(7).
pub fn is_tracing_locked_down(modes: &str) -> bool {
    modes.contains("[confidentiality]")
}

/// Files that say what a remedy needs and are no [`Setting`].
const OTHERS: [&str; 3] = [
    "/proc/cmdline",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/system/node/online",
];

/// Returns the files as remedies name them; of several that a `*` stands for, the last is read.
pub fn host_setting_files() -> impl Iterator<Item = &'static str> {
    OTHERS
        .into_iter()
        .chain(Setting::all().filter_map(Setting::host_file))
}
