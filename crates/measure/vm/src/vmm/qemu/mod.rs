//! QEMU as the VMM, all that is known of it: how it is started ([`start`], its command line) and told apart from other
//! programs, its monitor, what it tells of a running guest, what its threads are for, where a block request passes in it.

pub(crate) mod arguments;
pub(crate) mod attach;
pub(crate) mod binary;
mod command_line;
pub(crate) mod disk_arguments;
pub(crate) mod disks;
mod dummy_devices;
mod introspect;
pub(crate) mod logs;
pub(crate) mod monitor;
mod probe_points;
pub(crate) mod start;
pub(crate) mod threads;

pub use attach::qmp_sockets;
pub use command_line::DISK_DEVICE;
pub use probe_points::PROBE_POINTS;
