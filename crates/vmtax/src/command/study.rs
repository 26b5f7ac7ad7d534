//! Every study, from its options to a plan, a recording, a report. And those with more than that: `vmtax exec`, whose
//! command has input, output and an exit status; `vmtax tune`, which tries what a diagnosis proposes, on the running VM
//! or on a guest that is booted for it, and asks on a terminal before it removes a limit, which somebody set for a reason; `vmtax compare` of sides, of recordings, or of a recording with its baseline;
//! `vmtax reproduce` of published results.

use super::record::{Display, Recorded, check_folder, record, record_layers, record_profiles};
use super::{host, interrupt, note, print, report, write_file};
use crate::cli::{RecordArgs, StudyArgs};
use crate::fault::{FAILED, Fault, tell};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::SIGWINCH;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_findings::VmRates;
use vmtax_host::HostError;
use vmtax_layers::LayersError;
use vmtax_model::{HostFacts, Plan, Study};
use vmtax_recording::{Recording, open};
use vmtax_report::check as files;
use vmtax_rules::raised_limit;
use vmtax_runner::Ended;
use vmtax_studies::reproduce::{Asked, PublishedResult, ReproduceOptions, all};
use vmtax_studies::{
    Answer, CompareOptions, Compared, ExecOptions, LazyHost, LimitAnswer, OptionsError, StudyError,
    StudyOptions, TuneOptions, analyze, check, compare_recordings, diagnosed, forecast,
    profiles_of_guests,
};
use vmtax_vm::{Streams, root_mounts};
use vmtax_workload::CheckedPlan;

/// Prints a plan as it is stored: without the secrets in it.
fn show_plan(plan: &Plan) -> Result<ExitCode, Fault> {
    print(&plan.without_secrets().to_toml()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Carries out the plan that the options mean, and shows what was found.
pub fn study<O: StudyOptions>(args: &StudyArgs<O>) -> Result<ExitCode, Fault> {
    let record = &args.record;
    if !record.dry_run {
        check_folder(record)?;
    }
    let host = LazyHost::new(|| host::facts(None), !record.dry_run);
    let plan = args.options.plan(&host)?;
    if record.dry_run {
        return show_plan(&plan);
    }
    host.check_named(&plan)?;
    for line in vmtax_report::shares::not_measured(&plan) {
        note(&format!("Not measured: {line}"));
    }
    if let Some(line) = forecast(&plan, &record.dir) {
        note(&line);
    }
    let profiles = match args.options.is_profiled() {
        true => profiles_of_guests(&plan),
        false => Vec::new(),
    };
    let warmup = plan.command().map_or(0, |command| command.warmup);
    let runs = (plan.trials() + profiles.len() as u64) * (1 + u64::from(warmup));
    let terminal = args.options.has_terminal();
    let streams = plan
        .command()
        .is_some()
        .then(|| streams_of_command(&plan, runs, terminal, record.json));
    let streams = streams.transpose()?;
    let (status, folder) = carry_out(&plan, host.clone(), record, streams.as_ref())?;
    record_profiles(profiles, &host, record, streams.as_ref())?;
    if args.options.traces_tuned() {
        record_layers(&folder, &host, record)?;
    }
    Ok(status)
}

/// Carries a plan out, its command, if it has one, between `streams`, and shows what was found; the exit status and
/// the recording.
fn carry_out(
    plan: &CheckedPlan,
    host: HostFacts,
    args: &RecordArgs,
    streams: Option<&Streams>,
) -> Result<(ExitCode, PathBuf), Fault> {
    let display = match streams {
        Some(_) => Display::beside_output(plan.trials(), args.verbosity()),
        // How many rounds a tuning takes only its measurements tell.
        None if plan.guest_tune().is_some() => Display::open_ended(args.verbosity()),
        None => Display::new(
            u64::from(plan.rounds) * plan.trials_per_round(),
            args.verbosity(),
        ),
    };
    let Recorded { folder, ended } = record(plan, host, args, &display, streams)?;
    // Of a command that failed there is no figure to show.
    if let Ended::CommandFailed(failure) = ended {
        return Err(Fault::command_failed(failure, folder));
    }
    let recording = vmtax_recording::open(&folder)?;
    let answer = match analyze(&recording) {
        Ok(answer) => Some(answer),
        // Where no observed trial came to its end there is nothing to show, and how the run ended says why.
        Err(_) if matches!(ended, Ended::Interrupted) => None,
        Err(StudyError::Layers(LayersError::Unobserved | LayersError::Failed(_)))
            if !matches!(ended, Ended::Complete) =>
        {
            None
        }
        Err(error) => return Err(error.into()),
    };
    let status = match answer {
        Some(mut answer) => {
            report::show(&mut answer, &folder, args, streams.is_some())?;
            status(plan, &ended, &answer)
        }
        None => None,
    };
    match (ended, status) {
        (Ended::Interrupted, _) => Err(Fault::Interrupted { folder }),
        (Ended::Incomplete(first), None) => Err(Fault::Incomplete {
            folder,
            first: first.to_string(),
        }),
        (_, status) => Ok((status.unwrap_or(ExitCode::SUCCESS), folder)),
    }
}

/// The exit status that a study's answer means; `None` where that the run is incomplete says more.
fn status(plan: &CheckedPlan, ended: &Ended, answer: &Answer<'_>) -> Option<ExitCode> {
    let of_command = answer.command_status();
    // That the command went well where it ran must not pass for all. Of a reproduction its verdict is what counts.
    let is_reproduction = answer.is_reproduction();
    if matches!(ended, Ended::Incomplete(_)) && (of_command.unwrap_or(0) == 0 || is_reproduction) {
        return None;
    }
    if is_reproduction || !matches!(plan.study, Study::Exec(_)) {
        return Some(report::status(answer));
    }
    let of_command = of_command.and_then(|status| u8::try_from(status).ok());
    Some(ExitCode::from(of_command.unwrap_or(FAILED)))
}

/// Runs the study. A failure of vmtax itself has the exit status 125, as in timeout(1) and env(1), so that it differs
/// from those of the command.
pub fn exec(args: &StudyArgs<ExecOptions>) -> Result<ExitCode, Fault> {
    match study(args) {
        Err(fault)
            if !matches!(
                fault,
                Fault::Interrupted { .. } | Fault::CommandFailed { .. }
            ) =>
        {
            note(&format!("Error: {fault}"));
            Ok(ExitCode::from(FAILED))
        }
        ended => ended,
    }
}

pub fn tune(args: &StudyArgs<TuneOptions>) -> Result<ExitCode, Fault> {
    let (options, output) = (&args.options, &args.record);
    let Some(diagnosis) = options.diagnosis()? else {
        return study(args);
    };
    check_folder(output)?;
    let host = host::facts(None);
    let display = Display::new(1, output.verbosity());
    display.note("diagnosing the VM for 10 s: what is tried depends on it");
    // The diagnosis stands among the others; --output is the tuning's.
    let beside = output.beside_output();
    let Recorded { folder, .. } = record(&diagnosis, host.clone(), &beside, &display, None)?;
    if interrupt()?.raised() {
        return Err(Fault::Interrupted { folder });
    }
    let found = diagnosed(&vmtax_recording::open(&folder)?)?;
    let mut plan = options.plan_of(&found, &BTreeMap::new())?;
    if output.dry_run {
        return show_plan(&plan);
    }
    if options.asks_about_limits() && is_conversation() {
        let answers = ask_about_limits(&plan, &found.rates)?;
        plan = options.plan_of(&found, &answers)?;
    }
    let Recorded { folder, .. } = record(&plan, host, output, &display, None)?;
    report::show_recording(&folder, output)
}

/// Returns this process's streams for all `runs` of the plan's command, or this terminal. Files of the host that
/// guests do not see are reported.
fn streams_of_command(
    plan: &Plan,
    runs: u64,
    terminal: bool,
    json: bool,
) -> Result<Streams, Fault> {
    if plan.machines.iter().any(|m| m.is_guest()) {
        for (at, kind) in root_mounts()?.refused {
            let at = at.display();
            note(&format!(
                "guests do not see {at} ({kind}): it may hang, or be closed to others"
            ));
        }
    }
    if terminal {
        let failed = |e| Fault::file("catching signals", e);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        signal_hook::low_level::pipe::register(SIGWINCH, theirs).map_err(failed)?;
        return Ok(Streams::terminal(ours.into())?);
    }
    if runs > 1 && is_pipe() {
        note("reading standard input to its end, for all runs; without one give </dev/null");
    }
    Ok(Streams::of_this_process(runs, json)?)
}

/// Returns true if standard input is a pipe or socket: it can be read only once, and may stay open.
fn is_pipe() -> bool {
    let kind = std::fs::metadata("/dev/stdin").map(|about| about.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// The exit status of a check that could test no metric: a pipeline must not take it for a success.
const TESTED_NOTHING: u8 = 3;

pub fn compare(args: &StudyArgs<CompareOptions>) -> Result<ExitCode, Fault> {
    match args.options.compared()? {
        Compared::Sides => study(args),
        Compared::Recordings(folders) => {
            let recordings: Vec<Recording> =
                folders.iter().map(|f| open(f)).collect::<Result<_, _>>()?;
            show(
                &compare_recordings(&recordings, args.options.min_effect())?.into(),
                args,
            )
        }
        Compared::WithBaseline { baseline, now } => {
            let thresholds = args.options.thresholds()?;
            let baseline = open(&baseline)?;
            let now = match now {
                Some(now) => now,
                None => {
                    let plan = args.options.plan_again(&baseline.plan)?;
                    if args.record.dry_run {
                        return show_plan(&plan);
                    }
                    measure_again(&plan, args)?
                }
            };
            let findings = check(&baseline, &open(&now)?, &thresholds)?;
            write(args.options.junit.as_deref(), || files::junit(&findings))?;
            write(args.options.markdown.as_deref(), || {
                files::report(&findings).markdown()
            })?;
            let annotations = args.options.github.then(|| files::github(&findings));
            let tested_nothing = findings.tested_nothing();
            let status = show(&findings.into(), args)?;
            print(&annotations.unwrap_or_default())?;
            Ok(if tested_nothing {
                ExitCode::from(TESTED_NOTHING)
            } else {
                status
            })
        }
    }
}

fn show(answer: &Answer<'_>, args: &StudyArgs<CompareOptions>) -> Result<ExitCode, Fault> {
    report::put(answer, &args.record, false)?;
    Ok(report::status(answer))
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), Fault> {
    path.map_or(Ok(()), |path| write_file(path, text()))
}

/// The baseline's plan, carried out now.
fn measure_again(plan: &CheckedPlan, args: &StudyArgs<CompareOptions>) -> Result<PathBuf, Fault> {
    let display = Display::new(
        u64::from(plan.rounds) * plan.trials_per_round(),
        args.record.verbosity(),
    );
    record(plan, host::facts(None), &args.record, &display, None)?.complete()
}

pub fn reproduce(args: &StudyArgs<ReproduceOptions>) -> Result<ExitCode, Fault> {
    match args.options.asked()? {
        Asked::List => print(&all()?.iter().map(line).collect::<String>())?,
        Asked::Show(result) => print(&description(&result)?)?,
        Asked::Run(result) => {
            if !args.record.dry_run {
                fetch_qemus(&result)?;
            }
            match study(args) {
                Err(Fault::Options(OptionsError::NotTestable(why))) => print(&(why + "\n"))?,
                ended => return ended,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fetches the QEMUs that a published result compares and that are not here; what and how much is printed before.
fn fetch_qemus(result: &PublishedResult) -> Result<(), Fault> {
    let wanted: BTreeSet<&str> = result
        .plan
        .variants
        .iter()
        .filter_map(|variant| variant.get("qemu"))
        .collect();
    for name in wanted {
        let is_missing = matches!(
            vmtax_host::best_qemu(Some(Path::new(name))),
            Err(HostError::QemuNotFetched { .. })
        );
        // One that has to be built is named with its command by the error.
        if is_missing && !vmtax_guests::qemu::is_name_of_built(name) {
            let cache = vmtax_guests::kernel::cache_dir()?;
            note(&format!(
                "{} needs QEMU {name}, which is not here: fetching it",
                result.name
            ));
            vmtax_guests::qemu::fetch(name, &cache, &mut |line| note(line))?;
        }
    }
    Ok(())
}

fn line(result: &PublishedResult) -> String {
    format!(
        "{:20} {}\n{:20} takes {}\n",
        result.name, result.title, "", result.takes
    )
}

fn description(result: &PublishedResult) -> Result<String, Fault> {
    let PublishedResult {
        name,
        title,
        claim,
        source,
        takes,
        tests,
        plan,
        ..
    } = result;
    let claims = tests
        .iter()
        .map(|test| format!("- {} (published: {})\n", test.what, test.published));
    let claims: String = claims.collect();
    let plan = plan.to_toml()?;
    Ok(format!(
        "{name}: {title}\n{claim}\nPublished in {source}.\nTakes {takes}.\n\nClaims:\n{claims}\nThe plan:\n{plan}"
    ))
}

/// Longest answer that is read, bytes.
const MAX_ANSWER: usize = 64;

/// Returns true if somebody can be asked: questions and answers are on a terminal.
fn is_conversation() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks about each change of the plan that removes a limit; returns the answers other than yes, by the changes' actions.
fn ask_about_limits(plan: &Plan, vm: &VmRates) -> Result<BTreeMap<String, LimitAnswer>, Fault> {
    let mut answers = BTreeMap::new();
    let candidates = plan.tune().map_or(&[][..], |spec| &spec.candidates);
    for change in candidates.iter().map(|candidate| &candidate.change) {
        let Some(raised) = raised_limit(vm, change) else {
            continue;
        };
        let question = format!("{}? [y]es, [r]aise: double it, [N]o: ", change.action);
        tell(&vmtax_report::printable(&question));
        let answer = match answer()?.trim() {
            "y" | "yes" => continue,
            "r" | "raise" => LimitAnswer::Raise(raised),
            _ => LimitAnswer::Keep,
        };
        answers.insert(change.action.clone(), answer);
    }
    Ok(answers)
}

/// Reads a line of the terminal; empty at its end, and after a signal.
fn answer() -> Result<String, Fault> {
    let (interrupt, stdin) = (interrupt()?, io::stdin());
    let mut fds = [
        PollFd::new(interrupt, PollFlags::IN),
        PollFd::new(&stdin, PollFlags::IN),
    ];
    let failed = |e: io::Error| Fault::file("reading the answer", e);
    rustix::io::retry_on_intr(|| poll(&mut fds, None)).map_err(|e| failed(e.into()))?;
    if interrupt.raised() {
        return Ok(String::new());
    }
    let mut line = [0; MAX_ANSWER];
    let length = rustix::io::read(&stdin, &mut line).map_err(|e| failed(e.into()))?;
    Ok(String::from_utf8_lossy(&line[..length]).into_owned())
}
