//! The events that tracers record, on both sides.

use crate::Uprobe;
use std::collections::BTreeSet;
use vmtax_model::{Checkpoint, CheckpointInfo, EventSource, HostDisk, Missing, Scope, Side};

/// A trace event of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedEvent {
    pub system: &'static str,
    /// Name per kernel version, the newest first.
    pub names: &'static [&'static str],
    /// The expression for the event's `filter` file; without one, all of its events are recorded.
    pub filter: Option<String>,
}

/// Events that a tracer observes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeSet {
    /// Threads or processes by whose numbers `bound` and `uprobes` are limited; new threads and children are added.
    pub threads: Vec<i32>,
    /// Per-thread events, of `threads`.
    pub bound: Vec<TracedEvent>,
    /// Single system calls of those threads. Kernels differ in which they have: those that one lacks it cannot make. Where
    /// it tells of none by name, all are observed.
    pub calls: Vec<TracedEvent>,
    /// System-wide events: an interrupt may hit any thread.
    pub free: Vec<TracedEvent>,
    /// Probes in a program, of those threads alone.
    pub uprobes: Vec<Uprobe>,
    /// Functions of the kernel by which a driver notifies a device: calls of those that exist become events `notify`.
    /// By kprobes: the function tracer takes 5 us a call in a guest under TCG, a kprobe less than one.
    pub notify: &'static [&'static str],
    /// True if this kernel runs nothing else, so that global tracefs settings may be changed for a moment.
    pub alone: bool,
    /// TraceClock of the events' time stamps.
    pub clock: TraceClock,
    /// Known to be missing before the tracer starts.
    pub missing: Vec<Missing>,
}

/// A clock of the kernel's for its traces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TraceClock {
    /// The time stamp counter, which a guest has too.
    #[default]
    Tsc,
    /// Monotonic clock, `CLOCK_MONOTONIC`, ns.
    Mono,
}

impl TraceClock {
    /// Returns its name in `trace_clock`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TraceClock::Tsc => "x86-tsc",
            TraceClock::Mono => "mono",
        }
    }
}

impl ProbeSet {
    /// A guest's side of each block request: the system call, the block layer, the notification, the interrupt, and who
    /// had the CPU.
    ///
    /// Nothing is filtered, neither by thread nor by disk: in a guest that does nothing else it all belongs to the
    /// workload, and under TCG a filter, or a list of threads, takes as long as an event.
    pub fn guest(checkpoints: &'static [CheckpointInfo]) -> ProbeSet {
        ProbeSet::guest_without(checkpoints, &[Checkpoint::Begin])
    }

    /// Returns [`ProbeSet::guest`] for a program that does not stamp its requests: with their insertion, which shows whose a request is
    /// that a kernel thread issues.
    pub fn guest_of_program(checkpoints: &'static [CheckpointInfo]) -> ProbeSet {
        ProbeSet::guest_without(checkpoints, &[])
    }

    /// Returns [`ProbeSet::guest`] without system calls: a command makes many, of which none is a request's. A
    /// command's requests begin in the block layer, where some wait before they are issued, and its packets begin and
    /// end in the network stack.
    pub fn guest_of_command(checkpoints: &'static [CheckpointInfo]) -> ProbeSet {
        let of_disk = [Checkpoint::GuestCall, Checkpoint::GuestReturn];
        let of_network = [
            Checkpoint::NetGuestCall,
            Checkpoint::NetGuestRead,
            Checkpoint::NetGuestReturn,
        ];
        ProbeSet::guest_without(checkpoints, &[&of_disk[..], &of_network].concat())
    }

    /// Returns [`ProbeSet::guest_of_command`] for somebody's guest: other programs trace there, too, and other devices
    /// interrupt.
    pub fn guest_of_others(checkpoints: &'static [CheckpointInfo], interrupts: &[u32]) -> ProbeSet {
        let mut set = ProbeSet {
            alone: false,
            ..ProbeSet::guest_of_command(checkpoints)
        };
        let any = either(interrupts.iter().map(|irq| format!("irq == {irq}")));
        for event in set.free.iter_mut().filter(|event| event.system == "irq") {
            event.filter = any.clone();
        }
        set
    }

    fn guest_without(checkpoints: &'static [CheckpointInfo], left_out: &[Checkpoint]) -> ProbeSet {
        let free = SCHED.map(|names| event("sched", names, None)).into();
        let mut set = ProbeSet {
            free,
            alone: true,
            ..ProbeSet::default()
        };
        for source in sources(checkpoints, Side::Guest, left_out) {
            match *source {
                EventSource::Tracepoint { system, names, .. } => {
                    set.free.push(event(system, names, None))
                }
                EventSource::Functions(functions) => set.notify = functions,
                EventSource::Calls(_) | EventSource::Qemu(_) | EventSource::QemuLog(_) => {}
            }
        }
        set
    }

    /// The host's side: QEMU's threads on and off the CPU, where they wait for work and hand some to the kernel, in
    /// KVM when it runs the guest, at QEMU's own points; and the disk beneath.
    ///
    /// Of some twenty system calls a request makes, those few alone: what is recorded makes the request longer. `behind` is
    /// what lies behind the guest's device.
    pub fn host(
        checkpoints: &'static [CheckpointInfo],
        qemu: &[i32],
        behind: HostDevice<'_>,
        kvm: bool,
        uprobes: Vec<Uprobe>,
        missing: Vec<Missing>,
    ) -> ProbeSet {
        let mut set = ProbeSet {
            threads: qemu.to_vec(),
            uprobes,
            missing,
            ..ProbeSet::default()
        };
        set.bound
            .extend(SCHED.map(|name| event("sched", name, None)));
        // FUTEX_WAIT and FUTEX_WAIT_PRIVATE, by which glibc waits for a mutex.
        set.calls
            .push(call(&["sys_enter_futex"], Some("op == 0 || op == 128")));
        // One that did not wait returns an error; the others are over when the thread is back on a CPU.
        set.calls.push(call(&["sys_exit_futex"], Some("ret < 0")));
        if matches!(behind, HostDevice::Blocks(disks) if disks.iter().all(|disk| disk.device.is_none()))
        {
            set.missing.push(Missing {
                what: HOST_DISK.into(),
                why: "the disk's file lies on no single block device (a memory, network or overlay file system)".into(),
                fix: "record to a plain file system on one disk".into(),
            });
        }
        if kvm {
            // An event of KVM costs a third of a uprobe's trap.
            let shown = checkpoints
                .iter()
                .filter(|info| info.sources.iter().any(is_of_kvm));
            let shown: Vec<&EventSource> = shown.flat_map(|info| info.sources).collect();
            set.uprobes
                .retain(|probe| !shown.contains(&&EventSource::Qemu(probe.event)));
        }
        for source in sources(checkpoints, Side::Host, &[Checkpoint::NetPasstNotify]) {
            if kvm || !is_of_kvm(source) {
                set.add_of_host(source, behind);
            }
        }
        set
    }

    /// Adds the events of the host that show a checkpoint.
    fn add_of_host(&mut self, source: &'static EventSource, behind: HostDevice<'_>) {
        match *source {
            EventSource::Tracepoint { system, names, of } => match of {
                Scope::Qemu => self.bound.push(event(system, names, None)),
                Scope::All => self.free.push(event(system, names, None)),
                Scope::Device | Scope::BioDevice => {
                    let filter = behind.filter(of);
                    self.free
                        .extend(filter.map(|filter| event(system, names, Some(filter))));
                }
            },
            // Some tell of two checkpoints.
            EventSource::Calls(calls) => {
                for call in calls.iter().map(|names| call(names, None)) {
                    if !self.calls.contains(&call) {
                        self.calls.push(call);
                    }
                }
            }
            EventSource::Functions(_) | EventSource::Qemu(_) | EventSource::QemuLog(_) => {}
        }
    }

    /// Adds the `write` calls by which these threads of passt notify the guest, without those to its log. QEMU's threads
    /// make the same call for much else.
    pub fn add_notifications(&mut self, passt: &[i32]) {
        let Some(any) = either(passt.iter().map(|tid| format!("common_pid == {tid}"))) else {
            return;
        };
        let filter = format!("fd > 2 && ({any})");
        for source in Checkpoint::NetPasstNotify.info().sources {
            if let EventSource::Calls(calls) = source {
                self.calls
                    .extend(calls.iter().map(|names| call(names, Some(&filter))));
            }
        }
    }

    /// Adds the calls by which a VMM reads and writes its taps, which it has by these descriptors. Of calls by which it may write to
    /// something else, too, those on a tap are kept.
    pub fn add_tap_calls(&mut self, descriptors: &[i32]) {
        let Some(any) = either(descriptors.iter().map(|fd| format!("fd == {fd}"))) else {
            return;
        };
        self.calls.retain(|event| !TAP_CALLS.contains(&event.names));
        self.calls
            .extend(TAP_CALLS.iter().map(|names| call(names, Some(&any))));
    }

    /// Keeps, of the guest's accesses to devices, those alone that kick the disk's virtqueues: at these addresses or ports, each
    /// range with its length. Where none is known, all.
    pub fn keep_doorbells(&mut self, ranges: &[(u64, u64)]) {
        for event in self.bound.iter_mut().filter(|event| event.system == "kvm") {
            let Some(name) = ACCESSES.into_iter().find(|name| event.names == [*name]) else {
                continue;
            };
            let field = if name == "kvm_pio" { "port" } else { "gpa" };
            let within = |(first, length): &(u64, u64)| {
                let last = first.saturating_add(length.saturating_sub(1));
                // The kernel refuses a number that does not fit the field, which is of 32 bits for a port.
                (field == "gpa" || u32::try_from(last).is_ok())
                    .then(|| format!("({field} >= {first:#x} && {field} <= {last:#x})"))
            };
            event.filter = either(ranges.iter().filter_map(within));
        }
    }

    /// Keeps, of a VM among others on its host, what its own threads do alone: of KVM's interrupts those that they
    /// deliver; no guest's accesses where the doorbells' addresses are not known.
    #[must_use]
    pub fn among_others(mut self, doorbells: &[(u64, u64)]) -> ProbeSet {
        let (of_kvm, free) = self
            .free
            .into_iter()
            .partition(|event| event.system == "kvm");
        self.free = free;
        self.bound.extend::<Vec<TracedEvent>>(of_kvm);
        self.keep_doorbells(doorbells);
        if doorbells.is_empty() {
            self.bound
                .retain(|event| !ACCESSES.contains(&event.names[0]));
        }
        self
    }

    /// Adds the interrupts that KVM delivers by a worker of the kernel: an irqfd on a line of the PIC or the IO-APIC, which a thread
    /// of the VMM writes. `function` is the address of the work's function in the kernel.
    pub fn add_interrupts_by_workers(&mut self, function: u64) {
        let own = Some(format!("function == {function:#x}"));
        let [queued, begun] = WORK.map(|names| event("workqueue", names, own.clone()));
        self.bound.push(queued);
        self.free.push(begun);
        // Whether a worker had to wait for a CPU. Switches from the VM's own threads are recorded with them; the kernel takes a filter
        // of a page.
        let mut to_workers = "next_comm ~ \"kworker*\"".to_owned();
        for tid in self.threads.iter().take(MOST_IN_FILTER) {
            to_workers += &format!(" && prev_pid != {tid}");
        }
        self.free.push(event("sched", SCHED[0], Some(to_workers)));
    }

    /// The exits of a guest of KVM: QEMU's threads, and those of the kernel that work for it.
    pub fn exits(threads: &[i32]) -> ProbeSet {
        // Where a thread goes into its guest: 0xae80 is KVM_RUN.
        let calls = vec![call(&["sys_enter_ioctl"], Some("cmd == 0xae80"))];
        ProbeSet {
            calls,
            ..ProbeSet::bound_to(threads, EXITS.map(|name| event("kvm", name, None)).into())
        }
    }

    /// When threads had a CPU, who woke them, and all their system calls.
    pub fn schedule(threads: &[i32]) -> ProbeSet {
        let mut set = ProbeSet {
            clock: TraceClock::Mono,
            ..ProbeSet::calls(threads)
        };
        set.bound
            .splice(0..0, SCHED.map(|name| event("sched", name, None)));
        set
    }

    /// All system calls of QEMU's threads, and nothing else.
    pub fn calls(qemu: &[i32]) -> ProbeSet {
        let calls = ALL_CALLS.map(|name| event("raw_syscalls", name, None));
        ProbeSet::bound_to(qemu, calls.into())
    }

    fn bound_to(threads: &[i32], bound: Vec<TracedEvent>) -> ProbeSet {
        ProbeSet {
            threads: threads.to_vec(),
            bound,
            ..ProbeSet::default()
        }
    }
}

/// Devices of the host behind a guest's device.
#[derive(Debug, Clone, Copy)]
pub enum HostDevice<'a> {
    /// The devices beneath its disks.
    Blocks(&'a [&'a HostDisk]),
    /// The interfaces behind its network cards: taps, or the loopback device of the server's network; none where packets are not
    /// followed beyond QEMU.
    Interfaces(&'a [String]),
}

impl HostDevice<'_> {
    /// Returns what its events of a scope have in common; `None` where there is no device that has such.
    fn filter(self, of: Scope) -> Option<String> {
        match self {
            HostDevice::Blocks(disks) => {
                let such = disks
                    .iter()
                    .filter(|disk| disk.is_bio_based == (of == Scope::BioDevice));
                // Several disks may lie on one device.
                let devices: BTreeSet<u64> = such.filter_map(|disk| disk.device).collect();
                either(devices.iter().map(|device| format!("dev == {device}")))
            }
            HostDevice::Interfaces(names) => {
                either(names.iter().map(|name| format!("name == \"{name}\"")))
            }
        }
    }
}

/// Name of the missing events where the disk lies on no block device.
pub const HOST_DISK: &str = "requests at the host's disk";

/// The calls by which a program reads and writes a tap.
const TAP_CALLS: [&[&str]; 4] = [
    &["sys_enter_read"],
    &["sys_enter_readv"],
    &["sys_enter_write"],
    &["sys_enter_writev"],
];

/// KVM's events of a guest's accesses to devices.
const ACCESSES: [&str; 3] = ["kvm_pio", "kvm_mmio", "kvm_fast_mmio"];

/// Threads that a filter of the kernel, of at most a page, has room for.
const MOST_IN_FILTER: usize = 128;
const SCHED: [&[&str]; 2] = [&["sched_switch"], &["sched_waking"]];

/// Work for the kernel's workers: queued, and begun.
const WORK: [&[&str]; 2] = [&["workqueue_queue_work"], &["workqueue_execute_start"]];

/// Every system call's entry and return.
pub(crate) const ALL_CALLS: [&[&str]; 2] = [&["sys_enter"], &["sys_exit"]];

/// Events by which exits are counted.
const EXITS: [&[&str]; 11] = [
    &["kvm_entry"],
    &["kvm_exit"],
    &["kvm_pio"],
    &["kvm_mmio"],
    &["kvm_fast_mmio"],
    &["kvm_msr"],
    &["kvm_eoi"],
    &["kvm_userspace_exit"],
    &["kvm_apic_accept_irq"],
    &["kvm_set_irq"],
    &["kvm_msi_set_irq"],
];

fn is_of_kvm(source: &EventSource) -> bool {
    matches!(source, EventSource::Tracepoint { system: "kvm", .. })
}

/// Joins filters of which one has to hold; `None` where there is none.
fn either(filters: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = filters.collect();
    (!all.is_empty()).then(|| all.join(" || "))
}

/// Returns the sources that show the checkpoints of one side.
fn sources(
    checkpoints: &'static [CheckpointInfo],
    side: Side,
    left_out: &[Checkpoint],
) -> impl Iterator<Item = &'static EventSource> {
    let infos = checkpoints
        .iter()
        .filter(move |info| info.side == side && !left_out.contains(&info.checkpoint));
    infos.flat_map(|info| info.sources)
}

fn call(names: &'static [&'static str], filter: Option<&str>) -> TracedEvent {
    event("syscalls", names, filter.map(str::to_owned))
}

fn event(
    system: &'static str,
    names: &'static [&'static str],
    filter: Option<String>,
) -> TracedEvent {
    TracedEvent {
        system,
        names,
        filter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(events: &[TracedEvent]) -> Vec<&str> {
        events.iter().map(|e| e.names[0]).collect()
    }

    fn disk(device: u64) -> HostDisk {
        HostDisk {
            device: Some(device),
            ..HostDisk::default()
        }
    }

    fn host(kvm: bool, disk: &HostDisk) -> ProbeSet {
        let probe = |event| Uprobe {
            event,
            binary: "/q".into(),
            offset: 1,
            fields: String::new(),
            function: "f",
        };
        let probes = ["pop", "submit", "push", "notify", "inject"]
            .map(probe)
            .into();
        ProbeSet::host(
            vmtax_model::DISK,
            &[7, 8],
            HostDevice::Blocks(&[disk]),
            kvm,
            probes,
            Vec::new(),
        )
    }

    fn of_tap() -> ProbeSet {
        let interfaces = ["tap0".to_owned()];
        let behind = HostDevice::Interfaces(&interfaces);
        ProbeSet::host(
            vmtax_model::NETWORK,
            &[7, 8, 9],
            behind,
            true,
            Vec::new(),
            Vec::new(),
        )
    }

    #[test]
    fn of_calls_that_read_and_write_those_on_a_tap_are_traced() {
        let mut set = of_tap();
        set.add_tap_calls(&[]);
        assert!(!names(&set.calls).contains(&"sys_enter_read"));
        set.add_tap_calls(&[9, 12]);
        for names in TAP_CALLS {
            let own = set.calls.iter().filter(|event| event.names == names);
            let filters: Vec<_> = own.map(|event| event.filter.as_deref()).collect();
            assert_eq!(filters, [Some("fd == 9 || fd == 12")], "{names:?}");
        }
    }

    #[test]
    fn of_passts_threads_alone_writes_are_traced() {
        let mut set = of_tap();
        let is_write = |event: &&TracedEvent| event.names == ["sys_enter_write"];
        set.add_notifications(&[]);
        assert_eq!(set.calls.iter().find(is_write), None);
        set.add_notifications(&[8, 9]);
        let filter = set
            .calls
            .iter()
            .find(is_write)
            .and_then(|event| event.filter.as_deref());
        assert_eq!(
            filter,
            Some("fd > 2 && (common_pid == 8 || common_pid == 9)")
        );
    }

    #[test]
    fn of_a_vm_among_others_its_own_threads_are_traced() {
        let set = host(true, &disk(5)).among_others(&[]);
        assert_eq!(names(&set.free), ["block_rq_issue", "block_rq_complete"]);
        let bound = names(&set.bound);
        assert!(
            bound.contains(&"kvm_msi_set_irq") && !ACCESSES.iter().any(|name| bound.contains(name)),
            "{bound:?}"
        );
        let set = host(true, &disk(5)).among_others(&[(0x1000, 4)]);
        assert!(
            set.bound
                .iter()
                .any(|e| e.names == ["kvm_mmio"] && e.filter.is_some())
        );
    }

    #[test]
    fn several_disks_may_lie_on_several_devices() {
        let volume = HostDisk {
            is_bio_based: true,
            ..disk(7)
        };
        let disks = [&disk(6), &disk(5), &volume, &disk(5)];
        let set = ProbeSet::host(
            vmtax_model::DISK,
            &[7],
            HostDevice::Blocks(&disks),
            false,
            Vec::new(),
            Vec::new(),
        );
        let filters: Vec<(&str, Option<&str>)> = set
            .free
            .iter()
            .map(|event| (event.names[0], event.filter.as_deref()))
            .collect();
        assert_eq!(
            filters,
            [
                ("block_rq_issue", Some("dev == 5 || dev == 6")),
                ("block_bio_queue", Some("dev == 7")),
                ("block_rq_complete", Some("dev == 5 || dev == 6")),
                ("block_bio_complete", Some("dev == 7")),
            ]
        );
        assert!(set.missing.is_empty());
    }

    #[test]
    fn kvms_events_are_wanted_where_it_runs_the_guest() {
        assert!(
            !names(&host(false, &HostDisk::default()).bound)
                .iter()
                .any(|name| name.starts_with("kvm"))
        );
        let set = host(true, &disk(5));
        assert!(
            names(&set.bound).contains(&"kvm_mmio") && names(&set.free).contains(&"kvm_set_irq")
        );
        // No checkpoint is observed by these, and a request makes several.
        let all = || set.bound.iter().chain(&set.free);
        assert!(!all().any(|event| {
            ["kvm_entry", "kvm_exit", "kvm_apic_accept_irq"].contains(&event.names[0])
        }));
        assert_eq!(
            set.free
                .iter()
                .filter(|e| e.filter.as_deref() == Some("dev == 5"))
                .count(),
            2
        );
        assert_eq!(set.threads, [7, 8]);
        // KVM itself shows the interrupt.
        let probes = |set: &ProbeSet| {
            set.uprobes
                .iter()
                .map(|probe| probe.event)
                .collect::<Vec<_>>()
        };
        assert_eq!(probes(&set), ["pop", "submit", "push", "notify"]);
        assert!(probes(&host(false, &disk(5))).contains(&"inject"));
    }

    #[test]
    fn of_accesses_the_doorbells_are_wanted() {
        let mut set = host(true, &HostDisk::default());
        let filter = |set: &ProbeSet, name: &str| {
            let event = set
                .bound
                .iter()
                .find(|event| event.names == [name])
                .unwrap();
            event.filter.clone()
        };
        set.keep_doorbells(&[(0xc010, 2), (0x1_0000_3000, 4)]);
        let both = "(gpa >= 0xc010 && gpa <= 0xc011) || (gpa >= 0x100003000 && gpa <= 0x100003003)";
        assert_eq!(filter(&set, "kvm_mmio").as_deref(), Some(both));
        assert_eq!(
            filter(&set, "kvm_pio").as_deref(),
            Some("(port >= 0xc010 && port <= 0xc011)")
        );
        assert_eq!(filter(&set, "kvm_userspace_exit"), None);
        set.keep_doorbells(&[]);
        assert_eq!(filter(&set, "kvm_mmio"), None);
    }

    #[test]
    fn of_system_calls_those_are_wanted_that_part_layers() {
        let set = host(false, &disk(5));
        let names = names(&set.calls);
        assert!(names.contains(&"sys_exit_ppoll") && !names.contains(&"sys_enter_ppoll"));
        for call in ["io_submit", "io_uring_enter", "preadv", "pwritev"] {
            assert!(
                ["enter", "exit"]
                    .iter()
                    .all(|side| names.contains(&format!("sys_{side}_{call}").as_str())),
                "{call}"
            );
        }
        assert!(
            set.calls
                .iter()
                .filter(|e| e.names[0].ends_with("futex"))
                .all(|e| e.filter.is_some())
        );
    }
}
