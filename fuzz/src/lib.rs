//! Fuzzing on stable Rust: inputs are mutated from a corpus in an order that a seed gives, so the same command finds the
//! same fault again.

pub mod memory;
mod mutate;
pub mod run;
mod scratch;
pub mod targets;

pub use mutate::corpus;
