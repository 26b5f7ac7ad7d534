//! Traces that other tools record of a real VM: what QEMU and the kernel wrote of it is what the import counts.

use crate::common::boot_guest::{BootGuest, polling_firmware, reading};
use crate::common::tracing;
use crate::common::{Place, json, skipped, until};
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

const READS: [u16; 2] = [300, 40];

/// The findings of an import of these files.
fn import(place: &Place, files: &[&PathBuf], out: &str) -> Value {
    let start = files
        .iter()
        .fold(place.vmtax("import"), |start, file| start.arg(file));
    json(
        &start
            .words(&format!("--json --output {out}"))
            .succeeds()
            .stdout,
    )["findings"]
        .clone()
}

#[test]
fn requests_in_a_qemus_log_are_those_of_its_disks() {
    let place = Place::new();
    let log = place.path("qemu.log");
    let second = "-drive if=none,id=d1,format=raw,file.driver=null-co,file.size=64M -device virtio-blk-pci,drive=d1,id=disk1";
    let traced = format!(
        "{second} -msg timestamp=on -D {} -trace virtio_blk_*",
        log.display()
    );
    let mut vm = BootGuest::start(&place, "logged", "tcg", &reading(READS), "", &traced);
    vm.ask("cont");
    until("the guest reads", || {
        (vm.reads_done("disk1") >= u64::from(READS[1])).then_some(())
    });
    let mut done = ["disk0", "disk1"].map(|disk| vm.reads_done(disk));
    vm.kill();
    let found = import(&place, &[&log], "out");
    let requests = found["layers"]["requests"].as_array().unwrap();
    let mut followed: Vec<u64> = requests
        .iter()
        .map(|requests| requests["followed"].as_u64().unwrap())
        .collect();
    followed.sort_unstable();
    done.sort_unstable();
    assert_eq!(followed, done, "{requests:#?}");
    assert_eq!(
        (&found["files"][0]["side"], &found["files"][0]["clock"]),
        (&"qemu".into(), &"realtime".into())
    );
    place
        .vmtax("report out")
        .succeeds()
        .shows("Imported traces")
        .shows("GAVG");
    let refused = place
        .vmtax("import qemu.log --guest-trace other.dat")
        .fails(&["is not one of the files"]);
    assert_eq!(
        refused
            .stderr
            .lines()
            .filter(|line| line.starts_with("Error"))
            .count(),
        1,
        "{}",
        refused.stderr
    );
}

/// Text of a kernel's trace, and what its report says first, and does not say.
const REPORTS: [(&str, &[&str], &[&str]); 5] = [
    (
        " CPU 0/KVM-7 [001] d..1. 5.000001: kvm_exit: reason HLT rip 0x1 info 0 0\n CPU 0/KVM-7 [001] d..1. 5.000051: kvm_exit: \
         reason HLT rip 0x1 info 0 0\n",
        &[
            "HLT 2 – ",
            " – –",
            "times of exits: kvm_entry is not in the trace. → record `-e kvm`",
        ],
        &["0 ns"],
    ),
    (
        " CPU 0/KVM-7 [001] d..1. 5.000001: kvm_entry: vcpu 0\n",
        &["No VM exit of VM with vCPU thread 7 was recorded"],
        &["KVM's counters"],
    ),
    (
        " CPU 0/KVM-7 [001] d..1. 5.000001: kvm_exit: reason HLT rip 0x1 info 0 0\nCPU:1 [LOST 117 EVENTS]\n CPU 0/KVM-7 [001] \
         d..1. 5.000201: kvm_entry: vcpu 0\n",
        &[
            "1 VM exit of VM with vCPU thread 7 in 200 µs. 117 events were lost: the counts are too low",
        ],
        &["are halted"],
    ),
    (
        " app-9 [000] ..... 5.000001: block_rq_issue: 259,0 R 4096 () 8 + 8 [app]\n app-9 [000] ..... 5.000201: block_rq_complete: \
         259,0 R () 8 + 8 [0]\n",
        &[
            "A read of disk 259:0 takes 200 µs (mean)",
            "Imported block trace",
            "--guest-trace",
        ],
        &["Largest layer", "guest disk", "QEMU", "service time"],
    ),
    (
        "7@1700000000.000001:virtio_blk_handle_read vdev 0x5 req 0x6 sector 8 nsectors 8\n7@1700000000.000501:virtio_blk_req_complete \
         vdev 0x5 req 0x6 status 0\n",
        &[
            "100 % of the mean is below QEMU's virtqueue: QEMU and everything below it, not distinguished.",
        ],
        &["% is service time", "host kernel (", "Largest layer"],
    ),
];

#[test]
fn a_report_says_what_a_trace_does_not() {
    let place = Place::new();
    // The trace may be of another machine than this.
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap();
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let here = model
        .and_then(|line| Some(line.split_once(": ")?.1))
        .unwrap();
    for (n, (trace, says, says_not)) in REPORTS.iter().enumerate() {
        fs::write(place.path("trace"), trace).unwrap();
        let outcome = place
            .vmtax(&format!("import trace --output out{n}"))
            .succeeds();
        let text = outcome.stdout.replace('\u{a0}', " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let report = text.split("Files file").next().unwrap();
        for said in *says {
            assert!(text.contains(said), "no {said:?} in\n{text}");
        }
        for not in *says_not {
            assert!(!report.contains(not), "{not:?} in\n{report}");
        }
        assert!(!report.contains(here), "{here:?} in\n{report}");
    }
}

/// An instance of tracefs that records KVM's events of some threads; it goes away with the value.
struct Instance(PathBuf);

impl Instance {
    fn start(threads: &str) -> Instance {
        let instance =
            Instance(tracing().join(format!("instances/import-test-{}", std::process::id())));
        fs::create_dir(&instance.0).unwrap();
        instance.set("buffer_size_kb", "16384");
        instance.set("set_event_pid", threads);
        instance.set("events/kvm/enable", "1");
        instance
    }

    /// Events in its buffers.
    fn entries(&self) -> u64 {
        let cpus = fs::read_dir(self.0.join("per_cpu")).unwrap();
        let stats = cpus.map(|cpu| fs::read_to_string(cpu.unwrap().path().join("stats")).unwrap());
        let entries = |stats: String| {
            stats
                .lines()
                .find_map(|line| line.strip_prefix("entries: ")?.parse::<u64>().ok())
        };
        stats.filter_map(entries).sum()
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // trace-cmd may have removed it.
        let _ = fs::write(self.0.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "needs root"]
fn exits_in_a_kernels_trace_are_those_of_its_text_and_of_trace_cmds_file() {
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        skipped("needs KVM");
        return;
    }
    let place = Place::new();
    let more = format!(
        "-serial null -bios {}",
        place.put("rom", polling_firmware()).display()
    );
    let vm = BootGuest::start(&place, "polls", "kvm", &reading([0, 0]), "", &more);
    let vcpu = vm.ask("query-cpus-fast")[0]["thread-id"].clone();
    let instance = Instance::start(&vcpu.to_string());
    vm.ask("cont");
    until("the guest polls", || {
        (instance.entries() > 20_000).then_some(())
    });
    instance.set("tracing_on", "0");
    let text = place.path("trace");
    fs::copy(instance.0.join("trace"), &text).unwrap();
    let lines = fs::read_to_string(&text).unwrap();
    let printed = |what: &str| lines.lines().filter(|line| line.contains(what)).count() as u64;
    let expected = [
        printed("pio_read at 0x3fd "),
        printed("pio_write at 0x3f8 "),
    ];
    assert!(
        expected[0] > 100,
        "{} lines: {}",
        lines.lines().count(),
        &lines[lines.len().saturating_sub(3000)..]
    );
    let counts = |found: &Value| {
        let count = |(address, write): (u64, bool)| {
            let all = found["exits"]["exits"]["addresses"].as_array().unwrap();
            let of = all
                .iter()
                .find(|exit| exit["address"] == address && exit["write"] == write);
            of.map_or(0, |exit| exit["count"].as_u64().unwrap())
        };
        [(0x3fd, false), (0x3f8, true)].map(count)
    };
    assert_eq!(counts(&import(&place, &[&text], "out-text")), expected);
    let file = place.path("trace.dat");
    let name = instance.0.file_name().unwrap();
    let extract = Command::new("trace-cmd")
        .args(["extract", "-o"])
        .arg(&file)
        .arg("-B")
        .arg(name)
        .output();
    match extract {
        Ok(output) if output.status.success() => {
            let found = import(&place, &[&file], "out-dat");
            assert_eq!(counts(&found), expected, "{}", found["files"]);
        }
        _ => skipped("needs trace-cmd for trace.dat"),
    }
}
