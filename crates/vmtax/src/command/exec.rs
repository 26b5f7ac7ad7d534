//! `vmtax exec`: a command of the user's on every machine, and its own status.

use super::profile::beside;
use super::record::{Recorded, record};
use super::{doctor, print, progress::Display, report, selection};
use crate::cli::{ExecArgs, RecordArgs};
use crate::fault::Fault;
use signal_hook::consts::SIGWINCH;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_model::{CommandSpec, HostFacts, Plan, Study, Variant, WorkloadName, WorkloadSpec};
use vmtax_runner::{Ended, default_machines};
use vmtax_vm::{RootMounts, Streams, root_mounts};

/// A command may take as long as it takes.
const DEADLINE_S: u32 = 86_400;
/// The scratch disk where its requests are to be followed and no size is given: a sparse file.
const SCRATCH_MIB: u32 = 4096;
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
    if args.common.record.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.terminal {
        return run_in_terminal(&plan, host, &args.common.record);
    }
    carry_out(&plan, host, &args.common.record, args.profile)
}

/// The same in this process's terminal.
fn run_in_terminal(plan: &Plan, host: HostFacts, args: &RecordArgs) -> Result<ExitCode, Fault> {
    if plan.rounds != 1 || plan.machines.len() != 1 || !plan.machines.iter().all(|m| m.is_guest()) {
        let what = "-t is for one guest machine and one round: leave --rounds out, and name one guest with --machines";
        return Err(Fault::Usage(what.to_owned()));
    }
    let failed = |e| Fault::file("catching signals", e);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    signal_hook::low_level::pipe::register(SIGWINCH, theirs).map_err(failed)?;
    let streams = Streams::terminal(ours.into())?;
    say_mounts(&root_mounts()?);
    between(&streams, plan, host, args)
}

/// Carries out a plan with a command: what it prints comes through, the report goes to standard error. With `profile` guests
/// make it once more, looked at.
pub(super) fn carry_out(plan: &Plan, host: HostFacts, args: &RecordArgs, profile: bool) -> Result<ExitCode, Fault> {
    if plan.machines.iter().any(|m| m.is_guest()) {
        say_mounts(&root_mounts()?);
    }
    let looked_at = plan.machines.iter().filter(|m| profile && m.is_guest()).count() as u64;
    let runs = plan.trials() + looked_at;
    if runs > 1 && is_pipe() {
        eprintln!("reading standard input to its end, for all runs; without one give </dev/null");
    }
    let streams = Streams::of_this_process(runs, args.json)?;
    let status = between(&streams, plan, host.clone(), args)?;
    if looked_at > 0 {
        beside(plan, &host, args, Some(&streams))?;
    }
    Ok(status)
}

fn between(streams: &Streams, plan: &Plan, host: HostFacts, args: &RecordArgs) -> Result<ExitCode, Fault> {
    let display = Display::beside_output();
    let Recorded { folder, ended } = record(plan, host, args, &display, Some(streams), &mut |_, _| true)?;
    let recording = vmtax_recording::open(&folder)?;
    let mut answer = vmtax_studies::analyze(&recording)?;
    let written = report::write(&mut answer, &recording.folder, None)?;
    // Standard output is the command's, so that all but JSON goes to standard error.
    if args.json {
        print(&answer.json()?)?;
    } else {
        let text = answer.terminal(false, super::style_of(&std::io::stderr()));
        eprint!("\n{text}\nReport: {written}\n");
    }
    let status = answer.command_status();
    match ended {
        Ended::Interrupted => Err(Fault::Interrupted { folder }),
        // That the command went well where it ran must not pass for all.
        Ended::Incomplete(first) if status.unwrap_or(0) == 0 => {
            Err(Fault::Incomplete { folder, first: first.to_string() })
        }
        // Of a reproduction its verdict is what counts.
        Ended::Complete | Ended::Incomplete(_) if answer.is_reproduction() => Ok(report::status(&answer)),
        Ended::Complete | Ended::Incomplete(_) => {
            Ok(ExitCode::from(status.and_then(|status| u8::try_from(status).ok()).unwrap_or(FAILED)))
        }
    }
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
    let given = args.command.iter().enumerate().map(|(i, word)| {
        let text = word.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Fault::Usage(format!(
                "word {i} of the command is not UTF-8, which a plan cannot hold: put it into a script"
            ))
        })
    });
    let words: Vec<String> = match &args.shell {
        Some(line) => CommandSpec::shell(line),
        None if args.command.is_empty() => vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())],
        None => given.collect::<Result<_, _>>()?,
    };
    let directory = std::env::current_dir().map_err(|e| Fault::file("the working directory", e))?;
    let usual = || default_machines(host).into_iter().filter(|m| !args.terminal || m.is_guest());
    let usual = || usual().take(if args.terminal { 1 } else { usize::MAX }).collect();
    let machines = args.machines.clone().unwrap_or_else(usual);
    let rounds = if args.terminal { 1 } else { FEWEST_ROUNDS };
    let mut plan = Plan {
        deadline_s: DEADLINE_S,
        variants: vec![root_share(args.root.as_deref())?],
        ..Plan::new(&name(&words), rounds, machines, vec![WorkloadSpec::new(WorkloadName::Exec)])
    };
    plan.study = Study::Exec(Box::new(CommandSpec {
        words,
        directory,
        setup: args.setup.clone(),
        prepare: args.prepare.clone(),
        cleanup: args.cleanup.clone(),
        write: args.write.iter().map(|folder| whole(folder)).collect::<Result<_, _>>()?,
        scratch_mib: args.scratch.or(args.layers.then_some(SCRATCH_MIB)),
        layers: args.layers,
        net: args.net,
        forward: args.forward.clone(),
        metrics: args.metrics.clone(),
    }));
    selection::common(&mut plan, &args.common);
    selection::check(&plan)?;
    Ok(plan)
}

/// The folder itself, whatever leads to it.
fn whole(folder: &Path) -> Result<PathBuf, Fault> {
    let failed = |e| Fault::file(format!("--write {}", folder.display()), e);
    let whole = folder.canonicalize().map_err(failed)?;
    if whole.is_dir() { Ok(whole) } else { Err(failed(std::io::ErrorKind::NotADirectory.into())) }
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
pub(super) fn root_share(asked: Option<&str>) -> Result<Variant, Fault> {
    // An ordinary user's is in a user namespace, where the host's owners are not to be told apart.
    let served = || rustix::process::geteuid().is_root() && vmtax_host::find_program("virtiofsd").is_some();
    let way = match asked {
        Some(way) => way,
        None if served() => "virtiofs,cache=always",
        None => "9p,msize=512000,cache=loose,multidevs=remap",
    };
    let variant = super::share_method::variant(way)?;
    Ok(Variant { name: String::new(), set: BTreeMap::from_iter(variant.set) })
}
