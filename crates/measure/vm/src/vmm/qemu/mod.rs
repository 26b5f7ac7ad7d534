//! QEMU: how it is started ([`start`], its command line) and recognized among other programs, its QMP monitor, the roles of
//! its threads, its disks, its probe points for block requests.

pub(crate) mod arguments;
pub(crate) mod attach;
pub(crate) mod block_graph;
mod command_line;
pub(crate) mod console;
pub(crate) mod conversation;
pub(crate) mod counters;
pub(crate) mod device_arguments;
pub(crate) mod disks;
pub(crate) mod guest_agent;
pub(crate) mod guest_program;
mod introspect;
pub(crate) mod libvirt;
pub(crate) mod monitor;
mod probe_points;
pub(crate) mod settings;
pub(crate) mod start;
pub(crate) mod threads;

pub use arguments::NET_DEVICE;
pub use command_line::DISK_DEVICE;
pub use console::read_console;
pub use counters::read_answers;
pub use guest_agent::read_agent_answers;
pub use libvirt::read_domain_stats;
pub use probe_points::{NETWORK_PROBE_POINTS, disk_probe_points};
pub use settings::{read_guest_disks, read_settings};

use std::path::PathBuf;
use vmtax_model::Managed;

/// Reads the command line of another's QEMU, for fuzzing: QMP sockets, images, manager, bytes of memory.
pub fn read_command_line(
    arguments: &[String],
) -> (Vec<PathBuf>, Vec<PathBuf>, Option<Managed>, u64) {
    let arguments: arguments::Arguments = arguments.iter().cloned().collect();
    let managed = attach::manager_by_arguments(&arguments, || arguments.is_kvm().is_some());
    let graph = block_graph::BlockGraph::of(&arguments);
    let images = graph.chains().filter_map(|chain| chain.storage());
    (
        attach::qmp_sockets(&arguments),
        images.map(block_graph::Storage::name).collect(),
        managed,
        arguments.memory_bytes(),
    )
}
