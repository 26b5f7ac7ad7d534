//! A profile beside what another command measured: each guest once more, profiled, so that no sampling is in a figure.

use super::diff::draw;
use super::settings::inside;
use crate::cli::{HZ, RecordArgs, STACK, WALL_HZ};
use crate::command::progress::Display;
use crate::command::record::{Recorded, record};
use crate::command::report;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use vmtax_model::{CommandSpec, HostFacts, Plan, Probes, ProfileSettings, ProfileSpec, Study};
use vmtax_runner::Ended;
use vmtax_vm::Streams;

/// Carries out the plan's trial on each of its guests once more, into a recording of its own with the profile of its QEMU; into
/// all but the first also what differs from the first.
pub fn beside(plan: &Plan, host: &HostFacts, args: &RecordArgs, streams: Option<&Streams>) -> Result<(), Fault> {
    let mut first: Option<PathBuf> = None;
    for (machine, side) in plan.columns().into_iter().filter(|(machine, _)| machine.is_guest()) {
        let variants = plan.variants.iter().filter(|v| v.name == side).cloned().collect();
        let probes = if machine.has_kernel() { inside(HZ, None) } else { Probes::None };
        let (name, machines, probes) = (format!("{}-profile", plan.name), vec![machine], vec![probes]);
        // One observer of requests or of QEMU at a time.
        let command = plan.command().map(|command| Box::new(CommandSpec { layers: false, ..command.clone() }));
        let settings = ProfileSettings {
            pid: None,
            file: None,
            time_ms: None,
            hz: HZ,
            wall_hz: WALL_HZ,
            // Which functions differ is asked for; events would take the first second of a short command.
            events_ms: 0,
            stack: STACK,
            symbols: None,
        };
        let study = Study::Profile(ProfileSpec { settings, command });
        let once = Plan { name, study, machines, variants, probes, rounds: 1, ..plan.clone() };
        let display = Display::beside_output();
        let Recorded { folder, ended } = record(&once, host.clone(), args, &display, streams, &mut |_, _| true)?;
        match ended {
            Ended::Interrupted => return Err(Fault::Interrupted { folder }),
            Ended::Incomplete(why) => return Err(Fault::Incomplete { folder, first: why.to_string() }),
            Ended::Complete => render(&folder)?,
        }
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

/// Writes the page and the pictures of a profile into its recording.
fn render(folder: &Path) -> Result<(), Fault> {
    let recording = vmtax_recording::open(folder)?;
    report::write(&mut vmtax_studies::analyze(&recording)?, folder, None).map(drop)
}
