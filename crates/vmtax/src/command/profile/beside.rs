//! A profile beside what another command measured: each guest once more, looked at, so that no look is in a figure.

use super::diff::draw;
use super::take::Ways;
use super::workload::{LONGEST_S, Looked, look};
use super::{Folder, code, inside, write};
use crate::cli::{HZ, RecordArgs, STACK, WALL_HZ};
use crate::command::progress::Display;
use crate::fault::Fault;
use std::path::PathBuf;
use std::time::Duration;
use vmtax_model::{CommandSpec, HostFacts, Plan, Probes, ProfileSpec, Study};
use vmtax_observe::StackSampling;
use vmtax_vm::Streams;

/// What the profile's folder in a recording is called.
const FOLDER: &str = "profile";

/// Carries out the plan's trial on each of its guests once more, and writes the profile of its QEMU into the recording of
/// that run; into all but the first also what differs from the first.
pub fn beside(plan: &Plan, host: &HostFacts, args: &RecordArgs, streams: Option<&Streams>) -> Result<(), Fault> {
    let mut first: Option<PathBuf> = None;
    for (machine, side) in plan.columns().into_iter().filter(|(machine, _)| machine.is_guest()) {
        let variants = plan.variants.iter().filter(|v| v.name == side).cloned().collect();
        let probes = if machine.has_kernel() { inside::probes(HZ, None) } else { Probes::None };
        let (name, machines, probes) = (format!("{}-profile", plan.name), vec![machine], vec![probes]);
        // One look at a time.
        let command = plan.command().map(|command| Box::new(CommandSpec { layers: false, ..command.clone() }));
        let study = Study::Profile(ProfileSpec { command });
        let once = Plan { name, study, machines, variants, probes, rounds: 1, ..plan.clone() };
        let settings =
            StackSampling { pid: 0, time: Duration::from_secs_f64(LONGEST_S), hz: HZ, stack: STACK, symbols: None };
        // Which functions differ is asked for; events would take the first second of a short command.
        let ways = Ways { wall_hz: WALL_HZ, events: Duration::ZERO, processors: code::may_ask() };
        let display = Display::beside_output();
        let Looked { taken, run } = look(&once, host.clone(), args, display, (settings, ways), streams)?;
        let folder = run.join(FOLDER);
        write(&Folder::create(Some(&folder), "")?, &taken)?;
        let of = if side.is_empty() { machine.as_str() } else { side };
        let mut line = format!("profile of {of}: {}", folder.join("report.html").display());
        match &first {
            None => first = Some(folder),
            Some(first) => {
                let picture = folder.join("difference.svg");
                draw(first, &folder, &picture)?;
                line += &format!(", what differs: {}", picture.display());
            }
        }
        eprintln!("{}", vmtax_report::printable(&line));
    }
    Ok(())
}
