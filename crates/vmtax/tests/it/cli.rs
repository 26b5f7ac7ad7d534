//! The command line itself: completions, manual pages, spellings. And inputs that will not do, refused with their fix:
//! a QEMU, a kernel, modules, recordings; most others: golden.rs.

use crate::common::{Busy, Place, binary, json, kernel, skipped, trials};
use crate::language::help_pages;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use vmtax_model::{Needs, WorkloadName};

#[test]
fn the_first_help_page_fits_80_columns() {
    let place = Place::new();
    let help = place.vmtax("--help").env("COLUMNS", "80").succeeds().stdout;
    assert!(
        help.lines().all(|line| line.chars().count() <= 80),
        "wider than 80 columns: {help}"
    );
}

#[test]
fn the_options_that_examples_name_are_there() {
    let place = Place::new();
    let helps: String = help_pages(&[]).into_iter().map(|(_, help)| help).collect();
    let words: Vec<&str> = helps
        .split_whitespace()
        .map(|word| word.trim_end_matches(['`', ',', '.', ']']))
        .collect();
    let mut tried = 0;
    for pair in words.windows(2) {
        let name = pair[0].trim_start_matches('`');
        let known = name
            .parse::<WorkloadName>()
            .is_ok_and(|name| matches!(name.needs(), Needs::System | Needs::Disk));
        let is_option = pair[1]
            .split_once('=')
            .is_some_and(|(option, _)| option.chars().all(|c| c.is_lowercase() || c == '-'));
        if known && is_option {
            place
                .vmtax("run --dry-run --machine native")
                .arg(name)
                .arg(pair[1])
                .succeeds();
            tried += 1;
        }
    }
    assert!(tried > 0, "no example sets an option");
    place
        .vmtax("agent run cpu max-prime=2000 time=0.05 --json")
        .succeeds();
}

#[test]
fn the_version_is_the_packages() {
    let place = Place::new();
    place
        .vmtax("--version")
        .succeeds()
        .shows(&format!("vmtax {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_are_made_for_the_usual_shells() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        place
            .vmtax("completions")
            .arg(shell)
            .succeeds()
            .shows("VMTAX_COMPLETE");
    }
    let script = place.put(
        "vmtax.bash",
        place.vmtax("completions bash").succeeds().stdout,
    );
    place.program("bash").arg("-n").arg(script).succeeds();
}

#[test]
fn manual_pages_are_written_for_every_subcommand() {
    let place = Place::new();
    let folder = place.path("man");
    place.vmtax("man").arg(&folder).succeeds();
    let mut pages = BTreeSet::new();
    for (command, help) in help_pages(&[]) {
        let name = command.trim_end_matches("--help").trim().replace(' ', "-");
        let text = fs::read_to_string(folder.join(format!("{name}.1")))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let sections: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .map(|title| title.trim_matches('"'))
            .collect();
        let expected = ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"];
        assert!(
            expected.iter().all(|one| sections.contains(one)),
            "{name}: {sections:?}"
        );
        assert!(!sections.contains(&"EXTRA"), "{name}");
        for (title, is_there) in [
            ("EXAMPLES", help.contains("\nExamples:\n")),
            ("FILES", help.contains("--dir ") || help.contains("--qemu ")),
        ] {
            assert!(!is_there || sections.contains(&title), "{name}: {title}");
        }
        pages.insert(format!("{name}.1"));
    }
    // What is hidden from help has no page.
    let written = fs::read_dir(&folder).unwrap().flatten();
    let written: BTreeSet<String> = written
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(written, pages);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let place = Place::new();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(ours);
    let gone = place
        .vmtax("completions bash")
        .stdout(std::os::fd::OwnedFd::from(theirs))
        .outcome();
    assert!(!gone.stderr.contains("panicked"), "{gone}");
}

#[test]
fn sizes_and_durations_have_suffixes() {
    let place = Place::new();
    let plan = |line: &str| place.vmtax(line).arg("--dry-run").succeeds().stdout;
    let all = plan("run cpu --memory 2G --timeout 2h --boot-timeout 90 --duration 500ms");
    for part in [
        "memory-mib = 2048",
        "timeout-s = 7200",
        "boot-timeout-s = 90",
        "time = \"0.5\"",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(
        plan("exec --memory 512 --scratch 4GiB --dry-run -- true").contains("scratch-mib = 4096")
    );
}

#[test]
fn the_newest_recording_is_shown_and_listed_and_stays_as_it_is() {
    let place = Place::new();
    place
        .run("cpu cpu.time=0.01 --machine native --rounds 1 -q")
        .succeeds();
    let folder = place.recording();
    let page = fs::read(folder.join("report.html")).unwrap();
    fs::write(folder.join("report.html"), "mine").unwrap();
    let shown = place
        .vmtax("report --dir")
        .arg(place.runs())
        .outcome()
        .exits(0);
    assert!(shown.stderr.contains(folder.to_str().unwrap()), "{shown}");
    let named = place.path("page.html");
    place.vmtax("report -o").arg(&named).arg(&folder).succeeds();
    assert_eq!(
        fs::read_to_string(folder.join("report.html")).unwrap(),
        "mine"
    );
    assert_eq!(fs::read(&named).unwrap().len(), page.len());
    place
        .vmtax("report --format md")
        .arg(&folder)
        .succeeds()
        .shows("| metric |");
    let list = place.vmtax("list --dir").arg(place.runs()).succeeds();
    list.shows(folder.to_str().unwrap())
        .shows("overhead")
        .shows("1 round\n");
}

#[test]
fn one_kernel_beside_variants_is_the_kernel_of_all() {
    let place = Place::new();
    let plan = |line: &str| place.vmtax(line).succeeds().stdout;
    let all = plan(
        "compare --dry-run --machine tcg --kernel /k --qemu /q aio=threads aio=native -- disk",
    );
    assert!(
        all.contains("kernel = \"/k\"") && all.contains("qemu = \"/q\""),
        "{all}"
    );
    assert_eq!(all.matches("[[variant]]").count(), 2, "{all}");
    let each = plan("compare --dry-run --machine tcg --kernel /k --kernel /l -- disk");
    assert_eq!(
        (
            each.matches("kernel = \"/").count(),
            each.matches("[[variant]]").count()
        ),
        (2, 2),
        "{each}"
    );
}

#[test]
fn a_command_of_ones_own_is_compared() {
    let place = Place::new();
    let plan = place
        .vmtax("compare --dry-run default aio=native --machine tcg -- exec make -j2")
        .succeeds();
    plan.shows("study = \"compare\"")
        .shows("argv = [")
        .shows("make")
        .shows("-j2")
        .shows("name = \"exec\"");
}

#[test]
fn a_reader_of_messages_that_went_away_is_no_panic() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    // No recording is there, which is said.
    let status = Command::new(binary())
        .args(["report", "/nonexistent"])
        .stdout(Stdio::null())
        .stderr(OwnedFd::from(ours))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
}

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
    run(&empty).fails(&["has no kernel modules"]);
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

/// A place with two recordings, a fetched QEMU, and vmtax in its `bin`.
fn planted() -> Place {
    let place = Place::new();
    place.put("runs/20261120T160100Z-quick/plan.toml", "");
    place.put(
        "runs/20261120T160100Z-quick/headline.txt",
        "Guests are slow.",
    );
    place.put("runs/20261121T160100Z-quick/plan.toml", "");
    place.put("elsewhere/third/plan.toml", "");
    // What bash would insert as it stands, and execute.
    place.put("runs/$(touch owned)/plan.toml", "");
    for file in ["qemu-system-x86_64", "root/bin/qemu-system-x86_64"] {
        place.put(&format!("cache/vmtax/qemus/5.2.0-bullseye/{file}"), "");
    }
    fs::create_dir(place.path("bin")).unwrap();
    symlink(binary(), place.path("bin/vmtax")).unwrap();
    place
}

fn has(shell: &str) -> bool {
    let folders = std::env::var("PATH").unwrap();
    std::env::split_paths(&folders).any(|folder| folder.join(shell).exists())
}

/// Candidates that a shell has for a command line, where `script` prints them one a line for `$1`.
fn candidates(place: &Place, shell: &str, script: &str, line: &str) -> Vec<String> {
    let path = format!(
        "{}:{}",
        place.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let asked = place
        .program(shell)
        .arg("-c")
        .arg(script)
        .arg(shell)
        .arg(line);
    let asked = asked
        .env("PATH", path)
        .env("HOME", place.path("home"))
        .env("XDG_CACHE_HOME", place.path("cache"))
        .succeeds();
    asked.stdout.lines().map(str::to_owned).collect()
}

/// bash has no command that completes a line: its function is called as it calls it.
const BASH: &str = r#"source <(vmtax completions bash)
    read -ra COMP_WORDS <<<"$1"; [[ $1 != *' ' ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9
    _clap_complete_vmtax vmtax "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}""#;

const FISH: &str = "vmtax completions fish | source; complete --do-complete $argv[-1]";

/// The recordings of a place, the workloads, the QEMU, all by their names.
fn knows(place: &Place, shell: &str, script: &str) {
    let ask = |line: &str| -> Vec<String> {
        let lines = candidates(place, shell, script, line);
        let name = |line: &String| line.split('\t').next().unwrap().to_owned();
        lines.iter().map(name).collect()
    };
    assert_eq!(
        ask("vmtax report runs/2026112"),
        ["runs/20261121T160100Z-quick", "runs/20261120T160100Z-quick"]
    );
    let all = ask("vmtax report ");
    assert!(!all.iter().any(|one| one.contains("touch")), "{all:?}");
    assert!(all.contains(&"--format".to_owned()), "{all:?}");
    assert_eq!(
        ask("vmtax compare --check runs/20261120"),
        ["runs/20261120T160100Z-quick"]
    );
    assert_eq!(
        ask("vmtax report --dir elsewhere elsewhere/t"),
        ["elsewhere/third"]
    );
    assert_eq!(ask("vmtax run --qemu 5"), ["5.2.0-bullseye"]);
    assert_eq!(ask("vmtax history disk.latency-p5"), ["disk.latency-p50"]);
    let workloads = ask("vmtax run ");
    for name in WorkloadName::ALL {
        assert!(
            workloads.contains(&name.as_str().to_owned()),
            "{name}: {workloads:?}"
        );
    }
    assert_eq!(ask("vmtax diagn"), ["diagnose"]);
    assert!(!ask("vmtax ").contains(&"jail".to_owned()));
}

#[test]
fn bash_knows_recordings_workloads_and_qemus() {
    let place = planted();
    knows(&place, "bash", BASH);
}

#[test]
fn fish_knows_recordings_workloads_and_qemus() {
    let place = planted();
    if !has("fish") {
        return skipped("no fish");
    }
    knows(&place, "fish", FISH);
    let described = candidates(&place, "fish", FISH, "vmtax report runs/20261120");
    assert_eq!(described, ["runs/20261120T160100Z-quick\tGuests are slow."]);
}

/// zsh completes on a terminal alone: on one of its own (zpty). There the completed line is printed instead of executed.
#[test]
fn zsh_inserts_a_recording_at_the_first_tab() {
    const ZSH: &str = r#"zmodload zsh/zpty; mkdir functions; vmtax completions zsh >functions/_vmtax
        zpty shell zsh -f -i
        zpty -w shell "fpath=($PWD/functions \$fpath); autoload -U compinit; compinit -u -D; print REA''DY"
        zpty -r -m shell answer '*READY*'
        zpty -w -n shell $'vmtax report runs/20261120\t\001print -r -- I\'\'S \n'
        zpty -r -m shell answer '*IS vmtax*quick*'; print -r -- $answer; zpty -d shell"#;
    let place = planted();
    if !has("zsh") {
        return skipped("no zsh");
    }
    let answers = candidates(&place, "zsh", ZSH, "");
    assert!(
        answers
            .iter()
            .any(|line| line.contains("IS vmtax report runs/20261120T160100Z-quick")),
        "{answers:?}"
    );
}

#[test]
fn running_vms_are_candidates() {
    let place = planted();
    let vm = Busy::start(&place, "completed", "-S");
    let line = format!("vmtax diagnose {}", vm.name);
    let found = candidates(&place, "bash", BASH, &line);
    assert_eq!(found, [vm.name.as_str()]);
    if has("fish") {
        let found = candidates(&place, "fish", FISH, &line);
        assert_eq!(found, [format!("{}\tPID {}", vm.name, vm.pid())]);
    }
}
