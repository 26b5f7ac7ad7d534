//! What is tried of which guest.

use super::*;
use std::path::PathBuf;
use vmtax_model::{ChangeCost, Machine};
use vmtax_workload::BlockWork;

const ALLOWED: [ChangeCost; 4] = [ChangeCost::Live, ChangeCost::Replug, ChangeCost::GuestReboot, ChangeCost::VmRestart];

/// A guest under TCG that makes block requests, of which nothing is known.
fn tcg(named: &Settings) -> Tuned<'_> {
    Tuned {
        qemu: None,
        qemus: &[],
        machine: Machine::TCG,
        cpus: 1,
        host_cpus: 1,
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
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn names(tuned: &Tuned<'_>, from: &[(&str, &str)]) -> Vec<String> {
    let mut baseline = defaults(tuned.workload);
    baseline.extend(settings(from));
    candidates(tuned, &baseline).0.into_iter().map(|candidate| candidate.name).collect()
}

#[test]
fn what_does_not_apply_or_risks_data_is_not_tried() {
    let work = |block, depth| BlockWork { block, random: true, write: false, depth, time_ns: 1, count: 0 };
    let small = work(4096, 1);
    let named = Settings::new();
    let of = || Tuned { requests: Some(&small), ..tcg(&named) };
    let usual = ["cache=none", "aio=native", "aio=io_uring", "iothread=on", "packed=on", "event_idx=off"];
    assert_eq!(names(&of(), &[]), usual);
    let large = work(1 << 20, 32);
    let kvm = Tuned { machine: Machine::KVM, cpus: 2, requests: Some(&large), risks_data: true, ..of() };
    let all = names(&kvm, &[]);
    for name in ["num-queues=1", "modern-pio-notify=on", "request-merging=off", "queue-size=1024", "cache=unsafe"] {
        assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
    }
    let micro = Tuned { machine: Machine::MICRO_TCG, ..of() };
    assert_eq!(names(&micro, &[]), ["cache=none", "aio=native", "aio=io_uring", "iothread=on"]);
    let qemu = QemuFacts {
        path: PathBuf::new(),
        version: "4.1.0".to_owned(),
        accelerators: Vec::new(),
        aio: vec!["threads".to_owned(), "native".to_owned()],
        iothread: true,
        exported_functions: 0,
        trace_backends: Vec::new(),
    };
    let old = Tuned { qemu: Some(&qemu), ..of() };
    assert_eq!(names(&old, &[]), ["cache=none", "aio=native", "iothread=on", "event_idx=off"]);
    let (_, not_tried) = candidates(&old, &defaults(WorkloadName::Disk));
    let why = |name: &str| not_tried.iter().find(|one| one.action == name).unwrap().why.clone();
    assert!(why("aio=io_uring").contains("built without") && why("packed=on").contains("older"));
    assert!(why("cache=unsafe").contains("--unsafe"));
}

#[test]
fn a_twins_bus_and_format_are_tried_with_the_usual_ones() {
    let named = Settings::new();
    let tcg = Tuned { size: Some(16 << 30), ..tcg(&named) };
    let sata = names(&tcg, &[("bus", "sata"), ("format", "qcow2"), ("discard", "unmap")]);
    for name in ["bus=virtio-blk", "format=raw", "discard=ignore", "bus=virtio-blk,iothread=on", "cache=none"] {
        assert!(sata.iter().any(|known| known == name), "{name}: {sata:?}");
    }
    assert!(sata.iter().all(|known| known != "packed=on" && !known.starts_with("l2-cache")), "{sata:?}");
    let (all, _) = candidates(&tcg, &[("bus".to_owned(), "nvme".to_owned())].into());
    let iothread = all.iter().find(|one| one.name == "bus=virtio-blk,iothread=on").unwrap();
    assert!(iothread.trap.contains("driver of virtio-blk"));
    assert_eq!(iothread.set.get("bus").map(String::as_str), Some("virtio-blk"));
    let small = names(&tcg, &[("format", "qcow2"), ("l2-cache-size", "128K"), ("image.size", "17179869184")]);
    assert!(small.iter().any(|name| name == "l2-cache-size=2097152"), "{small:?}");
    assert!(small.iter().all(|name| name != "format=raw"), "{small:?}");
    let both = names(&tcg, &[("format", "qcow2"), ("cache-size", "1M")]);
    assert!(both.iter().any(|name| name == "cache-size=2359296"), "{both:?}");
    assert_eq!(
        (parse_size("1M"), parse_size("512"), parse_size("x"), parse_size("99999999999999999T")),
        (Some(1 << 20), Some(512), None, None)
    );
}

#[test]
fn a_baseline_that_is_set_badly_is_tried_with_what_qemu_sets_by_itself() {
    let named = Settings::new();
    let tcg = Tuned { cpus: 2, ..tcg(&named) };
    let from = [("cache", "writethrough"), ("event_idx", "off"), ("num-queues", "1"), ("throttling.iops-total", "50")];
    let all = names(&tcg, &from);
    for name in ["cache=writeback", "event_idx=on", "num-queues=2", "without throttling.iops-total", "cache=none"] {
        assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
    }
    for name in ["event_idx=off", "num-queues=1", "cache=writethrough"] {
        assert!(all.iter().all(|known| known != name), "{name}: {all:?}");
    }
}

#[test]
fn each_workload_is_tried_with_what_can_move_it() {
    let named = settings(&[("kernel-arg.clocksource", "acpi_pm"), ("accel.thread", "single"), ("disks", "64")]);
    let of = |workload, machine| Tuned { workload, machine, cpus: 2, host_cpus: 4, ..tcg(&named) };
    let pairs: Vec<(&str, &str)> = named.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let has = |all: &[String], name: &str| all.iter().any(|known| known == name);
    let cpu = names(&of(WorkloadName::Cpu, Machine::TCG), &pairs);
    let removed = ["without kernel-arg.clocksource=acpi_pm", "without accel.thread=single", "without disks=64"];
    assert!(removed.iter().all(|name| has(&cpu, name)) && has(&cpu, "cpu-model=qemu64"), "{cpu:?}");
    assert!(!has(&cpu, "cache=none") && !has(&cpu, "kernel-arg.idle=poll"), "{cpu:?}");
    let calls = names(&of(WorkloadName::Syscalls, Machine::KVM), &[]);
    assert!(has(&calls, "kernel-arg.idle=poll") && !has(&calls, "cpu-model=qemu64"), "{calls:?}");
    let net = names(&of(WorkloadName::NetRr, Machine::KVM), &[("backend", "user"), ("tx", "timer")]);
    assert!(has(&net, "tx=bh") && has(&net, "event_idx=off") && !has(&net, "aio=native"), "{net:?}");
    let tree = names(&of(WorkloadName::Tree, Machine::KVM), &[("share.msize", "8192")]);
    assert!(has(&tree, "share.msize=512000") && has(&tree, "share.cache=loose"), "{tree:?}");
    let command = ["sh".to_owned(), "-c".to_owned(), "dmesg > /dev/console".to_owned()];
    let exec = names(&Tuned { command: &command, ..of(WorkloadName::Exec, Machine::KVM) }, &[]);
    assert!(has(&exec, "kernel-arg.console=hvc0") && has(&exec, "iothread=on"), "{exec:?}");
}

#[test]
fn protection_of_the_guest_and_settings_of_the_host_are_asked_for() {
    let named = Settings::new();
    let of = |risks_data, allowed| Tuned {
        workload: WorkloadName::Syscalls,
        machine: Machine::KVM,
        risks_data,
        allowed,
        ..tcg(&named)
    };
    let why = |tuned: &Tuned<'_>, name: &str| {
        let (all, not_tried) = candidates(tuned, &Settings::new());
        let is_tried = all.iter().any(|one| one.name == name);
        (is_tried, not_tried.into_iter().find(|one| one.action == name).map(|one| one.why).unwrap_or_default())
    };
    let usual = of(false, &ALLOWED[..]);
    assert!(why(&usual, "kernel-arg.mitigations=off").1.contains("--unsafe"));
    assert!(why(&usual, "host.thp=always").1.contains("--allow"));
    assert!(why(&of(true, &ALLOWED[..]), "kernel-arg.mitigations=off").0);
    assert!(why(&of(false, &[ChangeCost::HostSetting]), "host.thp=always").0);
    let live = of(true, &[ChangeCost::Live]);
    assert!(why(&live, "kernel-arg.mitigations=off").1.contains("guest reboot"));
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
    let old = Tuned { workload: WorkloadName::OpenFids, qemu: Some(&all[2]), qemus: &all, ..tcg(&named) };
    let (found, _) = candidates(&old, &settings(&[("share", "virtiofs"), ("share.threads", "1")]));
    let newer: Vec<&str> = found.iter().map(|one| &*one.name).filter(|name| name.starts_with("qemu=")).collect();
    assert_eq!(newer, ["qemu=7.2.22", "qemu=10.0.13"]);
    assert!(found[0].source.contains("2 hours"), "{:?}", found[0]);
    let new = Tuned { qemu: Some(&all[1]), ..old };
    assert!(candidates(&new, &settings(&[("share", "9p")])).0.iter().all(|one| !one.name.starts_with("qemu=")));
}
