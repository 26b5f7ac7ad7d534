//! What a workload's guest saw of itself, from the run's recording, beside what was seen of its QEMU.

use crate::cli::SyscallsBy;
use crate::fault::Fault;
use std::path::Path;
use vmtax_model::samples::Profile;
use vmtax_model::{CountBy, GuestFindings, Inside, Missing, Probes};
use vmtax_profile::inside::{Clock, Recorded, by_host_clock, calls, join, summary};

/// Bytes copied of a guest's stacks: workloads' own are shallow.
const STACK: u32 = 8192;

/// Under what a guest works that is looked at from its inside.
pub fn probes(hz: u32, syscalls: Option<SyscallsBy>) -> Probes {
    let by = |by| match by {
        SyscallsBy::Call => CountBy::Call,
        SyscallsBy::Process => CountBy::Process,
    };
    let inside = Inside { hz, stack: STACK, calls: syscalls.map(by) };
    if inside.hz == 0 && inside.calls.is_none() { Probes::None } else { Probes::Inside(inside) }
}

/// What was seen inside a guest.
#[derive(Debug, Default)]
pub struct SeenInside {
    /// Its stacks, by the host's clock; nothing where both clocks could not be compared.
    pub guest: Option<Profile>,
    /// Both sides' stacks in one.
    pub joined: Option<Profile>,
    pub findings: Option<GuestFindings>,
    pub missing: Vec<Missing>,
}

/// Reads what the only trial of a run says of its guest's inside; nothing where nobody looked.
pub fn read(run: &Path, on_cpu: &Profile) -> Result<SeenInside, Fault> {
    let recording = vmtax_recording::open(run)?;
    let inside = |t: &&vmtax_model::TrialRecord| matches!(t.probes, Probes::Inside(_)) && t.result().is_some();
    let Some(trial) = recording.trials.iter().find(inside) else { return Ok(SeenInside::default()) };
    let folder = recording.trial_folder(trial.number);
    let Recorded { facts, profile, calls: counts } = Recorded::read(&folder)?;
    let mut seen = SeenInside { missing: facts.missing.clone(), ..SeenInside::default() };
    if let Some(mut guest) = profile {
        let mut joined = None;
        match Clock::new(guest.beats, &facts) {
            Ok(clock) => {
                by_host_clock(&mut guest, &clock);
                joined = Some(join(on_cpu, &guest.profile, guest.hz, &facts.threads));
            }
            Err(why) => seen.missing.push(Missing {
                what: "the guest's stacks on top of QEMU's".to_owned(),
                why: why.to_string(),
                mend: "Use a guest kernel with PCI devices in sysfs".to_owned(),
            }),
        }
        seen.findings = Some(summary(&guest, joined.as_ref()));
        seen.guest = joined.is_some().then_some(guest.profile);
        seen.joined = joined.map(|joined| joined.profile);
    }
    if let Some(counts) = counts {
        seen.findings.get_or_insert_default().calls = Some(calls(&counts));
    }
    Ok(seen)
}
