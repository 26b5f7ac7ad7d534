//! Findings from the VM exits of a guest of KVM: by reason, by address and device, by vCPU; and the exits row by row.

mod devices;

pub use devices::Devices;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use vmtax_findings::{
    DevicesFrom, ExitActivity, ExitAddress, ExitCount, ExitReason, ExitTimes, GuestExits, VcpuExits,
};
use vmtax_model::Role;
use vmtax_model::samples::{Access, ExitCounts, ExitRow, TracedExits};
use vmtax_rules::{Evidence, Exits, MAX_TICK_HZ, Register};

/// KVM's names of exits by page faults of the guest's memory: EPT and NPT.
const PAGE_FAULTS: [&str; 2] = ["EPT_VIOLATION", "npf"];
/// Addresses reported at most.
const MAX_ADDRESSES: usize = 100;
const TIMED_BY_EXITS: &str = "Time of an exit: from kvm_exit to the next kvm_entry.";
const TIMED_BY_ACCESSES: &str = "Time of an exit: from its tracepoint (kvm_mmio, kvm_pio, kvm_msr) until the vCPU thread calls KVM_RUN again. This KVM has no tracepoints kvm_exit and kvm_entry, so the time of exits that it handles itself is unknown.";

/// Returns the findings from the counts of VM exits.
pub fn summary(counts: &ExitCounts, devices: &Devices) -> GuestExits {
    let seconds = counts.seconds;
    // Without tracepoints only KVM's counters are available.
    let none = TracedExits::default();
    let traced = counts.traced.as_ref().unwrap_or(&none);
    let (vcpus, devices_from, timing) = match &counts.traced {
        None => (1, DevicesFrom::UsualPlaces, ""),
        Some(TracedExits { brackets: true, .. }) => (0, devices.from, TIMED_BY_EXITS),
        Some(_) => (0, devices.from, TIMED_BY_ACCESSES),
    };
    let group = Grouping::new(traced, seconds);
    let reasons = group.reasons();
    let (addresses, registers) = group.addresses(devices);
    let rates = traced.regular.iter().copied();
    let page_faults = group.page_faults();
    let exits = Exits {
        seconds,
        vcpus: group.tids.len().max(vcpus),
        mean_ns: mean_ns(&reasons),
        registers: &registers,
        tick: rates
            .filter(|(_, hz)| *hz < MAX_TICK_HZ)
            .max_by_key(|(count, _)| *count),
        counters: &counts.counters,
        apic: counts.apic,
        kvm: counts.kvm,
        reasons: &reasons,
        page_faults: page_faults.as_ref(),
        timers: &traced.timer_lines,
    };
    // Known costs that the exits show, the one that takes most time first.
    let advice = vmtax_rules::evaluate(&Evidence {
        exits: Some(&exits),
        configuration: counts.configuration.as_ref(),
        ..Evidence::default()
    });
    GuestExits {
        seconds,
        vcpus: group.vcpus(),
        reasons,
        addresses,
        devices_from,
        timing: timing.to_owned(),
        lost: traced.lost,
        advice,
        counters: counts.counters.clone(),
        page_faults,
        timers: traced.timer_lines.clone(),
    }
}

/// vCPU index of a thread.
fn vcpu(traced: &TracedExits, tid: i32) -> Option<u32> {
    let thread = traced.threads.iter().find(|thread| thread.tid == tid)?;
    match thread.role {
        Role::Vcpu(number) => Some(number),
        _ => None,
    }
}

/// Mean time of an exit that KVM or QEMU handles; 0 where none was timed. A halt lasts until the next event, and a guest that
/// executes PAUSE waits anyway: fewer of these exits give no time back.
fn mean_ns(reasons: &[ExitReason]) -> f64 {
    let handled = reasons
        .iter()
        .filter(|reason| reason.activity == ExitActivity::Handled);
    let (ns, timed) = handled.fold((0.0, 0), |(ns, timed), reason| {
        (ns + reason.exits.total_ns, timed + reason.exits.timed)
    });
    if timed == 0 { 0.0 } else { ns / timed as f64 }
}

/// Reads, writes, and writes handled by QEMU.
fn by_direction(access: &Access, exits: &ExitCount) -> [u64; 3] {
    if access.write {
        [0, exits.count, exits.user.unwrap_or(0)]
    } else {
        [exits.count, 0, 0]
    }
}

/// Traced exits, and the threads that made them: first the vCPUs, by number.
struct Grouping<'a> {
    traced: &'a TracedExits,
    tids: Vec<i32>,
    seconds: f64,
}

impl Grouping<'_> {
    fn new(traced: &TracedExits, seconds: f64) -> Grouping<'_> {
        let mut tids: Vec<i32> = traced.rows.iter().map(|row| row.tid).collect();
        tids.sort_unstable();
        tids.dedup();
        tids.sort_by_key(|&tid| (vcpu(traced, tid).is_none(), vcpu(traced, tid), tid));
        Grouping {
            traced,
            tids,
            seconds,
        }
    }

    /// The exits by reason, the most frequent first.
    fn reasons(&self) -> Vec<ExitReason> {
        let sums = self.by(|row| Some(row.reason.clone())).into_iter();
        let mut reasons: Vec<ExitReason> = sums
            .map(|(reason, exits)| ExitReason::new(reason, exits))
            .collect();
        reasons.sort_by_key(|reason| Reverse(reason.exits.count));
        reasons
    }

    /// Page faults of the guest's memory: on AMD's CPUs accesses to devices have the same reason.
    fn page_faults(&self) -> Option<ExitCount> {
        let is_fault = |row: &ExitRow| {
            let is_named = PAGE_FAULTS
                .iter()
                .any(|name| row.reason.eq_ignore_ascii_case(name));
            is_named && row.access.is_none()
        };
        self.by(|row| is_fault(row).then_some(()))
            .into_values()
            .next()
    }

    /// The exits by address, the most frequent first, and those of each register that is known by direction.
    fn addresses(&self, devices: &Devices) -> (Vec<ExitAddress>, Vec<(Register, [u64; 3])>) {
        let (mut addresses, mut registers) = (Vec::new(), Vec::new());
        for (access, exits) in self.by(|row| row.access) {
            let (device, register) = devices.at(&access);
            registers.extend(register.map(|register| (register, by_direction(&access, &exits))));
            addresses.push(ExitAddress {
                space: access.space,
                address: access.address,
                write: access.write,
                device,
                register: register.map_or("", Register::label).to_owned(),
                exits,
            });
        }
        addresses.sort_by_key(|address| Reverse(address.exits.count));
        addresses.truncate(MAX_ADDRESSES);
        (addresses, registers)
    }

    /// The exits of each vCPU. A thread whose role is not known has its position as number.
    fn vcpus(&self) -> Vec<VcpuExits> {
        let numbered = self.tids.iter().zip(0..);
        numbered
            .map(|(&tid, n)| self.vcpu(tid, vcpu(self.traced, tid).unwrap_or(n)))
            .collect()
    }

    /// Sums of the rows with the same key.
    fn by<T: Ord>(&self, what: impl Fn(&ExitRow) -> Option<T>) -> BTreeMap<T, ExitCount> {
        let mut sums: BTreeMap<T, ExitCount> = BTreeMap::new();
        for row in &self.traced.rows {
            let Some(what) = what(row) else { continue };
            let sum = sums.entry(what).or_insert_with(|| ExitCount {
                by_vcpu: vec![0; self.tids.len()],
                ..ExitCount::default()
            });
            self.add(sum, row);
        }
        sums
    }

    fn add(&self, sum: &mut ExitCount, row: &ExitRow) {
        sum.count += row.count;
        sum.user = (!self.traced.user_unknown).then(|| sum.user.unwrap_or(0) + row.user);
        sum.timed += row.timed;
        sum.total_ns += self.ns(row.ticks);
        sum.per_s = sum.count as f64 / self.seconds.max(f64::EPSILON);
        sum.mean_ns = (sum.timed > 0).then(|| sum.total_ns / sum.timed as f64);
        if let Some(at) = self.tids.iter().position(|tid| *tid == row.tid) {
            sum.by_vcpu[at] += row.count;
        }
    }

    fn vcpu(&self, tid: i32, vcpu: u32) -> VcpuExits {
        let own = || self.traced.rows.iter().filter(|row| row.tid == tid);
        let count = own().map(|c| c.count).sum::<u64>();
        let total_ns = self.ns(own().map(|c| c.ticks).sum());
        let mut times = ExitTimes::default();
        own().for_each(|row| times.add(ExitActivity::from_reason(&row.reason), self.ns(row.ticks)));
        let ExitTimes {
            halted_ns,
            spinning_ns,
            ..
        } = times;
        let per_s = count as f64 / self.seconds.max(f64::EPSILON);
        let mut in_guest = self.traced.in_guest.iter();
        let in_guest = in_guest.find(|time| time.tid == tid);
        VcpuExits {
            vcpu,
            tid,
            count,
            per_s,
            total_ns,
            in_guest_ns: in_guest.map(|time| self.ns(time.ticks)),
            halted_ns,
            spinning_ns,
        }
    }

    fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * 1000.0 / self.traced.mhz
    }
}

/// VM exits of a vCPU, for one reason, at one address.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedExits {
    /// The vCPU; `None` where its thread's role is not known.
    pub vcpu: Option<u32>,
    /// As KVM names it.
    pub reason: String,
    /// Address that the guest accessed, and the kind of access; `None` for exits without an address.
    pub access: Option<Access>,
    /// The device at the address, empty where there is none or it is not known.
    pub device: String,
    /// Register of the device, empty where it is not known.
    pub register: String,
    /// Number of exits.
    pub count: u64,
    /// Of those, handed to user space; `None` where the trace does not say.
    pub user: Option<u64>,
    /// Of all, those whose time is known.
    pub timed: u64,
    /// Their time, ns.
    pub total_ns: f64,
}

/// The counts with names; none where KVM's tracepoints could not be read.
pub fn named(counts: &ExitCounts, devices: &Devices) -> Vec<NamedExits> {
    let Some(traced) = &counts.traced else {
        return Vec::new();
    };
    let row = |row: &ExitRow| {
        let (device, register) = row
            .access
            .as_ref()
            .map(|access| devices.at(access))
            .unwrap_or_default();
        NamedExits {
            vcpu: vcpu(traced, row.tid),
            reason: row.reason.clone(),
            access: row.access,
            device,
            register: register.map_or("", Register::label).to_owned(),
            count: row.count,
            user: (!traced.user_unknown).then_some(row.user),
            timed: row.timed,
            total_ns: row.ticks as f64 * 1000.0 / traced.mhz,
        }
    };
    traced.rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
