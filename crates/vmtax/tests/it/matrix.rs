//! Guest kernels and QEMUs of several years, thin: each does its work once, with the smallest settings that show that
//! it does. Versions from other suites are fetched into the user's cache; one that cannot be reached is listed as
//! skipped. Linux 6.1 and QEMU 7.2, Debian 12's own, are the versions of all other tests there. `make matrix` runs
//! every QEMU with every kernel.

use crate::common::boot_guest::{BootGuest, unhurried_reads};
use crate::common::{
    Outcome, Place, files_below, json, kernel, not_joined, number, passes, skipped, trials, until,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns this distribution's names for the kernels that vmtax was developed on: 5.10, 6.1, 6.12 and the newest, or
/// those nearest to them.
fn kernels() -> [&'static str; 4] {
    if is_ubuntu() {
        ["focal", "jammy", "noble", "resolute"]
    } else {
        ["bullseye", "6.1", "6.12", "sid"]
    }
}

/// Returns this distribution's names for QEMU 5.2, 7.2, 10.0 and the newest, or those nearest to them.
fn qemus() -> [&'static str; 4] {
    if is_ubuntu() {
        ["focal", "jammy", "noble", "resolute"]
    } else {
        ["5.2", "7.2", "10.0", "sid"]
    }
}

fn is_ubuntu() -> bool {
    fs::read_to_string("/etc/os-release")
        .unwrap()
        .contains("ID=ubuntu")
}

/// Fetches `what` (kernel or qemu): what it said at its end, two columns and a path. Where packages cannot be reached, the
/// test is listed as skipped.
pub fn fetched(what: &str, wanted: &str) -> Option<(String, String)> {
    // First the one that other tests boot, which is the default then.
    kernel();
    let place = Place::new();
    let got = place
        .vmtax("get")
        .arg(what)
        .arg(wanted)
        .start(900)
        .outcome();
    // Not for any failure: what was fetched and is of no use is a fault.
    let unreachable = [
        "Check the network",
        "is not installed",
        "has no suite",
        "is signed with a key",
    ];
    if got.status == Some(2) && unreachable.iter().any(|reason| got.stderr.contains(reason)) {
        let reason = got.stderr.lines().last().unwrap_or_default();
        skipped(&format!("`vmtax get {what} {wanted}`: {reason}"));
        return None;
    }
    let got = got.exits(0);
    let line = got.stdout.trim();
    let name = line.split("  ").next().unwrap().to_owned();
    let path = line.rsplit("  ").next().unwrap();
    assert!(Path::new(path).is_file(), "{got}");
    Some((name, path.to_owned()))
}

/// A guest: what stands on the command line for it, and what reports must say of it.
struct Guest {
    options: String,
    release: Option<String>,
    said: Vec<String>,
}

impl Guest {
    fn with_kernel(name: &str) -> Option<Guest> {
        let (release, _) = fetched("kernel", name)?;
        Some(Guest {
            options: format!("--machine tcg --kernel {name}"),
            said: vec![
                format!("guest kernel {release} (named)"),
                "(installed)".to_owned(),
            ],
            release: Some(release),
        })
    }

    fn with_qemu(name: &str) -> Option<Guest> {
        // An installed one of that version is as good.
        let place = Place::new();
        let installed = place.vmtax("doctor --json --qemu").arg(name).outcome();
        let installed = installed
            .status
            .filter(|status| *status == 0)
            .map(|_| json(&installed.stdout));
        let installed =
            installed.and_then(|doctor| doctor["qemu"][0]["version"].as_str().map(str::to_owned));
        // Where there is none, another is the first.
        let installed = installed.filter(|version| version.starts_with(&format!("{name}.")));
        let version = match installed {
            Some(version) => version,
            None => fetched("qemu", name)?.0,
        };
        let options = format!("--machine tcg --qemu {name}");
        Some(Guest {
            options,
            release: None,
            said: vec![
                "guest kernel ".to_owned(),
                format!("QEMU {version} (named)"),
            ],
        })
    }

    /// One round of a study in that guest, which must succeed: its report as JSON. The report's first lines name kernel and
    /// QEMU.
    fn measure(&self, place: &Place, study: &str, words: &str) -> Value {
        let start = place
            .vmtax(study)
            .words("--rounds 1 --quiet --json")
            .words(&self.options);
        let outcome = start
            .arg("--dir")
            .arg(place.runs())
            .words(words)
            .start(600)
            .outcome()
            .exits(0);
        self.is_named(&place.vmtax("report").arg(place.recording()).succeeds());
        let report = json(&outcome.stdout);
        for trial in trials(&report) {
            assert_eq!(trial["outcome"], "done", "{trial}");
        }
        if let Some(release) = &self.release {
            let guests = trials(&report)
                .iter()
                .filter(|trial| trial["machine"] == "tcg");
            let booted: BTreeSet<&str> = guests
                .map(|trial| {
                    trial["result"]["kernel"]["release"]
                        .as_str()
                        .unwrap_or("unknown")
                })
                .collect();
            assert_eq!(booted, BTreeSet::from([release.as_str()]));
        }
        report
    }

    fn is_named(&self, report: &Outcome) {
        let head: Vec<&str> = report
            .stdout
            .lines()
            .take_while(|line| !line.is_empty())
            .collect();
        let head = head.join(" ");
        for said in &self.said {
            assert!(head.contains(said), "no {said:?} in {head}");
        }
    }

    fn run(&self) {
        let place = Place::new();
        let report = self.measure(
            &place,
            "run",
            "cpu memory syscalls disk count=200 time=0 --duration 0.2",
        );
        let metrics: Vec<&str> = report["findings"]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|row| row["metric"].as_str())
            .collect();
        for metric in [
            "cpu.events",
            "memory.bandwidth",
            "syscalls.getpid",
            "disk.latency-p50",
        ] {
            assert!(metrics.contains(&metric), "no {metric} in {metrics:?}");
        }
    }

    fn layers(&self) {
        const REQUESTS: u64 = 2 * 200;
        let place = Place::new();
        let report = self.measure(&place, "layers", "count=200");
        let column = &report["findings"]["columns"][0];
        let rows = column["rows"].as_array().unwrap();
        let matched = &column["matched"];
        let joined = number(&matched["joined"]);
        assert!(joined >= 0.99 * REQUESTS as f64, "{column:#}");
        assert_eq!(column["clock"]["violations"], 0, "{column:#}");
        // A busy host may lose events: each request without its own is counted, with the reason.
        assert_eq!(
            joined + not_joined(matched) as f64,
            number(&matched["operations"]),
            "{column:#}"
        );
        for layer in [
            "guest-kernel",
            "notify",
            "qemu",
            "host-kernel",
            "device",
            "interrupt",
        ] {
            let of_layer = rows
                .iter()
                .filter(|row| row["layer"] == layer)
                .filter_map(|row| row["to"].as_str());
            let most = of_layer.map(|to| passes(column, to)).max().unwrap_or(0) as f64;
            // A thread of QEMU that is awake needs no notification.
            assert!(
                most >= 0.9 * joined,
                "{layer}: {most} of {joined} requests: {rows:#?}"
            );
        }
        let missing = &column["missing"];
        assert!(
            missing
                .as_array()
                .is_some_and(|all| all.iter().all(|one| one["fix"].is_string())),
            "{missing}"
        );
    }

    fn share(&self) {
        let place = Place::new();
        // A method of each kind: another option or image would ask no more of a kernel.
        let methods = ["9p", "virtiofs", "nfs4", "erofs"];
        let words = format!("--quick --files 40 --bytes 1M {}", methods.join(" "));
        let report = self.measure(&place, "share", &words);
        let measured: BTreeSet<&str> = trials(&report)
            .iter()
            .filter_map(|trial| trial["variant"].as_str())
            .collect();
        let text = place
            .vmtax("report")
            .arg(place.recording())
            .succeeds()
            .stdout;
        for method in methods {
            // One that this host lacks is named with its reason.
            let reason = text
                .lines()
                .any(|line| line.starts_with(['!', '–']) && line.contains(method));
            assert!(
                measured.contains(method) || reason,
                "no {method} in {measured:?}: {text}"
            );
        }
        assert!(measured.len() >= 2, "{measured:?}");
    }

    fn exec(&self) {
        let place = Place::new();
        let start = place
            .vmtax("exec --rounds 1")
            .words(&self.options)
            .arg("--dir")
            .arg(place.runs());
        let outcome = start.words("-- uname -r").start(300).outcome().exits(0);
        if let Some(release) = &self.release {
            outcome.shows(release);
        }
        self.is_named(&place.vmtax("report").arg(place.recording()).succeeds());
        let report = json(
            &place
                .vmtax("report --json")
                .arg(place.recording())
                .succeeds()
                .stdout,
        );
        assert_eq!(trials(&report)[0]["outcome"], "done", "{report}");
    }

    fn profile(&self) {
        let place = Place::new();
        let start = place
            .vmtax("profile --json --output out")
            .words(&self.options)
            .words("-- cpu time=2");
        let found = json(&start.start(300).outcome().exits(0).stdout);
        let guest = &found["guest"];
        assert!(found["samples"].as_u64().unwrap() > 50, "{found:#}");
        // The guest's own kernel has sampled what runs in it.
        let first = &guest["functions"][0];
        assert!(
            first["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("cpu::primes")),
            "{guest:#}"
        );
        assert!(
            guest["joined"]["joined"]["share"].as_f64().unwrap() > 0.5,
            "{guest:#}"
        );
        assert!(
            files_below(&place.path("out"))
                .iter()
                .any(|file| file.ends_with("with-guest.folded"))
        );
    }
}

const EVERYTHING: [fn(&Guest); 5] = [
    Guest::run,
    Guest::layers,
    Guest::exec,
    Guest::profile,
    Guest::share,
];

fn on_kernel(index: usize, measures: &[fn(&Guest)]) {
    if let Some(guest) = Guest::with_kernel(kernels()[index]) {
        measures.iter().for_each(|measure| measure(&guest));
    }
}

fn on_qemu(index: usize) {
    if let Some(guest) = Guest::with_qemu(qemus()[index]) {
        EVERYTHING[..2].iter().for_each(|measure| measure(&guest));
        of_a_running_vm(qemus()[index]);
    }
}

/// Asks all that is asked of somebody's VM, which must go on running: QEMU 11.1.3 ends when it is asked for
/// `x-query-virtio-status`.
fn of_a_running_vm(qemu: &str) {
    let place = Place::new();
    let doctor = json(
        &place
            .vmtax("doctor --json --qemu")
            .arg(qemu)
            .succeeds()
            .stdout,
    );
    let program = doctor["qemu"][0]["path"].as_str().unwrap();
    let (sector, more) = (
        unhurried_reads(&[0x80], 14),
        "-device virtio-scsi-pci,id=scsi -device virtio-balloon",
    );
    let mut vm = BootGuest::start_by(&place, program, "runs", "tcg", &sector, "", more);
    let monitor = place.path("runs.qmp");
    until("its monitor is free", || {
        vmtax_vmm::Vm::find(&monitor.to_string_lossy()).ok()
    });
    vm.ask("cont");
    let pid = vm.pid();
    place.vmtax("vms").succeeds();
    let top = json(
        &place
            .vmtax(&format!("top {pid} --json --level 1 --duration 0.5"))
            .succeeds()
            .stdout,
    );
    // QEMU 7.2 is the first that counts requests in flight.
    assert_eq!(
        top["vms"][0]["io"]["in_flight"].is_null(),
        qemu == "5.2" || qemu == "focal",
        "{top:#}"
    );
    for command in ["diagnose", "profile --vm", "layers --vm"] {
        place
            .vmtax(&format!(
                "{command} {pid} --duration 1 --output {}",
                &command[..3]
            ))
            .start(120)
            .outcome()
            .exits(0);
    }
    assert!(
        vm.is_running() && vm.ask("query-status")["running"] == true,
        "QEMU {qemu} has ended, or stopped its guest"
    );
}

#[test]
#[ignore = "needs root"]
fn kernel_5_10() {
    on_kernel(0, &EVERYTHING);
}

#[test]
#[ignore = "needs root"]
fn kernel_6_12() {
    // The oldest and the newest have all share methods, too.
    on_kernel(2, &EVERYTHING[..4]);
}

#[test]
#[ignore = "needs root"]
fn newest_kernel() {
    on_kernel(3, &EVERYTHING);
}

#[test]
#[ignore = "needs root"]
fn qemu_5_2() {
    on_qemu(0);
}

#[test]
#[ignore = "needs root"]
fn qemu_10_0() {
    on_qemu(2);
}

#[test]
#[ignore = "needs root"]
fn newest_qemu() {
    on_qemu(3);
}

/// `make matrix`: every kernel with every QEMU.
#[test]
#[ignore = "takes half an hour: make matrix"]
fn by_hand_every_kernel_with_every_qemu() {
    for kernel in kernels() {
        for qemu in qemus() {
            let (Some(one), Some(other)) = (Guest::with_kernel(kernel), Guest::with_qemu(qemu))
            else {
                continue;
            };
            println!("kernel {kernel}, QEMU {qemu}");
            let options = format!("{} --qemu {qemu}", one.options);
            let said = vec![one.said[0].clone(), other.said[1].clone()];
            let guest = Guest {
                options,
                release: one.release,
                said,
            };
            EVERYTHING.iter().for_each(|measure| measure(&guest));
        }
    }
}

#[test]
fn a_kernel_of_a_suite_is_for_those_who_name_it() {
    let Some((release, path)) = fetched("kernel", kernels()[0]) else {
        return;
    };
    let place = Place::new();
    let doctor = json(&place.vmtax("doctor --json").succeeds().stdout);
    assert_ne!(
        doctor["kernels"][0]["release"],
        Value::from(release),
        "a fetched kernel became the default"
    );
    let list = place.vmtax("get").succeeds();
    let line = list
        .stdout
        .lines()
        .find(|line| line.contains(&path))
        .unwrap_or_else(|| panic!("{list}"));
    assert!(
        line.contains(&format!("  {}  ", kernels()[0])) && !line.contains("(default)"),
        "{list}"
    );
    // The running kernel may not be installed, which makes nothing unusable.
    assert!(!list.stdout.contains("unusable"), "{list}");
}
