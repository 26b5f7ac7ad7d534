//! Plans: the trials to make, and the study that they are made for. What a command line means, and what a person can write.

mod check;
mod command;
mod definition;
mod error;
mod file;
mod guest;
mod ladder;
mod profile;
mod study;
#[cfg(test)]
mod tests;
mod turns;
mod variant;

pub use command::{CommandSpec, Forward, Net, OWN};
pub use definition::Plan;
pub use error::PlanError;
pub use guest::Guest;
pub use ladder::{Grows, GuestSize, Ladder};
pub use profile::ProfileSettings;
pub use study::{Compare, ProfileSpec, Study};
pub use turns::{Column, Turn};
pub use variant::Variant;
