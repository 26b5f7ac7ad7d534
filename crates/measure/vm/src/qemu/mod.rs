//! QEMU as the VMM: its command line, its monitor, its devices and logs.

pub(crate) mod command_line;
pub(crate) mod disk;
pub(crate) mod dummy_devices;
pub(crate) mod logs;
pub(crate) mod monitor;
