use crate::Evidence;
use crate::test_evidence::{advice, says};
use vmtax_findings::{DiskRates, IoRates, VmRates};
use vmtax_model::{
    DiskSettings, GuestDiskSettings, GuestSettings, IoLimits, LiveMetric, LiveSetting, Manager,
    Qcow2Settings, SettingValue, VmSettings,
};

/// The line, what reads it back and what undoes it, of a rule's first remedy.
fn first_remedy(id: &str, vm: &VmRates) -> [String; 3] {
    let remedy = advice(
        id,
        &Evidence {
            vm: Some(vm),
            ..Evidence::default()
        },
    )[0]
    .remedies[0]
        .clone();
    [remedy.line, remedy.read_back, remedy.undo]
}

fn vm(settings: DiskSettings, io: IoRates) -> VmRates {
    let settings = DiskSettings {
        name: "vd0".to_owned(),
        device: "/machine/peripheral/vd0/virtio-backend".to_owned(),
        file: "/d".into(),
        ..settings
    };
    let disk = DiskRates {
        name: "vd0".to_owned(),
        io: Some(io),
        ..DiskRates::default()
    };
    let settings = VmSettings {
        disks: vec![settings],
        ..VmSettings::default()
    };
    VmRates {
        disks: vec![disk],
        io: Some(io),
        settings,
        name: Some("web".to_owned()),
        ..VmRates::default()
    }
}

fn reads(reads_per_s: f64, ns: f64) -> IoRates {
    IoRates {
        reads_per_s,
        blkavg_ns: Some(ns),
        read_ns: Some(ns),
        read_bytes_per_s: reads_per_s * 4096.0,
        ..IoRates::default()
    }
}

fn limited(is_object: bool, io: IoRates) -> VmRates {
    let limits = IoLimits {
        group: "g".to_owned(),
        is_object,
        requests_per_s: [50, 0, 0],
        ..IoLimits::default()
    };
    vm(
        DiskSettings {
            limits: Some(limits),
            ..DiskSettings::default()
        },
        io,
    )
}

#[test]
fn requests_at_a_limit_are_found_where_they_wait() {
    assert_eq!(
        says("vm-io-limit", &limited(true, reads(49.8, 20e6))),
        [
            "Requests on vd0 run at the limit of throttle group g: 49.8 of 50 requests a second; one takes 20.0 ms (BLKAVG)."
        ]
    );
    let none = [
        limited(true, reads(44.0, 20e6)),
        limited(true, reads(49.8, 9e6)),
        vm(DiskSettings::default(), reads(50.0, 20e6)),
    ];
    assert!(none.iter().all(|vm| says("vm-io-limit", vm).is_empty()));
    // A group of two disks: neither alone is at the limit.
    let mut two = limited(true, reads(25.0, 40e6));
    let (disk, settings) = (two.disks[0].clone(), two.settings.disks[0].clone());
    two.disks.push(DiskRates {
        name: "vd1".to_owned(),
        ..disk
    });
    two.settings.disks.push(DiskSettings {
        name: "vd1".to_owned(),
        ..settings
    });
    assert_eq!(says("vm-io-limit", &two).len(), 2);
}

#[test]
fn limits_are_removed_as_they_were_set() {
    let io = reads(50.0, 20e6);
    let [line, read, undo] = first_remedy("vm-io-limit", &limited(true, io));
    assert!(
        line.contains("qom-set")
            && line.contains("\"iops-total\":0")
            && line.contains("/objects/g"),
        "{line}"
    );
    assert!(
        read.contains("qom-get") && undo.contains("\"iops-total\":50"),
        "{read} {undo}"
    );
    let [line, _, undo] = first_remedy("vm-io-limit", &limited(false, io));
    assert!(
        line.contains("block_set_io_throttle")
            && line.contains("\"iops\":0")
            && undo.contains("\"iops\":50"),
        "{line}"
    );
    let libvirts = VmRates {
        manager: Some(Manager::Libvirt),
        ..limited(false, io)
    };
    let [line, read, undo] = first_remedy("vm-io-limit", &libvirts);
    assert!(
        line.starts_with("virsh blkdeviotune web /d --live --total-iops-sec 0 "),
        "{line}"
    );
    assert!(
        read == "virsh blkdeviotune web /d" && undo.contains("--total-iops-sec 50 "),
        "{read} {undo}"
    );
}

/// All that was read comes back: bursts, their lengths, the size of a request, the group.
#[test]
fn bursts_are_removed_and_restored_with_their_limits() {
    let bursting = |is_object| {
        let mut vm = limited(is_object, reads(50.0, 20e6));
        let limits = vm.settings.disks[0].limits.as_mut().unwrap();
        limits.burst_requests_per_s = [90, 0, 0];
        limits.burst_requests_s = [3, 0, 0];
        limits.bytes_per_s = [0, 0, 7];
        limits.burst_bytes_per_s = [0, 0, 8];
        limits.burst_bytes_s = [0, 0, 1];
        limits.request_size = 4096;
        vm
    };
    let has_all = |line: &str, parts: &[&str]| {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}")
    };
    let [line, _, undo] = first_remedy("vm-io-limit", &bursting(true));
    has_all(
        &line,
        &[
            "\"iops-total-max\":0",
            "\"iops-total-max-length\":1",
            "\"bps-write-max\":0",
            "\"iops-size\":0",
        ],
    );
    has_all(
        &undo,
        &[
            "\"iops-total-max\":90",
            "\"iops-total-max-length\":3",
            "\"bps-write\":7",
            "\"iops-size\":4096",
        ],
    );
    let [line, _, undo] = first_remedy("vm-io-limit", &bursting(false));
    has_all(
        &line,
        &[
            "\"iops_max\":0",
            "\"iops_max_length\":1",
            "\"bps_wr_max\":0",
        ],
    );
    has_all(
        &undo,
        &[
            "\"iops_max\":90",
            "\"iops_max_length\":3",
            "\"bps_wr_max\":8",
            "\"iops_size\":4096",
            "\"group\":\"g\"",
        ],
    );
    let [line, _, undo] = first_remedy(
        "vm-io-limit",
        &VmRates {
            manager: Some(Manager::Libvirt),
            ..bursting(false)
        },
    );
    has_all(
        &line,
        &[
            "--total-iops-sec-max 0 --total-iops-sec-max-length 0",
            "--size-iops-sec 0",
        ],
    );
    has_all(
        &undo,
        &[
            "--total-iops-sec-max 90 --total-iops-sec-max-length 3",
            "--write-bytes-sec-max 8",
            "--size-iops-sec 4096",
        ],
    );
}

#[test]
fn writes_through_are_found_where_they_take_time() {
    let findings_for = |write_through, writes_per_s, ns| {
        let io = IoRates {
            writes_per_s,
            write_ns: Some(ns),
            blkavg_ns: Some(ns),
            ..IoRates::default()
        };
        says(
            "vm-write-through",
            &vm(
                DiskSettings {
                    write_through,
                    ..DiskSettings::default()
                },
                io,
            ),
        )
    };
    assert_eq!(
        findings_for(Some(true), 120.0, 8e6),
        [
            "QEMU flushes each write on vd0 before it completes (write-through): 120.0 a second, each 8.00 ms."
        ]
    );
    let none = [
        findings_for(Some(false), 120.0, 8e6),
        findings_for(None, 120.0, 8e6),
        findings_for(Some(true), 9.0, 8e6),
        findings_for(Some(true), 100.0, 0.4e6),
    ];
    assert!(none.iter().all(Vec::is_empty), "{none:?}");
}

#[test]
fn where_the_guest_names_the_disk_its_write_cache_can_be_tried() {
    let io = IoRates {
        writes_per_s: 120.0,
        write_ns: Some(8e6),
        ..IoRates::default()
    };
    let settings = DiskSettings {
        write_through: Some(true),
        driver: "virtio-blk-device".to_owned(),
        ..DiskSettings::default()
    };
    let mut vm = vm(settings, io);
    let found = |vm: &VmRates| {
        advice(
            "vm-write-through",
            &Evidence {
                vm: Some(vm),
                ..Evidence::default()
            },
        )
        .remove(0)
    };
    assert_eq!(found(&vm).change, None, "no agent");
    let disk = GuestDiskSettings {
        disk: "vd0".to_owned(),
        name: "vdc".to_owned(),
        cache_type: Some("write through".to_owned()),
        ..GuestDiskSettings::default()
    };
    vm.settings.guest = Some(GuestSettings {
        disks: vec![disk],
        ..GuestSettings::default()
    });
    let advice = found(&vm);
    assert_eq!(
        advice.remedies[0].line,
        "echo \"write back\" | sudo tee /sys/block/vdc/cache_type # in the guest; vdc: its name for vd0"
    );
    let change = advice.change.unwrap();
    assert_eq!(
        (change.metric, change.disk.as_deref()),
        (Some(LiveMetric::WriteLatency), Some("vd0"))
    );
    let flushed = Some("/machine/peripheral/vd0/virtio-backend".to_owned());
    let setting = LiveSetting::GuestFile {
        path: "/sys/block/vdc/cache_type".to_owned(),
        flushed,
    };
    assert_eq!(
        change.settings,
        [SettingValue {
            setting,
            value: "write back".to_owned()
        }]
    );
}

#[test]
fn the_file_that_sets_the_cache_is_that_of_the_disks_bus() {
    let remedy_for = |driver: &str| {
        let io = IoRates {
            writes_per_s: 120.0,
            write_ns: Some(8e6),
            ..IoRates::default()
        };
        let settings = DiskSettings {
            write_through: Some(true),
            driver: driver.to_owned(),
            ..DiskSettings::default()
        };
        first_remedy("vm-write-through", &vm(settings, io))
    };
    let [line, _, undo] = remedy_for("virtio-blk-device");
    let file = "/sys/block/vda/cache_type";
    assert_eq!(
        line,
        format!("echo \"write back\" | sudo tee {file} # in the guest; vda: its name for vd0")
    );
    assert_eq!(undo, format!("echo \"write through\" | sudo tee {file}"));
    for driver in ["scsi-hd", "ide-hd"] {
        let line = &remedy_for(driver)[0];
        assert!(
            line.contains(
                "/sys/block/sda/device/scsi_disk/*/cache_type # in the guest; sda: its name"
            ),
            "{line}"
        );
    }
    for driver in ["nvme-ns", ""] {
        assert!(
            remedy_for(driver)[0].starts_with("-drive file=…,cache=none"),
            "{driver}"
        );
    }
}

#[test]
fn a_small_cache_is_found_where_qemu_reads_tables() {
    let vm_with_cache = |l2_cache, rchar_per_s| {
        let qcow2 = Qcow2Settings {
            virtual_size: 8 << 30,
            cluster_size: 64 << 10,
            entry_size: 8,
            l2_cache,
        };
        let settings = DiskSettings {
            qcow2: Some(qcow2),
            ..DiskSettings::default()
        };
        VmRates {
            rchar_per_s: Some(rchar_per_s),
            ..vm(settings, reads(1000.0, 0.2e6))
        }
    };
    let small = vm_with_cache(Some(128 << 10), 16.0 * 4096.0 * 1000.0);
    assert_eq!(
        says("vm-qcow2-l2-cache", &small),
        [
            "QEMU's cache holds 12 % of the L2 tables of vd0: it reads 16.00 times as many bytes as the guest requests, 1000 reads a second."
        ]
    );
    let [line, _, undo] = first_remedy("vm-qcow2-l2-cache", &small);
    assert!(
        line.contains(r#"reopen -o l2-cache-size=1048576\""#) && undo.contains("=131072"),
        "{line} {undo}"
    );
    let libvirts = VmRates {
        manager: Some(Manager::Libvirt),
        ..small
    };
    assert!(
        first_remedy("vm-qcow2-l2-cache", &libvirts)[0]
            .starts_with("virsh qemu-monitor-command web '{")
    );
    let none = [
        vm_with_cache(Some(1 << 20), 16e6 * 4.096),
        vm_with_cache(None, 16e6 * 4.096),
        vm_with_cache(Some(128 << 10), 1.4e3 * 4096.0),
    ];
    assert!(
        none.iter()
            .all(|vm| says("vm-qcow2-l2-cache", vm).is_empty())
    );
}
