//! Findings from the VM exits of a guest of KVM: by reason, by address and device, by vCPU.

mod devices;
mod named;
#[cfg(test)]
mod tests;

pub use devices::Devices;
pub use named::{NamedExits, named};

use std::collections::BTreeMap;
use vmtax_model::samples::{Access, ExitCounts, ExitRow, TracedExits};
use vmtax_model::{
    Advice, ExitActivity, ExitAddress, ExitCount, ExitReason, ExitTimes, GuestExits, Role,
    VcpuExits,
};
use vmtax_rules::{Evidence, Exits, MAX_TICK_HZ, Register};

/// Addresses reported at most.
const MAX_ADDRESSES: usize = 100;
const TIMED_BY_EXITS: &str = "Time of an exit: from kvm_exit to the next kvm_entry.";
const TIMED_BY_ACCESSES: &str = "Time of an exit: from its tracepoint (kvm_mmio, kvm_pio, kvm_msr) until the vCPU thread calls KVM_RUN again. This KVM has no tracepoints kvm_exit and kvm_entry, so the time of exits that it handles itself is unknown.";

pub fn summary(counts: &ExitCounts, devices: &Devices) -> GuestExits {
    let ExitCounts {
        seconds,
        counters,
        traced,
        apic,
        ..
    } = counts;
    let (seconds, counters, apic) = (*seconds, counters.clone(), *apic);
    let Some(traced) = traced else {
        // Only KVM's counters are available.
        let none = Exits {
            seconds,
            vcpus: 1,
            mean_ns: 0.0,
            registers: &[],
            tick: None,
            counters: &counters,
            apic,
        };
        let advice = advice(&none);
        return GuestExits {
            seconds,
            vcpus: Vec::new(),
            reasons: Vec::new(),
            addresses: Vec::new(),
            devices_from: Devices::usual().from,
            timing: String::new(),
            lost: 0,
            advice,
            counters,
        };
    };
    let mut tids: Vec<i32> = traced.rows.iter().map(|row| row.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    tids.sort_by_key(|&tid| (vcpu(traced, tid).is_none(), vcpu(traced, tid), tid));
    let group = Grouping {
        traced,
        tids: &tids,
        seconds,
    };
    let mut reasons: Vec<ExitReason> = (group.by(|row| Some(row.reason.clone())).into_iter())
        .map(|(reason, exits)| ExitReason::new(reason, exits))
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.exits.count));
    let mut registers = Vec::new();
    let mut addresses: Vec<ExitAddress> = group
        .by(|row| row.access)
        .into_iter()
        .map(|(access, exits)| {
            let (device, register) = devices.at(&access);
            registers.extend(register.map(|register| (register, by_direction(&access, &exits))));
            let register = register.map_or("", Register::label).to_owned();
            let Access {
                space,
                address,
                write,
            } = access;
            ExitAddress {
                space,
                address,
                write,
                device,
                register,
                exits,
            }
        })
        .collect();
    addresses.sort_by_key(|address| std::cmp::Reverse(address.exits.count));
    addresses.truncate(MAX_ADDRESSES);
    let rates = traced.regular.iter().copied();
    let tick = rates
        .filter(|(_, hz)| *hz < MAX_TICK_HZ)
        .max_by(|a, b| a.0.cmp(&b.0));
    let mean_ns = mean_ns(&reasons);
    let advice = advice(&Exits {
        seconds,
        vcpus: tids.len(),
        mean_ns,
        registers: &registers,
        tick,
        counters: &counters,
        apic,
    });
    GuestExits {
        seconds,
        vcpus: tids
            .iter()
            .zip(0..)
            .map(|(&tid, n)| group.vcpu(tid, vcpu(traced, tid).unwrap_or(n)))
            .collect(),
        reasons,
        addresses,
        devices_from: devices.from,
        timing: if traced.brackets {
            TIMED_BY_EXITS
        } else {
            TIMED_BY_ACCESSES
        }
        .to_owned(),
        lost: traced.lost,
        advice,
        counters,
    }
}

/// vCPU index of a thread.
fn vcpu(traced: &TracedExits, tid: i32) -> Option<u32> {
    traced
        .threads
        .iter()
        .find(|thread| thread.tid == tid)
        .and_then(|thread| match thread.role {
            Role::Vcpu(number) => Some(number),
            _ => None,
        })
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

/// Known costs that the exits show, the one that takes most time first.
fn advice(exits: &Exits<'_>) -> Vec<Advice> {
    vmtax_rules::evaluate(&Evidence {
        exits: Some(exits),
        ..Evidence::default()
    })
}

/// Reads, writes, and writes handled by QEMU.
fn by_direction(access: &Access, exits: &ExitCount) -> [u64; 3] {
    if access.write {
        [0, exits.count, exits.user.unwrap_or(0)]
    } else {
        [exits.count, 0, 0]
    }
}

struct Grouping<'a> {
    traced: &'a TracedExits,
    tids: &'a [i32],
    seconds: f64,
}

impl Grouping<'_> {
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
        VcpuExits {
            vcpu,
            tid,
            count,
            per_s,
            total_ns,
            halted_ns,
            spinning_ns,
        }
    }

    fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * 1000.0 / self.traced.mhz
    }
}
