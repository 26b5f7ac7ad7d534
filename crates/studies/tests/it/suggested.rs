//! Commands that reports propose measure the guests that were measured: the commands' own parser makes the same guest of them.

use crate::common::layers::{layers_recording, varied};
use crate::common::studies::{antipatterns, command, compared, grown, shared};
use crate::common::{THREE, findings, host, recording};
use clap::{Arg, ArgAction, Args, Command};
use std::collections::BTreeSet;
use vmtax_findings::{Advice, Row, State};
use vmtax_model::{Guest, Pinning, Plan};
use vmtax_recording::Recording;
use vmtax_report::{Report, exec, layers, overhead, shares};
use vmtax_rules::Evidence;
use vmtax_studies::{CompareOptions, ExecOptions, LayersOptions, OverheadOptions, ProfileOptions};
use vmtax_studies::{ExitsOptions, LazyHost, ScaleOptions, ShareOptions, StudyOptions};

/// A guest of which every option is set; its arguments begin with hyphens and have blanks.
fn guest() -> Guest {
    Guest {
        cpus: 2,
        memory_mib: 768,
        boot_timeout_s: 90,
        qemu: Some("/opt/a qemu/bin/q".into()),
        kernel: Some("/k/vm'linux".into()),
        modules: Some("/k/modules".into()),
        kernel_args: Some("tsc=reliable hpet=disable".into()),
        cpu_model: Some("host,-smap".into()),
        machine_type: Some("q35,hpet=off".into()),
        firmware: Some("qboot.rom".into()),
        qemu_args: vec!["-device".into(), "virtio-rng-pci".into()],
        pinning: Some(Pinning::Split),
        ..Guest::default()
    }
}

/// As if it had been measured on that guest by a command with its options.
fn measured(recording: Recording) -> Recording {
    measured_on(guest(), recording)
}

fn measured_on(guest: Guest, mut recording: Recording) -> Recording {
    let own = recording.manifest.command.split_off(2);
    recording.manifest.command.extend(guest.options());
    recording.plan.guest = guest;
    recording.manifest.command.extend(own);
    recording
}

/// The commands of vmtax that a report proposes.
fn proposed(report: &Report<'_>) -> Vec<String> {
    let advice = report
        .advice
        .iter()
        .flat_map(|advice| &advice.remedies)
        .map(|remedy| remedy.line.clone());
    let shown = report
        .notices
        .iter()
        .flat_map(|notice| &notice.items)
        .flat_map(|item| item.split('`').skip(1).step_by(2));
    let all = report
        .next
        .iter()
        .cloned()
        .chain(advice)
        .chain(shown.map(str::to_owned));
    all.filter(|line| line.starts_with("vmtax ")).collect()
}

/// As a shell takes it apart.
fn words(line: &str) -> Vec<String> {
    let script = format!("printf '%s\\0' {line}");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn plan_of<O: StudyOptions + Args>(words: &[String]) -> Plan {
    let parser = O::augment_args(Command::new("study").no_binary_name(true));
    // The program's own, which exec's options exclude.
    let parser = parser.arg(Arg::new("json").long("json").action(ArgAction::SetTrue));
    let matches = parser
        .try_get_matches_from(words)
        .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let options = O::from_arg_matches(&matches).unwrap();
    let plan = options
        .plan(&LazyHost::new(host, false))
        .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    Plan::clone(&plan)
}

/// The plan that a proposed command means; `None` for one that boots no guest.
fn meant(line: &str) -> Option<Plan> {
    let words = words(line);
    let [_, study, rest @ ..] = words.as_slice() else {
        panic!("{line}")
    };
    Some(match study.as_str() {
        "run" => plan_of::<OverheadOptions>(rest),
        "layers" => plan_of::<LayersOptions>(rest),
        "exec" => plan_of::<ExecOptions>(rest),
        "profile" => plan_of::<ProfileOptions>(rest),
        "compare" => plan_of::<CompareOptions>(rest),
        "scale" => plan_of::<ScaleOptions>(rest),
        "share" => plan_of::<ShareOptions>(rest),
        "exits" => plan_of::<ExitsOptions>(rest),
        "doctor" | "get" | "report" | "reproduce" => return None,
        _ => panic!("an unknown command: {line}"),
    })
}

/// Each proposal is of the guest that was measured; which studies they are of.
fn studies_of(recording: &Recording, report: &Report<'_>) -> BTreeSet<String> {
    let mut studies = BTreeSet::new();
    for line in proposed(report) {
        let Some(plan) = meant(&line) else { continue };
        assert_eq!(plan.guest, recording.plan.guest, "{line}");
        let machines = plan.machines.iter().filter(|machine| machine.is_guest());
        for machine in machines {
            assert!(
                recording.plan.machines.contains(machine),
                "{machine}: {line}"
            );
        }
        studies.insert(line.split(' ').nth(1).unwrap().to_owned());
    }
    studies
}

fn assert_proposes(recording: &Recording, report: &Report<'_>, studies: &[&str]) {
    let found = studies_of(recording, report);
    assert_eq!(
        found.iter().map(String::as_str).collect::<Vec<_>>(),
        studies,
        "{:?}",
        proposed(report)
    );
}

#[test]
fn overheads_are_followed_up_on_the_same_guest() {
    let many = measured(recording(THREE, 8));
    let found = findings(&many);
    assert_proposes(&many, &overhead::report(&many, &found), &["layers", "run"]);
    let few = measured(recording(THREE, 1));
    assert_proposes(&few, &overhead::report(&few, &findings(&few)), &["run"]);
}

#[test]
fn a_command_is_traced_on_the_same_guest() {
    for rounds in [7, 2] {
        let mut recording = measured(command(rounds).0);
        let found = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
        assert_proposes(
            &recording,
            &exec::report(&recording, &found, None),
            &["exec"],
        );
        recording.manifest.command = ["vmtax", "run", "plan.toml"].map(Into::into).to_vec();
        if rounds == 7 {
            assert_proposes(
                &recording,
                &exec::report(&recording, &found, None),
                &["exec"],
            );
        }
    }
}

#[test]
fn layers_are_varied_on_the_same_guest() {
    let mut recording = layers_recording(8);
    recording.manifest.command.truncate(2);
    let recording = measured(recording);
    let mut found = varied(8);
    // Every request waits for the main loop's lock.
    let column = &mut found.columns[0];
    let whole = column.traced.mean_ns;
    let is_qemu = |row: &&mut Row| row.state == State::Lock;
    column.rows.iter_mut().filter(is_qemu).for_each(|row| {
        row.time.mean_ns = whole / 2.0;
        row.percent = 50.0;
    });
    let advice: Vec<Advice> = vmtax_rules::advice(&Evidence {
        plan: Some(&recording.plan),
        host: Some(&recording.host),
        columns: &found.columns,
        ..Evidence::default()
    });
    found.advice = advice;
    assert_proposes(&recording, &layers::report(&recording, &found), &["layers"]);
}

#[test]
fn more_rounds_are_of_the_same_guest() {
    let named = |mut recording: Recording, command: &[&str]| {
        recording.manifest.command = command.iter().map(|&word| word.to_owned()).collect();
        // A comparison takes the modules as a setting of its variants.
        let modules = guest().modules.filter(|_| command[1] != "compare");
        measured_on(Guest { modules, ..guest() }, recording)
    };
    let (grown, found) = grown(2);
    let grown = named(
        grown,
        &[
            "vmtax",
            "scale",
            "threads.threads",
            "threads",
            "--range",
            "1..900",
            "--machine",
            "tcg",
        ],
    );
    assert_proposes(
        &grown,
        &vmtax_report::growth::report(&grown, &found),
        &["scale"],
    );
    let shared = shared(2, &[1.3]);
    let found = vmtax_analysis::shares(&shared.plan, &shared.trials);
    let shared = named(shared, &["vmtax", "share", "9p", "--machine", "tcg"]);
    assert_proposes(&shared, &shares::report(&shared, &found), &["share"]);
    let compared = compared(4, &[1.01]);
    let found = vmtax_analysis::compare(&compared.plan, &compared.trials);
    let words = [
        "vmtax",
        "compare",
        "name=a",
        "name=b",
        "--machine",
        "tcg",
        "--",
        "cpu",
    ];
    let compared = named(compared, &words);
    assert_proposes(
        &compared,
        &vmtax_report::compare::report(Some(&compared), &found, None),
        &["compare"],
    );
    let (antipatterns, found) = antipatterns(7);
    assert_proposes(
        &antipatterns,
        &vmtax_report::antipatterns::report(&antipatterns, &found),
        &[],
    );
}
