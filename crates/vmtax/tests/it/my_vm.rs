//! VMs that others started: of libvirt, under Proxmox's socket place, by hand. They are listed, named, profiled, and as before
//! afterwards.

use crate::common::boot_guest::{BootGuest, reading};
use crate::common::{Domain, Ends, Place, binary, json, until, virsh};
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use vmtax_vmm::{Monitor, Vm};

/// Returns the entry of a VM in the output of `vmtax vms`.
fn listed(place: &Place, name: &str) -> Value {
    let all = json(&place.vmtax("vms --json").succeeds().stdout);
    let mut vms = all.as_array().unwrap().iter();
    vms.find(|vm| vm["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {all:#}"))
        .clone()
}

fn missing(vm: &Value, what: &str) -> Value {
    let mut all = vm["abilities"].as_array().unwrap().iter();
    all.find(|ability| ability["what"] == what).unwrap()["missing"].clone()
}

#[test]
#[ignore = "needs root"]
fn a_domain_of_libvirt_is_listed_found_and_profiled_without_a_taint() {
    let place = Place::new();
    // Its QEMU is another user's, who must reach the file.
    let folder = tempfile::Builder::new()
        .prefix("vmtax-domain")
        .tempdir_in("/var/tmp")
        .unwrap();
    let disk = folder.path().join("disk.raw");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    Command::new("chmod")
        .arg("-R")
        .arg("a+rwX")
        .arg(folder.path())
        .status()
        .unwrap();
    let Some(domain) = Domain::start(&place, &disk, "") else {
        return;
    };
    let uuid = virsh(&["domuuid", &domain.name]).unwrap().trim().to_owned();

    let vm = listed(&place, &domain.name);
    assert_eq!(
        (&vm["managed"]["manager"], &vm["managed"]["id"]),
        (&Value::from("libvirt"), &Value::from(uuid.clone()))
    );
    assert_eq!(
        (&vm["accelerator"], &vm["vcpus"], &vm["memory"]),
        (&"tcg".into(), &2.into(), &(96u64 << 20).into())
    );
    assert_eq!(
        vm["disks"][0]["file"].as_str().map(PathBuf::from),
        Some(disk),
        "{vm:#}"
    );
    for what in ["monitor", "qemu-guest-agent", "sample-threads"] {
        assert_eq!(missing(&vm, what), Value::Null, "{what}");
    }
    let pid = vm["pid"].as_i64().unwrap() as i32;
    let table = place.vmtax("vms").succeeds().stdout;
    assert!(
        table.contains(&domain.name) && table.contains("libvirt"),
        "{table}"
    );
    let by_part = domain.name.trim_start_matches("vmtax-");
    for name in [&pid.to_string(), &uuid, &domain.name, by_part] {
        assert_eq!(Vm::find(name).unwrap().pid(), pid, "{name}");
    }
    let words = format!(
        "profile --json --duration 1 --output out --vm {}",
        domain.name
    );
    assert_eq!(json(&place.vmtax(&words).succeeds().stdout)["pid"], pid);
    let words = format!(
        "diagnose {} --level 0 --json --duration 1 --output counters",
        domain.name
    );
    let diagnosed = json(&place.vmtax(&words).succeeds().stdout);
    assert_eq!(diagnosed["plan"]["vm"]["level"], 0);
    // So far QEMU's monitor was not used.
    let info = || virsh(&["dominfo", &domain.name]).unwrap();
    assert!(!info().contains("tainted"), "{}", info());

    let vm = Vm::find(&uuid).unwrap();
    let vcpus = vm.monitor().map(Monitor::vcpus).unwrap().unwrap();
    let expected: Vec<(u32, i32)> = vcpus
        .iter()
        .copied()
        .filter(|(_, tid)| vm.vcpus().contains(tid))
        .collect();
    assert_eq!(
        (vcpus.len(), &vcpus),
        (2, &expected),
        "the threads that it names are its own"
    );
    let refused = vm
        .monitor()
        .unwrap()
        .of_vcpu(9, "info registers")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("human-monitor-command"), "{refused}");

    // A process that claims to be the domain does not get its monitor.
    let claims = format!(
        "-nodefaults -display none -accel tcg -m 16 -S -name false -uuid {uuid} -chardev socket,id=charmonitor,path={},server=on,wait=off",
        place.path("false").display()
    );
    let false_one = Ends::start("qemu-system-x86_64", &claims);
    let false_pid = false_one.0.id() as i32;
    until("it runs", || {
        vmtax_vmm::running().contains(&false_pid).then_some(())
    });
    let why = |pid: i32| {
        let facts = Vm::attach(pid).facts().unwrap();
        missing(&serde_json::to_value(facts).unwrap(), "monitor")["why"].to_string()
    };
    assert!(
        why(false_pid).contains("is another process"),
        "{}",
        why(false_pid)
    );
    place
        .vmtax(&format!("profile --vm {uuid}"))
        .fails(&["several VMs", &domain.name]);
    drop(false_one);

    // An ordinary user is told what it takes.
    let seen = json(&place.vmtax_as_ordinary_user("vms --json").succeeds().stdout);
    let seen = seen
        .as_array()
        .unwrap()
        .iter()
        .find(|vm| vm["pid"] == pid)
        .unwrap();
    assert!(
        missing(seen, "sample-threads")["fix"]
            .as_str()
            .unwrap()
            .contains("root"),
        "{seen:#}"
    );
    assert_eq!(
        seen["disks"].as_array().unwrap().len(),
        1,
        "from its command line"
    );
}

/// A QEMU that has left its parent, killed with the value.
struct Daemon(String);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.0).status();
    }
}

#[test]
fn an_image_named_before_qemu_left_its_directory_has_its_place_on_the_host() {
    let place = Place::new();
    let disk = place.put("images/web.raw", vec![1; 1 << 20]);
    let name = format!("daemon-{}", std::process::id());
    let qemu = place.program("qemu-system-x86_64").words(&format!(
        "-nodefaults -display none -accel tcg -m 16 -S -name {name} -daemonize -pidfile pid \
         -drive file=images/web.raw,format=raw,if=virtio -qmp unix:{},server=on,wait=off",
        place.path("qmp").display()
    ));
    qemu.succeeds();
    let pid = std::fs::read_to_string(place.path("pid")).unwrap();
    let daemon = Daemon(pid.trim().to_owned());
    let known = &listed(&place, &name)["disks"][0];
    assert_eq!(known["file"], "images/web.raw");
    let device = vmtax_observe::lowest_device(&disk);
    assert_eq!(known["host_device"], Value::from(device), "{known:#}");
    drop(daemon);
}

#[test]
fn vms_started_by_hand_have_names_and_their_monitors_stay_free() {
    let place = Place::new();
    let folder = place.path("qemu-server");
    std::fs::create_dir_all(&folder).unwrap();
    let (socket, marker) = (folder.join("714.qmp"), std::process::id());
    let name = |number: u32| format!("by-hand-{marker}-{number}");
    let qemu = |number: u32, more: &str| {
        let words = format!(
            "-nodefaults -display none -accel tcg -m 64 -name {} -S {more}",
            name(number)
        );
        Ends::start("qemu-system-x86_64", &words)
    };
    let monitor = format!(
        "-chardev socket,id=qmp,path={},server=on,wait=off -mon chardev=qmp,mode=control",
        socket.display()
    );
    let (first, second) = (qemu(1, &monitor), qemu(2, ""));
    let pids = [first.0.id() as i32, second.0.id() as i32];
    until("both run", || {
        (vmtax_vmm::running()
            .iter()
            .filter(|pid| pids.contains(pid))
            .count()
            == 2)
            .then_some(())
    });
    until("the monitor answers", || {
        Vm::attach(pids[0]).monitor().map(|_| ())
    });

    let vm = listed(&place, &name(1));
    assert_eq!(
        (&vm["managed"]["manager"], &vm["managed"]["id"]),
        (&"proxmox".into(), &"714".into())
    );
    assert!(
        vm["version"].is_string() && missing(&vm, "monitor").is_null(),
        "{vm:#}"
    );
    assert!(
        missing(&listed(&place, &name(2)), "monitor")["fix"]
            .as_str()
            .unwrap()
            .contains("-qmp")
    );
    for name in [
        &pids[0].to_string(),
        &name(1),
        "714",
        socket.to_str().unwrap(),
    ] {
        assert_eq!(Vm::find(name).unwrap().pid(), pids[0], "{name}");
    }
    let shared = format!("by-hand-{marker}");
    place.vmtax(&format!("profile --vm {shared}")).fails(&[
        "several VMs",
        &name(1),
        &name(2),
        "by its PID",
    ]);
    place
        .vmtax("profile --vm no-such-vm")
        .fails(&["no VM matches", &name(1), "vmtax vms"]);
    place
        .vmtax("profile --vm a --pid 1")
        .fails(&["--vm", "cannot be used with"]);
    // A socket serves one client: vmtax, whose handle stays, leaves it to others.
    let held = Vm::attach(pids[0]);
    assert!(held.monitor().is_some());
    let other = Vm::attach(pids[0]);
    assert!(other.facts().unwrap().version.is_some() && held.facts().unwrap().version.is_some());
    // A visitor who stays keeps others out, who are told so.
    let visitor = UnixStream::connect(&socket).unwrap();
    let taken = missing(&listed(&place, &name(1)), "monitor");
    let why = "QMP did not answer within 2 s, since another client is connected to it";
    assert_eq!(taken["why"], why, "{taken:#}");
    drop(visitor);
    drop(first);
    let gone = held.monitor().unwrap().vcpus().unwrap_err().to_string();
    assert!(
        gone.contains("No such file") || gone.contains("refused"),
        "{gone}"
    );
}

#[test]
fn the_first_answer_is_of_the_vms_then_of_a_guest() {
    let place = Place::new();
    let vm = BootGuest::start(&place, "first", "tcg", &reading([0, 0]), "", "");
    // The list is real; a diagnosis takes seconds, a measurement a minute.
    let body = format!(
        "case $1 in vms) exec {} \"$@\" ;; diagnose) printf 'cause of %s\\n\\ndetails\\n' \"$2\" ;; *) echo \"$@\" ;; esac",
        binary()
    );
    let program = place.script("stub", &body);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/first-answer");
    let answer = place.program(script).arg(program).succeeds().stdout;
    let list = answer.find("Running VMs").unwrap();
    let cause = answer.find(&format!("cause of {}\n", vm.pid())).unwrap();
    let overhead = answer.find("run --quick").unwrap();
    assert!(list < cause && cause < overhead, "{answer}");
    assert!(!answer.contains("details"), "{answer}");
    // Not in the current directory, which may be another user's.
    let folder = answer[overhead..].split("--output ").nth(1).unwrap();
    let folder = Path::new(folder.trim()).parent().unwrap().to_owned();
    assert!(folder.is_dir() && !place.path("runs").exists(), "{answer}");
    std::fs::remove_dir(folder).unwrap();
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_sees_the_vms_of_others_and_what_root_would_add() {
    let place = Place::new();
    let vm = BootGuest::start(&place, "others", "tcg", &reading([0, 0]), "", "");
    let list = place.vmtax_as_ordinary_user("vms").succeeds();
    list.shows("others").shows("run vmtax as root");
    // An answer in 5 s: less is observed.
    let dry = format!("diagnose {} --dry-run", vm.pid());
    place
        .vmtax_as_ordinary_user(&dry)
        .succeeds()
        .shows("time-ms = 4000");
    place.vmtax(&dry).succeeds().shows("time-ms = 10000");
}
