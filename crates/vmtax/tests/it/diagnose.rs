//! `vmtax diagnose` of VMs that others started: the planted cause comes first, and where none was planted the VM is healthy.

use crate::common::boot_guest::{BootGuest, polling_firmware, reading, unhurried_reads};
use crate::common::{Busy, Domain, Place, Quota, Signal, Start, json, send, skipped, until};
use serde_json::Value;
use std::fs;
use std::fs::File;

/// The diagnosis of a VM.
fn diagnosis(place: &Place, vm: i32, out: &str, options: &str) -> Value {
    let words = format!("diagnose {vm} --json --output {out} {options}");
    let report = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
    report["findings"].clone()
}

/// The diagnosis of a VM, into the directory `out`, whose first cause is this one.
fn caused_by(place: &Place, vm: i32, rule: &str, options: &str) -> Value {
    let found = diagnosis(place, vm, "out", options);
    assert_eq!(found["causes"][0]["rule"], rule, "{found:#}");
    found
}

#[test]
#[ignore = "needs root"]
fn a_quota_is_named_first_with_its_remedy_and_the_page_says_so() {
    let place = Place::new();
    let Some(quota) = Quota::set() else {
        return skipped("there is no CPU controller to use");
    };
    let vm = Busy::start(&place, "limited", "");
    fs::write(quota.0.join("cgroup.procs"), vm.pid().to_string()).unwrap();
    let found = caused_by(&place, vm.pid(), "vm-throttled", "--duration 3");
    let cause = &found["causes"][0];
    assert!(cause["gain"].as_f64().unwrap() > 0.5, "{cause:#}");
    assert!(
        cause["remedies"][0]["line"]
            .as_str()
            .unwrap()
            .contains("/cpu."),
        "{cause:#}"
    );
    let causes = found["causes"].to_string();
    assert!(
        !causes.contains("vcpu-run-queue-wait"),
        "one cause, said once: {causes}"
    );
    assert!(
        found["profile"]["states"]["threads"].is_array(),
        "{:#}",
        found["missing"]
    );
    let text = place.vmtax("report out").succeeds().stdout;
    assert!(
        text.starts_with(&vm.name) && text.contains(": A CPU quota throttles the VM"),
        "{text}"
    );
    // What was just run is no next step.
    let again = format!("Next: vmtax diagnose {}", vm.name);
    assert!(
        !text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains(&again),
        "{text}"
    );
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("A CPU quota throttles the VM"));
    drop(vm);
    until("the group is empty", || fs::remove_dir(&quota.0).ok());
}

/// A plan is of one process: another that has its PID later is another VM.
#[test]
fn a_stored_plan_is_of_no_other_vm() {
    let place = Place::new();
    let vm = Busy::start(&place, "planned", "");
    let now = format!("but {} (started at", vm.name);
    for (command, what) in [
        ("diagnose", "VM"),
        ("exits --vm", "VM"),
        ("layers --vm", "VM"),
        ("profile --vm", "one"),
    ] {
        let words = format!("{command} {} --dry-run", vm.name);
        let plan = place.vmtax(&words).succeeds().stdout;
        let started = started(&plan);
        let refused = format!(
            "process {} is not the {what} of the plan, {} (started at tick 7)",
            vm.pid(),
            vm.name
        );
        run_plan(&place, &plan.replace(started, "started = 7")).fails(&[&refused, &now]);
        assert!(!place.path("out").exists(), "{command}");
    }
}

#[test]
fn a_stored_plan_tunes_its_vm_and_no_other() {
    let place = Place::new();
    let vm = Busy::start(&place, "planned", "");
    let words = format!("diagnose {} --dry-run", vm.name);
    let plan = place.vmtax(&words).succeeds().stdout;
    let tuning = |started: &str| {
        format!(
            "study = \"tune\"\nrounds = 1\nmachines = []\nworkload = []\n[tune]\npid = {}\n{started}\napply = false\n\
             time-ms = 1000\nblock-ms = 100\n",
            vm.pid()
        )
    };
    run_plan(&place, &tuning("started = 7")).fails(&["is not the VM of the plan", &vm.name]);
    run_plan(&place, &tuning("")).fails(&["does not say when that started"]);
    assert!(!place.path("out").exists());
    run_plan(&place, &tuning(started(&plan)))
        .succeeds()
        .shows(&vm.name);
}

/// The line of a plan that says when its process started.
fn started(plan: &str) -> &str {
    plan.lines()
        .find(|line| line.starts_with("started = "))
        .unwrap()
}

fn run_plan<'a>(place: &'a Place, plan: &str) -> Start<'a> {
    fs::write(place.path("plan.toml"), plan).unwrap();
    place.vmtax("run plan.toml --output out")
}

#[test]
fn an_idle_vm_is_healthy_and_a_stopped_one_is_not_profiled() {
    let place = Place::new();
    // sti, hlt, and again
    let mut halting = vec![0xfb, 0xf4, 0xeb, 0xfc];
    halting.resize(510, 0);
    halting.extend([0x55, 0xaa]);
    let vm = BootGuest::start(&place, "idle", "tcg", &halting, "", "");
    let (pid, qmp) = (vm.pid() as i32, place.path("idle.qmp"));
    until("its monitor is free", || {
        vmtax_vmm::Vm::find(&qmp.to_string_lossy()).ok()
    });
    let stopped = diagnosis(&place, pid, "stopped", "--duration 1");
    assert_eq!(stopped["causes"][0]["rule"], "vm-stopped", "{stopped:#}");
    assert!(stopped["profile"].is_null() && stopped["layers"].is_null());
    vm.ask("cont");
    // When the firmware has ended.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let healthy = diagnosis(&place, pid, "idle", "--duration 2");
    assert_eq!(healthy["causes"], Value::Array(Vec::new()), "{healthy:#}");
    // It has no channel for a guest agent, so not all rules could be evaluated.
    let report = place.vmtax("report idle").succeeds();
    assert!(!report.stdout.contains("healthy"), "{report}");
    let first = "idle: no problem found in what could be observed. Not observed: settings of the guest's kernel";
    report.shows(first);
    // A setting that nothing measured is beside the causes.
    let path = place.path("idle/host.json");
    let mut host: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    host["settings"]["/sys/kernel/mm/transparent_hugepage/enabled"] = "never".into();
    fs::write(&path, host.to_string()).unwrap();
    let report = place.vmtax("report idle").succeeds();
    assert!(report.stdout.starts_with(first), "{report}");
    let report = report.shows("Settings worth checking (cost not measured)");
    report.shows("Transparent huge pages are off on the host.");
}

/// A process that a signal stops; it is continued, so that it can end, when the value goes.
struct Stopped(u32);

impl Stopped {
    fn new(pid: i32) -> Stopped {
        send(pid as u32, Signal::STOP);
        until("all its threads are stopped", || {
            vmtax_observe::counters::process_stop(pid)
        });
        Stopped(pid as u32)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        send(self.0, Signal::CONT);
    }
}

#[test]
fn a_stopped_qemu_is_said_first_by_every_command_and_is_asked_nothing() {
    let place = Place::new();
    let vm = Busy::start(
        &place,
        "frozen",
        &format!("-qmp unix:{},server=on,wait=off", place.path("q").display()),
    );
    let pid = vm.pid();
    until("its monitor answers", || {
        vmtax_vmm::Vm::find(&place.path("q").to_string_lossy()).ok()
    });
    let stopped = Stopped::new(pid);
    let found = caused_by(&place, pid, "vm-process-stopped", "--duration 1");
    assert_eq!(found["rates"]["process_stop"], "signal", "{found:#}");
    assert!(found["profile"].is_null(), "it shows nothing else");
    let resume = format!("kill -CONT {pid}");
    let report = place
        .vmtax("report out")
        .succeeds()
        .shows("QEMU is stopped (SIGSTOP) and does not answer");
    let report = report.shows(&resume);
    assert!(
        !report.stdout.contains("healthy") && !report.stdout.contains("--qemu"),
        "{report}"
    );
    place.vmtax("vms").succeeds().shows(&format!(
        "{} does not run: QEMU is stopped (SIGSTOP), `{resume}`",
        vm.name
    ));
    let top = vm.rates(&place, "--duration 0.3");
    assert_eq!(top["findings"][0]["rule"], "vm-process-stopped", "{top:#}");
    place
        .vmtax(&format!(
            "profile --vm {pid} --duration 1s --output profile"
        ))
        .outcome();
    let profile = place
        .vmtax("report profile")
        .succeeds()
        .shows("is stopped (SIGSTOP)");
    assert!(!profile.stdout.contains("mostly idle"), "{profile}");
    // Those who asked left nothing in the queue of its socket.
    drop(stopped);
    let facts = until("it answers", || {
        vmtax_vmm::Vm::attach(pid)
            .facts()
            .filter(|facts| facts.version.is_some())
    });
    assert_eq!(facts.process_stop, None);
    let running = vm.rates(&place, "--duration 0.3");
    assert!(
        running["process_stop"].is_null() && running["state"] == "running",
        "{running:#}"
    );
}

/// A control group whose processes the kernel does not run; removed with the value.
struct Frozen {
    folder: std::path::PathBuf,
    vm: i32,
}

impl Frozen {
    /// `None` where the host has no such controller for us. Those of version 1 are in uninterruptible sleep.
    fn freeze(vm: i32, root: &str, file: &str, value: &str) -> Option<Frozen> {
        // The root of version 1 is no group.
        let root = std::path::Path::new(root);
        root.join("cgroup.procs").exists().then_some(())?;
        let folder = root.join(format!("vmtax-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let frozen = Frozen { folder, vm };
        fs::write(frozen.folder.join("cgroup.procs"), vm.to_string()).ok()?;
        fs::write(frozen.folder.join(file), value)
            .ok()
            .map(|()| frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            let file = self.folder.join(file);
            let _ = if file.exists() {
                fs::write(file, value)
            } else {
                Ok(())
            };
        }
        if let Some(parent) = self.folder.parent() {
            let _ = File::options()
                .write(true)
                .open(parent.join("cgroup.procs"))
                .and_then(|mut file| {
                    std::io::Write::write_all(&mut file, self.vm.to_string().as_bytes())
                });
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
#[ignore = "needs root"]
fn a_qemu_that_the_kernel_does_not_run_is_named_first_with_where_it_waits() {
    let place = Place::new();
    let vm = Busy::start(
        &place,
        "blocked",
        &format!("-qmp unix:{},server=on,wait=off", place.path("q").display()),
    );
    let pid = vm.pid();
    until("its monitor answers", || {
        vmtax_vmm::Vm::find(&place.path("q").to_string_lossy()).ok()
    });
    let groups = [
        (
            "/sys/fs/cgroup/freezer",
            "freezer.state",
            "FROZEN",
            "vm-blocked-thread",
            "(state D)",
        ),
        (
            "/sys/fs/cgroup/unified",
            "cgroup.freeze",
            "1",
            "vm-no-progress",
            "QMP did not answer within 2 s",
        ),
        (
            "/sys/fs/cgroup",
            "cgroup.freeze",
            "1",
            "vm-no-progress",
            "QMP did not answer within 2 s",
        ),
    ];
    let mut planted = 0;
    for (root, file, value, rule, said) in groups {
        let Some(frozen) = Frozen::freeze(pid, root, file, value) else {
            continue;
        };
        planted += 1;
        let top = vm.rates(&place, "--duration 1");
        let first = &top["findings"][0];
        assert_eq!(first["rule"], rule, "{root}: {top:#}");
        assert!(
            first["finding"].as_str().unwrap().contains(said),
            "{first:#}"
        );
        assert!(
            top["blocked"].to_string().contains("wait_channel"),
            "{top:#}"
        );
        drop(frozen);
        // Its turn has come again, and it answers.
        until("it runs", || {
            vmtax_vmm::Vm::attach(pid)
                .facts()
                .filter(|facts| facts.version.is_some())
        });
    }
    if planted == 0 {
        skipped("no control group can be frozen");
    }
}

#[test]
#[ignore = "needs root"]
fn requests_are_followed_and_what_was_set_is_removed_also_after_a_kill() {
    let place = Place::new();
    let runtime = place.path("run");
    fs::create_dir(&runtime).unwrap();
    let options = ",cache=none,aio=threads,throttling.iops-read=200";
    let vm = BootGuest::start(
        &place,
        "reads",
        "tcg",
        &unhurried_reads(&[0x80], 14),
        options,
        "",
    );
    vm.ask("cont");
    let has_histograms = || {
        vm.ask("query-blockstats")
            .to_string()
            .contains("rd_latency_histogram")
    };
    let words = |out: &str, seconds: u32| {
        format!(
            "diagnose {} --json --duration {seconds} --output {out}",
            vm.pid()
        )
    };
    let start = |out: &str, seconds| {
        place
            .vmtax(&words(out, seconds))
            .env("XDG_RUNTIME_DIR", &runtime)
    };
    until("it reads", || (vm.reads_done("disk0") > 20).then_some(()));
    // So long that it is killed before it ends, also on a busy host.
    let mut running = start("killed", 30).start(60);
    running.until("histograms are set", |_| has_histograms().then_some(()));
    running.signal(Signal::KILL);
    running.outcome();
    // Its watchdog removes them, or the next start.
    let report = json(&start("whole", 4).succeeds().stdout);
    let found = &report["findings"];
    assert!(!has_histograms());
    let rates = &found["rates"]["disks"][0]["io"];
    assert!(
        rates["reads_per_s"].as_f64().unwrap() > 20.0,
        "{:#}",
        found["rates"]["disks"]
    );
    let requests = &found["layers"]["requests"][0];
    assert_eq!(
        (&requests["disk"], &requests["kind"]),
        (&"disk0".into(), &"read".into()),
        "{:#}",
        found["missing"]
    );
    place.vmtax("report whole").succeeds().shows("GAVG");
}

#[test]
fn what_was_observed_before_a_kill_is_reported() {
    let place = Place::new();
    let vm = Busy::start(&place, "kept", "");
    let mut running = place
        .vmtax(&format!("diagnose {} --duration 20 --output out", vm.pid()))
        .start(60);
    let counters = place.path("out").join("trials/0000/vm-counters.json");
    running.until("the counters are stored", |_| {
        counters.exists().then_some(())
    });
    running.signal(Signal::KILL);
    running.outcome();
    let found = json(&place.vmtax("report out --json").succeeds().stdout)["findings"].clone();
    assert!(
        found["rates"]["run"].as_f64().is_some_and(|run| run > 0.0),
        "{found:#}"
    );
    assert!(
        found["missing"].to_string().contains("vmtax was killed"),
        "{:#}",
        found["missing"]
    );
}

#[test]
#[ignore = "needs root"]
fn a_guest_that_polls_its_uart_is_named_first() {
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return skipped("needs KVM");
    }
    let place = Place::new();
    let more = format!(
        "-serial null -bios {}",
        place.put("rom", polling_firmware()).display()
    );
    let vm = BootGuest::start(&place, "polls", "kvm", &reading([0, 0]), "", &more);
    vm.ask("cont");
    let found = caused_by(&place, vm.pid() as i32, "uart-polling", "--duration 4");
    let gain = found["causes"][0]["gain"].as_f64().unwrap();
    assert!(
        (0.05..=1.0).contains(&gain),
        "a share of the vCPU's time: {gain}"
    );
}

/// A guest that prints this text on its serial port and then spins.
fn printing_firmware(text: &str) -> Vec<u8> {
    let mut rom = vec![0; 64 << 10];
    rom[0x8000..0x8000 + text.len()].copy_from_slice(text.as_bytes());
    // cld; mov si, 0x8000; mov dx, 0x3f8; cs lodsb; test al, al; jz to itself; out dx, al; jmp to lodsb
    rom[..18].copy_from_slice(&[
        0xfc, 0xbe, 0x00, 0x80, 0xba, 0xf8, 0x03, 0x2e, 0xac, 0x84, 0xc0, 0x75, 0x02, 0xeb, 0xfe,
        0xee, 0xeb, 0xf5,
    ]);
    rom[0xfff0..0xfff5].copy_from_slice(&[0xea, 0x00, 0x00, 0x00, 0xf0]); // jmp 0xf000:0
    rom
}

const PANICKED: &str = "[    0.000000] Linux version 6.1.0\r\n[    1.5] Kernel panic - not syncing: \u{1b}[31mAttempted to kill \
                        init!\r\n[    1.6] ---[ end Kernel panic - not syncing: Attempted to kill init! ]---\r\n";

/// A VM whose guest prints this, which QEMU writes to the file.
fn printing(place: &Place, name: &str, text: &str, serial: &str) -> BootGuest {
    let more = format!(
        "{serial} -bios {}",
        place
            .put(&format!("{name}.rom"), printing_firmware(text))
            .display()
    );
    let vm = BootGuest::start(place, name, "tcg", &reading([0, 0]), "", &more);
    vm.ask("cont");
    let file = place.path(&format!("{name}.console"));
    let is_printed = || {
        fs::read(&file)
            .is_ok_and(|printed| printed.ends_with(b"\n"))
            .then_some(())
    };
    until("the guest has printed", is_printed);
    vm
}

#[test]
fn a_guest_that_has_panicked_is_said_first_though_its_vcpu_spins() {
    let place = Place::new();
    for (name, serial) in [
        (
            "serial",
            format!("-serial file:{}", place.path("serial.console").display()),
        ),
        (
            "logged",
            format!(
                "-chardev null,id=c0,logfile={} -device isa-serial,chardev=c0",
                place.path("logged.console").display()
            ),
        ),
    ] {
        let vm = printing(&place, name, PANICKED, &serial);
        // A load that the rules about CPUs would name.
        let found = diagnosis(&place, vm.pid() as i32, name, "--duration 2");
        let first = &found["causes"][0];
        assert_eq!(
            (&first["rule"], &first["gain"]),
            (&"vm-guest-panicked".into(), &0.0.into()),
            "{found:#}"
        );
        let said = format!(
            "The guest has panicked, its console ends with \"Kernel panic - not syncing: Attempted to kill init!\" ({}).",
            place.path(&format!("{name}.console")).display()
        );
        assert_eq!(first["finding"], *said);
        let socket = place.path(&format!("{name}.qmp"));
        assert_eq!(
            first["remedies"][0]["line"],
            *format!(
                "echo '{{\"execute\":\"qmp_capabilities\"}}{{\"execute\":\"system_reset\"}}' | socat -t1 - UNIX-CONNECT:{},shut-none",
                socket.display()
            )
        );
        assert!(
            found["rates"]["run"].as_f64().unwrap() > 0.1,
            "it spins: {found:#}"
        );
        let report = place.vmtax(&format!("report {name}")).succeeds();
        assert!(
            report
                .stdout
                .starts_with(&format!("{name}: The guest has panicked")),
            "{report}"
        );
        let vms = place.vmtax("vms").succeeds();
        let vms = vms.shows(&format!(
            "{name}'s guest has panicked, its console ends with \"Kernel panic - not syncing"
        ));
        assert!(!vms.stdout.contains('\u{1b}'), "{vms}");
        // QEMU truncates no file at a reset: the guest boots, and panics, again.
        vm.ask("system_reset");
    }
}

/// virtlogd has the file of the log, and QEMU a pipe to it.
#[test]
#[ignore = "needs root"]
fn a_panic_in_the_log_of_a_domains_console_is_found_by_libvirts_name_of_the_file() {
    let place = Place::new();
    let (rom, log) = (
        place.put("rom", printing_firmware(PANICKED)),
        place.path("console.log"),
    );
    let Some(domain) = Domain::create(&place, |name| {
        format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os>\
             <type arch='x86_64' machine='pc'>hvm</type><loader>{}</loader></os><devices><serial type='pty'>\
             <log file='{}' append='off'/><target type='isa-serial' port='0'/></serial></devices></domain>",
            rom.display(),
            log.display()
        )
    }) else {
        return;
    };
    until("the guest has printed", || {
        fs::read(&log)
            .is_ok_and(|text| text.ends_with(b"\n"))
            .then_some(())
    });
    let words = format!("diagnose {} --json --output out --duration 2", domain.name);
    let found = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout)["findings"].clone();
    let first = &found["causes"][0];
    assert_eq!(first["rule"], "vm-guest-panicked", "{found:#}");
    assert!(
        first["finding"]
            .as_str()
            .unwrap()
            .contains(&log.display().to_string()),
        "{first:#}"
    );
    assert_eq!(
        first["remedies"][0]["line"],
        format!("virsh reset {}", domain.name)
    );
}

#[test]
fn a_panic_before_the_last_boot_and_a_console_that_is_no_file_are_not_said() {
    let place = Place::new();
    let booted = format!("{PANICKED}[    0.000000] Linux version 6.1.0\r\n");
    let vm = printing(
        &place,
        "booted",
        &booted,
        &format!("-serial file:{}", place.path("booted.console").display()),
    );
    let top = json(
        &place
            .vmtax(&format!("top {} --json --duration 0.3", vm.pid()))
            .succeeds()
            .stdout,
    );
    assert!(top["vms"][0]["kernel_failure"].is_null(), "{top:#}");
    assert!(
        !top["vms"][0]["findings"].to_string().contains("vm-guest"),
        "{top:#}"
    );
}

#[test]
fn a_panic_that_a_device_reports_is_qemus_run_state() {
    let place = Place::new();
    // mov dx, 0x505; mov al, 1; out dx, al; hlt
    let mut sector = vec![0xba, 0x05, 0x05, 0xb0, 0x01, 0xee, 0xf4];
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    let vm = BootGuest::start(
        &place,
        "reported",
        "tcg",
        &sector,
        "",
        "-device pvpanic -action panic=pause",
    );
    vm.ask("cont");
    until("it panics", || {
        (vm.ask("query-status")["status"] == "guest-panicked").then_some(())
    });
    let found = caused_by(&place, vm.pid() as i32, "vm-guest-panicked", "--duration 1");
    let cause = &found["causes"][0];
    assert_eq!(
        cause["finding"],
        "The guest has panicked: QEMU's run state is \"guest-panicked\"."
    );
    let reset = r#"echo '{"execute":"qmp_capabilities"}{"execute":"system_reset"}{"execute":"cont"}' | socat -t1 - UNIX-CONNECT:"#;
    let line = cause["remedies"][0]["line"].as_str().unwrap();
    assert!(line.starts_with(reset), "{line}");
    let others = found["causes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|cause| cause["rule"] == "vm-stopped")
        .count();
    assert_eq!(others, 0, "one cause, said once: {found:#}");
    // The remedy is one: the guest boots again.
    vm.ask("system_reset");
    vm.ask("cont");
    until("it panics again", || {
        (vm.ask("query-status")["status"] == "guest-panicked").then_some(())
    });
}

#[test]
fn a_vm_that_ends_meanwhile_and_wrong_names_are_said_in_one_line() {
    let place = Place::new();
    let vm = Busy::start(&place, "ends", "");
    place.vmtax("diagnose no-such-vm").fails(&["vmtax vms"]);
    place
        .vmtax(&format!("diagnose {} --duration 0", vm.pid()))
        .fails(&["duration"]);
    let mut running = place
        .vmtax(&format!("diagnose {} --duration 60 --output out", vm.pid()))
        .start(60);
    running.until("it observes", |place| {
        place.path("out").join("plan.toml").exists().then_some(())
    });
    // Its counters are read by then.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let pid = vm.pid();
    drop(vm);
    // The counters are read again after 24 s; Ctrl-C ends that.
    running.signal(Signal::INT);
    running.outcome().exits(2).says(&format!(
        "the VM of process {pid} exited while it was observed"
    ));
    assert!(
        !place.path("out").join("trials").exists(),
        "nothing that would pass for a recording"
    );

    // After its counters were read: they are reported, and it is not called healthy.
    let vm = Busy::start(&place, "ends-later", "");
    let running = place
        .vmtax(&format!(
            "diagnose {} --duration 8 --output later",
            vm.pid()
        ))
        .start(60);
    let counters = place.path("later").join("trials/0000/vm-counters.json");
    until("the counters are stored", || {
        counters.exists().then_some(())
    });
    drop(vm);
    running.outcome().exits(0);
    let found = json(&place.vmtax("report later --json").succeeds().stdout)["findings"].clone();
    assert_eq!(found["ended"], true);
    assert!(
        found["missing"]
            .to_string()
            .contains("exited while it was observed"),
        "{:#}",
        found["missing"]
    );
}
