//! The guest's side of a running VM's requests: traced by the vmtax in it, which QEMU's guest agent starts.

use std::time::{Duration, Instant};
use vmtax_model::files;
use vmtax_recording::TrialFiles;
use vmtax_vm::{GuestProgram, MachineError, Vm};

use super::failed;

/// Timeout for the trace to begin.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// So much longer than the host the guest traces, s: the host begins later.
const LONGER_S: u64 = 5;
/// The agent hands a file out slowly: more is not fetched, bytes.
const MAX_BYTES: u64 = 64 << 20;

/// A trace under way in a guest.
pub(super) struct GuestTrace {
    program: GuestProgram,
    /// Path of the trace in the guest.
    file: String,
}

impl GuestTrace {
    /// Starts the vmtax at this path of the guest; it traces by now, and for longer than `time`.
    pub fn start(vm: &Vm, vmtax: &str, time: Duration) -> Result<GuestTrace, MachineError> {
        let file = format!("/run/vmtax-{}.trace", std::process::id());
        let duration = format!("{}s", time.as_secs() + 1 + LONGER_S);
        let arguments = [
            "agent",
            "observe",
            "--duration",
            &duration,
            "--output",
            &file,
        ];
        let trace = GuestTrace {
            program: GuestProgram::start(vm, vmtax, &arguments)?,
            file,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        // It makes the file once all is set up.
        while !trace.program.has_file(&trace.file) {
            if let Some(said) = trace.program.failure()? {
                return Err(MachineError::InGuest(format!(
                    "{vmtax} in the guest: {said}"
                )));
            }
            if Instant::now() > deadline {
                return Err(MachineError::InGuest(format!(
                    "{vmtax} in the guest does not begin to trace"
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(trace)
    }

    /// Waits for its end, and fetches its file into those of the trial.
    pub fn fetch(self, trial: &mut TrialFiles) -> Result<(), MachineError> {
        let GuestTrace { program, file } = self;
        let fetched = program.wait().and_then(|()| {
            let mut take = |bytes: &[u8]| {
                trial
                    .append(files::GUEST_FILE, bytes)
                    .map_err(failed("storing the guest's trace"))
            };
            program.read_file(&file, MAX_BYTES, &mut take)
        });
        program.remove_file(&file).and(fetched)
    }
}
