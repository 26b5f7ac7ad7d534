//! `vmtax agent`, the watchdog and the jail.

use super::{interrupt, note, print, write_file};
use crate::cli::{AgentObserveArgs, AgentRunArgs, AgentServeArgs, PlaceArgs, SupervisedArgs};
use crate::fault::Fault;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use vmtax_agent::{Confinement, GuestObserver, confine, serve};
use vmtax_model::number::counted;
use vmtax_model::{Places, WorkloadName, WorkloadSpec};
use vmtax_studies::key_value;
use vmtax_workload::OptionInfo;

pub fn agent_run(args: &AgentRunArgs) -> Result<ExitCode, Fault> {
    let name: WorkloadName = args.workload.parse()?;
    if args.help_options {
        print(&options_help(name))?;
        return Ok(ExitCode::SUCCESS);
    }
    // What others see of it: programs that are started through /proc/self/exe are all called "exe".
    let called = CString::new(name.as_str()).unwrap_or_default();
    let _ = rustix::thread::set_name(&called); // a name is no reason not to run
    let mut spec = WorkloadSpec::new(name);
    for option in &args.options {
        let (key, value) = key_value(option, "OPTION=VALUE, as in time=1")?;
        vmtax_workload::set_option(&mut spec, key, value)?;
    }
    let places = Places {
        notified: args.notified,
        ..places(&args.places)
    };
    let result = match &args.series {
        None => vmtax_workload::run(&spec, &places)?,
        Some(file) => {
            let (result, series) = vmtax_workload::run_with_series(&spec, &places)?;
            write_file(file, series.to_bytes())?;
            result
        }
    };
    if args.json {
        let text = serde_json::to_string(&result)
            .map_err(|e| Fault::file("the result as JSON", e.into()))?;
        print(&(text + "\n"))?;
    } else {
        print(&vmtax_report::result(&result))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn places(args: &PlaceArgs) -> Places {
    let PlaceArgs {
        files,
        disk,
        destroy,
        share,
        echo,
    } = args.clone();
    Places {
        files,
        disk,
        destroy,
        share,
        echo,
        notified: false,
    }
}

fn options_help(name: WorkloadName) -> String {
    let workload = vmtax_workload::descriptor(name);
    let options = workload.options;
    let widths = options.iter().map(|o| o.name.len() + o.default.len());
    let width = widths.max().unwrap_or(0) + 1;
    let line = |o: &OptionInfo| {
        let default = format!("{}={}", o.name, o.default);
        let names: Vec<&str> = o.aliases.iter().map(|alias| alias.name).collect();
        let aliases = match names.join(", ") {
            none if none.is_empty() => none,
            names => format!(" (or {names}, as in fio)"),
        };
        format!("  {default:width$}  {}{aliases}\n", o.help)
    };
    let lines: String = options.iter().map(line).collect();
    let about = workload.about;
    format!("{name}: {about}\nOptions, with their defaults:\n{lines}")
}

pub fn agent_serve(args: &AgentServeArgs) -> Result<ExitCode, Fault> {
    confine(&Confinement {
        cpus: args.cpus,
        pinned: args.pinned.clone(),
        cgroup: args.cgroup.clone(),
    })?;
    serve(std::io::stdin(), &places(&args.places), Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

pub fn agent_echo() -> Result<ExitCode, Fault> {
    vmtax_workload::serve().map_err(|e| Fault::file("the echo server".to_owned(), e))?;
    Ok(ExitCode::SUCCESS)
}

pub fn agent_observe(args: &AgentObserveArgs) -> Result<ExitCode, Fault> {
    let is_stdout = args.output == Path::new("-");
    if is_stdout && std::io::stdout().is_terminal() {
        return Err(Fault::Usage(
            "the trace is no text: give a file with --output, or send it into a pipe".to_owned(),
        ));
    }
    vmtax_observe::remove_stale_traces();
    let interrupt = interrupt()?;
    // Removes the traces where this process is killed.
    let _watchdog = vmtax_vm::Watchdog::start(Vec::new())?;
    let observer = GuestObserver::start()?;
    let file = match is_stdout {
        true => std::io::stdout().as_fd().try_clone_to_owned(),
        // What a kernel traces is not for everybody.
        false => OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&args.output)
            .map(Into::into),
    };
    let file = file.map_err(|e| Fault::file(format!("creating {}", args.output.display()), e))?;
    note(&format!(
        "Tracing this guest for {} s; Ctrl-C ends it.",
        args.duration
    ));
    let time = Duration::from_secs_f64(args.duration);
    let guest = observer.record(file.as_fd(), time, &|| interrupt.raised())?;
    for missing in &guest.missing {
        note(&format!("Not traced: {}: {}.", missing.what, missing.why));
    }
    if guest.full {
        note("Tracing ended early: the file reached its limit. Choose a shorter --duration.");
    }
    let disks = counted(guest.disks.len() as u64, "disk");
    note(&format!(
        "Traced {disks}. Copy the file to the host; there: vmtax report --guest-trace FILE"
    ));
    Ok(ExitCode::SUCCESS)
}

pub fn watchdog(args: &SupervisedArgs) -> Result<ExitCode, Fault> {
    let status = vmtax_vm::watchdog(&args.settings, &args.command)?;
    if args.command.is_empty() {
        // Of a program that still runs nothing is restored.
        vmtax_live::remove_stale_histograms();
        vmtax_live::undo_interrupted();
    }
    Ok(exit_code(status))
}

pub fn jail(args: &SupervisedArgs) -> Result<ExitCode, Fault> {
    Ok(exit_code(vmtax_vm::jailed(&args.settings, &args.command)?))
}

fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}
