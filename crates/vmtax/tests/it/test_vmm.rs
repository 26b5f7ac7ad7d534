//! Linux guests of a VMM of the tests' own (`vmtax-test-vmm`), which vmtax does not know: what it plants is found from outside.

use crate::common::{Ends, Place, Quota, Signal, json, number, passes, send, skipped, until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use vmtax_model::testing::KvmGuest;

/// Longer than what the VMM and a busy host add to it, µs.
const PLANTED_US: u64 = 2000;
const IMAGE_BYTES: u64 = 16 << 20;

/// A VM of that VMM, whose guest uses its disk; it ends with the value.
struct TestVm(Child);

impl TestVm {
    /// Starts one with options of the VMM; `guest`: those of its `/init`. `None`, and said, where it cannot run.
    fn start(place: &Place, options: &str, guest: &str) -> Option<TestVm> {
        let guest_kernel = KvmGuest::given()?;
        if fs::File::open("/dev/kvm").is_err() {
            skipped("there is no /dev/kvm that this user may open");
            return None;
        }
        let program = Path::new(env!("CARGO_BIN_EXE_vmtax")).with_file_name("vmtax-test-vmm");
        if !program.exists() {
            skipped("vmtax-test-vmm is not built: `cargo build -p vmtax-test-vmm`");
            return None;
        }
        let image = place.put("disk.img", vec![7; IMAGE_BYTES as usize]);
        // The file system has it in one piece.
        fs::File::open(&image).unwrap().sync_all().unwrap();
        let console = place.path("console");
        let arguments = KvmGuest::kernel_args(vmtax_clock::host_mhz()).join(" ");
        let process = Command::new(program)
            .arg("--kernel")
            .arg(guest_kernel.kernel)
            .arg("--append")
            .arg(format!("quiet {arguments} {guest}"))
            .arg("--image")
            .arg(image)
            .arg("--console")
            .arg(&console)
            .arg("--direct")
            .args(options.split_whitespace())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let vm = TestVm(process);
        until("the guest uses its disk", || {
            let said = fs::read_to_string(&console).unwrap_or_default();
            said.contains("the guest uses its disk").then_some(())
        });
        Some(vm)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The findings of `layers --vm` about its reads, and their rows.
    fn reads(&self, place: &Place) -> (Value, Value) {
        let words = format!(
            "layers --vm {} --duration 1 --output layers --json",
            self.pid()
        );
        let report = json(&place.vmtax(&words).start(60).outcome().exits(0).stdout);
        let findings = &report["findings"];
        let (requests, column) = (&findings["requests"][0], &findings["layers"]["columns"][0]);
        assert_eq!(requests["kind"], "read", "{findings:#}");
        (requests.clone(), column.clone())
    }

    fn diagnosis(&self, place: &Place, out: &str) -> Value {
        let words = format!("diagnose {} --json --output {out} --duration 2", self.pid());
        let report = json(&place.vmtax(&words).start(60).outcome().exits(0).stdout);
        report["findings"].clone()
    }
}

impl Drop for TestVm {
    fn drop(&mut self) {
        send(self.pid(), Signal::CONT);
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The median of a part of the requests, between two checkpoints, in which a thread worked, µs.
fn median(column: &Value, from: &str, to: &str) -> f64 {
    let rows = column["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| {
        (&row["from"], &row["to"], &row["state"]) == (&from.into(), &to.into(), &"running".into())
    });
    let row = row.unwrap_or_else(|| panic!("no row from {from} to {to}: {rows:#?}"));
    number(&row["time"]["p50_ns"]) / 1000.0
}

/// Follows nearly all requests of a guest that makes so many at once, and finds what was planted.
fn follows(options: &str, depth: u32, planted: Option<[&str; 2]>) {
    let place = Place::new();
    // The VMM's thread waits again before the next request comes, also on a busy host.
    let pause_us = if planted.is_some() { 2000 } else { 0 };
    let guest = format!("depth={depth} pause={pause_us}");
    let Some(vm) = TestVm::start(&place, options, &guest) else {
        return;
    };
    let (requests, column) = vm.reads(&place);
    let (all, followed) = (number(&requests["requests"]), number(&requests["followed"]));
    assert!(all > 20.0 && followed >= 0.98 * all, "{requests:#}");
    // From the vCPU's kick to the interrupt, which a worker of the kernel delivers.
    for checkpoint in [
        "qemu-wake",
        "host-call",
        "host-issue",
        "qemu-notify",
        "inject",
    ] {
        let passes = passes(&column, checkpoint) as f64;
        let has_each = match checkpoint {
            "host-issue" => true,
            // Not of what the thread finds by itself, as on a busy host.
            "qemu-wake" | "host-call" => false,
            // Of several at once the guest does not ask for each.
            _ => depth == 1,
        };
        let least = if has_each { 0.98 * followed } else { 1.0 };
        assert!(
            passes >= least,
            "{checkpoint}: {passes} of {followed}: {column:#}"
        );
    }
    if let Some([from, to]) = planted {
        let (found, planted) = (median(&column, from, to), PLANTED_US as f64);
        assert!(
            (0.95..1.1).contains(&(found / planted)),
            "{found} µs: {column:#}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn requests_by_system_calls_are_followed_to_a_worker_of_the_kernel() {
    follows("", 4, None);
}

#[test]
#[ignore = "needs root"]
fn requests_by_io_uring_are_followed_to_a_worker_of_the_kernel() {
    follows("--engine io-uring", 4, None);
}

#[test]
#[ignore = "needs root"]
fn a_planted_delay_before_the_system_call_is_found() {
    let options = format!("--delay-submit {PLANTED_US}");
    follows(&options, 1, Some(["qemu-wake", "host-call"]));
}

#[test]
#[ignore = "needs root"]
fn a_planted_delay_before_the_interrupt_is_found() {
    let options = format!("--engine io-uring --delay-interrupt {PLANTED_US}");
    follows(&options, 1, Some(["qemu-reap", "qemu-notify"]));
}

#[test]
#[ignore = "needs root"]
fn what_is_planted_in_a_vm_of_an_unknown_vmm_is_named_and_nothing_else() {
    let place = Place::new();
    // It reads seldom, and waits meanwhile.
    let Some(vm) = TestVm::start(&place, "", "pause=20000") else {
        return;
    };
    let all = json(&place.vmtax("vms --json").succeeds().stdout);
    let all = all.as_array().unwrap();
    let entry = all.iter().find(|entry| entry["pid"] == vm.pid()).unwrap();
    assert_eq!(
        (
            &entry["vmm"],
            &entry["vcpus"],
            entry["disks"].as_array().map(Vec::len)
        ),
        (&"unknown".into(), &1.into(), Some(1)),
        "{entry:#}"
    );
    assert_eq!(entry["memory"], 128 << 20, "{entry:#}");
    let file = entry["disks"][0]["file"].as_str().unwrap();
    assert!(file.ends_with("/disk.img"), "{entry:#}");
    let healthy = vm.diagnosis(&place, "healthy");
    let causes = healthy["causes"].as_array().unwrap().iter();
    // Other tests take the processors, too.
    let others: Vec<&Value> = causes
        .filter(|cause| cause["rule"] != "vm-run-queue-wait")
        .collect();
    assert!(others.is_empty(), "{healthy:#}");
    send(vm.pid(), Signal::STOP);
    let stopped = vm.diagnosis(&place, "stopped");
    assert_eq!(
        stopped["causes"][0]["rule"], "vm-process-stopped",
        "{stopped:#}"
    );
}

#[test]
#[ignore = "needs root"]
fn a_busy_guest_without_a_cpu_of_its_own_is_told_why() {
    let place = Place::new();
    let Some(vm) = TestVm::start(&place, "", "busy=1 pause=20000") else {
        return;
    };
    let on_one_cpu = |pid: u32| {
        let words = format!("-a -p -c 0 {pid}");
        let mut taskset = Command::new("taskset");
        let pinned = taskset.args(words.split_whitespace());
        assert!(pinned.stdout(Stdio::null()).status().unwrap().success());
    };
    on_one_cpu(vm.pid());
    let busy = [
        "-c",
        "0",
        "timeout",
        "60",
        "sh",
        "-c",
        "while :; do :; done",
    ];
    let hogs = [(); 2].map(|()| Ends::start_with("taskset", busy));
    let hogged = vm.diagnosis(&place, "hogged");
    drop(hogs);
    assert_eq!(
        hogged["causes"][0]["rule"], "vm-run-queue-wait",
        "{hogged:#}"
    );
    let Some(quota) = Quota::set() else {
        return skipped("there is no CPU controller to use");
    };
    fs::write(quota.0.join("cgroup.procs"), vm.pid().to_string()).unwrap();
    let limited = vm.diagnosis(&place, "limited");
    assert_eq!(limited["causes"][0]["rule"], "vm-throttled", "{limited:#}");
    drop(vm);
    until("the group is empty", || fs::remove_dir(&quota.0).ok());
}
