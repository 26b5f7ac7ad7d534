//! QEMU: how it is recognized among other programs, its command line, its QMP monitor, the roles of its threads, its disks,
//! its probe points for block requests.

pub mod arguments;
pub(crate) mod attach;
pub mod block_graph;
pub mod console;
pub mod conversation;
pub mod counters;
pub(crate) mod disks;
pub mod guest_agent;
pub(crate) mod guest_program;
pub mod introspect;
pub mod libvirt;
pub mod monitor;
pub(crate) mod probe_points;
pub mod settings;
pub(crate) mod threads;

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
