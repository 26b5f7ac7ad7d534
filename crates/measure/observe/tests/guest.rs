//! A tracer in a guest, whose first process this very program is, and one over the QEMU that runs it.
//!
//! Needs root, tracefs, QEMU and a guest kernel; without, it says so and passes.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

#[path = "guest/mod.rs"]
mod guest;

use guest::{Guest, first_process, number};
use std::collections::BTreeMap;
use std::fs;
use vmtax_model::testing::{listed, skipped};
use vmtax_model::{DiskBus, Role};
use vmtax_observe::{HostDevice, ProbeSet, Tracer, host_disk, tracefs, uprobes};
use vmtax_vmm::{Vm, disk_probe_points};

const READS: u64 = 300;

fn main() {
    if std::process::id() == 1 {
        first_process();
    }
    if listed("points_fire_once_a_request") {
        return;
    }
    if let Err(why) = tracefs() {
        return skipped(&format!("needs root and tracefs: {why}"));
    }
    for (aio, iothread) in [
        ("threads", false),
        ("native", false),
        ("io_uring", false),
        ("native", true),
    ] {
        let Some(mut guest) = Guest::start(aio, iothread, None) else {
            return;
        };
        // Of how QEMU does its I/O the guest knows nothing.
        if aio == "threads" {
            guests_own_set(&mut guest);
        }
        every_point_once_a_request(&mut guest, aio, iothread);
        println!("aio={aio}, iothread {iothread}: every point fires once a request");
    }
}

/// The guest has every event, none is lost, and it leaves nothing.
fn guests_own_set(guest: &mut Guest) {
    let said = guest.ask("all", READS);
    for name in ["missing", "left", "lost"] {
        assert_eq!(number(&said, name), 0, "{said}");
    }
    // Issue, complete, notify, interrupt, enter, exit of each request; and the scheduler's.
    assert!(number(&said, "events") >= 7 * READS, "{said}");
    for format in [
        "block_rq_issue",
        "notify",
        "irq_handler_entry",
        "sys_enter",
        "sched_switch",
    ] {
        assert_eq!(
            number(&said, format),
            1,
            "{format} has no description: {said}"
        );
    }
    let some = guest.ask("block+irq+notify", READS);
    // An interrupt may serve more than one request.
    let events = number(&some, "events");
    assert!(
        (3 * READS + READS / 2..4 * READS + READS / 2).contains(&events),
        "{some}"
    );
}

fn every_point_once_a_request(guest: &mut Guest, aio: &str, iothread: bool) {
    let found = Vm::attach(guest.process()).threads();
    assert!(found.iter().any(|t| t.role == Role::Vcpu(0)), "{found:?}");
    assert_eq!(
        found.iter().any(|t| t.role == Role::Iothread("io0".into())),
        iothread,
        "{found:?}"
    );
    let tids: Vec<i32> = found.iter().map(|t| t.tid).collect();
    let disk = host_disk(&guest.disk()).unwrap();
    let (probes, missing) = uprobes(disk_probe_points(DiskBus::VirtioBlk), &guest.binary());
    let set = ProbeSet::host(
        vmtax_model::DISK,
        &tids,
        HostDevice::Blocks(&[&disk]),
        false,
        probes,
        missing,
    );
    let tracer = Tracer::start(&set, 16 << 10).unwrap();
    assert_eq!(tracer.missing(), []);
    tracer.on().unwrap();
    guest.ask("none", READS);
    tracer.off().unwrap();
    let hits = hits();
    let hit = |name: &str| hits.get(name).copied().unwrap_or(0);
    for name in ["pop", "submit", "push", "notify", "inject"] {
        assert_eq!(
            hit(name),
            READS,
            "{name} under aio={aio}, iothread {iothread}: {hits:?}"
        );
    }
    if disk.device.is_some() {
        assert!(
            hit("block_rq_issue") >= READS && hit("block_rq_complete") >= READS,
            "{hits:?}"
        );
    }
    assert!(hit("sched_switch") > READS, "{hits:?}");
    let submits = match aio {
        "native" => hit("sys_io_submit"),
        "io_uring" => hit("sys_io_uring_enter"),
        _ => hit("sys_preadv") + hit("sys_pread64"),
    };
    assert!(submits >= READS, "under aio={aio}: {hits:?}");
    let waits = ["sys_ppoll", "sys_epoll_wait", "sys_io_uring_enter"];
    assert!(
        waits
            .iter()
            .map(|call| hit(&format!("{call} returns")))
            .sum::<u64>()
            > READS,
        "{hits:?}"
    );
}

/// Events in the instances of this process, by name: as the kernel itself prints them.
fn hits() -> BTreeMap<String, u64> {
    let mut hits = BTreeMap::new();
    let ours = format!("vmtax-{}-", std::process::id());
    for entry in fs::read_dir(tracefs().unwrap().join("instances"))
        .unwrap()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&ours) {
            let text = fs::read(entry.path().join("trace")).unwrap();
            for line in String::from_utf8_lossy(&text)
                .lines()
                .filter(|line| !line.starts_with('#'))
            {
                // TASK-PID [CPU] FLAGS TICKS: NAME: …, or of a system call NAME(… and NAME -> …
                if let Some(text) = line.split(": ").nth(1) {
                    let name = text.trim().split(['(', ' ']).next().unwrap_or_default();
                    let returns = if text.contains(" -> ") {
                        " returns"
                    } else {
                        ""
                    };
                    *hits.entry(format!("{name}{returns}")).or_default() += 1;
                }
            }
        }
    }
    hits
}
