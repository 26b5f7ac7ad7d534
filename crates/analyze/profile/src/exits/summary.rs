//! Counts as what a report shows.

use super::count::{Count, Key, Reason};
use super::devices::{Devices, Register};
use super::event::Access;
use super::findings::{self, findings};
use super::{Names, Seen};
use std::collections::BTreeMap;
use std::time::Duration;
use vmtax_model::{AddressSpace, ExitAddress, ExitCount, ExitReason, GuestExits, VcpuExits};

/// More addresses than this no table needs.
const MOST: usize = 100;
const TOLD: &str = "From KVM's exit to its next entry.";
const UNTOLD: &str = "From KVM's event of an access until QEMU's thread is back in KVM: this KVM tells of no exits and \
                      entries, and those that it serves itself have no time.";

/// What the exits of a guest say, with its devices and by how much KVM's own counters grew.
pub fn summary(seen: &Seen, devices: &Devices, counters: BTreeMap<String, u64>) -> GuestExits {
    let seconds = seen.time.as_secs_f64();
    let counts = &seen.counts;
    let mut tids: Vec<i32> = counts.counts.keys().map(|key| key.tid).collect();
    tids.dedup();
    tids.sort_by_key(|&tid| (seen.vcpu(tid).is_none(), seen.vcpu(tid), tid));
    let group = Grouping { seen, tids: &tids, seconds };
    let mut reasons: Vec<ExitReason> = group
        .by(|key| Some(key.reason))
        .into_iter()
        .map(|(reason, exits)| ExitReason { reason: seen.names.reason(reason), exits })
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.exits.count));
    let mut registers = Vec::new();
    let mut addresses: Vec<ExitAddress> = group
        .by(|key| key.access)
        .into_iter()
        .map(|(access, exits)| {
            let (device, register) = devices.at(&access);
            registers.extend(register.map(|register| (register, by_direction(&access, &exits))));
            let register = register.map_or("", Register::label).to_owned();
            let Access { space, address, write } = access;
            ExitAddress { space, address, write, device, register, exits }
        })
        .collect();
    addresses.sort_by_key(|address| std::cmp::Reverse(address.exits.count));
    addresses.truncate(MOST);
    let rates = counts.interrupts.values().filter_map(|ticks| ticks.rate(seen.mhz));
    let tick = rates.filter(|(_, hz)| *hz < findings::NO_TIMER_HZ).max_by(|a, b| a.0.cmp(&b.0));
    let known = findings::Seen { seconds, vcpus: tids.len(), registers: &registers, tick, counters: &counters };
    GuestExits {
        seconds,
        vcpus: tids.iter().zip(0..).map(|(&tid, n)| group.vcpu(tid, seen.vcpu(tid).unwrap_or(n))).collect(),
        reasons,
        addresses,
        devices_from: devices.from,
        timing: if counts.told() { TOLD } else { UNTOLD }.to_owned(),
        lost: seen.lost,
        findings: findings(&known),
        counters,
    }
}

/// The same where only the counters could be had.
pub fn counters_alone(time: Duration, counters: BTreeMap<String, u64>) -> GuestExits {
    let seconds = time.as_secs_f64();
    let known = findings::Seen { seconds, vcpus: 1, registers: &[], tick: None, counters: &counters };
    GuestExits {
        seconds,
        vcpus: Vec::new(),
        reasons: Vec::new(),
        addresses: Vec::new(),
        devices_from: Devices::usual().from,
        timing: String::new(),
        lost: 0,
        findings: findings(&known),
        counters,
    }
}

/// Reads, writes, and writes that QEMU took.
fn by_direction(access: &Access, exits: &ExitCount) -> [u64; 3] {
    if access.write { [0, exits.count, exits.user] } else { [exits.count, 0, 0] }
}

struct Grouping<'a> {
    seen: &'a Seen,
    tids: &'a [i32],
    seconds: f64,
}

impl Grouping<'_> {
    /// Sums over all that `what` calls the same.
    fn by<T: Ord>(&self, what: impl Fn(&Key) -> Option<T>) -> BTreeMap<T, ExitCount> {
        let mut sums: BTreeMap<T, ExitCount> = BTreeMap::new();
        for (key, count) in &self.seen.counts.counts {
            let Some(what) = what(key) else { continue };
            let sum = sums
                .entry(what)
                .or_insert_with(|| ExitCount { by_vcpu: vec![0; self.tids.len()], ..ExitCount::default() });
            self.add(sum, key, count);
        }
        sums
    }

    fn add(&self, sum: &mut ExitCount, key: &Key, count: &Count) {
        sum.count += count.count;
        sum.user += count.user;
        sum.timed += count.timed;
        sum.total_ns += self.ns(count.ticks);
        sum.per_s = sum.count as f64 / self.seconds.max(f64::EPSILON);
        sum.mean_ns = (sum.timed > 0).then(|| sum.total_ns / sum.timed as f64);
        if let Some(at) = self.tids.iter().position(|tid| *tid == key.tid) {
            sum.by_vcpu[at] += count.count;
        }
    }

    fn vcpu(&self, tid: i32, vcpu: u32) -> VcpuExits {
        let own = || self.seen.counts.counts.iter().filter(|(key, _)| key.tid == tid).map(|(_, count)| count);
        let count = own().map(|c| c.count).sum::<u64>();
        let total_ns = self.ns(own().map(|c| c.ticks).sum());
        VcpuExits { vcpu, tid, count, per_s: count as f64 / self.seconds.max(f64::EPSILON), total_ns }
    }

    fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * 1000.0 / self.seen.mhz
    }
}

impl Names {
    /// A reason as KVM names it.
    fn reason(&self, reason: Reason) -> String {
        match reason {
            Reason::Processor { isa, number } => {
                // 1 is VMX, 2 SVM; a KVM that is of one kind alone has one table.
                let table = self.reasons.get(if isa == 2 { 1 } else { 0 }).or(self.reasons.first());
                let named = table.and_then(|table| table.get(&number).or_else(|| table.get(&(number & 0xffff))));
                named.cloned().unwrap_or_else(|| format!("reason {number:#x}"))
            }
            Reason::Access(AddressSpace::Port) => "port I/O".to_owned(),
            Reason::Access(AddressSpace::Memory) => "MMIO".to_owned(),
            Reason::Access(AddressSpace::Msr) => "MSR".to_owned(),
            Reason::User(None) => "a signal to QEMU".to_owned(),
            Reason::User(Some(number)) => {
                let named = self.user.first().and_then(|table| table.get(&number));
                named.cloned().unwrap_or_else(|| format!("KVM_EXIT {number}"))
            }
        }
    }
}

#[cfg(test)]
impl Names {
    pub(super) fn of(kvm_exit: &str, kvm_userspace_exit: &str) -> Names {
        Names { reasons: vmtax_trace::symbols(kvm_exit), user: vmtax_trace::symbols(kvm_userspace_exit) }
    }
}

#[cfg(test)]
impl Seen {
    pub(super) fn of(counts: super::count::Counts, names: Names, time: Duration) -> Seen {
        Seen { counts, names, threads: Vec::new(), time, mhz: 1000.0, lost: 0 }
    }
}
