//! Studies: kinds of questions, end to end. Each has one file, with what it makes of a recording and what it says about
//! claims of published results, and one line in `registry.rs`.

mod analysis;
mod antipatterns;
mod compare;
mod exec;
mod exits;
pub mod history;
mod layers;
mod profile;
mod registry;
pub mod reproduce;
mod scale;
mod share;
mod tax;

pub use analysis::{ReportFile, StudyError};
pub use registry::{Answer, analyze};
