//! Settings of VMs that others started: what was planted is found first, its remedy takes it away, and healthy VMs have no finding.

use crate::common::boot_guest::{BootGuest, random_requests, reading, unhurried_reads};
use crate::common::{Domain, Ends, Place, json, skipped, until, virsh};
use serde_json::{Value, json as value};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

/// The first disk that the firmware names, and the second.
const DISKS: [u8; 2] = [0x80, 0x81];
/// Rules about settings: those about CPU time fire by themselves on a busy host.
const RULES: [&str; 9] = [
    "vm-io-limit",
    "vm-write-through",
    "vm-qcow2-l2-cache",
    "vm-shared-iothread",
    "vm-monitor-flood",
    "vm-9p-fid-list",
    "vm-virtiofsd-stopped",
    "vm-virtiofsd-throttled",
    "vm-virtiofsd-run-queue-wait",
];

/// Returns the VM's rates in one interval of `vmtax top`.
fn rates(place: &Place, pid: u32) -> Value {
    let words = format!("top {pid} --json --level 1 --duration 2");
    json(
        &place
            .vmtax(&words)
            .env("XDG_RUNTIME_DIR", place.path(""))
            .succeeds()
            .stdout,
    )["vms"][0]
        .clone()
}

/// The rates in which this rule comes first. A busy host has moments in which the vCPUs wait longer.
fn first(place: &Place, pid: u32, rule: &str) -> Value {
    until(&format!("{rule} comes first"), || {
        let mut rates = rates(place, pid);
        // Other load on this host is none that was planted.
        let findings = rates["findings"].as_array_mut()?;
        findings.retain(|finding| finding["rule"] != "vm-run-queue-wait");
        (rates["findings"][0]["rule"] == rule).then_some(rates)
    })
}

/// The rules about settings that fire.
fn fired(rates: &Value) -> Vec<&str> {
    let rules = rates["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["rule"].as_str());
    rules.filter(|rule| RULES.contains(rule)).collect()
}

/// Gives a VM's monitor the first remedy of its first finding.
fn remedy(vm: &BootGuest, rates: &Value, key: &str) {
    let line = rates["findings"][0]["remedies"][0][key].as_str().unwrap();
    let command = line
        .strip_prefix(r#"echo '{"execute":"qmp_capabilities"}"#)
        .and_then(|line| line.split_once("' | socat -t1 - UNIX-CONNECT:"));
    let (command, _) = command.unwrap_or_else(|| panic!("{line}"));
    vm.command(&json(command));
}

#[test]
fn a_forgotten_limit_of_a_disk_is_found_and_removed_live() {
    let place = Place::new();
    let sector = unhurried_reads(&DISKS[..1], 14);
    let vm = BootGuest::start(
        &place,
        "limited",
        "tcg",
        &sector,
        ",throttling.iops-total=40",
        "",
    );
    vm.ask("cont");
    let found = first(&place, vm.pid(), "vm-io-limit");
    assert_eq!(
        found["settings"]["disks"][0]["limits"]["requests_per_s"],
        value!([40, 0, 0]),
        "{found:#}"
    );
    remedy(&vm, &found, "line");
    until("it is removed", || {
        fired(&rates(&place, vm.pid())).is_empty().then_some(())
    });
    remedy(&vm, &found, "undo");
    first(&place, vm.pid(), "vm-io-limit");
}

#[test]
#[ignore = "needs root"]
fn an_iotune_of_a_domain_is_found_and_removed_by_virsh() {
    let place = Place::new();
    // Its QEMU is another user's, who must reach the file.
    let folder = tempfile::Builder::new()
        .prefix("vmtax-domain")
        .tempdir_in("/var/tmp")
        .unwrap();
    let disk = folder.path().join("disk.raw");
    let mut image = unhurried_reads(&DISKS[..1], 14);
    image.resize(16 << 20, 7);
    fs::write(&disk, image).unwrap();
    Command::new("chmod")
        .arg("-R")
        .arg("a+rwX")
        .arg(folder.path())
        .status()
        .unwrap();
    let limits = "<iotune><total_iops_sec>40</total_iops_sec></iotune>";
    let Some(domain) = Domain::start(&place, &disk, limits) else {
        return;
    };
    let limit = || {
        let tune = virsh(&["blkdeviotune", &domain.name, "vda"]).unwrap();
        let mut settings = tune.lines().filter_map(|line| line.split_once(':'));
        settings
            .find(|(name, _)| name.trim() == "total_iops_sec")
            .unwrap()
            .1
            .trim()
            .to_owned()
    };
    // Other load on this host may be a larger cause.
    let cause = || {
        let report = json(
            &place
                .vmtax(&format!("diagnose {} --json --duration 4", domain.name))
                .succeeds()
                .stdout,
        );
        let mut causes = report["findings"]["causes"].as_array().unwrap().iter();
        causes.find(|cause| cause["rule"] == "vm-io-limit").cloned()
    };
    let found = until("the limit is a cause", cause);
    let remedy = &found["remedies"][0];
    let run = |key: &str| {
        let line = remedy[key].as_str().unwrap();
        assert!(line.starts_with("virsh blkdeviotune "), "{line}");
        assert!(
            Command::new("sh")
                .args(["-c", line])
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success(),
            "{line}"
        );
    };
    assert_eq!(limit(), "40");
    run("line");
    assert_eq!(limit(), "0");
    assert_eq!(cause(), None);
    run("undo");
    assert_eq!(limit(), "40");
}

#[test]
fn a_forgotten_throttle_group_is_found_and_removed_live() {
    let place = Place::new();
    let disk = place.put("group.raw", vec![0; 8 << 20]);
    let more = format!(
        "-object throttle-group,id=forgotten,x-bps-read=200000 -blockdev driver=raw,node-name=image,file.driver=file,file.filename={} \
         -blockdev driver=throttle,throttle-group=forgotten,file=image,node-name=limited -device virtio-blk-pci,drive=limited,id=disk1",
        disk.display()
    );
    let vm = BootGuest::start(
        &place,
        "grouped",
        "tcg",
        &unhurried_reads(&DISKS[1..], 13),
        "",
        &more,
    );
    vm.ask("cont");
    let found = first(&place, vm.pid(), "vm-io-limit");
    assert!(
        found["findings"][0]["finding"]
            .as_str()
            .unwrap()
            .contains("throttle group forgotten"),
        "{found:#}"
    );
    remedy(&vm, &found, "line");
    until("it is removed", || {
        fired(&rates(&place, vm.pid())).is_empty().then_some(())
    });
}

#[test]
fn writes_through_the_cache_are_found_and_those_written_back_are_not() {
    let place = Place::new();
    let sector = random_requests(true, &DISKS[..1], 8, 14);
    let start = |name: &str, cache: &str| {
        let mut image = sector.clone();
        image.resize(16 << 20, 7);
        let file = place.put(&format!("{name}.raw"), image);
        // A disk of IDE: the firmware's driver of virtio disks never asks for write-back.
        let words = format!(
            "-nodefaults -display none -accel tcg -m 32 -name {name} -drive file={},format=raw,if=ide,cache={cache} -qmp unix:{},server=on,wait=off",
            file.display(),
            place.path(&format!("{name}.qmp")).display()
        );
        let vm = Ends::start("qemu-system-x86_64", &words);
        until("it runs", || {
            vmtax_vmm::running()
                .contains(&(vm.0.id() as i32))
                .then_some(())
        });
        vm
    };
    let through = start("through", "writethrough");
    let found = first(&place, through.0.id(), "vm-write-through");
    assert_eq!(found["settings"]["disks"][0]["write_through"], true);
    drop(through);
    let back = start("back", "writeback");
    let writes = until("it writes", || {
        let rates = rates(&place, back.0.id());
        (rates["io"]["writes_per_s"].as_f64()? > 20.0).then_some(rates)
    });
    assert_eq!(fired(&writes), [""; 0], "{writes:#}");
}

/// A qcow2 image of 8 GiB, whose clusters are all allocated and empty.
fn qcow2(place: &Place) -> PathBuf {
    const CLUSTER: u64 = 64 << 10;
    const TABLES: u64 = 16;
    let entries = CLUSTER / 8;
    let mut image = Vec::from(b"QFI\xfb");
    let (l1, l2, data) = (2 * CLUSTER, 3 * CLUSTER, (3 + TABLES) * CLUSTER);
    image.extend(
        [3_u32, 0, 0, 0, 16]
            .iter()
            .flat_map(|word| word.to_be_bytes()),
    );
    image.extend((TABLES * entries * CLUSTER).to_be_bytes());
    image.extend(
        [0, TABLES as u32]
            .iter()
            .flat_map(|word| word.to_be_bytes()),
    );
    image.extend([l1, CLUSTER].iter().flat_map(|word| word.to_be_bytes())); // L1 table, refcount table
    image.extend([1_u32, 0].iter().flat_map(|word| word.to_be_bytes()));
    image.extend([0_u64; 4].iter().flat_map(|word| word.to_be_bytes())); // snapshots, features
    image.extend([4_u32, 104].iter().flat_map(|word| word.to_be_bytes()));
    image.resize(l1 as usize, 0);
    let copied = |at: u64| (at | 1 << 63).to_be_bytes();
    image.extend((0..TABLES).flat_map(|table| copied(l2 + table * CLUSTER)));
    image.resize(l2 as usize, 0);
    image.extend((0..TABLES * entries).flat_map(|cluster| copied(data + cluster * CLUSTER)));
    let path = place.put("large.qcow2", image);
    let size = data + TABLES * entries * CLUSTER;
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(size)
        .unwrap();
    path
}

#[test]
fn a_small_l2_cache_under_random_reads_is_found_and_enlarged_live() {
    let place = Place::new();
    let image = qcow2(&place);
    let more = format!(
        "-drive if=none,id=d1,format=qcow2,file={},l2-cache-size=128K -device virtio-blk-pci,drive=d1,id=disk1",
        image.display()
    );
    let vm = BootGuest::start(
        &place,
        "qcow2",
        "tcg",
        &random_requests(false, &DISKS[1..], 8, 24),
        "",
        &more,
    );
    vm.ask("cont");
    let found = first(&place, vm.pid(), "vm-qcow2-l2-cache");
    let qcow2 = &found["settings"]["disks"][1]["qcow2"];
    assert_eq!(
        (&qcow2["l2_cache"], &qcow2["virtual_size"]),
        (&(128 << 10).into(), &(8_u64 << 30).into()),
        "{qcow2:#}"
    );
    remedy(&vm, &found, "line");
    until("QEMU reads no more than its guest", || {
        fired(&rates(&place, vm.pid())).is_empty().then_some(())
    });
}

#[test]
fn a_busy_iothread_of_two_disks_is_found() {
    let place = Place::new();
    // Ciphers without instructions of their own, three deep, keep the thread busy.
    let more = "-object iothread,id=shared -object secret,id=key,data=secret";
    let vm = BootGuest::start(
        &place,
        "iothread",
        "tcg",
        &random_requests(false, &[0x81, 0x82], 120, 14),
        "",
        more,
    );
    let command = |execute: &str, arguments: Value| {
        vm.command(&value!({ "execute": execute, "arguments": arguments }))
    };
    for disk in ["disk1", "disk2"] {
        let file = place.put(&format!("{disk}.luks"), []);
        let mut below = format!("{disk}-file");
        command(
            "blockdev-add",
            value!({ "driver": "file", "filename": file, "node-name": below }),
        );
        for (layer, mib) in [24, 20, 16].into_iter().enumerate() {
            let options = value!({ "driver": "luks", "file": below, "size": mib << 20, "key-secret": "key",
                "cipher-alg": "serpent-256", "hash-alg": "sha512", "iter-time": 10 });
            // QEMU times the hash by CPU time, which on a busy host may not have grown when it looks.
            until("the image is made", || {
                command(
                    "blockdev-create",
                    value!({ "job-id": disk, "options": options }),
                );
                let job = until("the job ends", || {
                    let jobs = vm.ask("query-jobs");
                    jobs.as_array()?
                        .iter()
                        .find(|job| job["id"] == disk && job["status"] == "concluded")
                        .cloned()
                });
                command("job-dismiss", value!({ "id": disk }));
                job["error"].is_null().then_some(())
            });
            let node = format!("{disk}-{layer}");
            let options =
                value!({ "driver": "luks", "file": below, "node-name": node, "key-secret": "key" });
            command("blockdev-add", options);
            below = node;
        }
        command(
            "device_add",
            value!({ "driver": "virtio-blk-pci", "drive": below, "id": disk, "iothread": "shared" }),
        );
    }
    vm.ask("cont");
    let found = first(&place, vm.pid(), "vm-shared-iothread");
    assert!(
        found["findings"][0]["finding"]
            .as_str()
            .unwrap()
            .contains("disk1, disk2"),
        "{found:#}"
    );
}

#[test]
fn a_flood_of_monitor_commands_is_found() {
    let place = Place::new();
    let vm = BootGuest::start(
        &place,
        "flooded",
        "tcg",
        &reading([1, 0]),
        "",
        "-name debug-threads=on",
    );
    vm.ask("cont");
    // It asks until the other end of the channel is dropped.
    let (sending, ended) = channel::<()>();
    let stream = UnixStream::connect(place.path("flooded.test")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let flood = std::thread::spawn(move || {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        (&stream)
            .write_all(b"{\"execute\":\"qmp_capabilities\"}\n")
            .unwrap();
        while ended.try_recv() == Err(TryRecvError::Empty) {
            (&stream)
                .write_all(b"{\"execute\":\"qom-list-types\"}\n")
                .unwrap();
            lines
                .by_ref()
                .map_while(Result::ok)
                .find(|line| line.contains("\"return\": ["))
                .unwrap();
        }
    });
    let found = first(&place, vm.pid(), "vm-monitor-flood");
    drop(sending);
    flood.join().unwrap();
    assert!(
        found["findings"][0]["gain"].as_f64().unwrap() >= 0.2,
        "{found:#}"
    );
    until("the flood is over", || {
        fired(&rates(&place, vm.pid())).is_empty().then_some(())
    });
}

#[test]
#[ignore = "needs root"]
fn a_stopped_virtiofsd_is_found_by_its_socket() {
    let place = Place::new();
    let programs = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"].map(Path::new);
    let Some(program) = programs.into_iter().find(|program| program.exists()) else {
        return skipped("virtiofsd is not installed");
    };
    let (tree, socket) = (place.path("tree"), place.path("fs.sock"));
    fs::create_dir(&tree).unwrap();
    let words = match program.starts_with("/usr/lib/qemu") {
        true => format!(
            "--socket-path={} -o source={}",
            socket.display(),
            tree.display()
        ),
        false => format!(
            "--socket-path={} --shared-dir={}",
            socket.display(),
            tree.display()
        ),
    };
    let _daemon = Ends::start(program.to_str().unwrap(), &words);
    until("virtiofsd listens", || socket.exists().then_some(()));
    let more = format!(
        "-chardev socket,id=fs,path={} -device vhost-user-fs-pci,chardev=fs,tag=src -object memory-backend-memfd,id=m,size=64M,share=on -machine memory-backend=m",
        socket.display()
    );
    let vm = BootGuest::start(&place, "shares", "tcg", &reading([1, 0]), "", &more);
    vm.ask("cont");
    let healthy = rates(&place, vm.pid());
    assert_eq!(
        (fired(&healthy), &healthy["daemons"][0]["tag"]),
        (vec![], &"src".into()),
        "{healthy:#}"
    );
    let pid = healthy["daemons"][0]["pid"].as_i64().unwrap();
    let signal = |name: &str| {
        std::process::Command::new("kill")
            .args([name, &pid.to_string()])
            .status()
            .unwrap()
    };
    assert!(signal("-STOP").success());
    let found = first(&place, vm.pid(), "vm-virtiofsd-stopped");
    assert!(signal("-CONT").success());
    assert_eq!(
        found["findings"][0]["remedies"][0]["line"],
        format!("sudo kill -CONT {pid}")
    );
    until("it continues", || {
        fired(&rates(&place, vm.pid())).is_empty().then_some(())
    });
}

#[test]
fn healthy_vms_have_no_finding_about_settings() {
    let place = Place::new();
    let spinning = [0xeb, 0xfe]
        .into_iter()
        .chain([0; 508])
        .chain([0x55, 0xaa])
        .collect::<Vec<u8>>();
    let busy_disk = random_requests(false, &DISKS[..1], 8, 14);
    for (name, sector) in [
        ("idle", reading([1, 0])),
        ("busy-cpu", spinning),
        ("busy-disk", busy_disk),
    ] {
        let vm = BootGuest::start(
            &place,
            name,
            "tcg",
            &sector,
            ",throttling.iops-total=1000000",
            "-name debug-threads=on",
        );
        vm.ask("cont");
        std::thread::sleep(Duration::from_secs(1));
        let rates = rates(&place, vm.pid());
        assert_eq!(fired(&rates), [""; 0], "{name}: {rates:#}");
    }
}
