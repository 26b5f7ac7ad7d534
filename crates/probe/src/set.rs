//! What is observed, declared once for both sides.

use crate::Uprobe;
use vmtax_model::{HostDisk, Missing};

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
    /// Whether this kernel serves nobody else, so that what is global in tracefs may be changed for a moment.
    pub alone: bool,
    /// What is known to be missing before anything was tried.
    pub missing: Vec<Missing>,
}

/// By which a guest's kernel notifies a virtio device, in kernels 3.x to 6.x; newer ones add the second.
const NOTIFY: &[&str] = &["vp_notify", "vp_notify_with_data", "vm_notify", "vm_notify_with_data"];

impl ProbeSet {
    /// A guest's side of each block request: the system call, the block layer, the notification, the interrupt, and who
    /// had the processor.
    ///
    /// Nothing is filtered, neither by thread nor by disk: in a guest that does nothing else it all belongs to the
    /// workload, and under TCG a filter, or a list of threads, takes as long as an event.
    pub fn guest() -> ProbeSet {
        let events = [
            ("raw_syscalls", &["sys_enter"][..]),
            ("raw_syscalls", &["sys_exit"]),
            ("block", &["block_rq_issue"]),
            ("block", &["block_rq_complete"]),
            ("irq", &["irq_handler_entry"]),
            ("sched", &["sched_switch"]),
            ("sched", &["sched_waking"]),
        ];
        let free = events.map(|(system, names)| event(system, names, None)).into();
        ProbeSet { free, notify: NOTIFY, alone: true, ..ProbeSet::default() }
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

    /// Less, where the observer may cost less: what joins a request and parts its layers. In the guest the block layer,
    /// the notification and the interrupt, without system calls and the scheduler. On the host only those system calls by
    /// which QEMU submits, and only those of QEMU's points that have no other close by.
    pub fn lean(mut self) -> ProbeSet {
        let dropped: &[&str] = if self.alone { &["raw_syscalls", "sched"] } else { &[] };
        let kept = |e: &Event| !dropped.contains(&e.system) && !e.names.contains(&"sys_exit");
        self.bound.retain(kept);
        self.free.retain(kept);
        for event in self.bound.iter_mut().filter(|e| e.system == "raw_syscalls") {
            let calls = SUBMITTING.map(|number| format!("id == {number}"));
            event.filter = Some(calls.join(" || "));
        }
        self.uprobes.retain(|probe| !["submit", "aio", "notify"].contains(&probe.event));
        self
    }
}

/// pread64, pwrite64, io_submit, preadv, pwritev, io_uring_enter (x86-64).
const SUBMITTING: [u32; 6] = [17, 18, 209, 295, 296, 426];

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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(events: &[Event]) -> Vec<&str> {
        events.iter().map(|e| e.names[0]).collect()
    }

    fn host(kvm: bool, device: Option<u64>) -> ProbeSet {
        let probe = |event| Uprobe { event, binary: "/q".into(), offset: 1, fields: String::new(), function: "f" };
        let probes = ["pop", "submit", "aio", "push", "notify", "inject"].map(probe).into();
        ProbeSet::host(&[7, 8], &HostDisk { device, extents: Vec::new() }, kvm, (probes, Vec::new()))
    }

    #[test]
    fn kvms_events_are_wanted_where_it_runs_the_guest() {
        assert!(!names(&host(false, None).bound).iter().any(|name| name.starts_with("kvm")));
        let set = host(true, Some(5));
        assert!(names(&set.bound).contains(&"kvm_exit") && names(&set.free).contains(&"kvm_set_irq"));
        assert_eq!(set.free.iter().filter(|e| e.filter.as_deref() == Some("dev == 5")).count(), 2);
        assert_eq!(set.threads, [7, 8]);
    }

    #[test]
    fn a_lean_set_joins_requests_still() {
        let guest = ProbeSet::guest().lean();
        assert_eq!(names(&guest.free), ["block_rq_issue", "block_rq_complete", "irq_handler_entry"]);
        assert!(!guest.notify.is_empty());
        let host = host(false, Some(5)).lean();
        assert_eq!(names(&host.bound)[..3], ["sys_enter", "sched_switch", "sched_waking"]);
        assert!(host.bound[0].filter.as_ref().unwrap().contains("id == 209 || "));
        assert_eq!(host.uprobes.iter().map(|p| p.event).collect::<Vec<_>>(), ["pop", "push", "inject"]);
        assert_eq!(names(&host.free), ["block_rq_issue", "block_rq_complete"]);
    }
}
