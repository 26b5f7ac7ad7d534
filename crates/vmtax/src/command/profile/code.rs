//! What a guest's processors execute, asked through the monitor of its QEMU.

use std::time::Duration;
use vmtax_machine::QemuMonitor;
use vmtax_model::GuestCode;
use vmtax_profile::code::{findings, look};

/// Looks at each processor `hz` times a second; `None` where nothing was told.
pub fn executed(monitor: &QemuMonitor, hz: u32, time: Duration, stop: &dyn Fn() -> bool) -> Option<GuestCode> {
    let processors = monitor.processors().ok()?;
    let looked =
        look(processors, hz, time, stop, &mut |processor, command| monitor.of_processor(processor, command).ok());
    findings(&looked)
}
