//! Settings in files of the guest's kernel, by the agent in the guest.

use crate::MachineError;
use crate::host_settings::in_effect;
use crate::vm::Vm;
use crate::vmm::qemu::agent_file;
use crate::vmm::qemu::guest_agent::{Ask, GuestAgent};
use std::time::Duration;
use vmtax_model::{CLOCK_SOURCE_FILE, FAST_CLOCK_SOURCES, is_disk_name};

/// Time limit for the agent's work on one file.
const TIMEOUT: Duration = Duration::from_secs(5);
/// File with the boot ID, which differs between two boots of a guest.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// More read-ahead, KiB, is no setting of ours.
const MAX_READ_AHEAD_KB: u32 = 16384;

/// Reads the value in effect from a file of the guest.
pub(super) fn read(vm: &Vm, path: &str) -> Result<String, String> {
    ask(vm, |ask| agent_file::read(ask, path)).map(|text| in_effect(&text).to_owned())
}

/// Writes a value.
pub(super) fn write(vm: &Vm, path: &str, value: &str) -> Result<(), String> {
    ask(vm, |ask| agent_file::write(ask, path, value))
}

/// The boot of the guest that runs.
pub(super) fn boot(vm: &Vm) -> Result<String, String> {
    ask(vm, |ask| agent_file::read(ask, BOOT_ID))
}

/// Returns true if a rule sets this: the clock source, or a known file of a disk, to a known value.
pub(super) fn may_set(path: &str, value: &str) -> bool {
    let of_a_disk = || {
        let (name, file) = path.strip_prefix("/sys/block/")?.split_once('/')?;
        let is_known = match file {
            "cache_type" => value == "write back",
            "queue/scheduler" => value == "none",
            "queue/read_ahead_kb" => value
                .parse::<u32>()
                .is_ok_and(|kib| kib <= MAX_READ_AHEAD_KB),
            _ => false,
        };
        Some(is_known && is_disk_name(name))
    };
    if path == CLOCK_SOURCE_FILE {
        FAST_CLOCK_SOURCES.contains(&value)
    } else {
        of_a_disk() == Some(true)
    }
}

fn ask<T>(
    vm: &Vm,
    commands: impl FnOnce(&mut Ask<'_>) -> Result<T, MachineError>,
) -> Result<T, String> {
    let agent = GuestAgent::of(vm.pid(), vm.monitor());
    let agent =
        agent.ok_or("the VM has no channel for QEMU's guest agent (org.qemu.guest_agent.0)")?;
    agent.session(TIMEOUT, commands).map_err(|e| {
        let why = if let MachineError::Monitor(why) = e { why } else { e.to_string() };
        format!("QEMU's guest agent: {why}. Check that qemu-guest-agent runs in the guest, and that no other program holds its socket")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_of_the_guest_are_set_to_known_values() {
        assert!(
            may_set(CLOCK_SOURCE_FILE, "tsc") && may_set("/sys/block/vda/cache_type", "write back")
        );
        assert!(may_set("/sys/block/nvme0n1/queue/scheduler", "none"));
        assert!(may_set("/sys/block/sda/queue/read_ahead_kb", "128"));
        let paths = [
            "/etc/passwd",
            "/sys/block/../../etc/passwd",
            "/sys/block/vda/uevent",
            "/sys/block//cache_type",
        ];
        assert!(
            paths
                .iter()
                .all(|path| !may_set(path, "none") && !may_set(path, "write back"))
        );
        assert!(
            !may_set(CLOCK_SOURCE_FILE, "jiffies")
                && !may_set("/sys/block/vda/queue/read_ahead_kb", "1; reboot")
        );
    }
}
