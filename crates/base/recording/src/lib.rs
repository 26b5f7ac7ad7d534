//! Recordings on disk: written so that a kill at any moment loses at most the trial under way, read back from the
//! files alone.
//!
//! ```text
//! runs/20261120T161811Z-quick/
//!   plan.toml               can be run again
//!   host.json               facts of the host
//!   run.json                version, command line, begin and end
//!   trials/0000/trial.json  what, where, when, exit, figures, summaries of the latencies
//!   trials/0000/ops.hlog    the latencies: HdrHistogram interval log, one tagged line per operation, nanoseconds
//!   trials/0000/…           of a profile: observed.json, on-cpu.json and others
//!   report.html, …          of a profile: the report and pictures
//!   unfinished.part         while a file is written
//!   trials/0000/…           of an observed trial: trace.json, ops.series, guest-trace/, host-trace/
//!                           (docs/recording.md)
//! ```

mod error;
mod file;
mod folder;
mod reader;
mod recording;
mod trial;
mod writer;

pub use error::RecordingError;
pub use file::{TrialFiles, read_bounded};
pub use folder::{RecordingsFolder, check_place};
pub use reader::{Listing, State, list, open};
pub use recording::{Manifest, Recording};
pub use writer::Writer;
