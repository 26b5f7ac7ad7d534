//! What a guest's processors execute, asked through the monitor of its QEMU.

use std::time::Duration;
use vmtax_model::{GuestCode, Missing};
use vmtax_profile::code::findings;
use vmtax_vm::QemuMonitor;

/// Each look takes QEMU's main loop a millisecond or two.
const MOST_HZ: u32 = 50;

/// Whether the processors of a guest may be asked where they are, whatever it does.
pub fn may_ask() -> bool {
    !vmtax_host::kvm_forgets_breakpoints()
}

/// Looks at one processor after the other, `hz` times a second, or [`MOST_HZ`]. `may_ask`: whether its guest bears that.
///
/// # Errors
/// Why nothing could be seen.
pub fn executed(
    monitor: Option<&QemuMonitor>,
    may_ask: bool,
    hz: u32,
    time: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<GuestCode, Missing> {
    let missing = |why: &str, mend: &str| {
        let what = "what the guest's processors execute".to_owned();
        Missing { what, why: why.to_owned(), mend: mend.to_owned() }
    };
    if !may_ask {
        return Err(missing(
            "this host's KVM (kvm_pvm) forgets a breakpoint's exception when a processor's registers are read, which can \
             crash a guest",
            "Look at it on a host with hardware virtualisation",
        ));
    }
    let no_monitor = || {
        let mend = "give it one that nobody else uses (-qmp unix:/run/NAME.qmp,server=on,wait=off)";
        missing("its QEMU has no QMP monitor that could be asked", mend)
    };
    let silent = || missing("QEMU's monitor told of no x86 processor while it was looked at", "Look longer");
    let monitor = monitor.ok_or_else(no_monitor)?;
    let processors = monitor.processors().map_err(|_| silent())?;
    let looked = vmtax_observe::guest_code(&processors, hz.min(MOST_HZ), time, stop, &mut |processor, command| {
        monitor.of_processor(processor, command).ok()
    });
    findings(&looked).ok_or_else(silent)
}
