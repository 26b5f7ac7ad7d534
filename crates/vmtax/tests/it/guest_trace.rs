//! `vmtax agent observe` in a guest that others started, joined with the host's trace of its VM.

use crate::common::{
    Place, Running, START_AGENT, Signal, agent_device, binary, has_agent, json, kvm_guest_options,
    number, shared_folder, skipped,
};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmtax_model::testing::KvmGuest;

/// The serial number of the disk that the guest reads.
const SERIAL: &str = "read-by-test";

/// A KVM guest that runs this script, in which `$vmtax` is the program and `$disk` the disk; what it prints goes to a file.
struct Guest<'a> {
    running: Running<'a>,
    said: PathBuf,
    _disk: tempfile::TempDir,
}

impl<'a> Guest<'a> {
    fn start(place: &'a Place, guest: &KvmGuest, script: &str) -> Guest<'a> {
        let folder = shared_folder();
        let image = folder.path().join("disk.raw");
        fs::write(&image, vec![7; 64 << 20]).unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o666)).unwrap();
        File::open(&image).unwrap().sync_all().unwrap(); // its bytes have places on the device
        let drive = format!(
            "if=none,id=read,format=raw,file={},cache=none,aio=native,throttling.iops-total=500",
            image.display()
        );
        let device = format!("virtio-blk-pci,drive=read,id=read0,serial={SERIAL}");
        let script = format!(
            "vmtax={}\nfor d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = {SERIAL} ] && disk=/dev/$(basename $d); done\n{script}",
            binary()
        );
        let said = place.path("said");
        let start = place
            .vmtax("exec")
            .arg("--dir")
            .arg(place.runs())
            .arg("--kernel")
            .arg(&guest.kernel);
        let start = start
            .words(&kvm_guest_options())
            .words("--machine kvm --rounds 1 -q");
        let qmp = format!("unix:{}/qmp,server=on,wait=off", folder.path().display());
        let start = start.qemu_args(["-drive", &drive, "-device", &device, "-qmp", &qmp]);
        let start = start.qemu_args(agent_device(folder.path()));
        let start = start
            .arg("--")
            .arg("sh")
            .arg("-c")
            .arg(script)
            .stdout(File::create(&said).unwrap());
        Guest {
            running: start.start(200),
            said,
            _disk: folder,
        }
    }

    /// Returns the PID of the guest's QEMU, once the guest has printed this text.
    fn pid_when(&mut self, printed: &str) -> u32 {
        let said = self.said.clone();
        self.running.until("the guest is ready", |place| {
            fs::read_to_string(&said)
                .is_ok_and(|text| text.contains(printed))
                .then_some(())?;
            place.vm()
        })
    }
}

/// The trace that the guest printed as base64 between BEGIN and END.
fn printed_trace(place: &Place, said: &Path) -> PathBuf {
    let text = fs::read_to_string(said).unwrap();
    let base64 = text
        .split("BEGIN ")
        .nth(1)
        .unwrap()
        .split("-- END")
        .next()
        .unwrap();
    let encoded = place.put("guest.base64", base64);
    let file = place.path("guest.trace");
    let decoded = Command::new("base64")
        .arg("-d")
        .arg(&encoded)
        .stdout(Stdio::from(File::create(&file).unwrap()))
        .status();
    assert!(decoded.unwrap().success());
    file
}

const READS_UNDER_TRACE: &str = "$vmtax agent run disk --disk $disk rw=randread iodepth=4 count=0 time=90 >/dev/null &\n\
    sleep 1\necho \"BEGIN \"\n\
    $vmtax agent observe --duration 12 --output - | base64\n\
    echo \"-- END\"; ls /sys/kernel/tracing/instances 2>&1 | sed 's/^/left: /'; echo DONE; wait";

#[test]
#[ignore = "needs root"]
fn a_guests_own_layers_are_joined_with_those_of_its_host() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    if !Path::new("/usr/bin/base64").exists() {
        return skipped("no base64");
    }
    let (place, other) = (Place::new(), Place::new());
    let mut vm = Guest::start(&other, &guest, READS_UNDER_TRACE);
    let pid = vm.pid_when("BEGIN");
    std::thread::sleep(std::time::Duration::from_secs(3));
    place
        .vmtax(&format!("layers --vm {pid} --duration 3 --output out"))
        .succeeds()
        .shows("GAVG");
    vm.pid_when("DONE");
    let file = printed_trace(&place, &vm.said);
    // Another VM's, or another time's.
    place
        .vmtax(&format!("layers --vm {pid} --duration 1 --output later"))
        .succeeds();
    vm.running.signal(Signal::INT);
    let said = fs::read_to_string(&vm.said).unwrap();
    assert!(!said.contains("left: vmtax"), "{said}");
    vm.running.outcome();

    let add = |recording: &str| {
        place
            .vmtax("report")
            .arg(recording)
            .arg("--guest-trace")
            .arg(&file)
    };
    let report = json(&add("out").arg("--json").succeeds().stdout);
    let (requests, column) = (
        &report["findings"]["requests"][0],
        &report["findings"]["layers"]["columns"][0],
    );
    assert_eq!(requests["kind"], "read", "{requests:#}");
    assert!(
        requests["disk"].as_str().unwrap().starts_with("read0 (vd"),
        "{requests:#}"
    );
    let (all, followed) = (number(&requests["requests"]), number(&requests["followed"]));
    assert!(
        all > 100.0 && followed >= 0.95 * all,
        "{:#}",
        column["matched"]
    );
    assert_ne!(column["from_host"], true);
    let rows = column["rows"].as_array().unwrap();
    for to in [
        "guest-issue",
        "kvm-notify",
        "qemu-pop",
        "host-issue",
        "qemu-push",
        "inject",
        "guest-interrupt",
        "guest-complete",
    ] {
        let most = rows
            .iter()
            .filter(|row| row["to"] == to)
            .map(|row| number(&row["count"]))
            .fold(0.0, f64::max);
        assert!(
            most > 0.0,
            "no {to}: {:?}",
            rows.iter()
                .map(|row| row["label"].as_str())
                .collect::<Vec<_>>()
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
    assert!(
        unexplained.abs() < 0.01 * traced,
        "{unexplained} of {traced}"
    );
    assert!(
        number(&column["clock"]["bound_ns"]) < 500_000.0,
        "{:#}",
        column["clock"]
    );
    assert_eq!(column["clock"]["violations"], 0);
    let seconds = number(&report["findings"]["seconds"]);
    assert!((2.0..10.0).contains(&seconds), "{seconds}");

    let text = place.vmtax("report out").succeeds();
    text.shows("Mean (guest await)")
        .shows("Clock error")
        .shows("(DAVG)");
    place
        .vmtax("export out --parquet requests.parquet")
        .succeeds();
    add("out").fails(&["has a guest's trace"]);
    add("later").fails(&["no requests in common", "agent observe"]);
    // The recording is as before.
    place
        .vmtax("report later")
        .succeeds()
        .shows("on the host (median");
}

const READS: &str = "sleep 1; echo READY\n\
    $vmtax agent run disk --disk $disk rw=randread iodepth=4 count=0 time=45 >/dev/null; ls /run";

#[test]
#[ignore = "needs root"]
fn qemus_guest_agent_starts_the_trace_and_hands_it_over() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    if !has_agent() {
        return;
    }
    let (place, other) = (Place::new(), Place::new());
    let mut vm = Guest::start(&other, &guest, &format!("{START_AGENT}{READS}"));
    let pid = vm.pid_when("READY");
    let layers = |more: &str| place.vmtax(&format!("layers --vm {pid} --duration 2 {more}"));
    layers("--guest-vmtax /nonexistent --output none").fails(&["guest-exec", "/nonexistent"]);
    let vmtax = binary();
    let report = layers("--output out --json")
        .arg("--guest-vmtax")
        .arg(vmtax)
        .start(60)
        .outcome()
        .exits(0);
    let report = json(&report.stdout);
    let (requests, column) = (
        &report["findings"]["requests"][0],
        &report["findings"]["layers"]["columns"][0],
    );
    let (all, followed) = (number(&requests["requests"]), number(&requests["followed"]));
    assert!(
        all > 100.0 && followed >= 0.95 * all,
        "{:#}",
        column["matched"]
    );
    assert_ne!(
        column["from_host"], true,
        "{:#}",
        report["findings"]["missing"]
    );
    vm.running.outcome().exits(0);
    let said = fs::read_to_string(&vm.said).unwrap();
    assert!(!said.contains(".trace"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn an_ended_or_killed_observer_leaves_nothing_in_the_guest() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let script = "mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null\n\
        traces() { ls /sys/kernel/tracing/instances | grep -c vmtax-; }\n\
        for signal in INT TERM HUP KILL; do\n\
        $vmtax agent observe --duration 60 --output /tmp/trace & pid=$!\n\
        for i in $(seq 200); do [ $(traces) -gt 0 ] && break; sleep 0.05; done; during=$(traces)\n\
        kill -$signal $pid; wait $pid; status=$?\n\
        for i in $(seq 100); do [ $(traces) -eq 0 ] && break; sleep 0.05; done\n\
        echo \"$signal: $during during, status $status, $(traces) left\"\n\
        done; echo DONE";
    let vm = Guest::start(&place, &guest, script);
    let said = vm.said.clone();
    vm.running.outcome().exits(0);
    let said = fs::read_to_string(said).unwrap();
    for signal in ["INT", "TERM", "HUP"] {
        assert!(
            said.contains(&format!("{signal}: 1 during, status 0, 0 left")),
            "{said}"
        );
    }
    assert!(
        said.contains("KILL: 1 during, status 137, 0 left"),
        "{said}"
    );
}

#[test]
fn what_is_no_trace_of_a_guest_is_refused() {
    let place = Place::new();
    place
        .vmtax("run cpu cpu.time=0.05 --machine native --rounds 1 --output run")
        .succeeds();
    place.put("other", "no trace");
    place
        .vmtax("report run --guest-trace other")
        .fails(&["layers --vm"]);
}
