//! What a guest's processors execute, asked through the monitor of its QEMU.

use std::time::Duration;
use vmtax_machine::QemuMonitor;
use vmtax_model::{GuestCode, Missing};
use vmtax_profile::code::{findings, look};

/// Each look takes QEMU's main loop a millisecond or two.
const MOST_HZ: u32 = 50;

/// Looks at each processor `hz` times a second, or [`MOST_HZ`]; `None` where nothing was told.
pub fn executed(monitor: &QemuMonitor, hz: u32, time: Duration, stop: &dyn Fn() -> bool) -> Option<GuestCode> {
    let processors = monitor.processors().ok()?;
    let looked = look(processors, hz.min(MOST_HZ), time, stop, &mut |processor, command| {
        monitor.of_processor(processor, command).ok()
    });
    findings(&looked)
}

/// Whether the processors of a guest may be asked where they are, whatever it does.
pub fn may_ask() -> bool {
    !vmtax_host::kvm_forgets_breakpoints()
}

/// What is said where they may not.
pub fn too_risky() -> Missing {
    Missing {
        what: "what the guest's processors execute".to_owned(),
        why: "this host's KVM (kvm_pvm) forgets a breakpoint's exception when a processor's registers are read, which can \
              crash a guest"
            .to_owned(),
        mend: "Look at it on a host with hardware virtualisation".to_owned(),
    }
}
