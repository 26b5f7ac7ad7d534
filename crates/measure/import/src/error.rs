//! Why traces cannot be imported, each with the next step.

use std::path::PathBuf;

/// Traces cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file cannot be read.
    #[error(transparent)]
    Trace(#[from] vmtax_trace::TraceError),
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] vmtax_recording::RecordingError),
    /// Of no known format.
    #[error(
        "{}: not a trace that is known: give trace.dat of trace-cmd, perf.data, QEMU's trace or the text of tracefs, `trace-cmd report` or `perf script`",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// Nothing to analyze.
    #[error(
        "{}: no event of KVM and no block request: record with `trace-cmd record -C mono -e kvm -e block -e sched_switch -e sched_waking`",
        path.display()
    )]
    Nothing {
        /// The first file.
        path: PathBuf,
    },
    /// Its clock counts ticks of an unknown length.
    #[error(
        "{}: its clock {clock} counts ticks, and the file does not say how many a second: give --tsc-mhz (dmesg of its host: \"tsc: Detected 2592.000 MHz\"), or record with `trace-cmd record -C mono`",
        path.display()
    )]
    Scale {
        /// The file.
        path: PathBuf,
        /// The clock.
        clock: String,
    },
    /// Two guests.
    #[error(
        "{} and {} are both taken for traces of the guest's kernel: give the files of one VM, and name the guest's with --guest-trace",
        first.display(), second.display()
    )]
    Guests {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Two traces of QEMU on different clocks.
    #[error(
        "{} is stamped by {first_clock}, {} by {second_clock}: import one of them, or record both with one trace backend of QEMU",
        first.display(), second.display()
    )]
    QemuClocks {
        /// One.
        first: PathBuf,
        /// Its clock.
        first_clock: String,
        /// The other.
        second: PathBuf,
        /// Its clock.
        second_clock: String,
    },
    /// No file of `vmtax agent observe`.
    #[error("{}: {reason}", path.display())]
    GuestFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The recording takes no guest's trace.
    #[error("{}: {reason}", folder.display())]
    NotOfVm {
        /// The recording.
        folder: PathBuf,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// The VM that was asked for is not in the trace.
    #[error("{}: no vCPU of process {pid}: it has vCPU threads {known}", path.display())]
    Process {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        pid: i32,
        /// Those that are there.
        known: String,
    },
}
