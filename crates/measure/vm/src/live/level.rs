//! Levels of the cost that a sample may have for a VM.

/// Permitted cost of a sample to the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Counters alone: the kernel's, and those of a monitor that is not libvirt's. Changes nothing.
    Counters,
    /// And libvirt's monitor, which taints the domain, and QEMU's latency histograms, set and removed again.
    Histograms,
    /// And traces of VM exits.
    Traces,
}
