//! `vmtax profile`: from its command line to a folder with pictures, and a table.

mod beside;
mod code;
mod diff;
mod exits;
mod folder;
mod import;
mod inside;
mod take;
mod workload;

pub(super) use beside::beside;

use super::{print, style};
use crate::cli::{ProfileArgs, ProfileCommand};
use crate::fault::Fault;
use exits::Exits;
use folder::Folder;
use std::process::ExitCode;
use std::time::Duration;
use take::{Taken, Ways};
use vmtax_model::ProfileFindings;
use vmtax_observe::StackSampling;
use vmtax_profile::{firefox, flame, fold, pprof};
use vmtax_report::counted;
use vmtax_report::profile::Pictures;
use vmtax_vm::QemuMonitor;

pub fn profile(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    match (&args.command, args.pid) {
        (Some(ProfileCommand::Diff(args)), _) => diff::diff(args),
        (Some(ProfileCommand::Import(args)), _) => import::import(args),
        (None, Some(pid)) => of_process(args, pid),
        (None, None) if !args.workload.is_empty() => workload::of_workload(args),
        (None, None) => Err(Fault::Usage(
            "no process to look at: name it with --pid (`pgrep -a qemu-system` lists QEMUs with their numbers), or a \
             workload to run in a guest, as in `vmtax profile -- seqread`"
                .to_owned(),
        )),
    }
}

/// How long a process is looked at where nobody says, s.
const USUAL_S: f64 = 10.0;

fn of_process(args: &ProfileArgs, pid: i32) -> Result<ExitCode, Fault> {
    let settings = settings(args, pid, args.seconds.unwrap_or(USUAL_S))?;
    Folder::check(args.out.as_deref())?;
    let stopped = take::stopped()?;
    let mut taken = take::take(&settings, ways(args)?, Exits::begin(pid, QemuMonitor::of(pid).ok()), &stopped)?;
    taken.name_exits(None);
    present(&folder(args, &taken)?, args.common.record.json, &taken)
}

/// What it says of looking in other ways.
fn ways(args: &ProfileArgs) -> Result<Ways, Fault> {
    let events = Duration::try_from_secs_f64(args.events);
    let events = events.map_err(|_| Fault::Usage("--events takes a number of seconds, as in --events 1".to_owned()))?;
    Ok(Ways { wall_hz: args.wall_hz, events, processors: code::may_ask() })
}

/// What the command line says of looking.
fn settings(args: &ProfileArgs, pid: i32, seconds: f64) -> Result<StackSampling, Fault> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    let time = time.ok_or_else(|| Fault::Usage("--seconds takes a number above 0, as in --seconds 10".to_owned()))?;
    Ok(StackSampling { pid, time, hz: args.hz, stack: args.stack, symbols: args.symbols.clone() })
}

/// The folder that is asked for, for what was looked at.
fn folder(args: &ProfileArgs, taken: &Taken) -> Result<Folder, Fault> {
    let findings = &taken.findings;
    Folder::create(args.out.as_deref(), &format!("{}-{}", findings.program, findings.pid))
}

/// Writes the folder and prints the tables.
fn present(folder: &Folder, json: bool, taken: &Taken) -> Result<ExitCode, Fault> {
    let files = write(folder, taken)?;
    if json {
        print(&(vmtax_report::profile::json(&taken.findings)? + "\n"))?;
    } else {
        print(&vmtax_report::profile::terminal(&taken.findings, style()))?;
        print(&format!("\n{}: {}\n", folder.shown(), files.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the folder: the names of its files.
fn write(folder: &Folder, taken: &Taken) -> Result<Vec<&'static str>, Fault> {
    let findings = &taken.findings;
    let (of, profile) = (vmtax_report::profile::of(findings), &taken.on_cpu.profile);
    let time = Duration::from_secs_f64(taken.on_cpu.seconds);
    let mut files = vec!["report.html"];
    let mut pictures = Pictures::default();
    if findings.samples > 0 {
        let title = match (&findings.file, findings.trigger.as_str()) {
            (None, _) => format!("{of}, on CPU"),
            (Some(_), "") => of.clone(),
            (Some(_), event) => format!("{of}, {event}"),
        };
        let svg = flame::draw(profile, &title, &subtitle(findings))?;
        folder.put("on-cpu.svg", &svg)?;
        folder.put("on-cpu.folded", fold::fold(profile).join("\n") + "\n")?;
        pictures.on_cpu = Some(svg);
        files.extend(["on-cpu.svg", "on-cpu.folded"]);
    }
    if findings.samples > 0 {
        let whole = taken.inside.joined.as_ref().unwrap_or(profile);
        let bytes = pprof::bytes(whole, findings.hz, time);
        folder.put("profile.pb.gz", bytes.map_err(|e| Fault::file("writing profile.pb.gz", e))?)?;
        files.push("profile.pb.gz");
    }
    // Over time, so only where that is known.
    if findings.seconds > 0.0 && findings.samples > 0 {
        let guest = taken.inside.guest.as_ref();
        let json = firefox::json(profile, guest, &findings.program, findings.pid, findings.hz, time)
            .map_err(|e| Fault::file("writing firefox.json", e.into()))?;
        folder.put("firefox.json", &json)?;
        files.push("firefox.json");
    }
    if let (Some(wall), Some(found)) = (&taken.wall, &findings.wall) {
        let subtitle = counted(found.moments, "moment") + ", every thread at each";
        let svg = flame::draw(&wall.profile, &format!("{of}, by the clock"), &subtitle)?;
        folder.put("wall.svg", &svg)?;
        folder.put("wall.folded", fold::fold(&wall.profile).join("\n") + "\n")?;
        pictures.wall = Some(svg);
        files.extend(["wall.svg", "wall.folded"]);
    }
    let inside = &taken.inside;
    if let Some(joined) = &inside.joined {
        let svg = flame::draw(joined, &format!("{of} and its guest, on CPU"), &subtitle(findings))?;
        folder.put("whole.svg", &svg)?;
        folder.put("whole.folded", fold::fold(joined).join("\n") + "\n")?;
        pictures.whole = Some(svg);
        files.extend(["whole.svg", "whole.folded"]);
    }
    if let Some(calls) = findings.guest.as_ref().and_then(|guest| guest.calls.as_ref()) {
        folder.put("guest-syscalls.jsonl", &vmtax_report::profile::call_lines(calls)?)?;
        files.push("guest-syscalls.jsonl");
    }
    folder.put("profile.json", &vmtax_report::profile::json(findings)?)?;
    files.push("profile.json");
    let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let now = jiff::Timestamp::now().to_string();
    let page = vmtax_report::profile::html(findings, &pictures, env!("CARGO_PKG_VERSION"), &now, &command.join(" "));
    folder.put("report.html", &page)?;
    Ok(files)
}

fn subtitle(findings: &ProfileFindings) -> String {
    let time = if findings.seconds > 0.0 { format!(" in {:.1} s", findings.seconds) } else { String::new() };
    let rate = if findings.hz > 0 { format!(", {} a second", findings.hz) } else { String::new() };
    counted(findings.samples, "sample") + &time + &rate
}
