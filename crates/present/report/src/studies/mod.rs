//! One report for each study: what it says, in sections.

pub mod compare;
pub mod exits;
pub mod growth;
pub mod habits;
