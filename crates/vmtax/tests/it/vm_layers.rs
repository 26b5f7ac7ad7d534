//! The requests of VMs that others started, followed from the host alone: what was planted shows in its layer, and the VM is as
//! before.

use crate::common::boot_guest::{BootGuest, random_requests, reading};
use crate::common::traces_of;
use crate::common::{Place, Running, Signal, files_below, json};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// Any start here is over then, also on a busy host.
const LIMIT: Duration = Duration::from_secs(60);
const READS: [u16; 2] = [300, 40];
/// QEMU's null driver answers so late, ns.
const NULL: &str = "-drive if=none,id=d1,format=raw,file.driver=null-co,file.size=64M,file.read-zeroes=on,file.latency-ns=100000000 -device virtio-blk-pci,drive=d1,id=disk1";

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `layers --vm` of a VM, when it traces; its recording is in `out`.
fn traces<'a>(place: &'a Place, vm: &BootGuest, out: &str, more: &str) -> Running<'a> {
    let words = format!("layers --vm {} --output {out} --json {more}", vm.pid());
    let running = place.vmtax(&words).start(120);
    // Pages are read from the kernel only when it records.
    let is_page =
        |path: &std::path::PathBuf| path.to_string_lossy().contains("host-trace/bound.cpu");
    until("it traces", || {
        files_below(&place.path(out)).iter().any(is_page)
    });
    running
}

fn reads_of<'a>(report: &'a Value, disk: &str) -> (&'a Value, &'a Value) {
    let all = report["findings"]["requests"].as_array().unwrap();
    let at = all
        .iter()
        .position(|r| r["disk"] == disk && r["kind"] == "read");
    let at = at.unwrap_or_else(|| panic!("no reads of {disk}: {:#}", report["findings"]));
    (&all[at], &report["findings"]["layers"]["columns"][at])
}

/// The percent of a request's time that rows have.
fn percent(column: &Value, is: impl Fn(&Value) -> bool) -> f64 {
    let rows = column["rows"].as_array().unwrap().iter();
    rows.filter(|row| is(row))
        .map(|row| row["percent"].as_f64().unwrap())
        .sum()
}

/// Nearly all the time for which a request sleeps lies right behind QEMU's submission: however long it waits for CPUs of a busy
/// host elsewhere.
fn assert_waits_behind_submission(column: &Value) {
    let all = percent(column, |row| row["state"] == "waiting");
    let behind = percent(column, |row| {
        row["state"] == "waiting" && row["from"] == "qemu-submit"
    });
    assert!(
        behind > 0.9 * all && behind > 1.0,
        "{behind} of {all}: {:#}",
        column["rows"]
    );
}

#[test]
#[ignore = "needs root"]
fn each_request_of_a_running_vm_is_followed_and_counted_by_its_disk() {
    let place = Place::new();
    let vm = BootGuest::start(
        &place,
        "counted",
        "tcg",
        &reading(READS),
        ",cache=none,aio=threads",
        NULL,
    );
    let tracing = traces(&place, &vm, "out", "--duration 600");
    vm.ask("cont");
    until("the guest reads", || {
        vm.reads_done("disk1") >= u64::from(READS[1])
    });
    std::thread::sleep(Duration::from_millis(300));
    // Ctrl-C ends it with what there is.
    tracing.signal(Signal::INT);
    let report = json(&tracing.outcome().exits(0).stdout);
    let findings = &report["findings"];
    assert_eq!(
        (&findings["ended"], &findings["vm"]["name"]),
        (&false.into(), &"counted".into())
    );
    for (disk, reads) in ["disk0", "disk1"].into_iter().zip(READS) {
        let (requests, column) = reads_of(&report, disk);
        // The firmware reads, too.
        let done = vm.reads_done(disk);
        assert!(done >= u64::from(reads));
        assert_eq!(
            requests["requests"], done,
            "{disk}: {:#}",
            column["matched"]
        );
        assert_eq!(column["matched"]["lost_events"], 0);
        let followed = requests["followed"].as_u64().unwrap();
        assert!(
            followed as f64 >= 0.99 * done as f64,
            "{disk}: {:#}",
            column["matched"]
        );
        assert_eq!(requests["thread"], "main loop", "{requests:#}");
        let explained = percent(column, |_| true);
        assert!((99.9..100.1).contains(&explained), "{explained}");
    }
    let (requests, _) = reads_of(&report, "disk0");
    assert_eq!(requests["file"].as_str(), vm.file.to_str());
    let (requests, slow) = reads_of(&report, "disk1");
    assert!(requests["davg"].is_null(), "{requests:#}");
    // QEMU makes it wait between submission and push.
    assert_waits_behind_submission(slow);
    assert!(
        slow["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["layer"] != "host-kernel"),
        "{:#}",
        slow["rows"]
    );
    assert!(
        slow["missing"].to_string().contains("null driver"),
        "{:#}",
        slow["missing"]
    );

    let again = place.vmtax("report out").succeeds().stdout;
    assert!(
        again.contains("GAVG") && again.contains("disk0, reads") && again.contains("counted"),
        "{again}"
    );
    place
        .vmtax("export out --parquet requests.parquet --perfetto trace.pftrace")
        .succeeds();
    // The guest has halted.
    let idle = place
        .vmtax(&format!(
            "layers --vm {} --duration 1 --output idle",
            vm.pid()
        ))
        .succeeds();
    idle.shows("No requests of counted in");
}

#[test]
#[ignore = "needs root"]
fn each_request_of_disks_without_virtqueues_is_followed_and_counted() {
    let place = Place::new();
    let controllers = "-device ahci,id=sata -device lsi53c895a,id=lsi -device qemu-xhci,id=xhci";
    // By the number that the firmware gives them: the order of their boot indices.
    let disks = [
        ("sata0", "ide-hd,bus=sata.0", ",throttling.iops-read=20"),
        ("ide0", "ide-hd,bus=ide.0", ""),
        ("nvme0", "nvme,serial=1", ""),
        ("scsi0", "scsi-hd,bus=lsi.0", ""),
        ("usb0", "usb-storage,bus=xhci.0", ""),
    ];
    let arguments = disks.iter().zip(1..).map(|((id, device, options), number)| {
        let file = place.put(&format!("{id}.raw"), vec![7; 16 << 20]);
        fs::File::open(&file).unwrap().sync_all().unwrap(); // its bytes have places on the device
        format!(
            "-drive if=none,id={id}-d,format=raw,cache=none,aio=threads,file={}{options} -device {device},drive={id}-d,id={id},bootindex={number}",
            file.display()
        )
    });
    let arguments = format!("{controllers} {}", arguments.collect::<Vec<_>>().join(" "));
    let sector = random_requests(false, &[0x81, 0x82, 0x83, 0x84, 0x85], 8, 14);
    let vm = BootGuest::start(&place, "buses", "tcg", &sector, "", &arguments);
    let tracing = traces(&place, &vm, "out", "--duration 600");
    vm.ask("cont");
    until("the guest reads", || {
        disks.iter().all(|(id, ..)| vm.reads_done(id) >= 40)
    });
    // Nothing is in flight then.
    vm.ask("stop");
    std::thread::sleep(Duration::from_millis(300));
    tracing.signal(Signal::INT);
    let report = json(&tracing.outcome().exits(0).stdout);
    for (disk, _, options) in disks {
        let (requests, column) = reads_of(&report, disk);
        let done = vm.reads_done(disk);
        assert_eq!(
            requests["requests"], done,
            "{disk}: {:#}",
            column["matched"]
        );
        assert_eq!(column["matched"]["lost_events"], 0);
        assert!(
            requests["followed"].as_f64().unwrap() >= 0.99 * done as f64,
            "{disk}: {:#}",
            column["matched"]
        );
        let explained = percent(column, |_| true);
        assert!((99.9..100.1).contains(&explained), "{explained}");
        for to in ["qemu-submit", "host-call", "qemu-reap", "qemu-push"] {
            assert!(
                percent(column, |row| row["to"] == to) > 0.0,
                "{disk}, {to}: {:#}",
                column["rows"]
            );
        }
        if !options.is_empty() {
            assert_waits_behind_submission(column);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_throttled_disk_shows_where_it_waits() {
    let place = Place::new();
    let options = ",cache=none,aio=threads,throttling.iops-read=4";
    let vm = BootGuest::start(&place, "throttled", "tcg", &reading([25, 0]), options, "");
    let tracing = traces(&place, &vm, "out", "--duration 600");
    vm.ask("cont");
    until("the guest reads", || vm.reads_done("disk0") >= 25);
    tracing.signal(Signal::INT);
    let report = json(&tracing.outcome().exits(0).stdout);
    let (requests, column) = reads_of(&report, "disk0");
    // A throttle group delays between QEMU's submission and the host's system call.
    assert_waits_behind_submission(column);
    let mean = |of: &Value| of["mean_ns"].as_f64().unwrap();
    if !requests["davg"].is_null() {
        assert!(
            mean(&requests["kavg"]) > mean(&requests["davg"]),
            "{requests:#}"
        );
        let sum = mean(&requests["kavg"]) + mean(&requests["davg"]);
        assert!(
            (sum / mean(&requests["gavg"]) - 1.0).abs() < 1e-6,
            "{requests:#}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn a_vm_that_ends_and_a_killed_vmtax_leave_nothing() {
    let place = Place::new();
    let mut vm = BootGuest::start(
        &place,
        "ends",
        "tcg",
        &reading([60000, 0]),
        ",cache=none",
        "",
    );
    let settings = |vm: &BootGuest| [vm.ask("query-status"), vm.ask("query-named-block-nodes")];
    vm.ask("cont");
    let before = settings(&vm);
    let killed = traces(&place, &vm, "killed", "--duration 600");
    let pid = killed.pid();
    killed.signal(Signal::KILL);
    assert_eq!(killed.outcome().status, None);
    assert!(!traces_of(pid).is_empty(), "nothing to sweep");
    assert!(vm.is_running());
    // What it left goes with the next start.
    let tracing = traces(&place, &vm, "out", "--duration 600");
    assert_eq!(traces_of(pid), [""; 0]);
    assert_eq!(settings(&vm), before);
    let own = tracing.pid();
    vm.kill();
    let report = json(&tracing.outcome().exits(0).stdout);
    assert_eq!(report["findings"]["ended"], true);
    assert!(
        place
            .vmtax("report out")
            .succeeds()
            .stdout
            .contains("exited after")
    );
    assert_eq!(traces_of(own), [""; 0]);
    place
        .vmtax(&format!("layers --vm {}", vm.pid()))
        .fails(&["no VM"]);
}

#[test]
fn what_a_running_vm_has_by_itself_is_refused() {
    let place = Place::new();
    for (words, what) in [
        ("layers --vm 1 --machine kvm", "--machine"),
        ("layers --vm 1 --vary aio=native,threads", "--vary"),
        ("layers --vm 1 iodepth=2", "OPTION=VALUE"),
        ("layers --duration 3", "--vm"),
        ("exits --vm 1 --count 7", "--count"),
    ] {
        place.vmtax(words).fails(&[what]);
    }
    let vm = BootGuest::start(&place, "rights", "tcg", &reading([1, 0]), "", "");
    let refused = place
        .vmtax_as_ordinary_user(&format!("layers --vm {}", vm.pid()))
        .fails(&["root"]);
    assert_eq!(
        refused
            .stderr
            .lines()
            .filter(|line| line.starts_with("Error"))
            .count(),
        1,
        "{}",
        refused.stderr
    );
    place
        .vmtax(&format!("exits --vm {}", vm.pid()))
        .fails(&["TCG has none"]);
}
