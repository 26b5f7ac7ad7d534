//! A virtual machine as it is observed: one of the lab, or one that runs already.

mod facts;
mod find;
mod handle;
pub(crate) mod open_files;
mod traced_disks;
mod traced_nics;

pub use find::{FindError, find, process, running};
pub(crate) use find::{is_vm, pids};
pub use handle::Vm;
