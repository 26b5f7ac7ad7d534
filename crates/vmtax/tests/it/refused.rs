//! Inputs that will not do are refused with their fix: a QEMU, a kernel, modules, recordings. Most others: golden.rs.

use crate::common::{Place, json, kernel, trials};
use std::fs;
use std::path::PathBuf;

#[test]
fn a_qemu_that_hangs_and_half_a_kernel_are_refused() {
    let place = Place::new();
    let run = |option: &str, file: PathBuf| {
        place
            .run("cpu --machine tcg --rounds 1")
            .arg(option)
            .arg(file)
    };
    run("--qemu", place.script("hanging", "sleep 60")).fails(&["did not answer `--version`"]);
    let whole = fs::read(&kernel().image).unwrap();
    run("--kernel", place.put("half", &whole[..whole.len() / 2])).fails(&["half: ", "bytes"]);
    assert!(!place.runs().exists(), "a recording of nothing");
}

#[test]
fn modules_that_do_not_fit_the_kernel_are_refused_with_a_fix() {
    let place = Place::new();
    let whole = kernel();
    let run = |words: &str| place.run("cpu --machine tcg --rounds 1").words(words);

    let lame = whole.copy(&place, &["virtio_blk"]);
    run(&lame.options()).fails(&["has no virtio_blk", &whole.release, "vmtax get kernel"]);

    // The same image under another release.
    let mut image = fs::read(&whole.image).unwrap();
    let (old, new) = (
        whole.release.as_bytes(),
        whole.release.replace(|c: char| c.is_ascii_digit(), "7"),
    );
    let at = image[..1 << 16]
        .windows(old.len())
        .position(|bytes| bytes == old)
        .unwrap();
    image[at..at + old.len()].copy_from_slice(new.as_bytes());
    let other = place.put("other", image);
    let modules = whole.modules.display();
    let both = format!("--kernel {} --modules {modules}", other.display());
    run(&both).fails(&[&format!("is Linux {new}"), &whole.release, "--modules"]);

    fs::create_dir(place.path("empty")).unwrap();
    let empty = format!(
        "--kernel {} --modules {}",
        whole.image.display(),
        place.path("empty").display()
    );
    run(&empty).fails(&["holds no kernel modules"]);
    run(&format!("--modules {modules}")).fails(&["--kernel"]);
}

#[test]
fn a_plan_of_another_tools_files_is_refused_by_name() {
    let place = Place::new();
    let head = "rounds = 1\nmachines = []\nworkload = []\n";
    // The process of samples that a file holds ran elsewhere, whatever has its PID here.
    let stacks = "hz = 99\nwall-hz = 0\nevents-ms = 0\nstack = 0\nfile = \"/perf.data\"\npid = 1";
    for (name, of) in [
        ("traces", "[import]\nfiles = [\"/trace.dat\"]"),
        ("stacks", &format!("[profile]\n{stacks}")),
    ] {
        let study = if name == "traces" {
            "import"
        } else {
            "profile"
        };
        let plan = format!("name = \"{name}\"\nstudy = \"{study}\"\n{head}{of}\n");
        place.put("plan.toml", plan.as_bytes());
        let refused = format!("the plan {name} is of files of another tool");
        place.vmtax("run plan.toml").fails(&[&refused]);
    }
    assert!(!place.runs().exists());
}

#[test]
fn recordings_that_cannot_be_written_are_said_so() {
    let place = Place::new();
    let plan = "run cpu cpu.time=0.05 --machine native --rounds 1 --dir";
    place
        .vmtax_as_ordinary_user(plan)
        .arg("/sys/runs")
        .fails(&["cannot write /sys/runs"]);
}

#[test]
fn no_space_is_said_with_numbers() {
    let place = Place::new();
    let plan = "fileio fileio.total-size=100T --rounds 1 --machine";
    // A file natively; in a guest its disk too, with ext4's own structures.
    for (machines, mib) in [("native", "104857600 MiB"), ("native,tcg", "220201")] {
        let outcome = place.run(plan).arg(machines).fails(&[
            "MiB are free",
            "MiB",
            "--dir",
            "fileio.total-size",
        ]);
        assert!(
            outcome.stderr.contains(mib),
            "{mib} is not in it: {outcome}"
        );
    }
}

#[test]
fn a_damaged_recording_is_refused_with_a_fix() {
    let place = Place::new();
    let report = |folder: PathBuf| place.vmtax("report").arg(folder);
    place
        .run("cpu cpu.time=0.05 --machine native --rounds 2")
        .succeeds();
    let folder = place.recording();

    // A damaged trial costs that trial.
    let trial = folder.join("trials/0000/trial.json");
    let whole = fs::read(&trial).unwrap();
    fs::write(&trial, &whole[..whole.len() / 2]).unwrap();
    let json = json(&report(folder.clone()).arg("--json").succeeds().stdout);
    assert_eq!(trials(&json).len(), 1);
    assert!(
        json["damaged"][0].as_str().unwrap().contains("0000"),
        "{}",
        json["damaged"]
    );

    // Also where none can be read, each way to show it says so.
    let other = folder.join("trials/0001/trial.json");
    let readable = fs::read(&other).unwrap();
    fs::write(&other, "{").unwrap();
    for details in ["", "--details"] {
        report(folder.clone())
            .words(details)
            .succeeds()
            .shows("trial 0000")
            .shows("trial 0001");
    }
    fs::write(&other, readable).unwrap();

    // What all trials share costs all.
    for name in ["run.json", "plan.toml", "host.json"] {
        let path = folder.join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        report(folder.clone()).fails(&[name]);
        place.vmtax("list").succeeds().shows("damaged").shows(name);
        fs::write(&path, whole).unwrap();
    }
    report(folder.clone()).succeeds();
    let newer = fs::read_to_string(folder.join("run.json"))
        .unwrap()
        .replace("\"schema\": 1", "\"schema\": 99");
    fs::write(folder.join("run.json"), newer).unwrap();
    report(folder).fails(&["schema 99", "update vmtax"]);
}
