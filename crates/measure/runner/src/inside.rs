//! One trial seen from inside its guest: the host's side of it.

use crate::observe::{PING, answered, failed};
use crate::run::Progress;
use std::time::Duration;
use vmtax_clock::beat;
use vmtax_model::{Inside, InsideFacts, SCHEMA, TrialResult, files};
use vmtax_recording::TrialFiles;
use vmtax_vm::{MachineError, RunningMachine};

/// What a guest saw is names and numbers: more than this no guest sends that is sound, bytes.
const MOST: usize = 256 << 20;

/// Does a guest's work while it samples and counts, and tells when that begins and when it is over. What the guest saw, and
/// what brings that together with what is seen of its QEMU, go to the trial's files.
pub(crate) fn looked_at_inside(
    machine: &mut dyn RunningMachine,
    (inside, deadline): (Inside, Duration),
    mut store: TrialFiles,
    (number, progress): (u32, &mut dyn FnMut(Progress<'_>)),
    work: impl FnOnce(&mut dyn RunningMachine) -> Result<TrialResult, MachineError>,
) -> Result<TrialResult, MachineError> {
    let mut pings = vec![machine.ping(PING)];
    let begun = beat();
    machine.start_sampling(inside)?;
    progress(Progress::Working { number, monitor: machine.monitor().as_ref() });
    let result = work(machine);
    progress(Progress::Over { number });
    let result = result?;
    let mut taken = 0;
    let mut missing = machine.stop_sampling(deadline, &mut |name, bytes| {
        let known = [files::GUEST_PROFILE, files::GUEST_CALLS].contains(&name);
        let name = known.then_some(name).ok_or_else(|| format!("a file '{}'", name.escape_default()))?;
        taken += bytes.len();
        if taken > MOST {
            return Err(format!("{} MiB and more of what it saw", MOST >> 20));
        }
        store.append(name, bytes).map_err(|e| e.to_string())
    })?;
    let beats = [begun, beat()];
    pings.push(machine.ping(PING));
    let pings = answered(pings, &mut missing);
    let pid = machine.qemu()?.map_or(0, |qemu| qemu.pid);
    let facts = InsideFacts {
        schema: SCHEMA,
        threads: vmtax_observe::threads(pid),
        pings,
        kvm_offset: vmtax_observe::kvm_offset(pid),
        beats,
        missing,
    };
    let text = serde_json::to_vec_pretty(&facts).map_err(failed("storing what was seen in the guest"))?;
    store.append(files::INSIDE, &text).map_err(failed("storing what was seen in the guest"))?;
    Ok(result)
}
