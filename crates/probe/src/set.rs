//! What is observed, declared once for both sides.

use crate::Uprobe;
use vmtax_model::{GuestDisk, HostDisk, Missing};

/// A trace event of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its system.
    pub system: &'static str,
    /// Its name, the newest kernel's first.
    pub names: &'static [&'static str],
    /// Which of its occurrences are wanted, in the words of the event's `filter` file; all without one.
    pub filter: Option<String>,
}

/// What a tracer observes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeSet {
    /// Threads or processes by whose numbers `bound` and `uprobes` are limited; new threads and children are added.
    pub threads: Vec<i32>,
    /// Events of those threads alone.
    pub bound: Vec<Event>,
    /// Events of whoever they happen to: an interrupt strikes any thread.
    pub free: Vec<Event>,
    /// Probes in a program, of those threads alone.
    pub uprobes: Vec<Uprobe>,
    /// Functions of the kernel by which a driver notifies a device: calls of those that exist become events `notify`.
    /// By kprobes: the function tracer takes 5 us a call in a guest under TCG, a kprobe less than one.
    pub notify: &'static [&'static str],
    /// What is known to be missing before anything was tried.
    pub missing: Vec<Missing>,
}

/// System calls by which a workload reads and writes its disk (x86-64): read, write, pread64, pwrite64, io_uring_enter.
const DISK_CALLS: [u32; 5] = [0, 1, 17, 18, 426];

/// By which a guest's kernel notifies a virtio device, in kernels 3.x to 6.x; newer ones add the second.
const NOTIFY: &[&str] = &["vp_notify", "vp_notify_with_data", "vm_notify", "vm_notify_with_data"];

impl ProbeSet {
    /// A guest's side of each block request: the system call, the block layer, the notification, the interrupt, and who
    /// had the processor. `process` is whose system calls count, with its children.
    pub fn guest(process: i32, disk: &GuestDisk) -> ProbeSet {
        let calls = any("id", &DISK_CALLS);
        ProbeSet {
            threads: vec![process],
            bound: vec![
                event("raw_syscalls", &["sys_enter"], Some(calls.clone())),
                event("raw_syscalls", &["sys_exit"], Some(calls)),
            ],
            free: vec![
                event("block", &["block_rq_issue"], Some(format!("dev == {}", disk.device))),
                event("block", &["block_rq_complete"], Some(format!("dev == {}", disk.device))),
                event("irq", &["irq_handler_entry"], Some(any("irq", &disk.interrupts))),
                event("sched", &["sched_switch"], None),
                event("sched", &["sched_waking"], None),
            ],
            notify: NOTIFY,
            ..ProbeSet::default()
        }
    }

    /// The host's side: QEMU's threads in system calls, on and off the processor, in KVM when it runs the guest, at
    /// QEMU's own points; and the disk beneath.
    pub fn host(qemu: &[i32], disk: &HostDisk, kvm: bool, uprobes: (Vec<Uprobe>, Vec<Missing>)) -> ProbeSet {
        let mut set =
            ProbeSet { threads: qemu.to_vec(), uprobes: uprobes.0, missing: uprobes.1, ..ProbeSet::default() };
        let everything = [
            ("raw_syscalls", &["sys_enter"][..]),
            ("raw_syscalls", &["sys_exit"]),
            ("sched", &["sched_switch"]),
            ("sched", &["sched_waking"]),
            ("io_uring", &["io_uring_submit_req", "io_uring_submit_sqe"]),
            ("io_uring", &["io_uring_complete"]),
        ];
        set.bound.extend(everything.map(|(system, names)| event(system, names, None)));
        if kvm {
            set.bound.extend(KVM_BOUND.map(|name| event("kvm", name, None)));
            set.free.extend(KVM_FREE.map(|name| event("kvm", name, None)));
        }
        match disk.device {
            Some(device) => {
                let filter = Some(format!("dev == {device}"));
                set.free.extend(BLOCK.map(|name| event("block", name, filter.clone())));
            }
            None => set.missing.push(Missing {
                what: "requests at the host's disk".into(),
                why: "the disk's file lies on no single block device (a memory, network, RAID or overlay file system)"
                    .into(),
                mend: "put the run's folder on a plain file system on one disk with --runs".into(),
            }),
        }
        set
    }
}

const BLOCK: [&[&str]; 2] = [&["block_rq_issue"], &["block_rq_complete"]];

/// What happens in the thread of a virtual processor.
const KVM_BOUND: [&[&str]; 9] = [
    &["kvm_entry"],
    &["kvm_exit"],
    &["kvm_pio"],
    &["kvm_mmio"],
    &["kvm_fast_mmio"],
    &["kvm_userspace_exit"],
    &["kvm_halt_poll_ns"],
    &["kvm_vcpu_wakeup"],
    &["kvm_write_tsc_offset"],
];

/// What an injection passes, in whichever thread or kernel worker it begins.
const KVM_FREE: [&[&str]; 3] = [&["kvm_set_irq"], &["kvm_msi_set_irq"], &["kvm_apic_accept_irq"]];

fn event(system: &'static str, names: &'static [&'static str], filter: Option<String>) -> Event {
    Event { system, names, filter }
}

/// `field == a || field == b`; nothing passes when there is no value.
fn any(field: &str, values: &[u32]) -> String {
    let terms: Vec<String> = values.iter().map(|value| format!("{field} == {value}")).collect();
    if terms.is_empty() { format!("{field} == -1") } else { terms.join(" || ") }
}
