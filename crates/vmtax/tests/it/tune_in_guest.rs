//! `vmtax tune --vm` sets what the guest's kernel has set, by the agent in the guest: a slow clock, a write cache that is
//! off are found, changed, proven, and restored.

use crate::common::{
    Domain, Place, Running, START_AGENT, Signal, agent_device, binary, has_agent, json,
    shared_folder, until, virsh,
};
use crate::kvm_guest::kvm;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use vmtax_model::testing::KvmGuest;

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
