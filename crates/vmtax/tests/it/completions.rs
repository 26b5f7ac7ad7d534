//! Completion in the shells themselves: they load the script, and ask the program for what this host has.

use crate::common::{Busy, Place, binary, skipped};
use std::fs;
use std::os::unix::fs::symlink;
use vmtax_model::WorkloadName;

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
    let found = candidates(&place, "bash", BASH, &format!("vmtax diagnose {}", vm.name));
    assert_eq!(found, [vm.name.as_str()]);
}
