//! Sources of checkpoints: the events that are traced to observe them.

/// EventSource of a checkpoint: the events that are traced to observe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// A tracepoint of the side's kernel.
    Tracepoint {
        system: &'static str,
        /// Name per kernel version, the newest first.
        names: &'static [&'static str],
        /// Scope events count.
        of: Scope,
    },
    /// Tracepoints of single system calls of QEMU's threads.
    Calls(&'static [&'static [&'static str]]),
    /// Functions of the guest's kernel, of which each kernel has some: kprobes on them record the event `notify`.
    Functions(&'static [&'static str]),
    /// Uprobes on functions of QEMU, by the event that they record.
    Qemu(&'static str),
    /// An event in QEMU's own log, where the host's kernel may not be traced.
    QemuLog(&'static str),
}

/// Scope events count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// System-wide: an interrupt may hit any thread.
    All,
    /// Of QEMU's threads.
    Qemu,
    /// Of the host's device behind the guest's: the block device that holds the disk, or the tap.
    Device,
    /// The block device that holds the disk, where that has no request queue.
    BioDevice,
}

/// Prefix of the groups of vmtax's own probes.
pub const PROBE_GROUP: &str = "vmtax_";

impl EventSource {
    /// Returns true if an event of a trace comes from this source.
    pub fn gives(&self, system: &str, name: &str) -> bool {
        match self {
            EventSource::Tracepoint {
                system: of, names, ..
            } => *of == system && names.contains(&name),
            EventSource::Calls(calls) => {
                system == "syscalls" && calls.iter().any(|names| names.contains(&name))
            }
            // Where a kernel has no kprobes, its function tracer records the function.
            EventSource::Functions(_) => {
                (system.starts_with(PROBE_GROUP) && name == "notify")
                    || (system, name) == ("ftrace", "function")
            }
            EventSource::Qemu(event) => system.starts_with(PROBE_GROUP) && *event == name,
            EventSource::QemuLog(event) => system == "qemu" && *event == name,
        }
    }
}

pub(super) const fn tracepoint(
    system: &'static str,
    names: &'static [&'static str],
    of: Scope,
) -> EventSource {
    EventSource::Tracepoint { system, names, of }
}

pub(super) const fn kvm(name: &'static [&'static str], of: Scope) -> EventSource {
    tracepoint("kvm", name, of)
}

/// Returns from waiting for work.
pub(super) const WAITS: EventSource = EventSource::Calls(&[
    &["sys_exit_ppoll"],
    &["sys_exit_poll"],
    &["sys_exit_select", "sys_exit_newselect"],
    &["sys_exit_pselect6"],
    &["sys_exit_epoll_wait"],
    &["sys_exit_epoll_pwait"],
    &["sys_exit_epoll_pwait2"],
    &["sys_exit_io_getevents"],
    &["sys_exit_io_pgetevents"],
]);

/// One system call.
pub(super) const fn call(names: &'static [&'static [&'static str]]) -> EventSource {
    EventSource::Calls(names)
}

/// Functions by which a guest's kernel kicks a virtqueue, 3.x to 6.x; newer kernels add the second of each.
pub(super) const NOTIFY: &[&str] = &[
    "vp_notify",
    "vp_notify_with_data",
    "vm_notify",
    "vm_notify_with_data",
];
