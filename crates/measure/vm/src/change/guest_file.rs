//! Settings in files of the guest's kernel, by the agent in the guest.

use crate::MachineError;
use crate::host_settings::in_effect;
use crate::vm::Vm;
use crate::vmm::qemu::guest_agent::{Ask, GuestAgent};
use crate::vmm::qemu::guest_file;
use std::time::Duration;
use vmtax_model::{CLOCK_SOURCE_FILE, is_disk_name};

/// How long the agent may take over one answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Files of a disk that may be set.
const OF_A_DISK: [&str; 3] = ["cache_type", "queue/scheduler", "queue/read_ahead_kb"];

/// What a file holds.
pub(super) fn read(vm: &Vm, path: &str) -> Result<String, String> {
    talk(vm, |ask| guest_file::read(ask, path)).map(|text| in_effect(&text).to_owned())
}

/// Writes a value.
pub(super) fn write(vm: &Vm, path: &str, value: &str) -> Result<(), String> {
    talk(vm, |ask| guest_file::write(ask, path, value))
}

/// Whether it is the clock source, or a known file of a disk.
pub(super) fn may_set(path: &str) -> bool {
    let of_a_disk = || {
        let (name, file) = path.strip_prefix("/sys/block/")?.split_once('/')?;
        (is_disk_name(name) && OF_A_DISK.contains(&file)).then_some(())
    };
    path == CLOCK_SOURCE_FILE || of_a_disk().is_some()
}

fn talk<T>(vm: &Vm, talk: impl FnOnce(&mut Ask<'_>) -> Result<T, MachineError>) -> Result<T, String> {
    let agent = GuestAgent::of(vm.pid(), vm.monitor());
    let agent = agent.ok_or("the VM has no channel for QEMU's guest agent (org.qemu.guest_agent.0)")?;
    agent.converse(TIMEOUT, talk).map_err(|e| match e {
        MachineError::Monitor(why) => format!("QEMU's guest agent: {why}"),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::may_set;

    #[test]
    fn only_known_files_of_the_guest_are_set() {
        assert!(
            may_set(CLOCK_SOURCE)
                && may_set("/sys/block/vda/cache_type")
                && may_set("/sys/block/nvme0n1/queue/scheduler")
        );
        let others = ["/etc/passwd", "/sys/block/../../etc/passwd", "/sys/block/vda/uevent", "/sys/block//cache_type"];
        assert!(others.iter().all(|path| !may_set(path)));
    }

    const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
}
