//! What a profile's plan takes from the command line.

use crate::cli::{ProfileArgs, SyscallsBy};
use crate::fault::Fault;
use std::time::Duration;
use vmtax_model::{CountBy, Inside, Plan, Probes, ProfileSettings, ProfileSpec, Study};

/// Bytes copied of a guest's stacks: workloads' own are shallow.
const GUEST_STACK: u32 = 8192;

/// What the command line says of profiling.
pub(super) fn settings(args: &ProfileArgs, seconds: Option<f64>) -> Result<ProfileSettings, Fault> {
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
pub(super) fn attached(settings: ProfileSettings, of: &str) -> Plan {
    let plain: String =
        of.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).take(48).collect();
    let study = Study::Profile(ProfileSpec { settings, command: None });
    Plan { study, ..Plan::new(&format!("profile-{plain}"), 1, Vec::new(), Vec::new()) }
}

/// Under what a guest works that is sampled from its inside.
pub(super) fn inside(hz: u32, syscalls: Option<SyscallsBy>) -> Probes {
    let by = |by| match by {
        SyscallsBy::Call => CountBy::Call,
        SyscallsBy::Process => CountBy::Process,
    };
    let inside = Inside { hz, stack: GUEST_STACK, calls: syscalls.map(by) };
    if inside.hz == 0 && inside.calls.is_none() { Probes::None } else { Probes::Inside(inside) }
}
