//! Where a process's time goes: its threads' stacks, sampled, unwound without frame pointers, named and counted.
//!
//! [`on_cpu`] samples threads that run, [`wall`] all of them, [`import`] reads what others sampled; a [`Profile`] is what
//! comes of it; [`summary`], [`fold`], [`flame`] and [`firefox`] say it in figures, lines and pictures.

mod change;
mod elf;
mod error;
mod files;
mod import;
mod jit;
mod kernel;
mod maps;
mod names;
mod on_cpu;
mod place;
mod profile;
mod ranges;
mod records;
mod schedule;
mod seen;
mod space;
mod symbols;
mod wall;

pub mod code;
pub mod exits;
pub mod firefox;
pub mod flame;
pub mod fold;
pub mod inside;
pub mod pprof;
pub mod summary;
pub mod tcg;
pub mod traced;
pub mod waits;

pub use change::changes;
pub use error::ProfileError;
pub use import::{Imported, import};
pub use on_cpu::{OnCpu, Settings, on_cpu};
pub use profile::{Function, Layer, Profile, Sample, Thread};
pub use seen::Unwound;
pub use wall::{Wall, wall};
