//! Settings in files of the guest's kernel, by the agent in the guest.

use crate::MachineError;
use crate::host_settings::in_effect;
use crate::vm::Vm;
use crate::vmm::qemu::guest_agent::{self, Ask, GuestAgent};
use std::time::Duration;

/// Time limit for the agent's work on one file.
const TIMEOUT: Duration = Duration::from_secs(5);
/// File with the boot ID, which differs between two boots of a guest.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the value in effect from a file of the guest.
pub(super) fn read(vm: &Vm, path: &str) -> Result<String, String> {
    ask(vm, |ask| guest_agent::read_file(ask, path)).map(|text| in_effect(&text).to_owned())
}

/// Writes a value.
pub(super) fn write(vm: &Vm, path: &str, value: &str) -> Result<(), String> {
    ask(vm, |ask| guest_agent::write_file(ask, path, value))
}

/// The boot of the guest that runs.
pub(super) fn boot(vm: &Vm) -> Result<String, String> {
    ask(vm, |ask| guest_agent::read_file(ask, BOOT_ID))
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
