//! `vmtax tune` of VMs that others started: the planted setting is found, removed, proven; and everything can be restored.

use crate::common::boot_guest::{BootGuest, random_requests, unhurried_reads};
use crate::common::{Busy, Place, Quota, Signal, Start, json, skipped, until};
use serde_json::{Value, json as value};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The limit of the first disk, requests per second.
fn limit(vm: &BootGuest) -> Value {
    vm.ask("query-block")[0]["inserted"]["iops"].clone()
}

/// Somebody else sets the limit.
fn set_limit(vm: &BootGuest, limit: u32) {
    let device = "/machine/peripheral/disk0/virtio-backend";
    let arguments = value!({ "id": device, "iops": limit, "iops_rd": 0, "iops_wr": 0, "bps": 0, "bps_rd": 0, "bps_wr": 0 });
    vm.command(&value!({ "execute": "block_set_io_throttle", "arguments": arguments }));
}

/// A VM that reads at its limit.
fn limited(place: &Place, name: &str) -> BootGuest {
    let sector = unhurried_reads(&[0x80], 14);
    let vm = BootGuest::start(place, name, "tcg", &sector, ",throttling.iops-total=20", "");
    vm.ask("cont");
    until("it reads", || (vm.reads_done("disk0") > 20).then_some(()));
    vm
}

fn tune<'a>(place: &'a Place, pid: u32, options: &str) -> Start<'a> {
    let words = format!("tune --vm {pid} {options}");
    place.vmtax(&words).env("XDG_RUNTIME_DIR", place.path(""))
}

/// The findings of a tuning, recorded in `out`, whose diagnosis proposes this rule's change; and the rule's row.
fn proposed(place: &Place, pid: u32, options: &str, rule: &str) -> (Value, Value) {
    let words = format!("{options} --json --output out");
    found(tune(place, pid, &words), rule)
}

/// The findings of this tuning, and the rule's row.
fn found(tuning: Start<'_>, rule: &str) -> (Value, Value) {
    let found = json(&tuning.start(300).outcome().exits(0).stdout)["findings"].clone();
    let row = found["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["rule"] == rule)
        .cloned();
    let row = row.unwrap_or_else(|| panic!("{rule} is not proposed: {found:#}"));
    (found, row)
}

#[test]
#[ignore = "needs root"]
fn a_forgotten_limit_is_removed_proven_and_restored() {
    let place = Place::new();
    let vm = limited(&place, "forgotten");
    let (found, _) = proposed(&place, vm.pid(), "", "vm-io-limit");
    assert_eq!(found["applied"], false);
    place
        .vmtax("report out")
        .succeeds()
        .shows("Nothing was changed yet.");
    assert_eq!(limit(&vm), 20, "nothing was changed");
    // Only what changes something is remembered, though it lies elsewhere.
    let history = place.path("runs/.history");
    assert!(!history.exists());
    fs::remove_dir_all(place.path("out")).unwrap();
    let (found, row) = proposed(&place, vm.pid(), "--apply --slice 0.5", "vm-io-limit");
    assert_eq!(
        (&row["verdict"], &found["is_on"]),
        (&"keep".into(), &true.into()),
        "{found:#}"
    );
    // At 20 requests a second one takes 50 ms.
    let high = found["total"]["ratio"]["interval"]["high"]
        .as_f64()
        .unwrap();
    assert!(high < 0.5, "{:#}", found["total"]);
    assert_eq!(limit(&vm), 0);
    assert!(history.exists());
    let text = place.vmtax("report out").succeeds().stdout;
    assert!(
        text.contains("time per operation ×")
            && text.contains("Kept change")
            && text.contains("vmtax undo"),
        "{text}"
    );
    place
        .vmtax("undo out")
        .env("XDG_RUNTIME_DIR", place.path(""))
        .succeeds()
        .shows("restored: I/O limits of");
    assert_eq!(limit(&vm), 20);
    place
        .vmtax("undo out")
        .env("XDG_RUNTIME_DIR", place.path(""))
        .succeeds()
        .shows("Nothing to undo");
}

#[test]
#[ignore = "needs root"]
fn a_kill_leaves_nothing_changed_after_the_next_start_and_what_others_set_stays() {
    let place = Place::new();
    let vm = limited(&place, "killed");
    let start = |out: &str| {
        tune(
            &place,
            vm.pid(),
            &format!("--apply --slice 3 --output {out}"),
        )
        .start(300)
    };
    let mut running = start("killed");
    running.until("the limit is off", |_| (limit(&vm) == 0).then_some(()));
    running.signal(Signal::KILL);
    running.outcome();
    until("the watchdog restores it", || {
        (limit(&vm) == 20).then_some(())
    });
    let has_histograms = || {
        vm.ask("query-blockstats")
            .to_string()
            .contains("rd_latency_histogram")
    };
    until("the watchdog removes the histograms", || {
        (!has_histograms()).then_some(())
    });
    place
        .vmtax("undo")
        .env("XDG_RUNTIME_DIR", place.path(""))
        .succeeds()
        .shows("Nothing to undo");
    // Ctrl-C while the VM is diagnosed does not begin to change it.
    let mut running = tune(&place, vm.pid(), "--apply --dir early").start(300);
    running.until("it diagnoses", |place| {
        fs::read_dir(place.path("early")).ok()?.next().map(|_| ())
    });
    running.signal(Signal::INT);
    running.outcome().exits(130);
    let recordings = fs::read_dir(place.path("early"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    assert!(
        recordings
            .into_iter()
            .all(|name| !name.to_string_lossy().contains("tune")),
        "nothing was tried"
    );
    let mut running = start("theirs");
    running.until("the limit is off", |_| (limit(&vm) == 0).then_some(()));
    // What it has set is read back first; what differs then was refused, not changed by somebody.
    std::thread::sleep(std::time::Duration::from_secs(2));
    set_limit(&vm, 77);
    running.outcome().exits(0).shows("somebody else changed it");
    assert_eq!(limit(&vm), 77);
    let mut running = start("interrupted");
    set_limit(&vm, 20);
    running.until("the limit is off", |_| (limit(&vm) == 0).then_some(()));
    running.signal(Signal::INT);
    running.outcome();
    assert_eq!(limit(&vm), 20, "restored at the end");
}

#[test]
#[ignore = "needs root"]
fn a_quota_is_removed_and_proven_by_the_vcpus_time() {
    let place = Place::new();
    let Some(quota) = Quota::set() else {
        return skipped("there is no CPU controller to use");
    };
    let vm = Busy::start(&place, "limited", "");
    fs::write(quota.0.join("cgroup.procs"), vm.pid().to_string()).unwrap();
    // Less than other load on this host would leave.
    let quota_file = ["cpu.cfs_quota_us", "cpu.max"]
        .map(|name| quota.0.join(name))
        .into_iter()
        .find(|file| file.exists());
    let quota_file = quota_file.unwrap();
    fs::write(&quota_file, "5000").unwrap();
    let (found, row) = proposed(
        &place,
        vm.pid() as u32,
        // In several periods of the quota at least one has CPU time left.
        "--apply --slice 0.5",
        "vm-throttled",
    );
    assert_eq!(row["verdict"], "keep", "{found:#}");
    let now = || fs::read_to_string(&quota_file).unwrap();
    assert!(
        now().starts_with("-1") || now().starts_with("max"),
        "{}",
        now()
    );
    place
        .vmtax("undo")
        .env("XDG_RUNTIME_DIR", place.path(""))
        .succeeds()
        .shows("restored: /sys/fs/cgroup");
    assert!(now().starts_with("5000"), "{}", now());
    drop(vm);
    until("the group is empty", || fs::remove_dir(&quota.0).ok());
}

/// A block device of the host on a file, whose I/O scheduler is bfq. Removed at the end.
struct LoopDevice(String);

impl LoopDevice {
    /// `None` where the kernel has no such device, or no bfq.
    fn with_bfq(file: &Path) -> Option<LoopDevice> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        let path = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let device = LoopDevice(
            path.strip_prefix("/dev/")
                .filter(|_| made.status.success())?
                .to_owned(),
        );
        fs::write(device.scheduler_file(), "bfq").ok()?;
        Some(device)
    }

    fn scheduler_file(&self) -> String {
        format!("/sys/block/{}/queue/scheduler", self.0)
    }

    /// Returns true if the device has this I/O scheduler.
    fn has(&self, scheduler: &str) -> bool {
        fs::read_to_string(self.scheduler_file())
            .unwrap()
            .contains(&format!("[{scheduler}]"))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &format!("/dev/{}", self.0)])
            .status();
    }
}

#[test]
#[ignore = "needs root"]
fn a_scheduler_of_the_hosts_disk_is_found_changed_and_restored() {
    let place = Place::new();
    let file = place.put("device.raw", vec![0; 16 << 20]);
    let Some(device) = LoopDevice::with_bfq(&file) else {
        return skipped("no loop device, or no I/O scheduler bfq");
    };
    let disk = format!(
        "-drive if=none,id=d1,format=raw,cache=none,file=/dev/{} -device virtio-blk-pci,drive=d1,id=disk1",
        device.0
    );
    let vm = BootGuest::start(
        &place,
        "scheduled",
        "tcg",
        &random_requests(false, &[0x81], 8, 14),
        "",
        &disk,
    );
    vm.ask("cont");
    // Of the host's settings nothing is changed unless that is allowed.
    let (found, _) = proposed(
        &place,
        vm.pid(),
        "--allow live,host --slice 0.25",
        "vm-host-scheduler",
    );
    assert!(found["applied"] == false && device.has("bfq"), "{found:#}");
    // Its plan, applied: the VM is diagnosed once.
    let plan = fs::read_to_string(place.path("out/plan.toml")).unwrap();
    let plan = plan.replace("apply = false", "apply = true");
    let apply = |plan: &str, out: &str| {
        let start = place
            .vmtax("run --json --output")
            .arg(out)
            .arg(place.put("plan.toml", plan));
        start.env("XDG_RUNTIME_DIR", place.path(""))
    };
    let (_, row) = self::found(apply(&plan, "applied"), "vm-host-scheduler");
    assert_eq!(
        row["change"]["settings"][0]["setting"]["path"],
        device.scheduler_file(),
        "{row:#}"
    );
    // What it gains on this device is chance; the change is in effect where it was kept, and else is undone.
    assert!(
        device.has(if row["verdict"] == "keep" {
            "none"
        } else {
            "bfq"
        }),
        "{row:#}"
    );
    place
        .vmtax("undo applied")
        .env("XDG_RUNTIME_DIR", place.path(""))
        .succeeds();
    assert!(device.has("bfq"));
    let plan = plan.replace("block-ms = 250", "block-ms = 3000");
    let mut running = apply(&plan, "killed").start(300);
    running.until("the scheduler is another", |_| {
        device.has("none").then_some(())
    });
    running.signal(Signal::KILL);
    running.outcome();
    until("the watchdog restores it", || {
        device.has("bfq").then_some(())
    });
}

#[test]
fn wrong_words_and_a_healthy_vm_are_said_in_one_line() {
    let place = Place::new();
    let _other = Busy::start(&place, "other", "");
    place.vmtax("tune --vm no-such-vm").fails(&["vmtax vms"]);
    place
        .vmtax("tune --vm 1 --metric speed")
        .fails(&["latency"]);
    place
        .vmtax("tune --vm 1 --higher-is-better")
        .fails(&["--metric-command"]);
    assert!(!Path::new("runs").exists());
}
