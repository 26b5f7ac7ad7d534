//! On a host as people have it: kvm_amd, vhost-net, libvirt, a distribution's kernel. `box/box test` runs these in the
//! box; no other run has them.

mod by_hand;

use crate::common::boot_guest::{BootGuest, random_requests};
use crate::common::{Domain, Ends, Place, Signal, json, number, send, until, virsh};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The folder in which `box/image` puts a guest's kernel and initramfs.
const GUEST: &str = "/srv/guest";
/// The guest's address in libvirt's network `default`.
const ADDRESS: &str = "192.168.122.10";
/// A command that takes seconds elsewhere takes minutes in the box.
const LIMIT_S: u64 = 400;

/// A domain whose guest does this; it runs until the box ends.
struct Guest {
    place: Place,
    domain: Domain,
}

impl Guest {
    /// Starts one with a disk on virtio-blk, one on virtio-scsi and one on SATA, and this load: see `box/guest-init`.
    fn start(load: &str) -> Guest {
        let place = Place::new();
        let console = place.path("console");
        let [disk, scsi, sata] =
            ["disk.raw", "scsi.raw", "sata.raw"].map(|name| place.put(name, vec![7; 64 << 20]));
        for followed in [&disk, &scsi, &sata] {
            fs::File::open(followed).unwrap().sync_all().unwrap();
        }
        // Without performance counters: what the emulator leaves of a counter's exception, KVM of Linux 7.2 takes for a
        // delivery that failed, and stops the guest ("KVM internal error. Suberror: 3").
        let xml = |name: &str| {
            format!(
                "<domain type='kvm'><name>{name}</name><memory unit='MiB'>384</memory><vcpu>1</vcpu><iothreads>1</iothreads>\
                 <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{GUEST}/vmlinuz</kernel><initrd>{GUEST}/initramfs</initrd>\
                 <cmdline>console=ttyS0 quiet mitigations=off {load} address={ADDRESS}</cmdline></os>\
                 <features><acpi/><apic/><pmu state='off'/></features><cpu mode='host-passthrough'/><devices>\
                 <controller type='scsi' index='0' model='virtio-scsi'><driver queues='2' iothread='1'/></controller>\
                 <disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>\
                 <source file='{}'/><target dev='vda' bus='virtio'/></disk>\
                 <disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>\
                 <source file='{}'/><target dev='sda' bus='scsi'/></disk>\
                 <disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>\
                 <source file='{}'/><target dev='sdb' bus='sata'/></disk>\
                 <interface type='network'><source network='default'/><model type='virtio'/></interface>\
                 <serial type='file'><source path='{}'/></serial></devices></domain>",
                disk.display(),
                scsi.display(),
                sata.display(),
                console.display()
            )
        };
        let domain = Domain::create(&place, xml).unwrap();
        until("the guest is up", || {
            fs::read_to_string(&console)
                .ok()?
                .contains("guest is up")
                .then_some(())
        });
        Guest { place, domain }
    }

    fn name(&self) -> &str {
        &self.domain.name
    }

    /// The findings of a command about it.
    fn findings(&self, command: &str) -> Value {
        findings(&self.place, command)
    }

    fn pid(&self) -> u32 {
        let file = PathBuf::from(format!("/run/libvirt/qemu/{}.pid", self.name()));
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }
}

/// The findings of a command that makes a recording.
fn findings(place: &Place, command: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let words = format!(
        "{command} --json --output {}",
        folder.path().join("out").display()
    );
    json(&place.vmtax(&words).start(LIMIT_S).outcome().exits(0).stdout)["findings"].clone()
}

/// One whose guest reads and writes its disks on virtio-blk, virtio-scsi and SATA, 50, 25 and 15 requests a second.
fn loaded() -> MutexGuard<'static, Guest> {
    static LOADED: LazyLock<Mutex<Guest>> = LazyLock::new(|| {
        Mutex::new(Guest::start(
            "load=disk:/dev/vda:50:70 load=disk:/dev/sda:25:50 load=disk:/dev/sdb:15:60",
        ))
    });
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
#[ignore = "needs the box"]
fn doctor_says_that_kvm_runs_kernels() {
    let place = Place::new();
    let facts = json(&place.vmtax("doctor --json").start(LIMIT_S).outcome().stdout);
    assert_eq!(facts["kvm"]["class"], "hardware", "{:#}", facts["kvm"]);
}

#[test]
#[ignore = "needs the box"]
fn every_exit_has_a_name_and_a_halted_vcpu_costs_nothing() {
    let vm = loaded();
    let found = vm.findings(&format!("exits --vm {} --duration 5", vm.name()));
    let reasons = found["exits"]["reasons"].as_array().unwrap();
    let names: Vec<&str> = reasons
        .iter()
        .map(|reason| reason["reason"].as_str().unwrap())
        .collect();
    let is_name = |name: &&str| {
        !name.contains("0x") && !name.contains("unknown") && !name.starts_with("reason")
    };
    assert!(
        names.contains(&"hlt") && names.iter().all(is_name),
        "{names:?}"
    );
    // The rows are all of its vCPUs' time outside the guest, and that is not longer than the time.
    let sum = |rows: &Value| -> f64 {
        rows.as_array()
            .unwrap()
            .iter()
            .map(|row| row["total_ns"].as_f64().unwrap_or(0.0))
            .sum()
    };
    let (of_reasons, of_vcpus) = (
        sum(&found["exits"]["reasons"]),
        sum(&found["exits"]["vcpus"]),
    );
    assert!(
        (of_reasons / of_vcpus - 1.0).abs() <= 0.02,
        "{of_reasons} of {of_vcpus} ns: {:#}",
        found["exits"]
    );
    // With that in the guest it is all the time there is, but for what is under way at the begin and at the end.
    let in_guest: f64 = found["exits"]["vcpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|vcpu| number(&vcpu["in_guest_ns"]))
        .sum();
    let part = (of_vcpus + in_guest) / 1e9 / number(&found["exits"]["seconds"]);
    assert!((part - 1.0).abs() <= 0.02, "{part}: {:#}", found["exits"]);
    assert!(
        found["exits"]["advice"].as_array().unwrap().is_empty(),
        "{:#}",
        found["exits"]["advice"]
    );
    let text = vm
        .place
        .vmtax(&format!("exits --vm {} --duration 5", vm.name()))
        .start(LIMIT_S)
        .outcome()
        .exits(0);
    text.shows("its vCPUs run the guest")
        .shows("are halted")
        .shows("other exits take");
}

#[test]
#[ignore = "needs the box"]
fn each_request_of_a_libvirt_domains_disks_is_followed() {
    let vm = loaded();
    let found = vm.findings(&format!("layers --vm {} --duration 6", vm.name()));
    let requests = found["requests"].as_array().unwrap();
    let requests_of_kind = |disk: &str, kind: &str| {
        requests
            .iter()
            .find(|of_kind| of_kind["disk"] == disk && of_kind["kind"] == kind)
            .cloned()
            .unwrap_or_default()
    };
    for (of_kind, column) in requests
        .iter()
        .zip(found["layers"]["columns"].as_array().unwrap())
    {
        let (all, followed) = (number(&of_kind["requests"]), number(&of_kind["followed"]));
        assert!(followed >= 0.999 * all, "{:#}", column["matched"]);
        assert!(
            !column["matched"]["rejected"]
                .to_string()
                .contains("violation"),
            "{:#}",
            column["matched"]
        );
        let explained: f64 = column["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| number(&row["percent"]))
            .sum();
        assert!(
            (98.0..=102.0).contains(&explained),
            "{explained}: {:#}",
            column["rows"]
        );
        // Flushes, too, which this QEMU submits as it does reads.
        assert!(
            column["rows"].to_string().contains("host system call"),
            "{:#}",
            column["rows"]
        );
    }
    for (disk, kind, least) in [
        ("vda", "read", 50.0),
        ("vda", "write", 20.0),
        ("sda", "read", 20.0),
        ("sda", "write", 20.0),
        ("sdb", "read", 15.0),
        ("sdb", "write", 10.0),
    ] {
        let of_kind = requests_of_kind(disk, kind);
        assert!(
            number(&of_kind["requests"]) > least && !of_kind["davg"].is_null(),
            "{disk}, {kind}: {found:#}"
        );
    }
}

#[test]
#[ignore = "needs the box"]
fn packets_that_vhost_net_moves_are_followed() {
    let vm = loaded();
    let _ping = Ends::start("ping", &format!("-q -i 0.05 -c 2000 {ADDRESS}"));
    let found = vm.findings(&format!(
        "layers --device net --vm {} --duration 6",
        vm.name()
    ));
    let packets = found["packets"].as_array().unwrap();
    assert_eq!(packets.len(), 2, "both directions: {found:#}");
    for (of_kind, column) in packets
        .iter()
        .zip(found["layers"]["columns"].as_array().unwrap())
    {
        let (all, followed) = (number(&of_kind["packets"]), number(&of_kind["followed"]));
        assert!(
            all > 50.0 && followed >= 0.99 * all,
            "{:#}",
            column["matched"]
        );
        assert_eq!(of_kind["thread"], "vhost worker", "{of_kind:#}");
        let rows = column["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["layer"] == "vhost"), "{rows:#?}");
        assert!(rows.iter().all(|row| row["layer"] != "qemu"), "{rows:#?}");
    }
}

#[test]
#[ignore = "needs the box"]
fn a_quota_and_a_frozen_qemu_are_said_first_and_a_remedy_is_for_its_own_group() {
    let vm = loaded();
    virsh(&[
        "schedinfo",
        vm.name(),
        "--live",
        "--set",
        "vcpu_quota=2000",
        "--set",
        "vcpu_period=20000",
    ])
    .unwrap();
    let found = vm.findings(&format!("diagnose {} --duration 4", vm.name()));
    let first = &found["causes"][0];
    assert_eq!(first["rule"], "vm-throttled", "{found:#}");
    let remedies = first["remedies"].to_string();
    assert!(remedies.contains("/libvirt/vcpu0/cpu.max"), "{remedies}");
    virsh(&["schedinfo", vm.name(), "--live", "--set", "vcpu_quota=-1"]).unwrap();
    send(vm.pid(), Signal::STOP);
    let found = vm.findings(&format!("diagnose {} --duration 2", vm.name()));
    send(vm.pid(), Signal::CONT);
    assert_eq!(
        found["causes"][0]["rule"], "vm-process-stopped",
        "{found:#}"
    );
}

#[test]
#[ignore = "needs the box"]
fn a_forgotten_io_limit_is_found_removed_and_restored() {
    let vm = loaded();
    let limit = |iops: &str| {
        virsh(&[
            "blkdeviotune",
            vm.name(),
            "vda",
            "--total-iops-sec",
            iops,
            "--live",
        ])
        .unwrap()
    };
    let is_limited = || {
        virsh(&["blkdeviotune", vm.name(), "vda"])
            .unwrap()
            .contains("total_iops_sec : 12")
    };
    limit("12");
    let out = vm.place.path("tuned");
    let words = format!(
        "tune --vm {} --apply --slice 1 --duration 900 --json --output {}",
        vm.name(),
        out.display()
    );
    let found =
        json(&vm.place.vmtax(&words).start(900).outcome().exits(0).stdout)["findings"].clone();
    let row = found["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["rule"] == "vm-io-limit")
        .cloned();
    assert_eq!(row.unwrap()["verdict"], "keep", "{found:#}");
    assert!(!is_limited());
    vm.place
        .vmtax(&format!("undo {}", out.display()))
        .start(LIMIT_S)
        .outcome()
        .exits(0)
        .shows("restored");
    assert!(is_limited());
    limit("0");
}

#[test]
#[ignore = "needs the box"]
fn a_vm_by_hand_is_listed_beside_a_domain_and_no_session_is_taken_for_its_group() {
    let (place, vm) = (Place::new(), loaded());
    let hand = BootGuest::start(
        &place,
        "hand",
        "kvm",
        &random_requests(false, &[0x80], 8, 14),
        ",cache=none",
        "",
    );
    hand.ask("cont");
    until("it reads", || (hand.reads_done("disk0") > 20).then_some(()));
    let listed = place.vmtax("vms").start(LIMIT_S).outcome().exits(0);
    listed
        .shows("hand")
        .shows(vm.name())
        .shows("2 VMs run on this host");
    let settings = [
        ("/sys/kernel/mm/ksm/run", "1"),
        ("/sys/module/kvm/parameters/halt_poll_ns", "0"),
    ];
    let before = settings.map(|(file, value)| {
        (
            file,
            fs::read_to_string(file).unwrap(),
            fs::write(file, value).unwrap(),
        )
    });
    let words = format!("diagnose {} --duration 4 --output out", hand.pid());
    place.vmtax(&words).start(LIMIT_S).outcome().exits(0);
    before
        .into_iter()
        .for_each(|(file, value, ())| fs::write(file, value.trim()).unwrap());
    let report = place.vmtax("report out").start(LIMIT_S).outcome().exits(0);
    assert!(
        !report.stdout.contains("virsh") && !report.stdout.contains(".scope/"),
        "{report}"
    );
    let worth_checking = report.shows("Settings worth checking (cost not measured)");
    worth_checking
        .shows("The host merges equal pages (KSM)")
        .shows("KVM does not poll before a halted vCPU sleeps");
    // KVM's own counters.
    let sample = json(
        &place
            .vmtax(&format!("top {} --json --duration 2", hand.pid()))
            .start(LIMIT_S)
            .outcome()
            .stdout,
    );
    assert!(
        number(&sample["vms"][0]["exits"]["per_s"]) > 0.0,
        "{sample:#}"
    );
}

#[test]
#[ignore = "needs the box"]
fn a_guest_of_its_own_has_all_of_its_requests_followed() {
    let place = Place::new();
    let words = "layers --machine kvm --rounds 1 --json --output out count=100";
    let report = json(&place.vmtax(words).start(LIMIT_S).outcome().exits(0).stdout);
    let column = &report["findings"]["columns"][0];
    let (all, joined) = (
        number(&column["matched"]["operations"]),
        number(&column["matched"]["joined"]),
    );
    assert!(
        all >= 100.0 && joined >= 0.999 * all,
        "{:#}",
        column["matched"]
    );
}
