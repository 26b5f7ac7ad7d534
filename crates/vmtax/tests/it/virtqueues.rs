//! Virtqueues that are read from a VM's memory alone are those of which QEMU's monitor tells.

use crate::common::boot_guest::{BootGuest, ask, random_requests, unhurried_reads};
use crate::common::{Place, Signal, json as parsed, shared_folder, until};
use crate::kvm_guest::kvm;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use vmtax_model::testing::KvmGuest;
use vmtax_vmm::ring::{Format, Operation, Virtqueue, Virtqueues};

/// The first queue of each disk on virtio-blk, as QEMU has it, with the path of the disk.
fn queues_of_qemu(socket: &Path) -> Vec<(String, Value)> {
    let all = ask(socket, &json!({ "execute": "x-query-virtio" }));
    let disks = all.as_array().unwrap().iter();
    let disks = disks.filter(|device| device["name"] == "virtio-blk");
    disks
        .map(|disk| disk["path"].as_str().unwrap().to_owned())
        .map(|path| {
            let arguments = json!({ "path": path, "queue": 0 });
            let command =
                json!({ "execute": "x-query-virtio-queue-status", "arguments": arguments });
            let queue = ask(socket, &command);
            (path, queue)
        })
        .collect()
}

fn areas(queue: &Value) -> [u64; 3] {
    ["vring-desc", "vring-avail", "vring-used"].map(|area| queue[area].as_u64().unwrap())
}

/// The queue that is at the place of one of QEMU's, as soon as it is confirmed, with that.
fn confirmed(pid: i32, socket: &Path) -> (Virtqueue, String, Value) {
    until("a queue is confirmed", || {
        let found = Virtqueues::find(pid).unwrap();
        let truths = queues_of_qemu(socket);
        let found = found.confirmed();
        found.into_iter().find_map(|queue| {
            let truth = truths.iter().find(|(_, truth)| areas(truth) == queue.areas);
            truth.map(|(path, truth)| (queue, path.clone(), truth.clone()))
        })
    })
}

#[test]
#[ignore = "needs root"]
fn the_queue_of_a_firmware_is_that_of_qemu() {
    let place = Place::new();
    let sector = random_requests(false, &[0x80], 8, 14);
    let vm = BootGuest::start(&place, "firmware", "tcg", &sector, "", "");
    vm.ask("cont");
    let (pid, socket) = (vm.pid() as i32, place.path("firmware.test"));
    let (queue, ..) = confirmed(pid, &socket);
    vm.ask("stop");
    let mut found = Virtqueues::find(pid).unwrap();
    found.sample();
    let found = found.confirmed();
    let [stopped] = &found[..] else {
        panic!("{found:?}")
    };
    let (_, truth) = &queues_of_qemu(&socket)[0];
    assert_eq!(stopped.areas, queue.areas);
    assert_eq!(truth["vring-num"], stopped.size);
    assert_eq!(truth["used-idx"], stopped.used);
    // What the guest's CPU had just asked for is not taken.
    let not_taken = stopped.available - truth["last-avail-idx"].as_u64().unwrap() as u32;
    assert_eq!(stopped.in_flight, not_taken);
}

/// The machine of a test, with its requests of a disk: those in flight are known by QEMU's own count.
fn compare_in_linux(guest: &KvmGuest, options: &str, format: Format) {
    let place = Place::new();
    // QEMU runs as a user without rights.
    let folder = shared_folder();
    let socket = folder.path().join("qmp");
    let words = format!(
        "--machine kvm --rounds 1 disk rw=randread iodepth=8 --duration 60s {options} \
         --qemu-arg=-qmp --qemu-arg=unix:{},server=on,wait=off",
        socket.display()
    );
    let running = kvm(&place, guest, "run", &words).start(150);
    until("its monitor is there", || socket.exists().then_some(()));
    let pid = until("it runs", || place.vm()) as i32;
    let (queue, path, truth) = confirmed(pid, &socket);
    assert_eq!(queue.format, format, "{queue:?}");
    assert_eq!(truth["vring-num"], queue.size);
    // Each request waits for 8 s, and all the guest's are in flight.
    let slow = json!({ "execute": "block_set_io_throttle", "arguments": {
        "id": path, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 1, "iops_rd": 0, "iops_wr": 0, "iops_size": 512,
    }});
    ask(&socket, &slow);
    let (queue, truth) = until("nothing is completed", || {
        let mut found = Virtqueues::find(pid).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        found.sample();
        let mut stalled = found.confirmed().into_iter().filter(|queue| {
            let second = Duration::from_secs(1);
            queue.stall.is_some_and(|(time, _)| time > second)
        });
        let stalled = stalled.find(|other| other.areas == queue.areas)?;
        let truth = queues_of_qemu(&socket).into_iter();
        let mut truth = truth.filter(|(_, truth)| areas(truth) == queue.areas);
        let truth = truth.next()?.1;
        let is_same = format == Format::Packed || truth["used-idx"] == stalled.used;
        is_same.then_some((stalled, truth))
    });
    assert_eq!(truth["inuse"], queue.in_flight, "{queue:?}");
    assert_eq!(
        (queue.in_flight, queue.since_empty),
        (8, Some(0)),
        "{queue:?}"
    );
    assert_eq!(queue.stall.unwrap().1, 8);
    assert!(queue.is_disk, "{queue:?}");
    // A slot of a packed queue may be a later request's than the one in flight.
    let known = if format == Format::Split { 8 } else { 0 };
    let requests = queue.requests.unwrap_or_default();
    assert_eq!(requests.len(), known);
    for request in requests {
        let is_of_test = request.operation == Operation::Read
            && request.bytes == 4096
            && request.sector % 8 == 0;
        assert!(is_of_test, "{request:?}");
    }
    running.signal(Signal::INT);
    running.outcome();
}

#[test]
#[ignore = "needs root"]
fn requests_in_flight_in_a_split_queue_are_those_of_qemu() {
    if let Some(guest) = KvmGuest::given() {
        compare_in_linux(&guest, "", Format::Split);
    }
}

#[test]
#[ignore = "needs root"]
fn requests_in_flight_in_a_packed_queue_are_those_of_qemu() {
    if let Some(guest) = KvmGuest::given() {
        let packed = "--qemu-arg=-global --qemu-arg=virtio-blk-pci.packed=on";
        compare_in_linux(&guest, packed, Format::Packed);
    }
}

/// The sentence that the diagnosis of a VM has about requests that stay.
fn stalled(place: &Place, pid: i32, out: &str) -> Option<String> {
    let words = format!("diagnose {pid} --level 1 --duration 4s --json --output {out}");
    let report = parsed(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
    let causes = report["findings"]["causes"].as_array().unwrap().clone();
    let mut causes = causes.iter();
    let cause = causes.find(|cause| cause["rule"] == "vm-stalled-requests")?;
    let text = cause["finding"].as_str().unwrap();
    Some(text.replace('\u{a0}', " "))
}

#[test]
#[ignore = "needs root"]
fn a_disk_that_completes_nothing_is_found_and_one_that_works_is_not() {
    let place = Place::new();
    let sector = unhurried_reads(&[0x80], 14);
    let vm = BootGuest::start(&place, "stalled", "tcg", &sector, "", "");
    vm.ask("cont");
    let (pid, socket) = (vm.pid() as i32, place.path("stalled.test"));
    let (_, path, _) = confirmed(pid, &socket);
    assert_eq!(stalled(&place, pid, "healthy"), None);
    // 4 KiB take 40 s.
    let limit = |bps: u32| {
        let arguments = json!({
            "id": path, "bps": bps, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0,
        });
        ask(
            &socket,
            &json!({ "execute": "block_set_io_throttle", "arguments": arguments }),
        );
    };
    limit(100);
    std::thread::sleep(Duration::from_secs(1));
    let found = stalled(&place, pid, "stalled").unwrap();
    // The firmware does not use the event index, so nothing shows whether QEMU has taken it.
    let expected = "1 request (1 read) of the guest lies in the queue of disk0 for ";
    assert!(found.starts_with(expected), "{found}");
    let report = place.vmtax("report stalled").succeeds();
    report.shows("the queue of disk0");
    limit(0);
    assert_eq!(stalled(&place, pid, "again"), None);
}
