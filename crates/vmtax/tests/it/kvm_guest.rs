//! Linux guests on KVM at full speed: what is covered by synthetic events alone elsewhere. `VMTAX_TEST_KVM_GUEST` names
//! the kernel; without it these tests are listed as skipped.

use crate::common::{
    Place, START_AGENT, Signal, Start, agent_device, files_below, has_agent, json,
    kvm_guest_options, number, passes, shared_folder, trials,
};
use crate::layers::is_corrected;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use vmtax_model::testing::KvmGuest;

/// Number of reads, which exits and requests are compared with.
const READS: u64 = 1000;

/// A study of one round in that guest, recorded here.
pub fn kvm<'a>(place: &'a Place, guest: &KvmGuest, study: &str, words: &str) -> Start<'a> {
    let start = place
        .vmtax(study)
        .arg("--dir")
        .arg(place.runs())
        .arg("--kernel")
        .arg(&guest.kernel);
    start.words(&kvm_guest_options()).words(words)
}

fn report(place: &Place) -> Value {
    json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    )
}

/// The shortest time of a workload's operation on a machine, ns: whatever else runs here, some are not disturbed.
fn shortest(report: &Value, machine: &str, operation: &str) -> f64 {
    let mut found = trials(report)
        .iter()
        .filter(|trial| trial["machine"] == machine);
    let operations = found.find_map(|trial| {
        trial["result"]["operations"]
            .as_array()?
            .iter()
            .find(|found| found["name"] == operation)
            .cloned()
    });
    number(
        &operations.unwrap_or_else(|| panic!("no {operation} on {machine}"))["summary"]["min_ns"],
    )
}

#[test]
fn user_mode_costs_nothing_and_a_system_call_little() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let words =
        "--machine native,kvm --rounds 1 cpu cpu.time=1 cpu.max-prime=2000 syscalls --duration 1";
    kvm(&place, &guest, "run", words)
        .start(120)
        .outcome()
        .exits(0);
    let report = report(&place);
    let ratio =
        |operation| shortest(&report, "kvm", operation) / shortest(&report, "native", operation);
    assert!(
        (0.9..1.1).contains(&ratio("event")),
        "cpu: {}",
        ratio("event")
    );
    assert!(
        (0.5..1.5).contains(&ratio("clock_gettime_vdso")),
        "clock_gettime in the vDSO: {}",
        ratio("clock_gettime_vdso")
    );
    assert!(
        shortest(&report, "kvm", "getpid") < 20_000.0,
        "emulated: {}",
        shortest(&report, "kvm", "getpid")
    );
    let kernels = report["findings"]["kernels"].as_array().unwrap();
    assert!(
        kernels.iter().any(|kernel| kernel[0] == "kvm"),
        "{kernels:?}"
    );
}

#[test]
#[ignore = "needs root"]
fn requests_pass_ioeventfd_qemu_and_irqfd() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let words = format!("--machine kvm --pinning split --rounds 1 count={READS} --json");
    let report = json(
        &kvm(&place, &guest, "layers", &words)
            .start(120)
            .outcome()
            .exits(0)
            .stdout,
    );
    let column = &report["findings"]["columns"][0];
    assert_eq!(column["machine"], "kvm");
    let text = place.vmtax("report").arg(place.recording()).succeeds();
    text.shows("guest kernel 6.")
        .shows("(from --kernel)")
        .shows("QEMU's other threads to");
    let pinned = |machine: &str| {
        trials(&report)
            .iter()
            .find(|trial| trial["machine"] == machine)
            .unwrap()["pinned"]
            .clone()
    };
    assert!(
        pinned("kvm")["vcpus"]
            .as_array()
            .is_some_and(|cpus| cpus.len() == 1),
        "{}",
        pinned("kvm")
    );
    assert_eq!(pinned("native"), pinned("kvm"));
    assert_eq!(column["matched"]["operations"], 2 * READS);
    assert!(
        number(&column["matched"]["joined"]) >= 0.99 * (2 * READS) as f64,
        "{}",
        column["matched"]
    );
    assert_eq!(column["clock"]["violations"], 0, "{}", column["clock"]);
    let rows = column["rows"].as_array().unwrap();
    // Each request's doorbell stays in the kernel (ioeventfd), and its interrupt begins there (irqfd).
    for checkpoint in [
        "guest-issue",
        "kvm-notify",
        "qemu-wake",
        "qemu-pop",
        "qemu-submit",
        "host-call",
        "host-issue",
        "host-complete",
        "qemu-reap",
        "qemu-push",
        "inject",
        "guest-interrupt",
        "guest-complete",
        "guest-return",
    ] {
        let passes = passes(column, checkpoint);
        assert!(
            passes > READS,
            "{checkpoint}: {passes} of {} requests",
            2 * READS
        );
    }
    let sum: f64 = rows.iter().map(|row| number(&row["time"]["mean_ns"])).sum();
    let (traced, unexplained) = (
        number(&column["traced"]["mean_ns"]),
        number(&column["unexplained_ns"]),
    );
    assert!(
        (sum + unexplained - traced).abs() < 0.002 * traced,
        "{sum} + {unexplained} of {traced}"
    );
    assert!(unexplained < 0.1 * traced, "{unexplained} of {traced}");
    is_corrected(column, &["guest", "host"]);
    // The guest's kernel has no kprobes: KVM's events of the doorbell show the kick.
    assert_eq!(
        column["missing"].as_array().map(Vec::len),
        Some(0),
        "{}",
        column["missing"]
    );
}

#[test]
#[ignore = "needs root"]
fn exits_are_counted_by_address_halts_by_their_polling() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let words = format!("--machine kvm --json disk count={READS} time=0");
    let report = json(
        &kvm(&place, &guest, "profile", &words)
            .start(120)
            .outcome()
            .exits(0)
            .stdout,
    );
    let exits = &report["exits"];
    assert!(!exits.is_null(), "{:#}", report["missing"]);
    let addresses = exits["addresses"].as_array().unwrap();
    let exit_count = |register: &str, device: &str| -> u64 {
        let is = |a: &&Value| {
            a["register"]
                .as_str()
                .unwrap_or_default()
                .contains(register)
                && a["device"].as_str().unwrap_or_default().contains(device)
        };
        addresses
            .iter()
            .filter(is)
            .filter_map(|a| a["count"].as_u64())
            .sum()
    };
    let doorbells = exit_count("queue notify", "virtio-blk");
    assert!(
        (READS..2 * READS).contains(&doorbells),
        "{doorbells} doorbells of {READS} reads: {addresses:?}"
    );
    assert!(
        exit_count("end of interrupt", "apic") >= READS,
        "{addresses:?}"
    );
    // With ioeventfd no doorbell reaches QEMU.
    let to_qemu: u64 = addresses.iter().filter_map(|a| a["user"].as_u64()).sum();
    assert!(to_qemu < READS / 10, "{to_qemu} exits to QEMU");
    // The disk interrupts as regularly as it is read, and is no timer.
    assert!(!exits.to_string().contains("fast-tick"), "{exits:#}");
    // The vCPU halts between requests: KVM counts how long it polls for the next interrupt.
    let counters = exits["counters"].to_string();
    assert!(
        counters.contains("halt_poll_success_ns") && counters.contains("halt_wakeup"),
        "{counters}"
    );
    let threads = report["threads"].as_array().unwrap();
    assert!(
        threads.iter().any(|thread| thread["name"] == "vCPU 0"),
        "{threads:?}"
    );
}

#[test]
fn a_command_has_its_output_and_its_time_has_a_sum() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let start = kvm(&place, &guest, "exec", "--machine kvm --rounds 1 --");
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; uname -r; exit 3";
    let outcome = start
        .words("sh -c")
        .arg(script)
        .start(120)
        .outcome()
        .exits(3);
    assert!(outcome.stdout.starts_with("6."), "{outcome}");
    // That kernel counts no I/O of processes, and no figure is made of that.
    let outcome = outcome
        .says("n/a: no figure for read calls, write calls, bytes read, bytes written on kvm");
    outcome.says("Results metric");
    let report = report(&place);
    let parts = &report["findings"]["breakdowns"][0];
    let rows = parts["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(&row["machine_s"])).sum();
    let (whole, unexplained) = (number(&parts["machine_s"]), number(&parts["unexplained_s"]));
    assert!((sum + unexplained - whole).abs() < 0.002 * whole, "{parts}");
    assert!(unexplained.abs() < 0.1 * whole + 0.05, "{parts}");
}

#[test]
fn a_planted_slowdown_is_found_by_a_comparison() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    // 20 requests a second: 50 ms each, more than any other load makes of them.
    let start = place
        .vmtax("compare default throttling.iops-total=20")
        .arg("--dir")
        .arg(place.runs());
    let start = start
        .arg("--set")
        .arg(format!("kernel={}", guest.kernel.display()));
    let words = "--machine kvm --rounds 2 --repeats 1 -- disk count=20 time=0";
    let outcome = start
        .words(&kvm_guest_options())
        .words(words)
        .start(180)
        .outcome()
        .exits(0);
    outcome
        .shows("too few rounds")
        .shows("QEMU's other threads to");
    let report = report(&place);
    let rows = report["findings"]["against"][0]["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["metric"] == "disk.latency-p50")
        .unwrap();
    assert!(
        number(&row["ratio"]["median"]) > 2.0 && number(&row["other"]["median"]) > 4e7,
        "{row}"
    );
    assert_eq!(trials(&report).len(), 4);
    for trial in trials(&report) {
        assert_eq!(
            trial["pinned"]["vcpus"].as_array().map(Vec::len),
            Some(1),
            "{trial}"
        );
    }
    let files = files_below(&place.recording());
    let commands: Vec<&PathBuf> = files
        .iter()
        .filter(|file| file.ends_with("qemu.command"))
        .collect();
    assert_eq!(commands.len(), 4);
    assert!(
        commands
            .iter()
            .all(|file| fs::read_to_string(file).unwrap().contains("-accel kvm"))
    );
}

#[test]
fn a_tree_is_read_through_each_share() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let plan = place.put(
        "plan.toml",
        "rounds = 1\nmachines = ['kvm']\n[tree]\nfiles = 120\nbytes = 1000000\n\
         [[variant]]\nname = '9p'\nset = { share = '9p' }\n\
         [[variant]]\nname = 'virtiofs'\nset = { share = 'virtiofs' }\n\
         [[variant]]\nname = 'disk'\nset = { share = 'disk' }\n\
         [[workload]]\nname = 'tree'\n",
    );
    let start = place
        .vmtax("run --json --dir")
        .arg(place.runs())
        .arg("--kernel")
        .arg(&guest.kernel);
    let report = json(
        &start
            .arg(plan)
            .words(&kvm_guest_options())
            .start(120)
            .outcome()
            .exits(0)
            .stdout,
    );
    for (variant, kind) in [("9p", "9p"), ("virtiofs", "virtiofs"), ("disk", "ext4")] {
        let trial = trials(&report)
            .iter()
            .find(|trial| trial["variant"] == variant)
            .unwrap();
        assert_eq!(
            (&trial["outcome"], &trial["machine"]),
            (&Value::from("done"), &Value::from("kvm")),
            "{trial}"
        );
        assert!(
            trial["share"]["mount"].as_str().unwrap().contains(kind),
            "{}",
            trial["share"]
        );
    }
}

/// To `layers --vm` the guest of another vmtax is a VM like any other.
#[test]
#[ignore = "needs root"]
fn requests_of_a_running_guest_are_followed_from_its_doorbell_to_its_interrupt() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let (place, other) = (Place::new(), Place::new());
    let words = "--machine kvm --rounds 1 disk rw=randread iodepth=32 count=0 time=40";
    let mut run = kvm(&other, &guest, "run", words).start(120);
    let qemu = |place: &Place| {
        let mut all = place.processes().into_iter();
        all.find(|process| process.is_qemu() && process.command.contains(" -kernel "))
            .map(|qemu| qemu.pid)
    };
    let pid = run.until("the guest runs", qemu);
    // Until it has booted there are no requests.
    let mut tries = (0..12).map(|number| {
        let words = format!("layers --vm {pid} --duration 3 --output out-{number} --json");
        json(&place.vmtax(&words).succeeds().stdout)
    });
    let count = |report: &Value| {
        report["findings"]["requests"][0]["requests"]
            .as_u64()
            .unwrap_or(0)
    };
    let (number_of_report, report) = (0..)
        .zip(&mut tries)
        .find(|(_, report)| count(report) > 100)
        .expect("it reads its disk");
    let words = format!("layers --vm {pid} --duration 1 --no-probes --output no-probes --json");
    let without = json(&place.vmtax(&words).succeeds().stdout);
    run.signal(crate::common::Signal::INT);
    run.outcome();
    let followed = &without["findings"]["requests"][0];
    assert!(
        number(&followed["followed"]) >= 0.98 * number(&followed["requests"])
            && followed["davg"].is_object(),
        "{followed:#}"
    );
    assert!(
        passes(&without["findings"]["layers"]["columns"][0], "inject") > 0,
        "{followed:#}"
    );
    same_without_probes(&place, &format!("out-{number_of_report}"), &report);
    let requests = &report["findings"]["requests"][0];
    assert_eq!(requests["kind"], "read");
    assert!(
        number(&requests["followed"]) >= 0.98 * number(&requests["requests"]),
        "{requests:#}"
    );
    assert!(requests["davg"].is_object(), "{requests:#}");
    let column = &report["findings"]["layers"]["columns"][0];
    for to in [
        "qemu-wake",
        "qemu-pop",
        "host-issue",
        "host-complete",
        "qemu-reap",
        "qemu-push",
        "inject",
    ] {
        assert!(passes(column, to) > 0, "no {to}: {:#}", column["rows"]);
    }
}

/// The mean of each part of a request that two checkpoints enclose, ns.
pub fn parts(column: &Value) -> BTreeMap<(String, String), f64> {
    let mut parts = BTreeMap::new();
    for row in column["rows"].as_array().unwrap() {
        let [from, to] = ["from", "to"].map(|end| row[end].as_str().unwrap().to_owned());
        *parts.entry((from, to)).or_default() += number(&row["time"]["mean_ns"]);
    }
    parts
}

/// The report of a copy of a recording from which the probes' events were removed.
pub fn report_without_probes(place: &Place, recording: &str) -> Value {
    let copy = place.path(&format!("{recording}-without-probes"));
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(place.path(recording))
        .arg(&copy)
        .status()
        .unwrap();
    assert!(copied.success());
    for file in files_below(&copy) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("vmtax_") {
            fs::remove_file(file).unwrap();
        }
    }
    json(&place.vmtax("report --json").arg(&copy).succeeds().stdout)
}

/// Compares what remains without the probes' events with what they show.
fn same_without_probes(place: &Place, recording: &str, with: &Value) {
    let without = report_without_probes(place, recording);
    let of = |report: &Value| {
        let findings = &report["findings"];
        let requests = findings["requests"][0].clone();
        (requests, parts(&findings["layers"]["columns"][0]))
    };
    let ((requests, rows), (all, all_rows)) = (of(&without), of(with));
    assert_eq!(
        (&requests["disk"], &requests["kind"]),
        (&all["disk"], &all["kind"])
    );
    assert!(
        number(&requests["followed"]) >= 0.98 * number(&all["followed"]),
        "{requests:#} of {all:#}"
    );
    // What both have is the same; without probes QEMU's part is one, from its wake-up to its call.
    let named = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let submits = [
        named("qemu-wake", "qemu-pop"),
        named("qemu-pop", "qemu-submit"),
        named("qemu-submit", "host-call"),
    ];
    let sum: f64 = submits.iter().filter_map(|part| all_rows.get(part)).sum();
    let expected = [
        (named("kvm-notify", "qemu-wake"), None),
        (named("qemu-wake", "host-call"), Some(sum)),
        (named("host-call", "host-issue"), None),
        (named("host-issue", "host-complete"), None),
    ];
    for (part, expected) in expected {
        // QEMU's part of a request that it found without a kick shows by its pop alone; which call of several under way is a
        // request's differs on a busy host.
        let is_of_submission = part.1 == "host-call" || part.0 == "host-call";
        let least = if is_of_submission { 0.7 } else { 0.97 };
        let (found, expected) = (rows[&part], expected.unwrap_or_else(|| all_rows[&part]));
        assert!(
            (least..=2.0 - least).contains(&(found / expected)),
            "{part:?}: {found} without, {expected} with probes"
        );
    }
    // The end is the interrupt in both: which of a batch, the queue alone could tell.
    let [gavg, with] = [&requests, &all].map(|one| number(&one["gavg"]["mean_ns"]));
    assert!((0.85..=1.03).contains(&(gavg / with)), "{gavg} {with}");
}

/// Reads of a disk that answers 20 ms late.
const LATE_READS: &str = "for i in $(seq 3000); do dd if=/dev/vda of=/dev/null bs=4k count=5 iflag=direct 2>/dev/null; sleep 0.3; done\n";

#[test]
fn a_guests_agent_gives_its_own_latency_and_steal() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    if !has_agent() {
        return;
    }
    let (place, folder) = (Place::new(), shared_folder());
    let late = "if=none,id=late,format=raw,file.driver=null-co,file.size=64M,file.read-zeroes=on,file.latency-ns=20000000";
    let start = kvm(&place, &guest, "exec", "--machine kvm --rounds 1 -q")
        .qemu_args(agent_device(folder.path()));
    let start = start.qemu_args(["-drive", late, "-device", "virtio-blk-pci,drive=late"]);
    let mut running = start
        .arg("--")
        .arg("sh")
        .arg("-c")
        .arg(format!("{START_AGENT}{LATE_READS}"))
        .start(300);
    let said = running.until("the agent answers, and the disk is read", |place| {
        let pid = place.vm()?;
        let top = place
            .vmtax(&format!(
                "top {pid} --json --level 1 --samples 1 --interval 3"
            ))
            .outcome();
        let vm = json(top.stdout.lines().next()?)["vms"][0].clone();
        (vm["guest"]["disks"][0]["per_s"].as_f64()? > 1.0).then_some(vm)
    });
    let disk = &said["guest"]["disks"][0];
    assert_eq!(disk["name"], "vda", "{disk:#}");
    // The guest's clock of requests counts milliseconds.
    assert!(
        number(&disk["gavg_ns"]) >= 19e6,
        "the planted latency: {disk:#}"
    );
    assert!(
        (0.0..=1.0).contains(&number(&said["guest"]["steal"])),
        "{said:#}"
    );
    running.signal(Signal::INT);
    running.outcome();
}
