//! Inputs that will not do are refused with their fix: a QEMU, a kernel, modules, plans, options, recordings.

use crate::common::{Place, json, kernel, trials};
use std::fs;
use std::path::PathBuf;

#[test]
fn a_qemu_that_will_not_do_is_refused_with_a_fix() {
    let place = Place::new();
    let run = |qemu: PathBuf| place.run("cpu --machine tcg --rounds 1 --qemu").arg(qemu);
    run(place.path("none")).fails(&["no such file", "apt-get install qemu-system-x86"]);
    run(place.put("plain", "not executable")).fails(&["not executable", "chmod"]);
    run(place.path("")).fails(&["is not a regular file but a folder"]);
    let old = "echo 'QEMU emulator version 2.10.1(Debian)'";
    run(place.script("old", old)).fails(&["QEMU 2.10.1 is older than", "apt-get install"]);
    run(place.script("other", "echo cat 9.1")).fails(&["is not a QEMU system emulator", "cat 9.1"]);
    run(place.script("broken", "exit 1")).fails(&["does not start"]);
    run(place.script("hanging", "sleep 60")).fails(&["did not answer `--version`"]);
    assert!(!place.runs().exists(), "a recording of nothing");
}

#[test]
fn a_kernel_that_is_none_is_refused_with_a_fix() {
    let place = Place::new();
    let run = |kernel: PathBuf| place.run("cpu --machine tcg --rounds 1 --kernel").arg(kernel);
    run(place.path("none")).fails(&["none: ", "vmtax get kernel"]);
    run(place.path("")).fails(&["not a regular file", "vmtax get kernel"]);
    run(place.put("empty", "")).fails(&["empty"]);
    run(place.put("text", "I am a text.\n".repeat(1000))).fails(&["no kernel that vmtax knows", "bzImage"]);
    let mut arm64 = vec![0; 4096];
    arm64[56..60].copy_from_slice(b"ARM\x64");
    run(place.put("Image", arm64)).fails(&["arm64", "x86-64"]);
    let whole = fs::read(&kernel().image).unwrap();
    run(place.put("half", &whole[..whole.len() / 2])).fails(&["half: ", "bytes"]);
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
    let (old, new) = (whole.release.as_bytes(), whole.release.replace(|c: char| c.is_ascii_digit(), "7"));
    let at = image[..1 << 16].windows(old.len()).position(|bytes| bytes == old).unwrap();
    image[at..at + old.len()].copy_from_slice(new.as_bytes());
    let other = place.put("other", image);
    let modules = whole.modules.display();
    let both = format!("--kernel {} --modules {modules}", other.display());
    run(&both).fails(&[&format!("is Linux {new}"), &whole.release, "--modules"]);

    fs::create_dir(place.path("empty")).unwrap();
    let empty = format!("--kernel {} --modules {}", whole.image.display(), place.path("empty").display());
    run(&empty).fails(&["holds no kernel modules"]);
    run(&format!("--modules {modules}")).fails(&["--kernel"]);
}

#[test]
fn recordings_that_cannot_be_written_are_said_so() {
    let place = Place::new();
    let plan = "run cpu cpu.time=0.05 --machine native --rounds 1 --dir";
    let file = place.put("file", "");
    place.vmtax(plan).arg(&file).fails(&["cannot write", "file", "choose a folder"]);
    place.vmtax(plan).arg("/proc/runs").fails(&["cannot write /proc/runs", "choose a folder"]);
    place.vmtax_as_ordinary_user(plan).arg("/sys/runs").fails(&["cannot write /sys/runs"]);
}

#[test]
fn no_space_is_said_with_numbers() {
    let place = Place::new();
    let plan = "fileio fileio.total-size=100T --rounds 1 --machine";
    // A file natively; in a guest its disk too, with ext4's own structures.
    for (machines, mib) in [("native", "104857600 MiB"), ("native,tcg", "220201")] {
        let outcome = place.run(plan).arg(machines).fails(&["MiB are free", "MiB", "--dir", "fileio.total-size"]);
        assert!(outcome.stderr.contains(mib), "{mib} is not in it: {outcome}");
    }
}

#[test]
fn what_is_unknown_is_named_with_what_there_is() {
    let place = Place::new();
    place.run("dhrystone").fails(&["unknown workload 'dhrystone'", "cpu, threads, mutex"]);
    place.run("cpu cpu.prime=3").fails(&["no option 'prime'", "max-prime"]);
    place.run("cpu cpu.max-prime=many").fails(&["max-prime", "many"]);
    place.run("cpu memory.total-size=1M").fails(&["memory", "not run"]);
    place.run("time=1").fails(&["has no workload", "disk time=1"]);
    place.run("cpu --machine vax").fails(&["'vax'", "native, kvm, tcg"]);
    place.run("cpu --machine native,native").fails(&["listed twice"]);
    place.run("cpu --rounds 0").fails(&["rounds is 0", "1 to 10000"]);
    place.run("cpu --cpus 0").fails(&["guest.cpus is 0"]);
    place.run("cpu --duration -1").fails(&["-1"]);
    place.run("cpu --duration NaN").fails(&["NaN"]);
    place.run("--no-such-option").fails(&["--no-such-option", "Usage"]);
    place.run("--quick --full").fails(&["--full"]);
    assert!(!place.runs().exists(), "a recording of nothing");
}

#[test]
fn a_plan_that_is_none_is_refused_with_its_line() {
    let place = Place::new();
    let run = |text: &str| place.run("").arg(place.put("plan.toml", text));
    let good = "rounds = 1\nmachines = [\"native\"]\n[[workload]]\nname = \"cpu\"\n";
    run(&good.replace("[[", "repeats = 3\n[[")).fails(&["line 3", "repeats"]);
    run(&good.replace("name =", "nmae =")).fails(&["line 4", "nmae"]);
    run(&good.replace("\"cpu\"", "\"cpo\"")).fails(&["line 4", "cpo"]);
    run(&good.replace("= 1", "= \"one\"")).fails(&["line 1"]);
    run(&good.replace("= 1", "= 0")).fails(&["rounds is 0"]);
    run(&good.replace("native", "vax")).fails(&["line 2", "vax"]);
    run(&format!("{good}options = {{ prime = 3 }}\n")).fails(&["no option 'prime'"]);
    run(&format!("schema = 999\n{good}")).fails(&["schema 999", "update vmtax"]);
    run("\0\u{1}][").fails(&["plan", "line 1"]);
    run("").fails(&["rounds"]);
    place.run("").arg(place.put("bytes.toml", b"\xff\xfe")).fails(&["bytes.toml"]);
    place.run("missing.toml").fails(&["missing.toml", "No such file"]);
    place.run("").arg(place.put("plan.toml", good)).arg("--quick").fails(&["leave --quick and --full out"]);
    assert!(!place.runs().exists(), "a recording of nothing");
}

#[test]
fn a_recording_that_is_none_or_damaged_is_refused_with_a_fix() {
    let place = Place::new();
    let report = |folder: PathBuf| place.vmtax("report").arg(folder);
    report(place.path("none")).fails(&["there is no folder", "vmtax list"]);
    place.put("junk/holiday.jpg", b"\xff\xd8");
    report(place.path("junk")).fails(&["is no recording of vmtax", "run.json is missing"]);
    place.run("cpu cpu.time=0.05 --machine native --rounds 2").succeeds();
    let folder = place.recording();

    // A damaged trial costs that trial.
    let trial = folder.join("trials/0000/trial.json");
    let whole = fs::read(&trial).unwrap();
    fs::write(&trial, &whole[..whole.len() / 2]).unwrap();
    let json = json(&report(folder.clone()).arg("--json").succeeds().stdout);
    assert_eq!(trials(&json).len(), 1);
    assert!(json["damaged"][0].as_str().unwrap().contains("0000"), "{}", json["damaged"]);

    // Also where none can be read, each way to show it says so.
    let other = folder.join("trials/0001/trial.json");
    let readable = fs::read(&other).unwrap();
    fs::write(&other, "{").unwrap();
    for details in ["", "--details"] {
        report(folder.clone()).words(details).succeeds().shows("trial 0000").shows("trial 0001");
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
    let newer = fs::read_to_string(folder.join("run.json")).unwrap().replace("\"schema\": 1", "\"schema\": 99");
    fs::write(folder.join("run.json"), newer).unwrap();
    report(folder).fails(&["schema 99", "update vmtax"]);
}
