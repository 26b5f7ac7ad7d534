//! The trait of observers, and what they share; how they wait.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_model::{Machine, Missing, Ping, Probes, ProfileSettings};
use vmtax_recording::{RecordingError, TrialFiles, Writer};
use vmtax_vm::{MachineError, Observed, RunningMachine, VmmProgram};

/// Duration of the exchange of time stamps before and after the workload.
pub(super) const PING: Duration = Duration::from_millis(60);

/// Observes one trial of a machine. Dropped, it ends and leaves no facts.
pub(super) trait Observer {
    /// Takes a file that the guest's agent sends when the work is done; `None` for one that expects none.
    fn file(&mut self, _name: &str, _bytes: &[u8]) -> Option<Result<(), String>> {
        None
    }

    /// Ends observing; `observed` is what the agent says of its own tracing.
    fn stop(
        self: Box<Self>,
        machine: &mut dyn RunningMachine,
        observed: Option<Observed>,
    ) -> Result<(), MachineError>;
}

/// Parts of a trial that are observed, and what observing them takes.
pub(crate) struct Observation<'a> {
    /// On which machine.
    pub machine: Machine,
    /// VMM of the machine.
    pub program: Option<&'a VmmProgram>,
    /// The file behind its measured disk.
    pub disk: Option<PathBuf>,
    /// Probes that are used.
    pub probes: Probes,
    /// Settings of the profile of the machine's QEMU.
    pub profile: Option<&'a ProfileSettings>,
    /// Timeout for the guest to send what it observed.
    pub timeout: Duration,
    /// The log of QEMU's own events, where the host's kernel may not be traced.
    pub events: Option<PathBuf>,
}

/// Where the artifacts of a trial go.
pub(crate) struct TrialStore<'a> {
    /// Writer of the recording.
    pub writer: &'a Writer,
    /// The trial's number.
    pub number: u32,
}

impl TrialStore<'_> {
    /// Returns the trial's files, for one observer.
    pub(super) fn files(&self) -> Result<TrialFiles, MachineError> {
        self.writer
            .trial_files(self.number)
            .map_err(|e| unstorable(&e))
    }
}

/// The exchanges that succeeded; the reasons of the others are added to `missing`.
pub(super) fn answered(
    pings: Vec<Result<Ping, MachineError>>,
    missing: &mut Vec<Missing>,
) -> Vec<Ping> {
    let mut done = Vec::new();
    for ping in pings {
        match ping {
            Ok(ping) => done.push(ping),
            // Without exchanges, cause and effect among the requests still bound the clocks.
            Err(error) => missing.push(Missing {
                what: "exchange of time stamps, which aligns the clocks of host and guest".to_owned(),
                why: error.to_string(),
                fix: "use a guest kernel with PCI devices in sysfs; without it, clocks are aligned by the requests \
                       themselves, with a larger error"
                    .to_owned(),
            }),
        }
    }
    done
}

/// Takes the files of a trace into a folder of the trial.
pub(super) fn keep_in<'f>(
    folder: &'static str,
    files: &'f mut TrialFiles,
) -> impl FnMut(&str, &[u8]) -> io::Result<()> + 'f {
    move |name, bytes| {
        files
            .append(&format!("{folder}/{name}"), bytes)
            .map_err(io::Error::other)
    }
}

/// Makes an error of an observer one of the machine; `what` is what it was doing.
pub(super) fn failed<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl Fn(E) -> MachineError {
    move |source| MachineError::System {
        what: what.to_owned(),
        source: io::Error::other(source),
    }
}

/// Makes an error of the recording one of the machine.
pub(super) fn unstorable(error: &RecordingError) -> MachineError {
    MachineError::System {
        what: "storing what was observed".to_owned(),
        source: io::Error::other(error.to_string()),
    }
}

/// Interval at which a stop request is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Tells whether observing is to end.
pub(super) type Stop<'a> = dyn Fn() -> bool + Sync + 'a;

/// Waits, unless it is to stop.
pub(super) fn wait(time: Duration, stop: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop() {
        std::thread::sleep(POLL_INTERVAL.min(time));
    }
}
