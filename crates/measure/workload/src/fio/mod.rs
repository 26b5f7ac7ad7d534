//! Jobs of fio that somebody pasted: read, cut down to what may run, run in a sandbox, its output read. Format: fio(1).

mod command_line;
mod error;
mod job;
mod options;
mod output;
mod sandbox;
mod section;

pub use error::FioError;
pub use job::{FioJob, FioPaste};
pub use output::{FioDirection, FioJobResult, FioLatency, FioOutput, fio_output, json_documents};
pub(crate) use output::{FioPrinted, Summary};
pub use sandbox::set_mount_attributes;
pub(crate) use sandbox::{DISK, Sandboxed, run};

/// The line that says how to install fio.
pub const INSTALL_FIO: &str =
    "install the package fio (apt install fio, dnf install fio, zypper install fio, pacman -S fio)";
