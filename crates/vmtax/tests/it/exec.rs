//! A command of the user's, natively and in real guests on this host's own files.

use crate::common::{
    Outcome, Place, Signal, Start, binary, fast_guest, is_root, json, kernel, number, root_methods,
    trials,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// One round on these machines.
pub fn exec<'a>(place: &'a Place, words: &str, command: &[&str]) -> Start<'a> {
    let rounds = if words.contains("--rounds") {
        ""
    } else {
        "--rounds 1"
    };
    let start = place
        .vmtax("exec --dir")
        .arg(place.runs())
        .words(rounds)
        .words(words)
        .arg("--");
    command.iter().fold(start, |start, word| start.arg(word))
}

pub fn report(place: &Place) -> Value {
    json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    )
}

/// The words for this host and a guest.
pub fn native_and_guest() -> String {
    format!("--machine native {}", fast_guest().1)
}

fn value(report: &Value, machine: &str, metric: &str) -> f64 {
    let rows = report["findings"]["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["metric"] == metric)
        .unwrap_or_else(|| panic!("no {metric} in {report}"));
    let column = row["machines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["machine"] == machine)
        .unwrap();
    column["spread"]["median"]
        .as_f64()
        .unwrap_or_else(|| panic!("no {metric} on {machine} in {report}"))
}

#[test]
fn a_command_has_on_each_machine_what_it_has_without() {
    let place = Place::new();
    let script = "pwd; id -u; id -g; umask; ulimit -n; ulimit -c; uname -n; echo \"$TZ $ODD\"; date +%Z; echo \"$1\"; \
                  cat; ls -ld /proc/self /dev/null /dev/pts /dev/shm /run | wc -l; echo oops >&2; exit 3";
    let input = place.put("input", "a line\nand another");
    let outcome = exec(
        &place,
        "--machine native,tcg --ignore-failure",
        &["sh", "-c", script, "sh", "an 'argument' with\nmore"],
    )
    .env("TZ", "America/New_York")
    .env(
        "ODD",
        std::ffi::OsString::from(
            std::os::unix::ffi::OsStrExt::from_bytes(b"\xff=*") as &std::ffi::OsStr
        ),
    )
    .stdin(fs::File::open(input).unwrap())
    .outcome()
    .exits(3);
    let half = outcome.stdout.len() / 2;
    let (first, second) = outcome.stdout.split_at(half);
    assert_eq!(first, second, "{outcome}");
    assert!(
        first.contains(place.path("").to_str().unwrap().trim_end_matches('/')),
        "{first}"
    );
    assert!(
        first.contains("a line\nand another") && first.contains("an 'argument' with\nmore\n"),
        "{first}"
    );
    assert!(
        first.contains("\nEST\n") || first.contains("\nEDT\n"),
        "{first}"
    );
    assert_eq!(
        outcome
            .stderr
            .lines()
            .filter(|line| *line == "oops")
            .count(),
        2,
        "{outcome}"
    );
    let outcome = outcome
        .says("exit status 3 in all runs")
        .says("wall time")
        .says(" natively (medians), ")
        .says("the command failed");
    assert!(outcome.stderr.contains("unexplained"), "{outcome}");
    let report = report(&place);
    adds_up(&report["findings"]["breakdowns"][0]);
    assert!(value(&report, "tcg", "exec.read") > 0.0);
}

#[test]
fn a_guest_is_as_it_was_described() {
    let place = Place::new();
    let kernel = kernel();
    let facts = vmtax_model::KernelFacts {
        image: kernel.image.clone(),
        modules: Some(kernel.modules.clone()),
        release: kernel.release.clone(),
        source: vmtax_model::SourceOfKernel::Given,
    };
    let vmlinux = place.path("vmlinux");
    assert!(
        vmtax_guests::kernel::unpack_vmlinux(&facts, &vmlinux),
        "{} has no PVH note",
        kernel.image.display()
    );
    let words = format!(
        "--machine tcg --kernel {} --modules {} --cpu-model max,-rdrand --machine-type q35,hpet=off --firmware bios.bin \
         --kernel-arg vmtax.test=1 --qemu-arg=-device --qemu-arg=virtio-rng-pci",
        vmlinux.display(),
        kernel.modules.display()
    );
    let script = "cat /proc/cmdline; grep -c -w rdrand /proc/cpuinfo; cat /sys/bus/pci/devices/*/device | grep -c 0x1005";
    let said = exec(&place, &words, &["sh", "-c", script])
        .start(120)
        .outcome()
        .exits(0)
        .stdout;
    assert!(said.ends_with(" vmtax.test=1\n0\n1\n"), "{said}");
    let plan = fs::read_to_string(place.recording().join("plan.toml")).unwrap();
    for field in [
        "cpu-model = \"max,-rdrand\"",
        "machine-type = ",
        "firmware = ",
        "kernel-args = ",
        "\"virtio-rng-pci\"",
    ] {
        assert!(plan.contains(field), "{field}: {plan}");
    }
}

#[test]
fn the_parts_of_the_time_add_up_and_agree_with_two_clocks() {
    let place = Place::new();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; cat /bin/bash /bin/bash /usr/bin/perl > /dev/null; sleep 0.3";
    let (machine, guest) = fast_guest();
    exec(
        &place,
        &format!("--machine native --rounds 2 {guest}"),
        &["sh", "-c", script],
    )
    .start(120)
    .outcome()
    .exits(0);
    let report = report(&place);
    let breakdown = &report["findings"]["breakdowns"][0];
    assert_eq!(
        (breakdown["machine"].as_str(), breakdown["rounds"].as_u64()),
        (Some(machine), Some(2))
    );
    adds_up(breakdown);
    let rows = breakdown["rows"].as_array().unwrap();
    let part_seconds = |part: &str| {
        rows.iter()
            .find(|row| row["part"] == part)
            .map_or(0.0, |row| number(&row["machine_s"]))
    };
    // It slept, and it read what only the server has.
    assert!(
        part_seconds("waiting") + part_seconds("qemu-threads") + part_seconds("share-server")
            > 0.25,
        "{breakdown}"
    );
    assert!(
        part_seconds("user") > 0.01 && part_seconds("kernel") > 0.01,
        "{breakdown}"
    );
    assert!(
        value(&report, "native", "exec.wall") > 0.3 && value(&report, "native", "exec.read") > 2.0
    );
}

fn adds_up(breakdown: &Value) {
    let (whole, unexplained) = (
        number(&breakdown["machine_s"]),
        number(&breakdown["unexplained_s"]),
    );
    let rows = breakdown["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(&row["machine_s"])).sum();
    assert!((sum + unexplained - whole).abs() < 1e-6, "{breakdown}");
    // The guest's account and the host's are two; what they do not agree on is small beside the whole.
    assert!(unexplained.abs() < 0.1 * whole + 0.05, "{breakdown}");
    let native: f64 = rows.iter().filter_map(|row| row["native_s"].as_f64()).sum();
    assert!(
        (native - number(&breakdown["native_s"])).abs() < 1e-6,
        "{breakdown}"
    );
}

/// Every file's kind, rights, owner, length, time and content.
fn state(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let about = path.symlink_metadata().unwrap();
            let content = match about.file_type() {
                kind if kind.is_file() => format!("{:?}", fs::read(&path).unwrap()),
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => String::new(),
            };
            let times = (about.mtime(), about.mtime_nsec(), about.nlink());
            all.insert(
                path.display().to_string(),
                format!(
                    "{:o} {} {} {} {times:?} {content}",
                    about.mode(),
                    about.uid(),
                    about.gid(),
                    about.len()
                ),
            );
            if about.is_dir() {
                folders.push(path);
            }
        }
    }
    all
}

#[test]
fn the_hosts_files_are_what_they_were_whatever_a_command_does() {
    for way in root_methods() {
        let place = Place::new();
        for i in 0..30 {
            place.put(
                &format!("tree/{}/{i}", i % 5),
                format!("content {i}").repeat(i + 1),
            );
        }
        symlink("0/0", place.path("tree/link")).unwrap();
        fs::set_permissions(place.path("tree/1/1"), fs::Permissions::from_mode(0o400)).unwrap();
        let before = state(&place.path("tree"));
        let script = "cd tree; chmod -R 777 .; chown -R 12345 . ; echo changed > 0/5; mv 1 moved; ln 2/2 hard; \
                      truncate -s 0 3/3; touch -d 2001-01-01 4/4; mkfifo pipe; setfattr -n user.x -v y 4/9 2>/dev/null; \
                      cat 0/5; rm -rf ./*; ls | wc -l; rm -rf /etc 2>/dev/null; ls /etc 2>/dev/null | wc -l";
        // Then it goes past its own layer, which is refused by who serves, too.
        let script = format!("({script}); {PAST_THE_LAYER}");
        let outcome = exec(
            &place,
            &format!("--machine tcg --root {way}"),
            &["sh", "-c", &script],
        )
        .outcome();
        // It was done, there.
        let said: Vec<&str> = outcome.stdout.split_whitespace().collect();
        match said[..] {
            ["changed", "0", "0", "mounted"] => assert!(is_root(), "{outcome}"),
            ["changed", "0", etc] => assert!(!is_root() && etc != "0", "{outcome}"),
            _ => panic!("{outcome}"),
        }
        assert_eq!(state(&place.path("tree")), before, "{way}");
        assert!(Path::new("/bin/sh").exists() && Path::new("/etc/passwd").exists());
    }
}

/// Root of a guest reaches the share itself, below the layer, and has the guest's kernel take it for writable.
const PAST_THE_LAYER: &str = "s=/proc/1/root/share; mount -i -c -t none -o remount,rw share $s && echo mounted; \
    for f in $s$PWD/tree/0/0 $s/etc/hostname; do echo bad > $f && echo written; done; rm -r $s$PWD/tree && echo written";

#[test]
fn what_cannot_be_run_is_said_with_the_status_of_a_shell() {
    let place = Place::new();
    let no_program = place.put("plain", "no program");
    let alien = place.put("alien", alien());
    fs::set_permissions(&alien, fs::Permissions::from_mode(0o755)).unwrap();
    for (command, status, said) in [
        ("no-such-command", 127, "no such file"),
        (no_program.to_str().unwrap(), 126, "Permission denied"),
        (
            alien.to_str().unwrap(),
            126,
            "neither a program for this CPU",
        ),
    ] {
        exec(&place, &native_and_guest(), &[command])
            .outcome()
            .exits(status)
            .says(said);
    }
    place.vmtax("exec").outcome().exits(2).says("CMD");
    exec(&place, "--machine tcg --root erofs", &["true"])
        .outcome()
        .exits(125)
        .says("9p or virtiofs");
    place.run("exec").outcome().exits(2).says("vmtax exec");
}

#[test]
fn the_first_failure_natively_ends_the_run_unless_failures_are_ignored() {
    let place = Place::new();
    let counted = place.path("count");
    let command = ["sh", "-c", "echo run >> count; exit 3"];
    let words = "--machine native --rounds 6 --in-place";
    let outcome = exec(&place, words, &command).outcome().exits(3);
    let outcome = outcome
        .says("the command failed on native (exit status 3)")
        .says("--ignore-failure");
    assert_eq!(
        (
            fs::read_to_string(&counted).unwrap().lines().count(),
            outcome.stdout.as_str()
        ),
        (1, ""),
        "{outcome}"
    );
    assert!(
        !outcome.stderr.contains("wall time"),
        "no figures of it: {outcome}"
    );
    fs::remove_file(&counted).unwrap();
    let words = format!("{words} --ignore-failure");
    exec(&place, &words, &command)
        .outcome()
        .exits(3)
        .says("exit status 3 in all runs")
        .says("wall time");
    assert_eq!(fs::read_to_string(&counted).unwrap().lines().count(), 6);
    exec(&place, "--machine native --rounds 6", &["/nonexistent"])
        .outcome()
        .exits(127)
        .says("no such file");
}

#[test]
fn a_command_that_fails_has_no_figures_in_a_comparison_or_a_tuning() {
    let place = Place::new();
    let failing = "-- exec sh -c 'echo ran; exit 5'";
    let tune = format!("tune --duration 60s {}", fast_guest().1);
    let compare = format!("compare name=a name=b --rounds 8 {}", fast_guest().1);
    for (number, study) in [compare, tune].into_iter().enumerate() {
        let out = place.path(&format!("out-{number}"));
        let line = format!("{} {study} --output {} {failing}", binary(), out.display());
        let outcome = place
            .program("sh")
            .arg("-c")
            .arg(line)
            .start(120)
            .outcome()
            .exits(5);
        let outcome = outcome.says("(exit status 5)").says("--ignore-failure");
        // Once elsewhere, where that came before the baseline by chance.
        assert!(
            (1..=2).contains(&outcome.stdout.matches("ran").count()),
            "{outcome}"
        );
    }
}

/// A head of an ELF for another CPU (AArch64).
fn alien() -> Vec<u8> {
    let mut head = fs::read("/proc/self/exe").unwrap()[..4096].to_vec();
    head[18..20].copy_from_slice(&183_u16.to_le_bytes());
    head
}

#[test]
fn signals_hangs_and_leavers_end_as_they_should() {
    let place = Place::new();
    let words = native_and_guest() + " --ignore-failure";
    let outcome = exec(&place, &words, &["sh", "-c", "kill -SEGV $$"])
        .outcome()
        .exits(139);
    outcome.says("ended by signal 11");
    // Whoever ignores the asking is killed.
    let script = "trap '' TERM; echo stays; while :; do sleep 1; done";
    exec(&place, &(words + " --timeout 1"), &["sh", "-c", script])
        .outcome()
        .exits(124)
        .says("--timeout");
    let script = "setsid sleep 1000 & sh -c 'sleep 1000 & sleep 1000' & echo leaves";
    let outcome = exec(&place, &native_and_guest(), &["sh", "-c", script])
        .outcome()
        .exits(0);
    assert_eq!(outcome.stdout, "leaves\nleaves\n");
    outcome.says("left processes running");
    place.nothing_is_left();
}

#[test]
fn the_first_interrupt_goes_to_the_command_and_the_second_ends_the_guest() {
    let place = Place::new();
    let reaching = place.path("reached");
    let guest = fast_guest().1;
    for (machine, script, signals) in [
        (
            "--machine native",
            "trap 'echo heard; exit 9' INT; echo ready; sleep 100 & wait",
            1,
        ),
        (
            &guest,
            "trap 'echo heard; exit 9' INT; echo ready; sleep 100 & wait",
            1,
        ),
        (
            &guest,
            "trap 'echo heard' INT; echo ready; while :; do sleep 1; done",
            2,
        ),
    ] {
        let out = fs::File::create(&reaching).unwrap();
        let mut run = exec(&place, machine, &["sh", "-c", script])
            .stdout(out)
            .start(60);
        let said = |text: &'static str| {
            let reaching = reaching.clone();
            move |_: &Place| {
                fs::read_to_string(&reaching)
                    .unwrap()
                    .contains(text)
                    .then_some(())
            }
        };
        run.until("the command is ready", said("ready"));
        run.signal(Signal::INT);
        if signals > 1 {
            run.until("the command hears", said("heard"));
            run.signal(Signal::INT);
        }
        run.outcome().exits(130);
        assert!(
            fs::read_to_string(&reaching).unwrap().contains("heard"),
            "{machine}"
        );
        place.nothing_is_left();
    }
}

#[test]
fn a_killed_controller_leaves_no_command() {
    let place = Place::new();
    let out = place.path("out");
    let script = "setsid sleep 1000 & echo ready; sleep 1000";
    for machine in ["--machine native", &fast_guest().1] {
        let mut run = exec(&place, machine, &["sh", "-c", script])
            .stdout(fs::File::create(&out).unwrap())
            .start(60);
        run.until("the command is ready", |_| {
            fs::read_to_string(&out)
                .unwrap()
                .contains("ready")
                .then_some(())
        });
        run.signal(Signal::KILL);
        assert_eq!(run.outcome().status, None);
        place.nothing_is_left();
    }
}

/// The largest memory that vmtax itself had while the command printed; before, a kernel was unpacked.
fn own_peak(outcome: &Outcome) -> u64 {
    let line = outcome
        .stderr
        .lines()
        .find_map(|line| line.trim().strip_prefix("resident "))
        .unwrap();
    line.parse().unwrap()
}

#[test]
fn a_flood_comes_through_whole_and_takes_no_memory_here() {
    let place = Place::new();
    // Reads all of it, and checks the program's memory meanwhile.
    let script = "import subprocess, sys\n\
                  p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n\
                  import hashlib; n = 0; h = hashlib.md5(); peak = 0\n\
                  while True:\n\
                  \x20 b = p.stdout.read(1 << 20)\n\
                  \x20 if not b: break\n\
                  \x20 n += len(b); h.update(b)\n\
                  \x20 s = open(f'/proc/{p.pid}/status').read().split('RssAnon:')\n\
                  \x20 if len(s) > 1: peak = max(peak, int(s[1].split()[0]))\n\
                  print(n, h.hexdigest()); sys.stderr.write(f'resident {peak}\\n'); sys.exit(p.wait())";
    let flood = "head -c 100000000 /dev/zero | tr '\\0' 'x'; echo done >&2";
    let start = place.program("python3").arg("-c").arg(script).arg(binary());
    let start = start
        .words(&format!("exec --rounds 1 {} --dir", fast_guest().1))
        .arg(place.runs())
        .words("-- sh -c")
        .arg(flood);
    let outcome = start.start(120).outcome().exits(0);
    assert!(
        outcome.stdout.starts_with("100000000 "),
        "{}",
        outcome.stdout
    );
    // Half of it is the guest's kernel.
    assert!(own_peak(&outcome) < 40 << 10, "{}", own_peak(&outcome));
}

#[test]
fn who_stops_reading_ends_the_command_as_without_a_machine() {
    let place = Place::new();
    let (vmtax, guest) = (binary(), fast_guest().1);
    let line = format!(
        "{vmtax} exec --rounds 1 {guest} --dir {} -- yes | head -n 3",
        place.runs().display()
    );
    let outcome = place.program("sh").arg("-c").arg(line).outcome().exits(0);
    assert_eq!(outcome.stdout, "y\ny\ny\n");
    outcome.says("signal 13");
}

#[test]
fn a_guest_without_memory_or_room_says_so() {
    // A kernel that runs in KVM's emulator may reclaim memory without an end where it should kill.
    let (place, small) = (Place::new(), "--machine tcg --memory 320");
    let outcome = exec(&place, small, &["tail", "/dev/zero"])
        .start(120)
        .outcome()
        .exits(137);
    outcome.says("ran out of memory").says("Killed process");
    let (small, script) = (
        fast_guest().1 + " --memory 320",
        "head -c 400000000 /dev/zero > big; echo $?",
    );
    let outcome = exec(&place, &small, &["sh", "-c", script])
        .start(120)
        .outcome()
        .exits(0);
    assert!(outcome.stdout.contains('1'), "{outcome}");
    outcome.says("No space left").says("writable layer is full");
    assert!(!place.path("big").exists());
}

#[test]
fn a_disk_takes_what_memory_does_not_and_is_empty_again_for_the_next_guest() {
    let place = Place::new();
    // More than half of the guest's memory, read again from the disk itself; the second round finds none of it.
    let script = "ls big 2>&1; yes | head -c 170000000 > big && sync && echo 3 > /proc/sys/vm/drop_caches; \
                  yes | head -c 170000000 | cmp - big && echo same";
    // A command of an ordinary user's cannot see below the overlay.
    let script = if is_root() {
        format!("{script}; stat -fc %T /proc/1/root/layer")
    } else {
        script.to_owned()
    };
    let words = fast_guest().1 + " --memory 320 --scratch 1024 --rounds 2";
    let outcome = exec(&place, &words, &["sh", "-c", &script])
        .start(200)
        .outcome()
        .exits(0);
    assert_eq!(outcome.stdout.matches("same").count(), 2, "{outcome}");
    assert_eq!(
        outcome.stdout.matches("No such file").count(),
        2,
        "{outcome}"
    );
    assert!(
        !is_root() || outcome.stdout.matches("ext2/ext3").count() == 2,
        "{outcome}"
    );
    assert!(!outcome.stderr.contains("layer is full"), "{outcome}");
    assert!(!place.path("big").exists());
    let words = fast_guest().1 + " --memory 320 --scratch 64";
    let script = "head -c 100000000 /dev/zero > big; echo $?";
    let outcome = exec(&place, &words, &["sh", "-c", script])
        .start(120)
        .outcome()
        .exits(0);
    assert!(outcome.stdout.contains('1'), "{outcome}");
    outcome
        .says("No space left")
        .says("layer is full")
        .says("--scratch");
    for (mib, said) in [
        ("63", "give 64 to"),
        ("0", "give 64 to"),
        ("16777216", "--scratch smaller"),
    ] {
        exec(&place, &format!("--machine tcg --scratch {mib}"), &["true"])
            .outcome()
            .exits(125)
            .says(said);
    }
    exec(&place, "--machine tcg --scratch 1Q", &["true"])
        .outcome()
        .exits(2)
        .says("--scratch");
}

#[test]
fn the_report_alone_is_on_standard_output_with_json_and_a_plan_runs_again() {
    let place = Place::new();
    let script = "cat; cat";
    let (reading, writing) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&writing, b"typed").unwrap();
    drop(writing);
    let words = native_and_guest() + " --json";
    let outcome = exec(&place, &words, &["sh", "-c", script])
        .stdin(reading)
        .outcome()
        .exits(0);
    let document = json(&outcome.stdout);
    // Read once, given twice.
    assert_eq!(outcome.stderr.matches("typed").count(), 2, "{outcome}");
    assert_eq!(trials(&document).len(), 2);
    assert_eq!(document["plan"]["command"]["argv"][0], "sh");
    let plan = place.recording().join("plan.toml");
    assert!(!fs::read_to_string(&plan).unwrap().contains("PATH"));
    let outcome = place.run("").arg(plan).outcome().exits(0);
    outcome.says("exit status 0 in all runs");
}

#[test]
fn an_ordinary_user_is_one_in_the_guest() {
    let place = Place::new();
    // Whose cache it is may be closed to others.
    let kernel = kernel().copy_with(&place, &["9p", "netfs", "fscache", "overlay"], &[]);
    let start = place
        .vmtax_as_ordinary_user("exec --rounds 1 --machine tcg --dir")
        .arg(place.runs());
    let start = start.words(&kernel.options());
    let script =
        "id -u; cat /etc/shadow >/dev/null 2>&1 && echo read; echo new > file && cat file; exit 4";
    let outcome = start.words("-- sh -c").arg(script).outcome().exits(4);
    let uid = rustix::process::getuid().as_raw();
    let expected = if uid == 0 { 65534 } else { uid };
    assert_eq!(outcome.stdout, format!("{expected}\nnew\n"), "{outcome}");
    assert!(!place.path("file").exists());
}
