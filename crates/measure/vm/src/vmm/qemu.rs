//! QEMU as it is started for vmtax's own guests: its command line, its rights on the host.

mod command_line;
pub(crate) mod device_arguments;
pub(crate) mod start;

pub use command_line::DISK_DEVICE;
