//! Cost of observing: 4 KiB reads in a guest, on KVM where `VMTAX_TEST_KVM_GUEST` names a kernel for it, else under
//! TCG, untraced and with each group of events, in turn.
//!
//! `sudo cargo run --release -p vmtax-observe --example observer -- ROUNDS READS AIO GROUP…`, where a group is
//! `none`, one of the guest's (`all`, `block+irq`), one of the host's (`host:all`, `host:calls`, `host:every-call`,
//! `host:sched+block`, `host:pop+push`), or both (`all,host:all`). `nice`, `chrt` and a quiet host help.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    dead_code,
    reason = "a bench fails by panicking"
)]

#[path = "../tests/guest/mod.rs"]
mod guest;

use guest::{Guest, first_process, number};
use std::collections::BTreeMap;
use vmtax_model::testing::KvmGuest;
use vmtax_model::{Accelerator, DiskBus, EventCost, EventKind, Role, Side};
use vmtax_observe::{HostDevice, ProbeSet, Tracer, event_costs, host_disk, uprobes};
use vmtax_vmm::{Vm, disk_probe_points};

fn main() {
    if std::process::id() == 1 {
        first_process();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, reads, aio, groups @ ..] = &words[..] else {
        panic!("ROUNDS READS AIO GROUP…")
    };
    let (rounds, reads): (u32, u64) = (rounds.parse().unwrap(), reads.parse().unwrap());
    let mut guest = Guest::start(aio, false, KvmGuest::given().as_ref()).unwrap();
    pin(&guest);
    guest.ask("none", reads);
    let mut times = BTreeMap::<&str, Vec<f64>>::new();
    for _ in 0..rounds {
        let mut order: Vec<&str> = groups.iter().map(String::as_str).collect();
        fastrand::shuffle(&mut order);
        for group in order {
            times
                .entry(group)
                .or_default()
                .push(one(&mut guest, group, reads));
        }
    }
    println!(
        "{rounds} rounds of {reads} reads, aio={aio}: medians of a read, us; over `none` in the same round"
    );
    for group in groups {
        let own = &times[group.as_str()];
        let over: Vec<f64> = own.iter().zip(&times["none"]).map(|(a, b)| a - b).collect();
        let ([_, time, _], [low, middle, high]) = (quartiles(own.clone()), quartiles(over));
        println!("{group:36} {time:7.1}   {middle:+6.1}   (quartiles {low:+6.1} .. {high:+6.1})");
    }
    println!(
        "events on the host, calibrated: median ns of the first since a thread slept, and of the next"
    );
    print_costs();
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|q| values[values.len() * q / 4])
}

/// Prints the costs of each kind of event on the host: quartiles of its first hit since a thread slept, and of the next.
fn print_costs() {
    let costs: Vec<EventCost> = (0..7)
        .flat_map(|_| event_costs(Side::Host).unwrap())
        .collect();
    for kind in EventKind::ALL {
        let costs_of_kind = |ns: fn(&EventCost) -> f64| {
            costs
                .iter()
                .filter(|c| c.kind == kind)
                .map(ns)
                .collect::<Vec<f64>>()
        };
        if costs.iter().any(|cost| cost.kind == kind) {
            let [first, again] = [
                quartiles(costs_of_kind(|c| c.first_ns)),
                quartiles(costs_of_kind(|c| c.again_ns)),
            ];
            println!("{:36} {first:7.0?}   {again:7.0?}", kind.label());
        }
    }
}

/// One round's median time of a read, us.
fn one(guest: &mut Guest, group: &str, reads: u64) -> f64 {
    let part = |host: bool| {
        group
            .split(',')
            .find(|part| part.starts_with("host:") == host)
    };
    let on_host = part(true).map(|part| &part["host:".len()..]);
    // Every batch begins alike, whatever is traced in it: after a change of the guest's kernel, and warm.
    guest.ask("all", 10);
    let tracer = on_host.map(|name| Tracer::start(&host_set(guest, name), 16 << 10).unwrap());
    let in_guest = part(false).unwrap_or("none");
    guest.ask(in_guest, 100);
    tracer.iter().for_each(|tracer| tracer.on().unwrap());
    number(&guest.ask(in_guest, reads), "ns") as f64 / 1e3
}

fn host_set(guest: &Guest, name: &str) -> ProbeSet {
    let vm = Vm::attach(guest.process());
    let is_kvm = vm.accelerator() == Some(Accelerator::Kvm);
    let tids: Vec<i32> = vm.threads().iter().map(|t| t.tid).collect();
    let (probes, missing) = uprobes(disk_probe_points(DiskBus::VirtioBlk), &guest.binary());
    let disk = host_disk(&guest.disk()).unwrap();
    let mut set = ProbeSet::host(
        vmtax_model::DISK,
        &tids,
        HostDevice::Blocks(&[&disk]),
        is_kvm,
        probes,
        missing,
    );
    match name {
        "all" => set,
        "every-call" => ProbeSet::calls(&tids),
        some => {
            let wanted = |name: &str| some.split('+').any(|word| word == name);
            set.bound.retain(|event| wanted(event.system));
            set.free.retain(|event| wanted(event.system));
            set.calls.retain(|_| wanted("calls"));
            set.uprobes
                .retain(|probe| wanted(probe.event) || wanted("uprobes"));
            set
        }
    }
}

/// A CPU for the guest, another for the rest of QEMU: times differ by a third with where they happen to be.
fn pin(guest: &Guest) {
    for thread in Vm::attach(guest.process()).threads() {
        let mut cpu = rustix::thread::CpuSet::new();
        cpu.set(usize::from(matches!(thread.role, Role::Vcpu(_))));
        let _ = rustix::thread::sched_setaffinity(rustix::thread::Pid::from_raw(thread.tid), &cpu);
    }
}
