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
        /// Path of the file.
        path: PathBuf,
    },
    /// A log of QEMU whose lines have no times.
    #[error(
        "{}: a QEMU log without times: record with `-msg timestamp=on`",
        path.display()
    )]
    NoTimes {
        /// Path of the file.
        path: PathBuf,
    },
    /// A trace of a KVM of another architecture.
    #[error(
        "{}: a KVM of {architecture}: vmtax reads x86-64's",
        path.display()
    )]
    Architecture {
        /// Path of the file.
        path: PathBuf,
        /// Name of the architecture.
        architecture: &'static str,
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
    /// The file's clock counts ticks of an unknown length.
    #[error(
        "{}: its clock {clock} counts ticks, and the file does not say how many a second: give --tsc-mhz (dmesg of its host: \"tsc: Detected 2592.000 MHz\"), or record with `trace-cmd record -C mono`",
        path.display()
    )]
    Scale {
        /// Path of the file.
        path: PathBuf,
        /// Name of the clock.
        clock: String,
    },
    /// Two files are taken for traces of the guest's kernel.
    #[error(
        "{} and {} both look like traces of the guest's kernel: give the files of one VM, and name the guest's with --guest-trace",
        first.display(), second.display()
    )]
    Guests {
        /// One of the two files.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// Two traces of QEMU on different clocks.
    #[error(
        "{} is stamped by {first_clock}, {} by {second_clock}: import one of them, or record both with one trace backend of QEMU",
        first.display(), second.display()
    )]
    QemuClocks {
        /// One of the two files.
        first: PathBuf,
        /// Clock of the first file.
        first_clock: String,
        /// The other file.
        second: PathBuf,
        /// Clock of the second file.
        second_clock: String,
    },
    /// No file of `vmtax agent observe`.
    #[error("{}: {reason}", path.display())]
    GuestFile {
        /// Path of the file.
        path: PathBuf,
        /// Problem with the file, and what to do.
        reason: String,
    },
    /// The recording takes no guest's trace.
    #[error("{}: {reason}", folder.display())]
    NotOfVm {
        /// Folder of the recording.
        folder: PathBuf,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// The VM that was asked for is not in the trace.
    #[error("{}: no vCPU of process {pid}: it has vCPU threads {known}", path.display())]
    Process {
        /// Path of the file.
        path: PathBuf,
        /// PID that was requested.
        pid: i32,
        /// Those that are there.
        known: String,
    },
}
