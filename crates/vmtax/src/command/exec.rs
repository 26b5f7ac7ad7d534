//! `vmtax exec`: a command of the user's on every machine, and its own status.

use super::run::{Recorded, record};
use super::{doctor, print, progress::Display, report, selection};
use crate::cli::ExecArgs;
use crate::fault::Fault;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_machine::{RootMounts, Streams, root_mounts};
use vmtax_model::{CommandSpec, ExecFindings, HostFacts, Plan, Variant, WorkloadName, WorkloadSpec};
use vmtax_runner::{Ended, default_machines};

/// A command may take as long as it takes.
const DEADLINE_S: u32 = 86_400;
/// What timeout(1), env(1) and their like end with where they fail themselves.
const FAILED: u8 = 125;

pub fn exec(args: &ExecArgs) -> Result<ExitCode, Fault> {
    match carried_out(args) {
        Err(fault @ Fault::Interrupted { .. }) => Err(fault),
        Err(fault) => {
            eprintln!("Error: {}", vmtax_report::printable(&fault.to_string()));
            Ok(ExitCode::from(FAILED))
        }
        done => done,
    }
}

fn carried_out(args: &ExecArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    if args.common.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    carry_out(&plan, host, &args.common)
}

/// Carries out a plan with a command: what it prints comes through, the report goes to standard error.
pub(super) fn carry_out(plan: &Plan, host: HostFacts, args: &crate::cli::CommonArgs) -> Result<ExitCode, Fault> {
    if plan.machines.iter().any(|m| m.is_guest()) {
        say_mounts(&root_mounts()?);
    }
    let runs = u64::from(plan.rounds) * plan.trials_per_round();
    if runs > 1 && is_pipe() {
        eprintln!("reading standard input to its end, for all runs; without one give </dev/null");
    }
    let streams = Streams::of_this_process(runs, args.json)?;
    let display = Display::beside_output();
    let Recorded { folder, ended } = record(plan, host, args, &display, Some(&streams))?;
    let recording = vmtax_recording::open(&folder)?;
    let findings = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
    report::show_exec(&recording, &findings, args.json)?;
    match ended {
        Ended::Interrupted => Err(Fault::Interrupted { folder }),
        // That the command went well where it ran must not pass for all.
        Ended::Incomplete(first) if findings.status().unwrap_or(0) == 0 => {
            Err(Fault::Incomplete { folder, first: first.to_string() })
        }
        Ended::Complete | Ended::Incomplete(_) => Ok(status(&findings)),
    }
}

fn status(findings: &ExecFindings) -> ExitCode {
    ExitCode::from(findings.status().and_then(|status| u8::try_from(status).ok()).unwrap_or(FAILED))
}

/// Whether standard input can be read once, and may stay open.
fn is_pipe() -> bool {
    let kind = std::fs::metadata("/dev/stdin").map(|about| about.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// File systems that guests do not see.
fn say_mounts(mounts: &RootMounts) {
    for (at, kind) in &mounts.refused {
        let line = format!("guests do not see {} ({kind}): it may hang, or be closed to others", at.display());
        eprintln!("{}", vmtax_report::printable(&line));
    }
}

fn plan(args: &ExecArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let words = args.command.iter().enumerate().map(|(i, word)| {
        let text = word.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Fault::Usage(format!(
                "word {i} of the command is not UTF-8, which a plan cannot hold: put it into a script"
            ))
        })
    });
    let words: Vec<String> = words.collect::<Result<_, _>>()?;
    let directory = std::env::current_dir().map_err(|e| Fault::file("the working directory", e))?;
    let machines = args.machines.clone().unwrap_or_else(|| default_machines(host));
    let mut plan = Plan {
        deadline_s: DEADLINE_S,
        variants: vec![root_share(args.root.as_deref())?],
        ..Plan::new(&name(&words), FEWEST_ROUNDS, machines, vec![WorkloadSpec::new(WorkloadName::Exec)])
    };
    plan.command = Some(CommandSpec { words, directory });
    selection::common(&mut plan, &args.common);
    selection::check(&plan)?;
    Ok(plan)
}

/// What names the recording: `exec-make`.
fn name(words: &[String]) -> String {
    let program = words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let plain: String =
        program.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(40).collect();
    if plain.is_empty() { "exec".to_owned() } else { format!("exec-{plain}") }
}

/// How guests are given the host's root: as it was measured to be fastest of what is here (docs/exec.md), if nothing else
/// is asked for.
fn root_share(asked: Option<&str>) -> Result<Variant, Fault> {
    // An ordinary user's is in a user namespace, where the host's owners are not to be told apart.
    let served = || rustix::process::geteuid().is_root() && vmtax_host::find_program("virtiofsd").is_some();
    let way = match asked {
        Some(way) => way,
        None if served() => "virtiofs,cache=always",
        None => "9p,msize=512000,cache=loose,multidevs=remap",
    };
    let variant = super::share::variant(way)?;
    Ok(Variant { name: String::new(), set: BTreeMap::from_iter(variant.set) })
}
