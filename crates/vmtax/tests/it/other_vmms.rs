//! VMs of other VMMs than QEMU: a small VMM of these tests (`common/vmm.py`), whose guest counts in user mode, or halts.

use crate::common::{Place, Quota, Signal, is_root, json, passes, send, skipped, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/common/vmm.py");

/// A VM of the tests' VMM; it ends with the value.
struct OtherVm {
    process: Child,
    /// PID of its helper, where it has one.
    helper: i32,
}

impl OtherVm {
    fn start(options: &str) -> Option<OtherVm> {
        OtherVm::start_as(&mut Command::new("python3"), options)
    }

    /// One that this Python runs. `None`, and said, where there is no KVM.
    fn start_as(python: &mut Command, options: &str) -> Option<OtherVm> {
        if fs::File::open("/dev/kvm").is_err() {
            skipped("there is no /dev/kvm that this user may open");
            return None;
        }
        let mut process = python
            .arg(PROGRAM)
            .args(options.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        let helper = said.trim().strip_prefix("ready ").expect(&said);
        Some(OtherVm {
            helper: helper.parse().unwrap(),
            process,
        })
    }

    fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// Returns the VM's entry in the list of VMs.
    fn listed(&self, place: &Place) -> Option<Value> {
        let all = json(&place.vmtax("vms --json").succeeds().stdout);
        let mut all = all.as_array().unwrap().iter();
        all.find(|vm| vm["pid"] == self.pid()).cloned()
    }

    /// Returns the VM's entry, once its vCPUs are known from this source.
    fn with_roles(&self, place: &Place, source: &str) -> Value {
        until("its vCPUs are known", || {
            let entry = self.listed(place)?;
            let threads = entry["threads"].as_array()?;
            let is_vcpu = |thread: &Value| thread["role"]["vcpu"].is_number();
            let has_vcpus = entry["vcpus"] == threads.iter().filter(|t| is_vcpu(t)).count();
            (has_vcpus && entry["roles_from"] == source).then_some(entry)
        })
    }
}

impl Drop for OtherVm {
    fn drop(&mut self) {
        send(self.process.id(), Signal::CONT);
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn a_vm_of_an_unknown_vmm_is_listed_with_what_it_has_open() {
    let place = Place::new();
    let image = place.put("disk.img", vec![0; 1 << 20]);
    let tap = format!("vt{}", std::process::id() % 100_000_000);
    let mut options = format!("--vcpus 2 --image {}", image.display());
    if is_root() {
        options += &format!(" --tap {tap}");
    }
    let Some(vm) = OtherVm::start(&options) else {
        return;
    };
    let entry = vm.with_roles(&place, "guest-time");
    assert_eq!(
        ["vmm", "accelerator", "name", "vcpus"].map(|field| entry[field].clone()),
        ["unknown".into(), "kvm".into(), Value::Null, 2.into()],
        "{entry:#}"
    );
    let memory = entry["memory"].as_u64().unwrap();
    assert!((64 << 20..128 << 20).contains(&memory), "{memory}");
    let disks = entry["disks"].as_array().unwrap();
    let files: Vec<_> = disks
        .iter()
        .map(|disk| disk["file"].as_str().unwrap())
        .collect();
    assert_eq!(files, [image.canonicalize().unwrap().to_str().unwrap()]);
    if is_root() {
        assert_eq!(entry["nics"][0]["tap"], tap.as_str(), "{entry:#}");
    }
    let text = place.vmtax("vms").succeeds().stdout;
    assert!(text.contains("unknown VMM"), "{text}");
    assert!(
        text.contains("monitor: vmtax asks no monitor of the VMM"),
        "{text}"
    );
    let words = format!("top {} --json --samples 1 --interval 1", vm.pid());
    let top = json(&place.vmtax(&words).succeeds().stdout);
    let rates = &top["vms"][0];
    assert!(rates["run"].as_f64().unwrap() > 0.0, "{rates:#}");
    assert_eq!(rates["vmm"], "unknown");
}

#[test]
fn descriptors_that_were_inherited_or_passed_make_no_vm() {
    for (option, are_passed) in [("--fork", false), ("--pass", true)] {
        let Some(vm) = OtherVm::start(option) else {
            return;
        };
        until("the VM is found", || {
            vmtax_vmm::running().contains(&vm.pid()).then_some(())
        });
        let links = fs::read_dir(format!("/proc/{}/fd", vm.helper)).unwrap();
        let links = links.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let are_held = links
            .filter(|link| link.starts_with("anon_inode:kvm-vcpu:0"))
            .count()
            > 0;
        assert!(are_held, "the helper has them, passed: {are_passed}");
        assert!(!vmtax_vmm::running().contains(&vm.helper), "{option}");
    }
}

#[test]
fn a_vmm_is_named_and_what_needs_qemu_is_refused() {
    let place = Place::new();
    // The kernel shows a file's own name, whatever it was started by.
    let asked = "import os, sys; print(os.path.realpath(sys.executable), sys.base_prefix)";
    let python = Command::new("python3")
        .args(["-c", asked])
        .output()
        .unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    let (python, prefix) = python.trim().split_once(' ').unwrap();
    let program = place.path("firecracker-v1.12.0");
    fs::copy(python, &program).unwrap();
    let name = format!("web{}", std::process::id());
    let options = format!("--halt --threads fc_vcpu+ --id {name}");
    let Some(vm) = OtherVm::start_as(Command::new(program).env("PYTHONHOME", prefix), &options)
    else {
        return;
    };
    let entry = vm.with_roles(&place, "names");
    assert_eq!(
        (&entry["vmm"], &entry["name"]),
        (&"firecracker".into(), &name.as_str().into()),
        "{entry:#}"
    );
    place
        .vmtax(&format!("layers --vm {name} --duration 1 --device net"))
        .fails(&["reads no tap"]);
}

#[test]
fn a_halted_vcpu_is_known_by_its_call() {
    let place = Place::new();
    let Some(vm) = OtherVm::start("--halt") else {
        return;
    };
    vm.with_roles(&place, "kvm-run");
}

#[test]
#[ignore = "needs root"]
fn a_quota_and_a_stop_are_named_without_words_of_qemus() {
    let place = Place::new();
    let Some(quota) = Quota::set() else {
        return skipped("there is no CPU controller to use");
    };
    let Some(vm) = OtherVm::start("--vcpus 1") else {
        return;
    };
    vm.with_roles(&place, "guest-time");
    fs::write(quota.0.join("cgroup.procs"), vm.pid().to_string()).unwrap();
    let diagnosis = |out: &str| {
        let words = format!("diagnose {} --duration 3 --output {out}", vm.pid());
        place.vmtax(&words).start(120).outcome().exits(0).stdout
    };
    let limited = diagnosis("limited");
    assert!(
        limited.contains("A CPU quota throttles the VM"),
        "{limited}"
    );
    send(vm.process.id(), Signal::STOP);
    let stopped = diagnosis("stopped");
    assert!(
        stopped.contains("The VMM is stopped (SIGSTOP)"),
        "{stopped}"
    );
    assert!(stopped.contains("Resume the VMM (kill -CONT"), "{stopped}");
    for text in [limited, stopped] {
        // The columns' legend names QEMU.
        let (advice, _) = text.split_once("Counters over").unwrap();
        let words = ["virsh", "-device", "QMP", "QEMU"];
        let said = words.iter().find(|word| advice.contains(**word));
        assert_eq!(said, None, "{text}");
    }
    drop(vm);
    until("the group is empty", || fs::remove_dir(&quota.0).ok());
}

/// So long the thread of the test's VMM works before it sends a packet, and before it interrupts for one, ns.
const LATE_NS: f64 = 400e3;

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    assert!(status.unwrap().success(), "{words}");
}

/// Who wakes the thread, its calls on the tap and its interrupts show the path of a packet.
#[test]
#[ignore = "needs root"]
fn packets_of_an_unknown_vmm_are_followed_and_its_work_is_found() {
    let place = Place::new();
    let tap = format!("vp{}", std::process::id() % 100_000_000);
    let Some(vm) = OtherVm::start(&format!("--tap {tap} --pings 10.213.78")) else {
        return;
    };
    ip(&format!("addr add 10.213.78.1/24 dev {tap}"));
    ip(&format!("link set {tap} up"));
    ip(&format!(
        "neigh replace 10.213.78.2 lladdr 02:00:00:00:00:02 dev {tap} nud permanent"
    ));
    vm.with_roles(&place, "guest-time");
    let words = format!(
        "layers --vm {} --device net --duration 1.5 --json",
        vm.pid()
    );
    let report = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
    let found = &report["findings"];
    assert!(
        found["missing"]
            .to_string()
            .contains("no functions of the VMM"),
        "{:#}",
        found["missing"]
    );
    let columns = found["layers"]["columns"].as_array().unwrap();
    let all = found["packets"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{all:#?}");
    for (packets, column) in all.iter().zip(columns) {
        let [count, followed] =
            ["packets", "followed"].map(|field| packets[field].as_f64().unwrap());
        assert!(count > 50.0 && followed >= 0.98 * count, "{packets:#}");
        let (path, late) = match packets["kind"].as_str() {
            Some("transmit") => (["net-tx-wake", "net-tap-receive"], "net-tap-write"),
            _ => (["net-host-xmit", "net-tap-read"], "net-inject"),
        };
        for to in path.iter().chain([&late]) {
            assert!(
                passes(column, to) as f64 > 0.5 * followed,
                "{to} is seldom passed: {:#}",
                column["rows"]
            );
        }
        let rows = column["rows"].as_array().unwrap().iter();
        let work: f64 = rows
            .filter(|row| row["to"] == late)
            .map(|row| row["time"]["p50_ns"].as_f64().unwrap())
            .sum();
        let is_vmms = |row: &Value| row["to"] != late || row["layer"] == "qemu";
        assert!(column["rows"].as_array().unwrap().iter().all(is_vmms));
        assert!(
            (0.98 * LATE_NS..4.0 * LATE_NS).contains(&work),
            "{late}: {work} ns of {LATE_NS}: {:#}",
            column["rows"]
        );
    }
}
