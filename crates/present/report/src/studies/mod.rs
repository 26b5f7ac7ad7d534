//! One report for each study: what it says, in sections.

pub mod antipatterns;
pub mod check;
mod command_layers;
pub mod compare;
pub mod exec;
pub mod exits;
pub mod fleet;
pub mod growth;
pub mod history;
pub mod import;
pub mod layers;
mod metric_rows;
pub mod overhead;
pub mod profile;
pub mod reproduction;
pub mod shares;
pub mod tune;
pub mod vm_diagnosis;
pub mod vm_exits;
pub mod vm_layers;
