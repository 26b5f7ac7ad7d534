//! `vmtax tune` of VMs that others started: the planted setting is found, removed, proven; and everything can be restored.
//! Also what the guest's kernel has set, by the agent in the guest: a slow clock, a write cache that is off.

use crate::common::boot_guest::{BootGuest, random_requests, unhurried_reads};
use crate::common::{
    Busy, Domain, Place, Quota, Running, START_AGENT, Signal, Start, agent_device, binary,
    has_agent, json, shared_folder, skipped, until, virsh,
};
use crate::kvm_guest::kvm;
use serde_json::{Value, json as value};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use vmtax_model::testing::KvmGuest;

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

/// A text without its ends of lines, which lie anywhere between words.
fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
    // Nothing is observed in vain: who may not change the VM is refused at once.
    let folder = place.path("");
    place
        .vmtax_as_ordinary_user(&format!("tune --vm {} --apply", vm.pid()))
        .env("XDG_RUNTIME_DIR", folder)
        .fails(&["belongs to another user", "run vmtax as root"]);
    let (found, row) = proposed(&place, vm.pid(), "--apply --slice 0.5", "vm-io-limit");
    let requests = found["moved"].as_array().unwrap().iter();
    let mut requests = requests.filter(|row| row["name"] == "disk requests");
    assert_eq!(
        requests.next().unwrap()["comparison"]["verdict"],
        "faster",
        "more requests are better: {:#}",
        found["moved"]
    );
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
        words_of(&text).contains("time per operation ×")
            && text.contains("Kept change")
            && !text.contains("another metric worse: disk")
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
fn cores_to_which_another_vm_is_pinned_are_not_chosen() {
    let place = Place::new();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return skipped("one CPU alone");
    }
    let (vm, other) = (
        Busy::start(&place, "chooses", "-S"),
        Busy::start(&place, "pinned", "-S"),
    );
    let cores = || vm.rates(&place, "--duration 0.3")["settings"]["host_cores"].clone();
    let first = cores()[0]["cpus"].as_str().unwrap().to_owned();
    let pid = other.pid().to_string();
    let pinned = place.program("taskset").arg("-acp").arg(first).arg(&pid);
    pinned.succeeds();
    assert_eq!(cores()[0]["is_taken"], true, "{:#}", cores());
    drop(other);
    // Other VMs of this host may be pinned, too.
    assert!(cores().as_array().unwrap().len() > 1);
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

/// Reads a clock that QEMU emulates.
const READ_CLOCK: &str = "\
    clock=/sys/devices/system/clocksource/clocksource0/current_clocksource\n\
    echo acpi_pm > $clock\n\
    while :; do $vmtax agent run syscalls only=clock_gettime_vdso time=5 >/dev/null; done &\n\
    while sleep 0.2; do read -r now < $clock; echo $now; done\n";
/// Writes to the disk whose folder in sysfs is `$w`.
const WRITE_DISK: &str = "\
    while :; do dd if=/dev/zero of=/dev/${w##*/} bs=4k count=100 oflag=direct 2>/dev/null; sleep 0.1; done &\n";
/// The disks that are written to and read, the latter without a read-ahead, which a file has as it was when that was opened.
const FIND_DISKS: &str = "\
    for d in /sys/block/vd*; do case $(cat $d/serial) in through) w=$d;; late) r=$d;; esac; done\n\
    echo 0 > $r/queue/read_ahead_kb\n";
const READ_DISK: &str = "\
    while :; do dd if=/dev/${r##*/} of=/dev/null bs=4k count=50 2>/dev/null; echo 1 > /proc/sys/vm/drop_caches; done &\n\
    while sleep 0.2; do read -r c < $w/cache_type; read -r k < $r/queue/read_ahead_kb; echo $c $k; done\n";
/// Shell commands for the mounts of a guest that has the host's root and no init.
const MOUNTS: &str = "\
    export PATH=/usr/bin:/bin:/usr/sbin:/sbin\n\
    mount -t proc p /proc; mount -t sysfs s /sys; mount -t tmpfs t /tmp\n";

/// A KVM guest with QEMU's agent that runs a load, and prints what it has set again and again.
struct Guest<'a> {
    running: Running<'a>,
    said: PathBuf,
    pid: u32,
}

impl<'a> Guest<'a> {
    /// One that has set what is `planted`. QEMU's sockets are in `folder`.
    fn start(
        place: &'a Place,
        guest: &KvmGuest,
        folder: &Path,
        disks: &[&str],
        load: &str,
        planted: &str,
    ) -> Guest<'a> {
        let qmp = format!("unix:{}/qmp,server=on,wait=off", folder.display());
        let start = kvm(place, guest, "exec", "--machine kvm --rounds 1 -q");
        let start = start
            .qemu_args(disks)
            .qemu_args(["-qmp", &qmp])
            .qemu_args(agent_device(folder));
        let said = place.path("said");
        let script = format!("vmtax={}\n{START_AGENT}{load}", binary());
        let start = start
            .arg("--")
            .arg("sh")
            .arg("-c")
            .arg(script)
            .stdout(fs::File::create(&said).unwrap());
        let mut guest = Guest {
            running: start.start(300),
            said,
            pid: 0,
        };
        let said = guest.said.clone();
        guest.pid = guest.running.until("the load runs", |place| {
            (last_line(&said) == planted).then_some(())?;
            place.vm()
        });
        guest
    }

    /// Tunes it, checks that the change of this rule is kept, in the guest, too, and is restored.
    fn check_tuned(self, planted: &str, rule: &str, is_tuned: impl Fn(&str) -> bool) -> Value {
        let found = check_tuned(&self.pid.to_string(), &self.said, planted, rule, is_tuned);
        self.running.signal(Signal::INT);
        self.running.outcome();
        found
    }
}

/// Tunes this VM, whose guest prints into `said` what it has set, and checks that the change of this rule is kept, in the
/// guest, too, and is restored.
fn check_tuned(
    vm: &str,
    said: &Path,
    planted: &str,
    rule: &str,
    is_tuned: impl Fn(&str) -> bool,
) -> Value {
    let place = Place::new();
    let vmtax = |words: &str| place.vmtax(words).env("XDG_RUNTIME_DIR", place.path(""));
    // The clock is read all the time; a shell writes, and starts each of its programs meanwhile.
    let slice = if rule.ends_with("clock") { 0.15 } else { 0.25 };
    let words = format!("tune --vm {vm} --apply --slice {slice} --json --output out");
    let found = json(&vmtax(&words).start(280).outcome().exits(0).stdout)["findings"].clone();
    assert!(
        row(&found, rule).is_some_and(|row| row["verdict"] == "keep"),
        "{rule} is not kept: {found:#}"
    );
    until("the guest has what was kept", || {
        is_tuned(&last_line(said)).then_some(())
    });
    vmtax("undo").succeeds().shows("in the guest");
    until("the guest has what was planted", || {
        (last_line(said) == planted).then_some(())
    });
    found
}

fn last_line(said: &Path) -> String {
    fs::read_to_string(said)
        .unwrap_or_default()
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}

fn row<'a>(found: &'a Value, rule: &str) -> Option<&'a Value> {
    found["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["rule"] == rule)
}

#[test]
#[ignore = "needs root"]
fn a_write_cache_is_changed_in_the_guest_proven_and_restored() {
    let Some(guest) = KvmGuest::given().filter(|_| has_agent()) else {
        return;
    };
    let (place, folder) = (Place::new(), shared_folder());
    let image = folder.path().join("through.raw");
    fs::write(&image, vec![7; 48 << 20]).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o666)).unwrap();
    let through = format!(
        "if=none,id=written,format=raw,file={},cache=writethrough",
        image.display()
    );
    let late = "if=none,id=read,format=raw,file.driver=null-co,file.size=32M,file.read-zeroes=on,file.latency-ns=5000000";
    let devices = [
        "drive=written,id=disk-w,serial=through",
        "drive=read,id=disk-r,serial=late",
    ];
    let devices = devices.map(|device| format!("virtio-blk-pci,{device}"));
    let disks = [
        "-drive",
        &through,
        "-device",
        &devices[0],
        "-drive",
        late,
        "-device",
        &devices[1],
    ];
    let planted = "write through 0";
    let load = format!("{FIND_DISKS}{WRITE_DISK}{READ_DISK}");
    let vm = Guest::start(&place, &guest, folder.path(), &disks, &load, planted);
    let found = vm.check_tuned(planted, "vm-write-through", |now| now == "write back 0");
    assert_eq!(found["metric"], "time per write, with its flushes, disk-w");
    // The VM's figures count also what is read ahead for nothing.
    let not_tried = found["not_tried"].to_string();
    assert!(
        not_tried.contains("read-ahead on") && not_tried.contains("--metric-command"),
        "{not_tried}"
    );
}

#[test]
#[ignore = "needs root"]
fn a_write_cache_is_changed_in_the_guest_of_a_libvirt_domain() {
    let Some(guest) = KvmGuest::given().filter(|_| has_agent()) else {
        return;
    };
    let (place, folder) = (Place::new(), shared_folder());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (image, init, said) = (path("through.raw"), path("init"), path("said"));
    fs::write(&image, vec![7; 48 << 20]).unwrap();
    let load = format!(
        "w=/sys/block/vda\n{WRITE_DISK}while sleep 0.2; do read -r c < $w/cache_type; echo $c; done\n"
    );
    fs::write(&init, format!("#!/bin/sh\n{MOUNTS}{START_AGENT}{load}")).unwrap();
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
    let kernel_args = KvmGuest::kernel_args(vmtax_clock::host_mhz()).join(" ");
    let (kernel, cpu, firmware) = (
        guest.kernel.display(),
        KvmGuest::CPU_MODEL,
        KvmGuest::FIRMWARE,
    );
    // The host's root, which it cannot write to, is its own. Its QEMU is root's, as /dev/kvm may be.
    let domain = Domain::create(&place, |name| {
        format!(
            "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>{name}</name>\
             <memory unit='MiB'>256</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type>\
             <kernel>{kernel}</kernel><cmdline>console=ttyS0 quiet root=root rootfstype=9p \
             rootflags=trans=virtio,version=9p2000.L ro init={init} {kernel_args}</cmdline></os><features><acpi/></features>\
             <devices><filesystem type='mount' accessmode='passthrough'><source dir='/'/><target dir='root'/><readonly/>\
             </filesystem><disk type='file' device='disk'><driver name='qemu' type='raw' cache='writethrough'/>\
             <source file='{image}'/><target dev='vda' bus='virtio'/></disk>\
             <serial type='file'><source path='{said}'/></serial>\
             <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices>\
             <seclabel type='static' model='dac' relabel='no'><label>0:0</label></seclabel>\
             <qemu:commandline><qemu:arg value='-cpu'/><qemu:arg value='{cpu}'/>\
             <qemu:arg value='-bios'/><qemu:arg value='{firmware}'/></qemu:commandline></domain>"
        )
    });
    let Some(domain) = domain else { return };
    let said = Path::new(&said);
    until("the load runs", || {
        (last_line(said) == "write through").then_some(())
    });
    let answers = || {
        virsh(&[
            "qemu-agent-command",
            &domain.name,
            r#"{"execute":"guest-ping"}"#,
        ])
    };
    until("the guest's agent answers", answers);
    check_tuned(
        &domain.name,
        said,
        "write through",
        "vm-write-through",
        |now| now == "write back",
    );
}

#[test]
#[ignore = "needs root"]
fn a_slow_clock_is_changed_in_the_guest_proven_and_restored() {
    let Some(guest) = KvmGuest::given().filter(|_| has_agent()) else {
        return;
    };
    let (place, folder) = (Place::new(), shared_folder());
    let vm = Guest::start(&place, &guest, folder.path(), &[], READ_CLOCK, "acpi_pm");
    let found = vm.check_tuned("acpi_pm", "pm-timer-clock", |now| now != "acpi_pm");
    let ratio = row(&found, "pm-timer-clock").unwrap()["confirmation"]["ratio"]["median"]
        .as_f64()
        .unwrap();
    assert!(ratio < 0.8, "{ratio}: {found:#}");
}
