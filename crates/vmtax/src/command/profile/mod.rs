//! `vmtax profile`: from its command line to a recording, and from a recording to pictures and a table.

mod attach;
mod beside;
mod diff;
mod import;
mod show;
mod workload;

pub(super) use attach::attach;
pub(super) use beside::beside;
pub(super) use show::show;

use crate::cli::{ProfileArgs, ProfileCommand, SyscallsBy};
use crate::fault::Fault;
use std::process::ExitCode;
use std::time::Duration;
use vmtax_model::{CountBy, Inside, Plan, Probes, ProfileSettings, ProfileSpec, Study};
use vmtax_vm::Vm;

/// For how long a process is profiled where nobody says, s.
const USUAL_S: f64 = 10.0;
/// Bytes copied of a guest's stacks: workloads' own are shallow.
const GUEST_STACK: u32 = 8192;

pub fn profile(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    match (&args.command, args.pid) {
        (Some(ProfileCommand::Diff(args)), _) => diff::diff(args),
        (Some(ProfileCommand::Import(args)), _) => import::import(args),
        (None, Some(pid)) => {
            let settings = settings(args, Some(args.seconds.unwrap_or(USUAL_S)))?;
            let plan =
                attached(ProfileSettings { pid: Some(pid), ..settings }, &format!("{}-{pid}", Vm::program_of(pid)));
            attach(&plan, &args.common.record, args.out.as_deref())
        }
        (None, None) if !args.workload.is_empty() => workload::of_workload(args),
        (None, None) => Err(Fault::Usage(
            "no process to look at: name it with --pid (`pgrep -a qemu-system` lists QEMUs with their numbers), or a \
             workload to run in a guest, as in `vmtax profile -- seqread`"
                .to_owned(),
        )),
    }
}

/// What the command line says of profiling.
fn settings(args: &ProfileArgs, seconds: Option<f64>) -> Result<ProfileSettings, Fault> {
    let ms = |seconds: f64| Duration::try_from_secs_f64(seconds).ok().and_then(|t| u64::try_from(t.as_millis()).ok());
    let events = ms(args.events);
    let events_ms =
        events.ok_or_else(|| Fault::Usage("--events takes a number of seconds, as in --events 1".to_owned()))?;
    let time_ms = seconds.map(|seconds| {
        let above_0 = || Fault::Usage("--seconds takes a number above 0, as in --seconds 10".to_owned());
        ms(seconds).filter(|ms| *ms > 0).ok_or_else(above_0)
    });
    Ok(ProfileSettings {
        pid: None,
        file: None,
        time_ms: time_ms.transpose()?,
        hz: args.hz,
        wall_hz: args.wall_hz,
        events_ms,
        stack: args.stack,
        symbols: args.symbols.clone(),
    })
}

/// A plan that observes what is there already; `of` names it.
fn attached(settings: ProfileSettings, of: &str) -> Plan {
    let plain: String =
        of.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).take(48).collect();
    let study = Study::Profile(ProfileSpec { settings, command: None });
    Plan { study, ..Plan::new(&format!("profile-{plain}"), 1, Vec::new(), Vec::new()) }
}

/// Under what a guest works that is sampled from its inside.
fn inside(hz: u32, syscalls: Option<SyscallsBy>) -> Probes {
    let by = |by| match by {
        SyscallsBy::Call => CountBy::Call,
        SyscallsBy::Process => CountBy::Process,
    };
    let inside = Inside { hz, stack: GUEST_STACK, calls: syscalls.map(by) };
    if inside.hz == 0 && inside.calls.is_none() { Probes::None } else { Probes::Inside(inside) }
}
