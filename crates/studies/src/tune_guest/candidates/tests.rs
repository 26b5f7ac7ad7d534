//! Tests of the candidates that are tried for each kind of guest.

use super::*;
use std::path::PathBuf;
use vmtax_model::{ChangeCost, Machine};
use vmtax_workload::BlockWork;

const ALLOWED: [ChangeCost; 4] = [
    ChangeCost::Live,
    ChangeCost::Replug,
    ChangeCost::GuestReboot,
    ChangeCost::VmRestart,
];

/// A guest under TCG that makes block requests, of which nothing is known.
fn tcg(named: &Settings) -> TuneTarget<'_> {
    TuneTarget {
        qemu: None,
        qemus: &[],
        machine: Machine::TCG,
        cpus: 1,
        is_pinned: false,
        cpu_model: None,
        host_cpus: 1,
        has_hardware_kvm: false,
        has_huge_pages: false,
        has_large_sectors: false,
        host_fault: |_, _| None,
        workload: WorkloadName::Disk,
        command: &[],
        requests: None,
        size: None,
        risks_data: false,
        allowed: &ALLOWED,
        named,
    }
}

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn names(target: &TuneTarget<'_>, from: &[(&str, &str)]) -> Vec<String> {
    let mut baseline = defaults(target.workload);
    baseline.extend(settings(from));
    candidates(target, &baseline)
        .0
        .into_iter()
        .map(|candidate| candidate.name)
        .collect()
}

#[test]
fn what_does_not_apply_or_risks_data_is_not_tried() {
    let work = |block, depth| BlockWork {
        block,
        random: true,
        write: false,
        depth,
        time_ns: 1,
        count: 0,
    };
    let small = work(4096, 1);
    let named = Settings::new();
    let small_target = || TuneTarget {
        requests: Some(&small),
        ..tcg(&named)
    };
    let usual = [
        "cache=none",
        "aio=native",
        "aio=io_uring",
        "iothread=on",
        "packed=on",
        "event_idx=off",
    ];
    assert_eq!(names(&small_target(), &[]), usual);
    let large = work(1 << 20, 32);
    let kvm = TuneTarget {
        machine: Machine::KVM,
        cpus: 2,
        requests: Some(&large),
        risks_data: true,
        ..small_target()
    };
    let all = names(&kvm, &[]);
    for name in [
        "num-queues=1",
        "modern-pio-notify=on",
        "request-merging=off",
        "queue-size=1024",
        "cache=unsafe",
    ] {
        assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
    }
    let micro = TuneTarget {
        machine: Machine::MICRO_TCG,
        ..small_target()
    };
    assert_eq!(
        names(&micro, &[]),
        ["cache=none", "aio=native", "aio=io_uring", "iothread=on"]
    );
    let qemu = QemuFacts {
        path: PathBuf::new(),
        version: "4.1.0".to_owned(),
        accelerators: Vec::new(),
        aio: vec!["threads".to_owned(), "native".to_owned()],
        iothread: true,
        exported_functions: 0,
        trace_backends: Vec::new(),
    };
    let old = TuneTarget {
        qemu: Some(&qemu),
        ..small_target()
    };
    assert_eq!(
        names(&old, &[]),
        ["cache=none", "aio=native", "iothread=on", "event_idx=off"]
    );
    // QEMU refuses an iothread without ioeventfd, so that it would never be seen to help.
    let mut off = defaults(WorkloadName::Disk);
    off.insert("ioeventfd".to_owned(), "off".to_owned());
    let (all, _) = candidates(&small_target(), &off);
    let iothread = all
        .iter()
        .find(|one| one.name == "ioeventfd=on,iothread=on")
        .unwrap();
    assert_eq!(
        iothread.set,
        settings(&[("ioeventfd", "on"), ("iothread", "on")])
    );
    assert!(
        all.iter().any(|one| one.name == "ioeventfd=on")
            && all.iter().all(|one| one.name != "iothread=on")
    );
    let (_, not_tried) = candidates(&old, &defaults(WorkloadName::Disk));
    let why = |name: &str| {
        not_tried
            .iter()
            .find(|one| one.action == name)
            .unwrap()
            .why
            .clone()
    };
    assert!(why("aio=io_uring").contains("built without") && why("packed=on").contains("older"));
    assert!(why("cache=unsafe").contains("--unsafe"));
}

#[test]
fn a_twins_bus_and_format_are_tried_with_the_usual_ones() {
    let named = Settings::new();
    let tcg = TuneTarget {
        size: Some(16 << 30),
        ..tcg(&named)
    };
    let sata = names(
        &tcg,
        &[("bus", "sata"), ("format", "qcow2"), ("discard", "unmap")],
    );
    for name in [
        "bus=virtio-blk",
        "format=raw",
        "discard=ignore",
        "bus=virtio-blk,iothread=on",
        "cache=none",
    ] {
        assert!(sata.iter().any(|known| known == name), "{name}: {sata:?}");
    }
    assert!(
        sata.iter()
            .all(|known| known != "packed=on" && !known.starts_with("l2-cache")),
        "{sata:?}"
    );
    let (all, _) = candidates(&tcg, &[("bus".to_owned(), "nvme".to_owned())].into());
    let iothread = all
        .iter()
        .find(|one| one.name == "bus=virtio-blk,iothread=on")
        .unwrap();
    assert!(iothread.trap.contains("driver of virtio-blk"));
    assert_eq!(
        iothread.set.get("bus").map(String::as_str),
        Some("virtio-blk")
    );
    let small = names(
        &tcg,
        &[
            ("format", "qcow2"),
            ("l2-cache-size", "128K"),
            ("image.size", "17179869184"),
        ],
    );
    assert!(
        small.iter().any(|name| name == "l2-cache-size=2097152"),
        "{small:?}"
    );
    assert!(small.iter().all(|name| name != "format=raw"), "{small:?}");
    let both = names(&tcg, &[("format", "qcow2"), ("cache-size", "1M")]);
    assert!(
        both.iter().any(|name| name == "cache-size=2359296"),
        "{both:?}"
    );
    assert_eq!(
        (
            parse_size("1M"),
            parse_size("512"),
            parse_size("x"),
            parse_size("99999999999999999T")
        ),
        (Some(1 << 20), Some(512), None, None)
    );
}

#[test]
fn a_baseline_that_is_set_badly_is_tried_with_what_qemu_sets_by_itself() {
    let named = Settings::new();
    let tcg = TuneTarget {
        cpus: 2,
        ..tcg(&named)
    };
    let from = [
        ("cache", "writethrough"),
        ("event_idx", "off"),
        ("num-queues", "1"),
        ("throttling.iops-total", "50"),
    ];
    let all = names(&tcg, &from);
    for name in [
        "cache=writeback",
        "event_idx=on",
        "num-queues=2",
        "without throttling.iops-total",
        "cache=none",
    ] {
        assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
    }
    for name in ["event_idx=off", "num-queues=1", "cache=writethrough"] {
        assert!(all.iter().all(|known| known != name), "{name}: {all:?}");
    }
}

#[test]
fn each_workload_is_tried_with_what_can_move_it() {
    let named = settings(&[
        ("kernel-arg.clocksource", "acpi_pm"),
        ("accel.thread", "single"),
        ("disks", "64"),
    ]);
    let target_on = |workload, machine| TuneTarget {
        workload,
        machine,
        cpus: 2,
        host_cpus: 4,
        ..tcg(&named)
    };
    let pairs: Vec<(&str, &str)> = named
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let has = |all: &[String], name: &str| all.iter().any(|known| known == name);
    let cpu = names(&target_on(WorkloadName::Cpu, Machine::TCG), &pairs);
    let removed = [
        "without kernel-arg.clocksource=acpi_pm",
        "without accel.thread=single",
        "without disks=64",
    ];
    assert!(
        removed.iter().all(|name| has(&cpu, name)) && has(&cpu, "cpu-model=qemu64"),
        "{cpu:?}"
    );
    assert!(
        !has(&cpu, "cache=none") && !has(&cpu, "kernel-arg.idle=poll"),
        "{cpu:?}"
    );
    let calls = names(&target_on(WorkloadName::Syscalls, Machine::KVM), &[]);
    assert!(
        has(&calls, "kernel-arg.idle=poll") && !has(&calls, "cpu-model=qemu64"),
        "{calls:?}"
    );
    let net = names(
        &target_on(WorkloadName::NetRr, Machine::KVM),
        &[("backend", "user"), ("tx", "timer")],
    );
    assert!(
        has(&net, "tx=bh") && has(&net, "event_idx=off") && !has(&net, "aio=native"),
        "{net:?}"
    );
    let tree = names(
        &target_on(WorkloadName::Tree, Machine::KVM),
        &[("share.msize", "8192")],
    );
    assert!(
        has(&tree, "share.msize=512000") && has(&tree, "share.cache=loose"),
        "{tree:?}"
    );
    let command = [
        "sh".to_owned(),
        "-c".to_owned(),
        "dmesg > /dev/console".to_owned(),
    ];
    let exec = names(
        &TuneTarget {
            command: &command,
            ..target_on(WorkloadName::Exec, Machine::KVM)
        },
        &[],
    );
    assert!(
        has(&exec, "kernel-arg.console=hvc0") && has(&exec, "iothread=on"),
        "{exec:?}"
    );
}

#[test]
fn protection_of_the_guest_and_settings_of_the_host_are_asked_for() {
    let named = Settings::new();
    let target_allowing = |risks_data, allowed| TuneTarget {
        workload: WorkloadName::Syscalls,
        machine: Machine::KVM,
        risks_data,
        allowed,
        ..tcg(&named)
    };
    let why = |target: &TuneTarget<'_>, name: &str| {
        let (all, not_tried) = candidates(target, &Settings::new());
        let is_tried = all.iter().any(|one| one.name == name);
        (
            is_tried,
            not_tried
                .into_iter()
                .find(|one| one.action == name)
                .map(|one| one.why)
                .unwrap_or_default(),
        )
    };
    let usual = target_allowing(false, &ALLOWED[..]);
    assert!(
        why(&usual, "kernel-arg.mitigations=off")
            .1
            .contains("--unsafe")
    );
    assert!(why(&usual, "host.thp=always").1.contains("--allow"));
    assert!(
        why(
            &target_allowing(true, &ALLOWED[..]),
            "kernel-arg.mitigations=off"
        )
        .0
    );
    assert!(
        why(
            &target_allowing(false, &[ChangeCost::HostSetting]),
            "host.thp=always"
        )
        .0
    );
    let live = target_allowing(true, &[ChangeCost::Live]);
    assert!(
        why(&live, "kernel-arg.mitigations=off")
            .1
            .contains("guest reboot")
    );
}

#[test]
fn another_method_of_sharing_has_its_own_options_and_a_newer_qemu_is_tried() {
    let named = Settings::new();
    let qemu = |version: &str| QemuFacts {
        path: PathBuf::from(version),
        version: version.to_owned(),
        accelerators: Vec::new(),
        aio: Vec::new(),
        iothread: true,
        exported_functions: 0,
        trace_backends: Vec::new(),
    };
    let all = [qemu("7.2.22"), qemu("10.0.13"), qemu("5.2.0")];
    let old = TuneTarget {
        workload: WorkloadName::OpenFids,
        qemu: Some(&all[2]),
        qemus: &all,
        ..tcg(&named)
    };
    let (found, _) = candidates(
        &old,
        &settings(&[("share", "virtiofs"), ("share.threads", "1")]),
    );
    let newer: Vec<&str> = found
        .iter()
        .map(|one| &*one.name)
        .filter(|name| name.starts_with("qemu="))
        .collect();
    assert_eq!(newer, ["qemu=7.2.22", "qemu=10.0.13"]);
    assert!(found[0].source.contains("2 hours"), "{:?}", found[0]);
    let new = TuneTarget {
        qemu: Some(&all[1]),
        ..old
    };
    assert!(
        candidates(&new, &settings(&[("share", "9p")]))
            .0
            .iter()
            .all(|one| !one.name.starts_with("qemu="))
    );
}

#[test]
fn what_an_iothread_a_request_queue_and_a_page_cache_have_is_tried_where_the_guest_has_one() {
    let work = BlockWork {
        block: 4096,
        random: true,
        write: false,
        depth: 64,
        time_ns: 1,
        count: 0,
    };
    let named = Settings::new();
    let deep = TuneTarget {
        requests: Some(&work),
        host_cpus: 2,
        ..tcg(&named)
    };
    let has = |all: &[String], names: &[&str]| {
        names
            .iter()
            .all(|name| all.iter().any(|known| known == name))
    };
    let of_iothread = [
        "iothread.poll-max-ns=0",
        "iothread.poll-max-ns=200000",
        "iothread.thread-pool-min=16",
    ];
    let of_queue = ["block-queue.scheduler=none", "block-queue.nomerges=2"];
    let of_cache = [
        "block-queue.read_ahead_kb=4096",
        "block-queue.wbt_lat_usec=0",
    ];
    let without = names(&deep, &[]);
    assert!(
        has(&without, &of_queue) && without.iter().all(|name| !name.starts_with("iothread.")),
        "{without:?}"
    );
    let with = names(&deep, &[("iothread", "on")]);
    assert!(
        has(&with, &of_iothread) && !has(&with, &of_cache),
        "{with:?}"
    );
    assert!(has(
        &names(&deep, &[("iothread", "on"), ("aio", "native")]),
        &["iothread.aio-max-batch=128"]
    ));
    let unpolled = names(&deep, &[("iothread", "on"), ("iothread.poll-max-ns", "0")]);
    assert!(
        has(&unpolled, &["iothread.poll-max-ns=32768"]),
        "{unpolled:?}"
    );
    let two = names(
        &TuneTarget {
            cpus: 2,
            has_large_sectors: true,
            ..deep
        },
        &[],
    );
    assert!(
        has(
            &two,
            &["block-queue.rq_affinity=2", "logical_block_size=4096"]
        ),
        "{two:?}"
    );
    assert!(!has(&two, &["block-queue.scheduler=none"]), "{two:?}");
    let one = BlockWork { depth: 1, ..work };
    let one = names(
        &TuneTarget {
            requests: Some(&one),
            ..deep
        },
        &[("iothread", "on")],
    );
    assert!(
        has(&one, &of_iothread[..2]) && one.iter().all(|name| !name.starts_with("block-queue.")),
        "{one:?}"
    );
    let exec = names(
        &TuneTarget {
            workload: WorkloadName::Exec,
            requests: None,
            ..deep
        },
        &[],
    );
    assert!(
        has(&exec, &of_cache) && has(&exec, &["block-queue.scheduler=none"]),
        "{exec:?}"
    );
    let qcow2 = [
        ("format", "qcow2"),
        ("image.size", "64G"),
        ("l2-cache-size", "4M"),
    ];
    let qcow2 = names(&deep, &qcow2);
    assert!(
        has(&qcow2, &["l2-cache-size=8388608", "image.cluster_size=2M"]),
        "{qcow2:?}"
    );
}

#[test]
fn what_a_cpu_model_lacks_and_what_polls_is_tried_where_hardware_and_cpus_are_there() {
    let named = Settings::new();
    let target_with = |workload, has_hardware_kvm, host_cpus| TuneTarget {
        workload,
        machine: Machine::KVM,
        cpu_model: Some("Skylake-Client"),
        cpus: 2,
        has_hardware_kvm,
        host_cpus,
        ..tcg(&named)
    };
    let has = |all: &[String], names: &[&str]| {
        names
            .iter()
            .all(|name| all.iter().any(|known| known == name))
    };
    let of_kvm = [
        "cpu-flag.kvm-pv-ipi=on",
        "cpu-flag.kvm-pv-tlb-flush=on",
        "cpu-flag.tsc-deadline=on",
    ];
    let dedicated = [
        "cpu-flag.kvm-hint-dedicated=on",
        "qemu-args=-overcommit cpu-pm=on",
        "pinning=split",
    ];
    let spare = names(&target_with(WorkloadName::Syscalls, true, 4), &[]);
    assert!(
        has(&spare, &of_kvm) && has(&spare, &dedicated) && has(&spare, &["cpu-model=host"]),
        "{spare:?}"
    );
    assert!(!has(&spare, &["cpu-flag.kvm-pv-unhalt=on"]), "{spare:?}");
    let pinned = TuneTarget {
        is_pinned: true,
        ..target_with(WorkloadName::Syscalls, true, 4)
    };
    assert!(
        !has(&names(&pinned, &[]), &["pinning=split"]),
        "it is so already"
    );
    assert!(has(
        &names(&pinned, &[("pinning", "none")]),
        &["pinning=split"]
    ));
    let full = names(&target_with(WorkloadName::Syscalls, true, 2), &[]);
    assert!(
        has(&full, &["cpu-flag.kvm-pv-unhalt=on"])
            && dedicated.iter().all(|one| !has(&full, &[one])),
        "{full:?}"
    );
    let host = TuneTarget {
        cpu_model: Some("host,-vmx"),
        ..target_with(WorkloadName::Syscalls, true, 4)
    };
    let host = names(&host, &[]);
    assert!(
        !has(&host, &["cpu-model=host"]) && !has(&host, &of_kvm[..1]) && has(&host, &dedicated),
        "{host:?}"
    );
    let emulated = target_with(WorkloadName::Syscalls, false, 4);
    let (_, not_tried) = candidates(&emulated, &Settings::new());
    let why = |name: &str| {
        not_tried
            .iter()
            .find(|one| one.action == name)
            .map(|one| one.why.as_str())
            .unwrap()
    };
    assert!(why("cpu-flag.kvm-pv-ipi=on").contains("VT-x or AMD-V"));
    assert!(why("memory-backend.hugetlb=on").contains("huge pages"));
    let huge = TuneTarget {
        has_huge_pages: true,
        workload: WorkloadName::Memory,
        ..emulated
    };
    assert!(has(&names(&huge, &[]), &["memory-backend.hugetlb=on"]));
}

#[test]
fn a_setting_of_the_host_that_is_no_change_there_is_not_tried() {
    let named = Settings::new();
    let allowed = [ChangeCost::HostSetting];
    let target = TuneTarget {
        workload: WorkloadName::Syscalls,
        machine: Machine::KVM,
        allowed: &allowed,
        risks_data: true,
        host_fault: |name, _| (name == "ksm").then_some("it is the host's setting already"),
        ..tcg(&named)
    };
    let (all, not_tried) = candidates(&target, &Settings::new());
    let is_tried = |name: &str| all.iter().any(|one| one.name == name);
    assert!(
        is_tried("host.thp=always") && is_tried("host.nx-huge-pages=N") && !is_tried("host.ksm=0"),
        "{all:?}"
    );
    assert!(
        not_tried
            .iter()
            .any(|one| one.action == "host.ksm=0" && one.why.contains("already"))
    );
    let (trusted, _) = candidates(
        &TuneTarget {
            risks_data: false,
            ..target
        },
        &Settings::new(),
    );
    assert!(trusted.iter().all(|one| one.name != "host.nx-huge-pages=N"));
}

#[test]
fn behind_a_tap_what_vhost_takes_is_named() {
    let named = settings(&[("backend", "tap")]);
    let target = TuneTarget {
        workload: WorkloadName::NetRr,
        machine: Machine::KVM,
        ..tcg(&named)
    };
    let known = |baseline: &[(&str, &str)]| {
        let (all, not_tried) = candidates(&target, &settings(baseline));
        let names = all
            .into_iter()
            .map(|one| one.name)
            .chain(not_tried.into_iter().map(|one| one.action));
        names
            .filter(|name| name.starts_with("netdev."))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        known(&[("backend", "tap")]),
        ["netdev.vhost=on", "netdev.poll-us=50"]
    );
    assert!(known(&[("backend", "user")]).is_empty());
}
