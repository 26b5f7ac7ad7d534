//! `vmtax tune --like`: the guest is the twin of somebody's VM, which stays as it is; what is handed over is its own XML, changed.

use crate::common::boot_guest::{BootGuest, reading};
use crate::common::{Domain, Libvirt, Place, json, skipped, virsh};
use crate::tune_guest::kept;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A qcow2 image of 4 GiB; `None`, and said, without qemu-img.
fn qcow2(place: &Place, options: &str) -> Option<PathBuf> {
    let image = place.path("web01.qcow2");
    let mut command = Command::new("qemu-img");
    command
        .args(["create", "-q", "-f", "qcow2", "-o", options])
        .arg(&image)
        .arg("4G");
    match command.status() {
        Ok(status) if status.success() => Some(image),
        _ => {
            skipped("qemu-img makes no image");
            None
        }
    }
}

fn domain(image: &Path, driver: &str, bus: &str) -> String {
    format!(
        "<domain type='kvm'>\n  <name>web01</name>\n  <memory unit='MiB'>1024</memory>\n  <vcpu>1</vcpu>\n  \
         <os><type arch='x86_64' machine='q35'>hvm</type></os>\n  <devices>\n    <disk type='file' device='disk'>\n      \
         <driver name='qemu' type='qcow2'{driver}/>\n      <source file='{}'/>\n      <target dev='vda' bus='{bus}'/>\n    </disk>\n    \
         <interface type='user'><model type='virtio'/></interface>\n    <oddity model='x'/>\n  </devices>\n</domain>\n",
        image.display()
    )
}

/// Size, time of the last write, and bytes at the begin.
fn state(image: &Path) -> (u64, i64, i64, Vec<u8>) {
    let data = image.metadata().unwrap();
    (
        data.len(),
        data.mtime(),
        data.mtime_nsec(),
        fs::read(image).unwrap()[..1024].to_vec(),
    )
}

fn plan(text: &str) -> toml::Table {
    text.parse().unwrap()
}

fn not_twinned(plan: &toml::Table) -> String {
    let lines = plan["tune-guest"]["like"]["not-twinned"]
        .as_array()
        .unwrap();
    lines
        .iter()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The plan of a tuning with these candidates alone, for the time's sake.
fn few(place: &Place, plan: &toml::Table, names: &[&str]) -> PathBuf {
    let mut plan = plan.clone();
    let candidates = plan["tune-guest"].as_table_mut().unwrap()["candidate"]
        .as_array_mut()
        .unwrap();
    candidates.retain(|one| names.contains(&one["name"].as_str().unwrap()));
    assert_eq!(candidates.len(), names.len(), "{candidates:?}");
    place.put("plan.toml", toml::to_string(&plan).unwrap())
}

const REMEDY: &str = "without throttling.iops-total";
const NO_EFFECT: &str = "throttling.bps-total=1000000000000";

#[test]
fn a_domains_twin_is_tuned_and_its_xml_changed() {
    let place = Place::new();
    let Some(image) = qcow2(&place, "cluster_size=128k") else {
        return;
    };
    let before = state(&image);
    let limit = "      <iotune>\n        <total_iops_sec>50</total_iops_sec>\n      </iotune>\n";
    let xml = domain(&image, " cache='writethrough'", "virtio")
        .replace("    </disk>\n", &format!("{limit}    </disk>\n"));
    let file = place.put("web01.xml", &xml);
    let words = "--machine micro-tcg --dry-run -- disk count=40 time=0";
    let mut plan = plan(
        &place
            .vmtax("tune --like")
            .arg(&file)
            .words(words)
            .succeeds()
            .stdout,
    );
    let set = plan["variant"][0]["set"].as_table().unwrap();
    let all = [
        ("cache", "writethrough"),
        ("format", "qcow2"),
        ("image.cluster_size", "131072"),
        ("throttling.iops-total", "50"),
    ];
    for (key, value) in all {
        assert_eq!(set[key].as_str(), Some(value), "{set:?}");
    }
    assert_eq!(plan["guest"]["memory-mib"].as_integer(), Some(1024));
    let lacks = not_twinned(&plan);
    assert!(
        lacks.contains("<interface> user virtio") && lacks.contains("<oddity> x"),
        "{lacks}"
    );
    // Beside the planted limit one that is never reached, which can change nothing.
    let candidates = plan["tune-guest"].as_table_mut().unwrap()["candidate"]
        .as_array_mut()
        .unwrap();
    let other = candidates
        .iter_mut()
        .find(|one| one["name"].as_str() != Some(REMEDY))
        .unwrap()
        .as_table_mut()
        .unwrap();
    other.insert("name".into(), NO_EFFECT.into());
    other.insert(
        "set".into(),
        toml::Table::from_iter([("throttling.bps-total".into(), "1000000000000".into())]).into(),
    );
    let file = few(&place, &plan, &[REMEDY, NO_EFFECT]);
    let outcome = place
        .vmtax("run --json --output out")
        .arg(&file)
        .start(300)
        .outcome()
        .exits(0);
    let outcome = outcome.says("not copied from the VM: device <oddity> x");
    let found = json(&outcome.stdout)["findings"].clone();
    assert_eq!(kept(&found), [REMEDY], "{found:#}");
    let tuned = |name: &str| fs::read_to_string(place.path("out/tuned").join(name)).unwrap();
    assert_eq!(tuned("domain.xml"), xml.replace(limit, ""));
    assert!(tuned("domain.diff").contains("-        <total_iops_sec>50</total_iops_sec>\n"));
    assert_eq!(tuned("undo.xml"), xml);
    assert!(
        tuned("qemu.args").contains("format=qcow2")
            && tuned("libvirt.xml").contains("type='qcow2'")
    );
    place
        .vmtax("report out")
        .succeeds()
        .shows("configuration of libvirt domain web01")
        .shows("virsh define");
    assert_eq!(state(&image), before, "the original was written to");
    place.nothing_is_left();
}

/// Domain that `virt-install --osinfo generic --import --graphics none --network none --virt-type qemu` of Debian 12
/// defines, which has an IDE disk, with a limit; the domain's name and image are filled in.
const VIRT_INSTALL: &str = include_str!("virt_install.xml");
const LIMIT: &str =
    "      <iotune>\n        <total_iops_sec>60</total_iops_sec>\n      </iotune>\n";

#[test]
fn a_new_domain_gives_a_diff_that_makes_it_faster() {
    let place = Place::new();
    let Some(image) = qcow2(&place, "cluster_size=64k") else {
        return;
    };
    let name = format!("vmtax-test-{}", std::process::id());
    let xml = VIRT_INSTALL
        .replace("NAME", &name)
        .replace("IMAGE", &image.display().to_string());
    let xml = xml.replacen("    </disk>\n", &format!("{LIMIT}    </disk>\n"), 1);
    let file = place.put("domain.xml", &xml);
    // A domain where libvirt is, else its XML.
    let libvirt = Libvirt::start();
    let like = match &libvirt {
        Some(_) => {
            assert!(
                virsh(&["define", file.to_str().unwrap()]).is_some(),
                "{xml}"
            );
            name.clone()
        }
        None => file.display().to_string(),
    };
    let _undefined = Undefined(libvirt.as_ref().map(|_| name.clone()));
    let dry = |like: &str| {
        let start = place
            .vmtax("tune --machine tcg --slice 0.3 --dry-run --like")
            .arg(like)
            .words("-- disk rw=randwrite");
        plan(&start.succeeds().stdout)
    };
    let before = dry(&like);
    assert_eq!(
        before["variant"][0]["set"]["bus"].as_str(),
        Some("ide"),
        "{before:?}"
    );
    // The micro-guest, of which dozens boot in seconds, has no driver for IDE.
    let mut quick = before.clone();
    quick["machines"] = toml::Value::Array(vec!["micro-tcg".into()]);
    quick["variant"][0]["set"]
        .as_table_mut()
        .unwrap()
        .remove("bus");
    let requests = [
        ("count".to_owned(), "40".into()),
        ("time".to_owned(), "0".into()),
    ];
    quick["workload"][0]["options"]
        .as_table_mut()
        .unwrap()
        .extend(requests);
    let file = few(&place, &quick, &[REMEDY]);
    let outcome = place
        .vmtax("run --json --output out")
        .arg(&file)
        .start(300)
        .outcome()
        .exits(0);
    let outcome = outcome
        .says("screening: 1 change")
        .says("confirmation of without throttling.iops-total");
    let found = json(&outcome.stdout)["findings"].clone();
    assert_eq!(kept(&found), [REMEDY], "{found:#}");
    let interval = &found["total"]["ratio"]["interval"];
    assert!(
        interval["low"].as_f64().unwrap() > 0.0 && interval["high"].as_f64().unwrap() < 0.8,
        "{interval}"
    );
    // Three rounds, then those of the confirmation.
    assert!(
        found["boots"].as_u64().unwrap() <= 6 + 30,
        "{}",
        found["boots"]
    );
    let tuned = |name: &str| place.path("out/tuned").join(name);
    // By hand, as the report says.
    let report = place.vmtax("report out").succeeds();
    report
        .shows("domain.diff")
        .shows("virsh define")
        .shows("undo.xml  # undo");
    let patched = place.path("patched.xml");
    let mut patch = Command::new("patch");
    patch
        .args(["-s", "-o"])
        .arg(&patched)
        .arg(tuned("undo.xml"))
        .arg(tuned("domain.diff"));
    assert!(
        patch.status().is_ok_and(|status| status.success()),
        "{}",
        fs::read_to_string(tuned("domain.diff")).unwrap()
    );
    assert_eq!(
        fs::read_to_string(&patched).unwrap(),
        fs::read_to_string(tuned("domain.xml")).unwrap()
    );
    let changed = match &libvirt {
        Some(_) => {
            assert!(virsh(&["define", patched.to_str().unwrap()]).is_some());
            name.clone()
        }
        None => patched.display().to_string(),
    };
    let after = dry(&changed);
    assert!(
        after["variant"][0]["set"]
            .get("throttling.iops-total")
            .is_none(),
        "{after:?}"
    );
    if libvirt.is_some() {
        assert!(virsh(&["define", tuned("undo.xml").to_str().unwrap()]).is_some());
        assert_eq!(dry(&name)["variant"][0]["set"], before["variant"][0]["set"]);
    }
    place.nothing_is_left();
}

/// A domain that is no longer defined once the value ends.
struct Undefined(Option<String>);

impl Drop for Undefined {
    fn drop(&mut self) {
        self.0
            .iter()
            .for_each(|name| drop(virsh(&["undefine", name])));
    }
}

#[test]
fn a_secret_of_the_xml_is_in_no_file_of_the_recording() {
    let place = Place::new();
    let disk = place.put("disk.raw", vec![0; 1 << 20]);
    let others = "<graphics type='vnc' port='-1' passwd='s3cret'/>\n    <disk type='network' device='cdrom'><source protocol='https'>\
                  <cookies><cookie name='session'>s3cret</cookie></cookies></source><target dev='sda'/></disk>\n    <oddity";
    let xml = domain(&disk, "", "virtio")
        .replace("type='qcow2'", "type='raw'")
        .replace("<oddity", others);
    let file = place.put("web01.xml", &xml);
    let text = place
        .vmtax("tune --dry-run --machine tcg --like")
        .arg(&file)
        .words("-- disk")
        .succeeds()
        .stdout;
    assert!(
        text.contains("<graphics type='vnc' port='-1' passwd='SECRET-REMOVED'/>")
            && !text.contains("s3cret"),
        "{text}"
    );
    assert!(
        text.contains("<cookie name='session'>SECRET-REMOVED</cookie>"),
        "{text}"
    );
}

#[test]
fn disks_of_each_bus_are_found_in_the_guest() {
    let place = Place::new();
    let Some(image) = qcow2(&place, "extended_l2=on") else {
        return;
    };
    let file = place.put("web01.xml", domain(&image, "", "scsi"));
    let nvme = format!(
        "qemu-system-x86_64 -m 1G -drive file={},format=qcow2,if=none,id=d -device nvme,drive=d,serial=s",
        image.display()
    );
    let ide = format!(
        "qemu-system-x86_64 -M pc -m 1G -drive file={},format=qcow2",
        image.display()
    );
    // With each the bus of its only change: a guest is booted with a disk of each of them.
    for (bus, like, other) in [
        ("virtio-scsi", file.display().to_string(), Some("nvme")),
        ("nvme", nvme, None),
        ("ide", ide, Some("virtio-blk")),
    ] {
        let words = "--machine tcg --duration 1s --slice 0.1 --boot-timeout 120s --dry-run -- disk";
        let mut plan = plan(
            &place
                .vmtax("tune --like")
                .arg(&like)
                .words(words)
                .succeeds()
                .stdout,
        );
        let set = &plan["variant"][0]["set"];
        let read = |key| set.get(key).and_then(toml::Value::as_str);
        assert_eq!(
            (read("bus"), read("image.extended_l2")),
            (Some(bus), Some("on")),
            "{set:?}"
        );
        let Some(other) = other else { continue };
        let change = format!("bus={other}");
        let candidates = plan["tune-guest"].as_table_mut().unwrap()["candidate"]
            .as_array_mut()
            .unwrap();
        let candidate = candidates
            .iter_mut()
            .find(|one| one["name"].as_str() == Some("bus=virtio-blk"))
            .unwrap();
        candidate["name"] = change.as_str().into();
        candidate["set"]["bus"] = other.into();
        let file = few(&place, &plan, &[&change]);
        let outcome = place
            .vmtax("run --json --output out")
            .arg(&file)
            .start(300)
            .outcome()
            .exits(0);
        let report = json(&outcome.stdout);
        let baseline = &report["findings"]["baseline"];
        assert_eq!(
            (&baseline["bus"], &baseline["image.extended_l2"]),
            (&bus.into(), &"on".into()),
            "{baseline}"
        );
        assert!(
            report["findings"]["candidates"][0]["screening"]["ratio"]["median"].is_number(),
            "{report:#}"
        );
        fs::remove_dir_all(place.path("out")).unwrap();
    }
    place.nothing_is_left();
}

#[test]
fn a_running_vm_has_its_settings_and_limits_read_and_stays_as_it_is() {
    let place = Place::new();
    let vm = BootGuest::start(
        &place,
        "web02",
        "tcg",
        &reading([0x80, 0x80]),
        ",cache=directsync,iops_rd=70",
        "-smp 2 -device virtio-rng-pci",
    );
    let before = state(&vm.file);
    let text = place
        .vmtax("tune --dry-run --like web02 -- disk")
        .succeeds()
        .stdout;
    let plan = plan(&text);
    let set = plan["variant"][0]["set"].as_table().unwrap();
    for (key, value) in [("cache", "directsync"), ("throttling.iops-read", "70")] {
        assert_eq!(set[key].as_str(), Some(value), "{set:?}");
    }
    assert_eq!(plan["machines"][0].as_str(), Some("tcg"), "as it runs");
    assert_eq!(
        (
            plan["guest"]["cpus"].as_integer(),
            plan["guest"]["machine-type"].as_str()
        ),
        (Some(2), Some("pc"))
    );
    let source = plan["tune-guest"]["like"]["source"].as_str().unwrap();
    assert!(
        source.contains("web02") && source.contains(&vm.pid().to_string()),
        "{source}"
    );
    let lacks = not_twinned(&plan);
    assert!(
        lacks.contains("virtio-rng-pci") && lacks.contains("64 MiB"),
        "{lacks}"
    );
    assert_eq!(state(&vm.file), before);
}

#[test]
fn a_domain_of_libvirt_has_its_xml_read() {
    let place = Place::new();
    let disk = place.put("disk.raw", vec![0; 1 << 20]);
    let Some(domain) = Domain::start(
        &place,
        &disk,
        "<iotune><total_iops_sec>300</total_iops_sec></iotune>",
    ) else {
        return;
    };
    let text = place
        .vmtax("tune --dry-run --disk vda --like")
        .arg(&domain.name)
        .words("-- disk")
        .succeeds()
        .stdout;
    let plan = plan(&text);
    let like = &plan["tune-guest"]["like"];
    assert!(
        like["source"]
            .as_str()
            .unwrap()
            .starts_with("libvirt domain vmtax-test-"),
        "{like}"
    );
    assert_eq!(
        plan["variant"][0]["set"]["throttling.iops-total"].as_str(),
        Some("300")
    );
    assert!(
        like["domain-xml"].as_str().unwrap().contains("<domain"),
        "{like}"
    );
    assert!(
        plan["guest"]["machine-type"]
            .as_str()
            .unwrap()
            .starts_with("pc-q35"),
        "{:?}",
        plan["guest"]
    );
    let missing = place
        .vmtax("tune --dry-run --disk vdz --like")
        .arg(&domain.name);
    missing.fails(&["no disk vdz", "vda"]);
}

#[test]
fn what_has_no_twin_is_said_in_one_line() {
    let place = Place::new();
    place
        .vmtax("tune --like nothing-of-that-name")
        .fails(&["nothing-of-that-name"]);
    place
        .vmtax("tune --like")
        .arg("qemu-system-x86_64 -m 1G")
        .fails(&["no disk that vmtax can tune"]);
    place
        .vmtax("tune --like")
        .arg("qemu-system-aarch64 -hda x")
        .fails(&["aarch64"]);
    place
        .vmtax("tune --like")
        .arg("qemu-system-x86_64 -hda 'x")
        .fails(&["quote"]);
    place
        .vmtax("tune --like")
        .arg(place.put("net.xml", "<network/>"))
        .fails(&["virsh dumpxml"]);
    place.vmtax("tune --disk vda").fails(&["--like"]);
    place.vmtax("tune --vm 1 --like x").fails(&["--like"]);
    // A QEMU that has no such machine: the next step is named.
    let disk = place.put("disk.raw", vec![0; 1 << 20]);
    let line = format!("qemu-system-x86_64 -M pc-q35-99.0 -hda {}", disk.display());
    let plan = plan(
        &place
            .vmtax("tune --dry-run --machine tcg --like")
            .arg(line)
            .succeeds()
            .stdout,
    );
    let file = few(&place, &plan, &["cache=none"]);
    let outcome = place.vmtax("run").arg(&file).start(180).outcome().exits(2);
    outcome
        .says("test guest with the configuration of a QEMU command line")
        .says("unsupported machine type")
        .says("--machine-type");
    place.nothing_is_left();
}
