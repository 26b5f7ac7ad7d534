//! Check of a running VM's iothread: whether its disk waits for it.

use vmtax_model::{DiskSettings, Role, ThreadRates, VmRates};

/// An iothread on a CPU for so long is the bottleneck of its disks.
pub(super) const BUSY_IOTHREAD: f64 = 0.8;

/// Returns true if the disk's iothread is on a CPU so much that its requests wait for it.
pub(super) fn waits_for_iothread(vm: &VmRates, disk: &DiskSettings) -> bool {
    let serves = |thread: &ThreadRates| matches!(&thread.role, Role::Iothread(name) if is_served(disk, name));
    vm.threads
        .iter()
        .any(|thread| thread.run >= BUSY_IOTHREAD && serves(thread))
}

/// Returns true if the iothread serves the disk. The kernel cuts its thread's name.
pub(super) fn is_served(disk: &DiskSettings, iothread: &str) -> bool {
    let name = disk.iothread.as_deref();
    name.is_some_and(|name| {
        name == iothread || (iothread.len() == 12 && name.starts_with(iothread))
    })
}
